# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver: a kernel compiled, a context, and the one place that launches."""
