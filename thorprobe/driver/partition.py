# SPDX-License-Identifier: Apache-2.0
"""A partition of a device: a green context of so many SMs."""

import re

from thorprobe.errors import UsageError
from thorprobe.record import Record

FLAGS_OF_GROUPS = {8: 0, 2: 1, 16: 2}
"""Flags of the split that give co-scheduled groups of so many SMs (one H200, driver of the 580
series, 2026-11-30). On another device the flags mean the same and the groups may differ."""


class Partition(Record, frozen=True, kw_only=True, eq=False):
    """The first group that cuDevSmResourceSplitByCount gives for ``sms`` SMs and ``flags``.

    flags: 0 groups of SMs that can be co-scheduled; 1 ignores co-scheduling; 2 asks for the
    largest potential cluster (the driver's CUdevSmResourceSplit_flags). ``groups_of`` is how the
    flags were spelt, 0 where by their number: two spellings of one split are equal.
    """

    sms: int
    flags: int = 0
    groups_of: int = 0

    def __eq__(self, other: object) -> bool:
        """Compare what is split, not how it is spelt."""
        return isinstance(other, Partition) and (self.sms, self.flags) == (other.sms, other.flags)

    def __hash__(self) -> int:
        """Hash what is split."""
        return hash((self.sms, self.flags))

    def __str__(self) -> str:
        """Spell it as ``--partition`` took it."""
        if self.groups_of:
            return f"sms={self.sms},groups-of={self.groups_of}"
        return f"sms={self.sms}" + (f",flags={self.flags}" if self.flags else "")


def parse(text: str) -> Partition | None:
    """Read ``sms=N``, ``sms=N,groups-of=M`` or ``sms=N,flags=F``; '' is the whole device, None.

    Raises UsageError for anything else.
    """
    if not text:
        return None
    form = r"sms=(\d{1,4})(?:,(?:flags=([012])|groups-of=(\d{1,2})))?"
    match = re.fullmatch(form, text.replace(" ", ""), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise UsageError(
            f"`--partition {text}` was asked for, but a partition is `sms=N`, `sms=N,groups-of=M` "
            "or `sms=N,flags=F` with N at least 1, M one of 2, 8, 16 and F one of 0, 1, 2",
            "`--partition sms=8` makes a large GPU refuse 16 CTAs as a part with small GPCs does",
        )
    sms, groups = int(match[1]), int(match[3] or 0)
    if match[3] is not None and groups not in FLAGS_OF_GROUPS:
        raise UsageError(
            f"`--partition {text}` was asked for, but no flag of the split gives groups of "
            f"{groups} SMs",
            "groups are of 2, 8 or 16 SMs: `--partition sms=8,groups-of=2`",
        )
    flags = FLAGS_OF_GROUPS[groups] if groups else int(match[2] or 0)
    return Partition(sms=sms, flags=flags, groups_of=groups)


def same(one: str, other: str) -> bool:
    """Say whether two texts name one partition, whole devices included.

    Raises UsageError for a text that names none.
    """
    return parse(one) == parse(other)
