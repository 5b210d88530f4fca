# SPDX-License-Identifier: Apache-2.0
"""The words of ``oracle``: what a candidate does on a device, and what it weighs on a fleet.

The fields row, oracle, role, pin and gateable, and the word UNMEASURED, are those of the model's
record, so that an entry can go into it as it is.
"""

from enum import StrEnum

import msgspec

from thorprobe.oracle.evidence_file import EvidenceLine
from thorprobe.record import Origin, Record

UNMEASURED = "UNMEASURED"
"""The record's word for what nobody measured."""


class OracleStatus(StrEnum):
    """What is known of a candidate, best first."""

    RUNS = "runs"
    FALLBACK = "runs with fallback"
    NOT_ESTABLISHED = "not established"
    NOT_PROBED = "not probed"
    BLOCKED = "blocked"


class Gateable(StrEnum):
    """Whether the row can be gated with this oracle."""

    YES = "yes"
    NO = "no"
    NO_PREDICTED = "no (predicted)"
    UNMEASURED = UNMEASURED


class Weight(StrEnum):
    """What an oracle's word counts for on a fleet."""

    ROW = "carries the row"
    ALGORITHM = "carries the algorithm"
    CORROBORATES = "corroborates"
    OPEN = "open"
    NONE = "none"


class BlockedArm(Record, frozen=True, kw_only=True):
    """The arm that blocks: rows, cluster size in CTAs, the driver's code and the cause."""

    rows: tuple[int, int | None]
    cluster: int
    code: int | None = None
    cause: str | None = None


class Cell(Record, frozen=True, kw_only=True):
    """One candidate on one device: the first rule that fits, and the evidence it rests on.

    ``origin`` is that of the facts that decided, None where there were none.
    """

    row: str
    oracle: str
    role: str
    pin: str
    device: str
    status: OracleStatus
    rule: str
    reason: str
    gateable: Gateable = Gateable.UNMEASURED
    origin: Origin | None = None
    arm: BlockedArm | None = None
    because: tuple[str, ...] = ()


class OracleEntry(Record, frozen=True, kw_only=True):
    """One oracle of a row on the whole fleet; ``devices`` holds its status on each that counts."""

    row: str
    oracle: str
    role: str
    pin: str
    gateable: Gateable
    status: OracleStatus
    weight: Weight
    reason: str
    because: tuple[str, ...] = ()
    devices: dict[str, OracleStatus] = msgspec.field(default_factory=dict)


class OracleSummary(Record, frozen=True, kw_only=True):
    """The table of a row over a fleet.

    ``rows`` maps row and oracle to its entry; ``alone`` says for each device that exposes a GPU
    what follows where it is the only one; ``rules`` holds the sentence of each rule that decided.
    """

    finding: str
    fleet: str
    rows: dict[str, dict[str, OracleEntry]]
    alone: dict[str, str] = msgspec.field(default_factory=dict)
    open: tuple[str, ...] = ()
    rules: dict[str, str] = msgspec.field(default_factory=dict)
    evidence: tuple[EvidenceLine, ...] = ()
