# SPDX-License-Identifier: Apache-2.0
"""What to ask: launch specifications for a sweep, dispatch policies, call sites, scenarios."""
