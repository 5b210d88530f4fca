# SPDX-License-Identifier: Apache-2.0
"""The words of a row's closing report: what was owed, what answers it, and what is left open."""

import msgspec

from thorprobe.oracle.evidence_file import EvidenceLine
from thorprobe.oracle.records import OracleSummary
from thorprobe.record import Origin, Record, Verdict
from thorprobe.summary import Refusal


class Owed(Record, frozen=True, kw_only=True):
    """One thing that the row's report left owed, and the sentences that answer it.

    ``origin`` is the best origin that the subject itself has, None where nothing answers.
    """

    number: int
    question: str
    answers: tuple[str, ...]
    origin: Origin | None = None
    because: tuple[str, ...] = ()


class Who(Record, frozen=True, kw_only=True):
    """Who answered.

    ``label`` names device and partition, the part that was dispatched for where it is another, and
    a shipped kernel where one was launched in the place of thorprobe's own.
    """

    evidence: str
    label: str
    origin: Origin


class SizesLine(Record, frozen=True, kw_only=True):
    """Which cluster sizes (CTAs) of the trivial kernel launch there, and why others do not."""

    who: Who
    launches: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    refusal: Refusal | None = None
    undetermined: tuple[int, ...] = ()


class ArmAnswer(Record, frozen=True, kw_only=True):
    """What one arm does there; ``time_us`` is of the kernel launched, rows x length beside it."""

    verdict: Verdict
    code: int | None = None
    cause: str | None = None
    under_claims: dict[str, Verdict] = msgspec.field(default_factory=dict)
    time_us: float | None = None
    time_shape: str = ""


class ArmLine(Record, frozen=True, kw_only=True):
    """One arm of a policy by its rows; ``answers`` by evidence id."""

    policy: str
    rows: tuple[int, int | None]
    cluster: int
    answers: dict[str, ArmAnswer]


class Loss(Record, frozen=True, kw_only=True):
    """Arms that a proposed gate keeps the subject from, although nothing says they are refused."""

    oracle: str
    gate: str
    source: str
    arms: tuple[ArmLine, ...]


class Told(Record, frozen=True, kw_only=True):
    """What a single answer found, in its own words."""

    who: Who
    command: str
    finding: str


class RowSummary(Record, tag="report", tag_field="kind", frozen=True, kw_only=True):
    """The closing report of a row. ``failing`` are the cluster sizes refused on the subject.

    ``command`` is the one line that its owner runs, ``engine_command`` the one in the environment
    of a vLLM, ``took`` what its parts took elsewhere, and ``told`` the finding of each answer about
    the model's selection and of each gate audit.
    """

    row: str
    subject: str
    finding: str
    next_action: str
    failing: tuple[int, ...]
    owed: tuple[Owed, ...]
    sizes: tuple[SizesLine, ...]
    who: tuple[Who, ...]
    arms: tuple[ArmLine, ...]
    losses: tuple[Loss, ...]
    told: tuple[Told, ...]
    oracle: OracleSummary
    open: tuple[str, ...]
    command: str
    engine_command: str = ""
    took: tuple[str, ...]
    evidence: tuple[EvidenceLine, ...]
