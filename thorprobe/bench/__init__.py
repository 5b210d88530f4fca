# SPDX-License-Identifier: Apache-2.0
"""``bench --verify``: generated calls of the ladder, each held against a stable sort."""
