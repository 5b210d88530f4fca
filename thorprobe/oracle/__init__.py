# SPDX-License-Identifier: Apache-2.0
"""Which oracle a row has on a fleet, by rule from evidence, and the closing report."""
