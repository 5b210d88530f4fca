# SPDX-License-Identifier: Apache-2.0
"""The words of ``audit``: what a gate decides on a device, and whether it is right.

Rows are ``num_rows``, first and last; times are microseconds a launch.
"""

from enum import StrEnum

import msgspec

from thorprobe.answer import Evidence
from thorprobe.audit.installed_records import Installed
from thorprobe.plan.gate import GateStatus
from thorprobe.record import Device, Origin, Record, Verdict
from thorprobe.summary import GateSummary


class Decision(StrEnum):
    """What a gate does with some rows.

    ``asks``: the gate asks the device, and a prediction's maps differ in the answer. ``unknown``:
    the evidence holds no answer to the occupancy question.
    """

    OPEN = "open"
    SHUT = "shut"
    ASKS = "asks"
    UNKNOWN = "unknown"


class Finding(StrEnum):
    """Whether a gate's decision is right.

    ``decided there``: which way it goes is open here, and on each admissible map the gate and the
    launch go the same way.
    """

    RIGHT = "right"
    FALSE_ACCEPT = "false accept"
    FALSE_REJECT = "false reject"
    UNDETERMINED = "undetermined"
    ON_DEVICE = "decided there"


class GateRange(Record, frozen=True, kw_only=True):
    """Rows of one decision and one verdict.

    ``dispatched`` is the cluster size that the host code picks, ``cluster`` the one that the gate
    lets through, smaller where it steps down; bytes are of ``cluster``. ``under_claims`` holds the
    finding with one published claim added to the layout. ``unestablished`` names conditions of the
    gate that are not known of its version, any of which may shut it. ``checked`` counts results of
    thorprobe's kernel that are right, out of those compared.
    """

    rows: tuple[int, int]
    dispatched: int
    cluster: int
    dynamic_smem: int
    decision: Decision
    reason: str
    verdict: Verdict
    cause: str | None = None
    code: int | None = None
    finding: Finding
    under_claims: dict[str, Finding] = msgspec.field(default_factory=dict)
    unestablished: tuple[str, ...] = ()
    probed_rows: tuple[int, ...] = ()
    checked: tuple[int, int] = (0, 0)


class AuditResult(Record, frozen=True, kw_only=True):
    """One gate on one subject; ``id`` is both names."""

    id: str
    subject: str
    gate: str
    ranges: tuple[GateRange, ...]


class Subject(Record, frozen=True, kw_only=True):
    """A device that is answered for, by a profile or by a recorded store.

    ``capability`` is the one dispatched for, which need not be the device's own. ``kernel`` labels
    the shipped kernels that were launched, and is empty for thorprobe's own.
    """

    name: str
    label: str
    origin: Origin
    device: Device
    capability: tuple[int, int]
    source: str
    kernel: str = ""


class Gate(Record, frozen=True, kw_only=True):
    """A gate that was audited, and where it comes from."""

    name: str
    title: str
    status: GateStatus
    policy: str
    source: str
    notes: tuple[str, ...] = ()


class GateOnSubject(GateSummary, frozen=True, kw_only=True):
    """Row ranges that a gate decides wrongly, and those that only the device decides.

    ``under_claims`` holds the same with one published claim added to the layout.
    ``unestablished`` are conditions that could shut the gate for its false accepts.
    """

    on_device: tuple[tuple[int, int], ...] = ()
    unestablished: tuple[str, ...] = ()
    under_claims: dict[str, GateSummary] = msgspec.field(default_factory=dict)


class Cost(Record, frozen=True, kw_only=True):
    """What rows lose that a gate keeps from an arm, as far as times are on record.

    ``kernel`` says whose times they are, ``origin`` and ``source`` how they are known. ``arm_us``
    is the time at ``cluster``, ``best_us`` at the fastest size on record, ``other_us`` of
    ``other``, which runs without a cluster and is not what vLLM falls back to; None where nothing
    of the kind was timed at these rows. ``gates`` keep these rows out; it is empty for rows whose
    own arm is refused and that a step down would serve. ``k`` is 0 where it is not on record.
    """

    subject: str
    rows: int
    columns: int
    k: int = 0
    cluster: int
    gates: tuple[str, ...]
    kernel: str
    origin: Origin
    source: str
    arm_us: float
    best_cluster: int
    best_us: float
    other: str = ""
    other_us: float | None = None
    other_source: str = ""


class Took(Record, frozen=True, kw_only=True):
    """What one gate takes: a cluster size in CTAs, or 0 for persistent_topk.

    ``us`` is its time, None where the launch is refused with ``code``.
    """

    cluster: int
    us: float | None = None
    code: int | None = None


class Choice(Record, frozen=True, kw_only=True):
    """One shape of which persistent_topk was timed: what a reject costs, and what is best.

    ``cluster`` is the arm that the host code picks, ``arm_us`` None where it was not timed or is
    refused (``arm_code``). ``best_cluster`` is the fastest of ``tried``: cluster sizes, and 0 for
    persistent_topk. ``took`` says by gate what it takes; ``sources`` name the stores of the times.
    """

    subject: str
    rows: int
    columns: int
    length: int
    k: int
    cluster: int
    arm_us: float | None = None
    arm_code: int | None = None
    persistent_us: float
    best_cluster: int
    best_us: float
    tried: tuple[int, ...]
    took: dict[str, Took]
    sources: tuple[str, ...]


class Proposal(Record, frozen=True, kw_only=True):
    """The gate that would be right, as text for an upstream issue."""

    paragraphs: tuple[str, ...]
    code: str


class AuditSummary(Record, tag="audit", tag_field="kind", frozen=True, kw_only=True):
    """What an audit found: ``on[subject][gate]`` has the rows decided wrongly.

    ``choices`` is absent where no time of persistent_topk is in the evidence.
    ``causes[subject]`` maps each cause of a refusal to its code and the cluster sizes it refuses.
    """

    finding: str
    next_action: str = ""
    subjects: tuple[Subject, ...]
    gates: tuple[Gate, ...]
    on: dict[str, dict[str, GateOnSubject]]
    causes: dict[str, dict[str, "Refused"]] = msgspec.field(default_factory=dict)
    costs: tuple[Cost, ...] = ()
    choices: tuple[Choice, ...] | msgspec.UnsetType = msgspec.UNSET
    installed: Installed | None = None
    proposal: Proposal | None = None


class Refused(Record, frozen=True, kw_only=True):
    """The code of one cause, and the cluster sizes (CTAs) that it refuses."""

    code: int | None
    clusters: tuple[int, ...]


Audit = Evidence[AuditResult, AuditSummary]
