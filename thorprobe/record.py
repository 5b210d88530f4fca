# SPDX-License-Identifier: Apache-2.0
"""The words of thorprobe: launch specifications, outcomes, devices, runs and summaries.

Every room speaks in these frozen structures; no dictionary crosses a module border.
Sizes are in bytes, times in microseconds, cluster sizes in CTAs, unless a name says otherwise.
A change here changes the JSON contract: raise ``SCHEMA_VERSION``.
"""

from enum import StrEnum
from typing import Any

import msgspec

from thorprobe.words.operator import OperatorCall

SCHEMA_NAME = "thorprobe"
SCHEMA_VERSION = 1

MAX_CLUSTER = 16
"""Largest cluster any device launches, with the non-portable opt-in (CUDA programming guide;
17 and more were refused on an H200, measured 2026-11-30)."""

PORTABLE_CLUSTER = 8
"""Largest cluster that needs no opt-in (CUDA programming guide)."""


MAX_BLOCK_Z = 64
"""Largest z dimension of a block (CUDA programming guide, compute capabilities table)."""


class Record(msgspec.Struct, frozen=True):
    """Base of every structure. Keyword-only is per class in msgspec, so each class says it."""


class Origin(StrEnum):
    """Where a fact comes from."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    RECORDED = "recorded"
    PUBLISHED = "published"


class Status(StrEnum):
    """What became of one probe. A refused launch that was measured is a pass of the probe."""

    PASS = "pass"  # noqa: S105  a status, no password
    FAIL = "fail"
    WAIVED = "waived"
    ERROR = "error"
    TIMEOUT = "timeout"


class Verdict(StrEnum):
    """What one launch, or one arm, does on a device."""

    LAUNCHES = "launches"
    REFUSED = "refused"
    WRONG = "wrong result"
    FAULTS = "faults"
    HANGS = "hangs"
    UNDETERMINED = "undetermined"
    NOT_PROBED = "not probed"


class Workload(Record, frozen=True, kw_only=True):
    """Input of one top-k launch: ``rows`` x ``columns`` scores, row pitch ``stride`` elements.

    ``length`` is the valid prefix of every row; values beyond it are poison (NaN and large).
    """

    rows: int
    columns: int
    stride: int
    length: int
    k: int
    dtype: str = "fp32"
    distribution: str = "normal"
    seed: int = 0


class LaunchSpec(Record, frozen=True, kw_only=True):
    """One launch to ask about: geometry, attributes, partition and input.

    ``grid`` counts CTAs. ``compiled_cluster`` is 0 for run-time dimensions only, or n for the
    variant compiled with ``__cluster_dims__(1, n, 1)``. ``cluster_attribute`` says whether the
    launch carries the cluster attribute. ``smem_opt_in`` says whether the function's
    MAX_DYNAMIC_SHARED_SIZE_BYTES is set to ``dynamic_smem`` first. ``repeats`` > 0 asks for a
    time: that many launches in one CUDA graph. ``spin_cycles`` holds each CTA on its SM, so that
    co-scheduled clusters overlap (used to read the GPC map).
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem: int = 0
    non_portable: bool = False
    compiled_cluster: int = 0
    cluster_attribute: bool = True
    cooperative: bool = False
    smem_opt_in: bool = True
    captured: bool = False
    partition: str = ""
    workload: Workload | None = None
    spin_cycles: int = 0
    repeats: int = 0

    @property
    def cluster_size(self) -> int:
        """CTAs per cluster."""
        x, y, z = self.cluster
        return x * y * z

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        x, y, z = self.block
        return x * y * z

    @property
    def footprint(self) -> "Footprint":
        """Kernel, threads and dynamic shared memory of one CTA."""
        return Footprint(kernel=self.kernel, threads=self.threads, dynamic_smem=self.dynamic_smem)

    @property
    def id(self) -> str:
        """Stable, readable name: equal specs have equal ids, different specs different ones."""
        parts = [
            self.kernel,
            "g" + "x".join(map(str, self.grid)),
            "b" + "x".join(map(str, self.block)),
            "c" + "x".join(map(str, self.cluster)),
            f"s{self.dynamic_smem}",
            "np1" if self.non_portable else "np0",
        ]
        if self.compiled_cluster:
            parts.append(f"cc{self.compiled_cluster}")
        if not self.cluster_attribute:
            parts.append("noattr")
        if self.cooperative:
            parts.append("coop")
        if not self.smem_opt_in:
            parts.append("nosmem")
        if self.captured:
            parts.append("graph")
        if self.partition:
            parts.append(self.partition.replace(",", "+"))
        if self.workload is not None:
            w = self.workload
            parts.append(
                f"r{w.rows}n{w.columns}p{w.stride}l{w.length}k{w.k}"
                f"-{w.dtype}-{w.distribution}-{w.seed}"
            )
        if self.spin_cycles:
            parts.append(f"spin{self.spin_cycles}")
        if self.repeats:
            parts.append(f"t{self.repeats}")
        return "/".join(parts)


