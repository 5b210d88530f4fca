# SPDX-License-Identifier: Apache-2.0
"""What the judged outcomes of a run came to: its summaries, and the document that holds them."""

from typing import Any

import msgspec

from thorprobe.record import (
    Claim,
    Device,
    Origin,
    Outcome,
    Record,
    SchemaTag,
    Tool,
    Verdict,
)


class Refusal(Record, frozen=True, kw_only=True):
    """Why one size is refused."""

    code: int | None
    name: str
    cause: str


class KernelSummary(Record, frozen=True, kw_only=True):
    """Sizes of one kernel with the opt-in: those that launch at every footprint, and the rest.

    Of the kernel ``trivial`` the footprints with the least shared memory count, which is the
    question about the cluster itself; what more memory does is under ``by_footprint``. ``refused``
    is keyed by the size as text (JSON has no integer keys). ``largest`` is the largest size that
    launches, None when none is known to. ``not_probed`` sizes were asked and their probe ended
    without an answer. ``by_footprint`` holds the same per footprint label where any differs.
    """

    launches: tuple[int, ...] = ()
    verified: tuple[int, ...] = ()
    refused: dict[str, Refusal] = msgspec.field(default_factory=dict)
    undetermined: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    not_probed: tuple[int, ...] = ()
    largest: int | None = None
    by_footprint: dict[str, "KernelSummary"] = msgspec.field(default_factory=dict)


class GpcMap(Record, frozen=True, kw_only=True):
    """SM counts of the groups that co-schedule clusters, largest first; None where unknown.

    ``measured`` joins SM ids seen in one cluster, None unless every size that runs was held to read
    them: fewer join too little. ``solved`` is the one multiset of even sizes with the max_active
    answers. Both are None for a prediction, of which ``admissible`` counts the maps.
    """

    measured: tuple[int, ...] | None = None
    solved: tuple[int, ...] | None = None
    admissible: int | None = None


class UnderClaim(Record, frozen=True, kw_only=True):
    """The same question answered with one published claim added to the profile's layout."""

    claim: Claim
    kernels: dict[str, KernelSummary] = msgspec.field(default_factory=dict)
    admissible: int = 0


class SweepSummary(Record, tag="cluster-sweep", tag_field="kind", frozen=True, kw_only=True):
    """What a cluster sweep found."""

    finding: str
    kernels: dict[str, KernelSummary]
    gpc_map: GpcMap
    under_claims: tuple[UnderClaim, ...] = ()
    ruled_out: tuple[str, ...] = ()
    settles: str = ""
    next_action: str = ""
    probes: int = 0


class ArmRow(Record, frozen=True, kw_only=True):
    """One arm of a dispatch policy on a device.

    ``rows`` is the range of num_rows that reaches it. ``path`` is ``cooperative`` or
    ``persistent``; unless vLLM's own operators were called, upstream's kernel of the latter is not
    launched, so its verdict is *not probed*, its ``dynamic_smem`` 0, and what a stand-in did is in
    the note. ``gate`` says
    whether the call-site gate lets those rows through to it. ``verdict`` rests on measurement or on
    the layout alone; ``under_claims`` maps a claim id to the verdict with that claim added.
    ``checked`` counts results of thorprobe's kernel that are right, out of those compared, and
    ``fastest`` is the cluster size at which that kernel was measured fastest at these rows.
    """

    policy: str
    rows: tuple[int, int | None]
    k: int
    dtype: str
    path: str
    kernel: str
    cluster: int
    dynamic_smem: int
    gate: bool
    gate_reason: str = ""
    verdict: Verdict
    cause: str | None = None
    code: int | None = None
    under_claims: dict[str, Verdict] = msgspec.field(default_factory=dict)
    probed_rows: tuple[int, ...] = ()
    checked: tuple[int, int] = (0, 0)
    oracle: str = ""
    time_us: float | None = None
    time_shape: str = ""
    fastest: int | None = None
    note: str = ""


class GateSummary(Record, frozen=True, kw_only=True):
    """Row ranges a gate decides wrongly on this device."""

    false_accepts: tuple[tuple[int, int], ...] = ()
    false_rejects: tuple[tuple[int, int], ...] = ()
    undetermined: tuple[tuple[int, int], ...] = ()


class ArmsSummary(Record, tag="topk-arms", tag_field="kind", frozen=True, kw_only=True):
    """What a drive of every arm found. ``capability`` is the one that was dispatched for."""

    finding: str
    capability: tuple[int, int] = (0, 0)
    arms: tuple[ArmRow, ...]
    failing_cluster_sizes: tuple[int, ...] = ()
    gates: dict[str, GateSummary] = msgspec.field(default_factory=dict)
    call_site: str = ""
    ruled_out: tuple[str, ...] = ()
    settles: str = ""
    next_action: str = ""
    probes: int = 0


class Document(Record, frozen=True, kw_only=True):
    """One whole answer: the ``--json`` document, and what every renderer reads.

    ``missing`` counts the planned launches that have no record: above 0 the run was cut short, or
    the store was planned by another version.
    """

    schema: SchemaTag = SchemaTag()
    tool: Tool = Tool()
    command: str
    argv: tuple[str, ...] = ()
    started: str
    ended: str = ""
    origin: Origin
    device: Device
    software: dict[str, str] = msgspec.field(default_factory=dict)
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    results: tuple[Outcome, ...] = ()
    summary: SweepSummary | ArmsSummary
    missing: int = 0
    wall_s: float = 0.0
    exit_code: int = 0
