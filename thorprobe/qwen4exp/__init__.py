# SPDX-License-Identifier: Apache-2.0
"""The model's own selection, and the same model with the ladder in its place."""
