# SPDX-License-Identifier: Apache-2.0
"""One launch explained from what a person has: an error, numbers, a cubin, or a record."""
