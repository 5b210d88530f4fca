# SPDX-License-Identifier: Apache-2.0
"""What the answers mean: causes, verdicts, summaries and the topology of a device."""
