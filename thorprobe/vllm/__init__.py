# SPDX-License-Identifier: Apache-2.0
"""vLLM itself: its own library, its engine, and what carries it past the crash."""
