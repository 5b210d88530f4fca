# SPDX-License-Identifier: Apache-2.0
"""The words of thorprobe: launch specifications, outcomes, devices, runs and summaries.

Every room speaks in these frozen structures; no dictionary crosses a module border.
Sizes are in bytes, times in microseconds, cluster sizes in CTAs, unless a name says otherwise.
A change here changes the JSON contract: raise ``SCHEMA_VERSION``.
"""

from enum import StrEnum
from typing import Any

import msgspec


class KernelSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that a call launches, as a capture of the call shows it.

    ``name`` is demangled without parameters; ``grid`` counts CTAs, ``dynamic_smem`` is in bytes,
    and ``cluster`` is None where the node states none.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem: int
    cluster: tuple[int, int, int] | None = None


class OperatorCall(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one call of an operator that launches kernels of its own choice.

    ``raised`` is the exception's text, verbatim; ``pending_code`` the error that the call left to
    whoever asks next (0 for none, None where it could not be asked), ``pending`` what the next
    call of torch raised, and ``cleared`` whether the one after that was right. ``ran`` names the
    kernels that torch's profiler saw, ``captured`` those of the call's capture, which launches
    nothing. ``call_us`` is the host's median time of one call after another, with its spread.
    """

    operator: str
    raised: str = ""
    pending_code: int | None = None
    pending: str = ""
    cleared: bool | None = None
    ran: tuple[str, ...] = ()
    captured: tuple[KernelSeen, ...] = ()
    call_us: float | None = None
    call_spread_us: float | None = None
    remarks: tuple[str, ...] = ()


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
