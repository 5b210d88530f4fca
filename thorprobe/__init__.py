# SPDX-License-Identifier: Apache-2.0
"""Measure which thread-block-cluster sizes a GPU launches, and what a refusal means.

Importing this package needs no driver, no CuPy and no torch.
"""

import time

__version__ = "0.1.0"

STARTED = time.monotonic()
"""When this package was imported, on the monotonic clock in seconds."""
