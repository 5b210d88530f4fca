# SPDX-License-Identifier: Apache-2.0
"""Which image of which file a device loads, and what it was then asked."""

from dataclasses import dataclass, field
from pathlib import Path

from thorprobe.binary.records import Inventory
from thorprobe.plan.shipped import Entry
from thorprobe.record import Device, LaunchSpec, Origin, Outcome


@dataclass(frozen=True)
class Source:
    """One file: where it is, what it holds, and the kernels that a pattern selects."""

    path: Path
    inventory: Inventory
    selected: tuple[Entry, ...]


@dataclass(frozen=True)
class Load:
    """What becomes of one kernel: the entry that is loaded, why, and what was asked of it."""

    source: Source
    symbol: str
    entry: Entry | None
    reason: str
    asked: LaunchSpec | None = None


@dataclass
class Party:
    """One device with its answers. ``device`` is None where only its capability is known."""

    title: str
    capability: tuple[int, int]
    origin: Origin
    device: Device | None = None
    loads: list[Load] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
