# SPDX-License-Identifier: Apache-2.0
"""A device that need not be here: its profile, its GPC maps, and what it would launch."""