class Footprint(Record, order=True, frozen=True, kw_only=True):
    """What one CTA takes of an SM."""

    kernel: str
    threads: int
    dynamic_smem: int

    @property
    def label(self) -> str:
        """Column heading, such as ``topk 1024 thr 156,416 B``."""
        return f"{self.kernel} {self.threads} thr {self.dynamic_smem:,} B"


class DriverCall(Record, frozen=True, kw_only=True):
    """One driver call with its answer. ``code`` 0 is success."""

    call: str
    code: int
    name: str
    sentence: str
    detail: str = ""


class Check(Record, frozen=True, kw_only=True):
    """Comparison of a top-k result with an oracle, row by row.

    A row is right when its values equal the oracle's as a multiset, its indices are valid and
    unique, and -1 fills exactly the places from ``min(length, k)`` on.
    """

    oracle: str
    rows: int
    wrong_rows: int
    detail: str = ""


class Observed(Record, frozen=True, kw_only=True):
    """What was seen of one launch; None where it was not asked or not reached.

    ``max_potential`` and ``max_active`` are the answers of cuOccupancyMaxPotentialClusterSize and
    cuOccupancyMaxActiveClusters, with their codes beside them. ``launch_code`` is the first
    non-zero code of cuLaunchKernelEx (or of graph instantiation when captured); ``sync_code`` that
    of the synchronisation after it. ``cluster_seen``, ``verified`` and ``sm_groups`` come from the
    kernel itself; ``operator`` is about a call of an operator, whose host code launches what it
    chooses. For a prediction over several admissible GPC maps, ``max_active_range`` is the
    least and the greatest answer, and a code on which the maps differ is None.
    """

    max_potential: int | None = None
    max_potential_code: int | None = None
    max_active: int | None = None
    max_active_code: int | None = None
    max_active_range: tuple[int, int] | None = None
    launch_code: int | None = None
    sync_code: int | None = None
    cluster_seen: int | None = None
    verified: bool | None = None
    sm_groups: tuple[tuple[int, ...], ...] = ()
    check: Check | None = None
    time_us: float | None = None
    time_spread_us: float | None = None
    operator: OperatorCall | msgspec.UnsetType = msgspec.UNSET


class Outcome(Record, tag="outcome", frozen=True, kw_only=True):
    """The answer to one LaunchSpec, from a device, the model or a recording.

    ``assumes`` names the published claims a prediction rests on beyond the profile's layout
    (empty for measurements). ``cause`` is a key of the cause catalogue. ``driver_log`` holds the
    driver's own sentences about this launch, noise removed; None where no log could be read, which
    is not the same as silence. ``stage`` says what the worker was doing when it was lost, empty
    where it was not.
    """

    id: str
    spec: LaunchSpec
    status: Status
    origin: Origin
    observed: Observed = Observed()
    calls: tuple[DriverCall, ...] = ()
    driver_log: tuple[str, ...] | None = None
    verdict: Verdict = Verdict.NOT_PROBED
    cause: str | None = None
    assumes: tuple[str, ...] = ()
    note: str = ""
    stage: str = ""
    source: str = ""
    duration_us: float = 0.0


