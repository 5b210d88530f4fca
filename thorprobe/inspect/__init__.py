# SPDX-License-Identifier: Apache-2.0
"""Says what a binary's kernels are, and what a device would load and refuse of them."""
