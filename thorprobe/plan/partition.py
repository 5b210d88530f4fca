# SPDX-License-Identifier: Apache-2.0
"""A partition of a device: a green context of so many SMs."""

import re

from thorprobe.errors import UsageError
from thorprobe.record import Record


class Partition(Record, frozen=True, kw_only=True):
    """The first group that cuDevSmResourceSplitByCount gives for ``sms`` SMs and ``flags``.

    flags: 0 groups of SMs that can be co-scheduled; 1 ignores co-scheduling; 2 asks for the
    largest potential cluster (the driver's CUdevSmResourceSplit_flags).
    """

    sms: int
    flags: int = 0

    def __str__(self) -> str:
        """Spell it as ``--partition`` takes it."""
        return f"sms={self.sms}" + (f",flags={self.flags}" if self.flags else "")


def parse(text: str) -> Partition | None:
    """Read ``sms=N`` or ``sms=N,flags=F``; an empty text is the whole device, None.

    Raises UsageError for anything else.
    """
    if not text:
        return None
    match = re.fullmatch(r"sms=(\d{1,4})(?:,flags=([012]))?", text.replace(" ", ""))
    if match is None or int(match[1]) == 0:
        raise UsageError(
            f"`--partition {text}` was asked for, but a partition is `sms=N` or `sms=N,flags=F` "
            "with N at least 1 and F one of 0, 1, 2",
            "`--partition sms=8` makes a large GPU refuse 16 CTAs as a part with small GPCs does",
        )
    return Partition(sms=int(match[1]), flags=int(match[2] or 0))