class Limits(Record, frozen=True, kw_only=True):
    """Device limits that decide occupancy. Bytes, threads, blocks and 32-bit registers."""

    max_smem_per_block_optin: int
    max_smem_per_sm: int
    reserved_smem_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    max_threads_per_block: int = 1024
    max_smem_per_block: int = 49_152
    cluster_launch: bool = True


class Claim(Record, frozen=True, kw_only=True):
    """A published statement about a device that the layout alone does not prove.

    ``at_least`` says that larger clusters were not tried, so ``largest_cluster`` is a lower bound.
    """

    id: str
    statement: str
    source: str
    largest_cluster: int
    at_least: bool = False


class Device(Record, frozen=True, kw_only=True):
    """The device, partition or profile that answers.

    ``sms`` counts the SMs of the whole device, ``partition_sms`` those of the partition.
    ``basis`` says in one sentence what a prediction rests on, and ``admissible_maps`` how many GPC
    maps it enumerated: by the layout alone under ``""``, with a claim added under the claim's id;
    None where they are too many to list.
    """

    name: str
    capability: tuple[int, int]
    sms: int
    limits: Limits
    partition: str = ""
    partition_sms: int = 0
    profile: str = ""
    driver: str = ""
    integrated: bool = False
    other_processes: int | None = None
    basis: str = ""
    claims: tuple[Claim, ...] = ()
    admissible_maps: dict[str, int | None] = {}

    @property
    def available_sms(self) -> int:
        """SMs that a launch can use."""
        return self.partition_sms or self.sms


class SchemaTag(Record, frozen=True, kw_only=True):
    """Name and version of the JSON contract."""

    name: str = SCHEMA_NAME
    version: int = SCHEMA_VERSION


class Tool(Record, frozen=True, kw_only=True):
    """Which thorprobe wrote this."""

    name: str = "thorprobe"
    version: str = ""


class Header(Record, tag="header", frozen=True, kw_only=True):
    """First line of a store: what was asked, of what, with what.

    ``options`` holds the command's own parameters, so that a run can be resumed; ``plan`` is the
    SHA-256 of the ids asked first; ``inputs`` maps each kernel source or profile to its SHA-256.
    """

    schema: SchemaTag = SchemaTag()
    tool: Tool = Tool()
    command: str
    argv: tuple[str, ...] = ()
    started: str
    origin: Origin
    device: Device
    software: dict[str, str] = {}
    inputs: dict[str, str] = {}
    options: dict[str, Any] = {}
    plan: str = ""


class Footer(Record, tag="footer", frozen=True, kw_only=True):
    """Last line of a finished store.

    ``software`` and ``inputs`` hold what was known only once launches were answered: the compiler
    that was used and the kernels' SHA-256.
    """

    ended: str
    exit_code: int
    probes: int
    wall_s: float
    software: dict[str, str] = {}
    inputs: dict[str, str] = {}


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
    refused: dict[str, Refusal] = {}
    undetermined: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    not_probed: tuple[int, ...] = ()
    largest: int | None = None
    by_footprint: dict[str, "KernelSummary"] = {}


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
    kernels: dict[str, KernelSummary] = {}
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
    under_claims: dict[str, Verdict] = {}
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
    gates: dict[str, GateSummary] = {}
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
    software: dict[str, str] = {}
    inputs: dict[str, str] = {}
    options: dict[str, Any] = {}
    results: tuple[Outcome, ...] = ()
    summary: SweepSummary | ArmsSummary
    missing: int = 0
    wall_s: float = 0.0
    exit_code: int = 0
