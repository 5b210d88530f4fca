# SPDX-License-Identifier: Apache-2.0
"""Where the engine is arguments."""
