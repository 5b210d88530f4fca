# SPDX-License-Identifier: Apache-2.0
"""The commands of the shared pipeline; those of a wing lie in it."""
