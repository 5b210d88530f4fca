# SPDX-License-Identifier: Apache-2.0
"""What an entry of the catalogue of causes holds, and what entries rest on."""

from thorprobe.record import Record


class Cause(Record, frozen=True):
    """One entry: its key in the JSON contract, its number, and what a person is told.

    ``codes`` are the driver's results that it may show with, ``sources`` what that rests on.
    """

    key: str
    number: int
    name: str
    sentence: str
    separating_test: str
    next_action: str
    codes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


H200 = ("measured on an H200, driver 580, 2026-11-30",)
API = ("CUDA driver API reference",)
GUIDE = ("CUDA programming guide",)
REPORTED = ("reported by others; not measured here",)
