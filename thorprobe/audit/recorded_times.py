# SPDX-License-Identifier: Apache-2.0
"""Times of upstream's own kernel that were recorded outside a thorprobe store, as data."""

from typing import Annotated

import msgspec

from thorprobe.plan.datafile import Folder
from thorprobe.record import Record

Text = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]

_FOLDER = Folder("Recorded times", "audit", "recorded")


class PartitionTime(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One shape in one partition: microseconds by cluster size (as text), and of the other."""

    partition: Text
    columns: int
    rows: int
    us: dict[str, Positive]
    torch_us: Positive


class RecordedTimes(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of one kernel at one k on one device; ``other`` names what ran without a cluster."""

    device: Text
    kernel: Text
    k: int
    date: Text
    source: Text
    other: Text
    times: tuple[PartitionTime, ...]


def load() -> tuple[RecordedTimes, ...]:
    """Return every recording that ships with thorprobe."""
    return tuple(_FOLDER.load(name, RecordedTimes) for name in _FOLDER.names())
