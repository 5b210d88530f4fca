# SPDX-License-Identifier: Apache-2.0
"""Dispatch policies: which arm an upstream version takes for a number of rows, as data.

One TOML file per version under ``policies/``; every table of it names the source of its values. A
condition that is not known of a version is listed as not established and is not applied.
"""

from typing import Annotated, Literal

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan.datafile import Folder
from thorprobe.record import MAX_CLUSTER, Record

Capability = tuple[int, int]
"""Compute capability, (major, minor)."""

ArmPath = Literal["cooperative", "persistent"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Cluster = Annotated[int, msgspec.Meta(ge=1, le=MAX_CLUSTER)]

_FOLDER = Folder("Policy", "plan", "policies")


class ByMajor(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another cluster size from one major compute capability on."""

    major_at_least: Positive
    cluster: Cluster


class PolicyArm(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One branch of the host dispatch, from the previous arm's last row + 1 to ``last_row``.

    ``last_row`` None is an open end. ``cluster`` is in CTAs, 1 for a launch without clusters.
    """

    last_row: Positive | None = None
    path: ArmPath
    cluster: Cluster
    by_major: ByMajor | None = None
    source: Text

    def cluster_for(self, major: int) -> int:
        """Cluster size on a device of that major compute capability."""
        if self.by_major is not None and major >= self.by_major.major_at_least:
            return self.by_major.cluster
        return self.cluster


class ArmFootprint(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dynamic shared memory of one CTA (bytes) and the scores it can stage (fp32 elements)."""

    clusters: tuple[Cluster, ...]
    dynamic_smem: Positive
    stage_elements: Positive
    source: Text


class Kernel(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the kernel of a version demands, whoever calls it.

    ``row_limit`` is the most rows it accepts, ``stride_multiple`` is in elements, and rows of at
    most ``one_cta_columns`` valid scores are selected by one CTA of the cluster.
    """

    row_limit: Positive
    threads: Positive
    k: tuple[Positive, ...]
    dtype: Text
    stride_multiple: Positive
    one_cta_columns: Positive
    source: Text


class Gate(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The call site's condition for the cooperative kernel; None and empty are not applied.

    ``site`` is the call site that the conditions stand at. ``excluded_families`` holds majors times
    ten (120 is cc 12.x). ``not_established`` names the conditions that are unknown at this version.
    """

    site: Literal["qsa", "generic"] = "qsa"
    rows: Positive
    stride_multiple: Positive | None = None
    min_capability: Capability | None = None
    excluded_families: tuple[int, ...] = ()
    not_established: tuple[str, ...] = ()
    source: Text


class PrefillLimit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bound on one prefill chunk's logits in MiB; ``setting`` is empty if it cannot be set."""

    logits_mib: Positive
    setting: str = ""
    source: Text


class Policy(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dispatch of one upstream version at one call site.

    ``prefill`` is None where prefill never takes the cooperative kernel or is not known to.
    """

    name: Text
    version: Text
    call_site: Text
    commit: Text
    date: Text
    source: Text
    kernel: Kernel
    gate: Gate
    arms: tuple[PolicyArm, ...] = msgspec.field(name="arm")
    footprints: tuple[ArmFootprint, ...] = msgspec.field(name="footprint")
    prefill: PrefillLimit | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject arms out of order, without an open end, or without a footprint."""
        bounds = [arm.last_row for arm in self.arms]
        closed = [bound for bound in bounds[:-1] if bound is not None]
        if not bounds or bounds[-1] is not None or len(closed) != len(bounds) - 1:
            raise ValueError("exactly the last arm has no last_row")
        if closed != sorted(set(closed)):
            raise ValueError("the arms' last rows do not ascend")
        for arm in self.arms:
            if arm.path == "cooperative":
                self.footprint(arm.cluster)
                if arm.by_major is not None:
                    self.footprint(arm.by_major.cluster)

    def footprint(self, cluster: int) -> ArmFootprint:
        """Footprint of one CTA at ``cluster``.

        Raises ValueError: the policy has none for that size.
        """
        for footprint in self.footprints:
            if cluster in footprint.clusters:
                return footprint
        raise ValueError(f"no footprint for a cluster of {cluster}")

    @property
    def clusters(self) -> tuple[int, ...]:
        """Every cluster size that the kernel is built for, ascending."""
        return tuple(sorted({size for entry in self.footprints for size in entry.clusters}))


class RowRange(Record, frozen=True, kw_only=True):
    """Rows ``first`` to ``last`` (None: no end) of constant dispatch and constant row gate.

    ``cluster`` and ``path`` are the host dispatch's choice; ``gate_open`` says whether the gate's
    row bound lets these rows through to it.
    """

    first: int
    last: int | None
    cluster: int
    path: ArmPath
    gate_open: bool

    @property
    def text(self) -> str:
        """Such as ``1-4``, ``33`` or ``65+``."""
        if self.last is None:
            return f"{self.first}+"
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


class Reached(Record, frozen=True, kw_only=True):
    """The arm that a call really takes: the gate first, then the host dispatch."""

    cluster: int
    path: ArmPath
    gate_open: bool
    reason: str


def arm_name(cluster: int, path: str) -> str:
    """Name an arm as tables and sentences do; ``cluster`` in CTAs."""
    return f"{cluster} CTAs" if path == "cooperative" else "persistent, no cluster"


def names() -> tuple[str, ...]:
    """Names of the shipped policies, sorted."""
    return _FOLDER.names()


def load(name: str) -> Policy:
    """Shipped policy of that name, or the policy file at that path (ending in ``.toml``).

    Raises UsageError: unknown name, unreadable file, or a file outside the schema.
    """
    return _FOLDER.load(name, Policy)


def _checked_rows(rows: int) -> int:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise UsageError(f"num_rows {rows!r} is not a whole number of at least 0", "try 1")
    return rows


def _arm(policy: Policy, rows: int) -> PolicyArm:
    for arm in policy.arms:
        if arm.last_row is None or rows <= arm.last_row:
            return arm
    raise AssertionError("Policy.__post_init__ demands an open end")


def dispatch(policy: Policy, rows: int, major: int) -> tuple[int, ArmPath]:
    """Cluster size and path that the host code picks for ``rows``, whatever the gate says.

    No version checks for 0 rows: they take the first arm, and grid.x 0 is then refused.

    Raises UsageError: ``rows`` is not a whole number of at least 0.
    """
    arm = _arm(policy, _checked_rows(rows))
    return arm.cluster_for(major), arm.path


def gate(policy: Policy, rows: int, stride: int, capability: Capability) -> tuple[bool, str]:
    """Whether the call site hands ``rows`` x ``stride`` elements to the cooperative kernel.

    With it comes the reason: what shuts the gate, else what holds; conditions not established at
    this version are named and not applied.

    Raises UsageError: ``rows`` is not a whole number of at least 0.
    """
    bounds = policy.gate
    shut: list[str] = []
    holds = [f"rows {_checked_rows(rows)} <= {bounds.rows}"]
    if rows > bounds.rows:
        shut.append(f"rows {rows} > {bounds.rows}")
    if bounds.stride_multiple is not None:
        if stride % bounds.stride_multiple:
            shut.append(f"stride {stride:,} is no multiple of {bounds.stride_multiple}")
        else:
            holds.append(f"stride {stride:,} is a multiple of {bounds.stride_multiple}")
    major, minor = capability
    if bounds.min_capability is not None:
        least = "{}.{}".format(*bounds.min_capability)
        if capability < bounds.min_capability:
            shut.append(f"cc {major}.{minor} < {least}")
        else:
            holds.append(f"cc {major}.{minor} >= {least}")
    if major * 10 in bounds.excluded_families:
        shut.append(f"cc {major}.{minor} is of the excluded family {major * 10}")
    if shut:
        return False, "; ".join(shut)
    if stride % policy.kernel.stride_multiple:
        holds.append(
            f"the kernel's own check then refuses stride {stride:,}, "
            f"no multiple of {policy.kernel.stride_multiple}"
        )
    if bounds.not_established:
        holds.append(f"not established here: {', '.join(bounds.not_established)}")
    return True, "; ".join(holds)


def reached(policy: Policy, rows: int, stride: int, capability: Capability) -> Reached:
    """Return the arm that a call with these rows really takes.

    Raises UsageError: ``rows`` is not a whole number of at least 0.
    """
    is_open, reason = gate(policy, rows, stride, capability)
    cluster, path = dispatch(policy, rows, capability[0])
    if not is_open:
        cluster, path = 1, "persistent"
    return Reached(cluster=cluster, path=path, gate_open=is_open, reason=reason)


def row_ranges(policy: Policy, major: int, limit: int | None = None) -> tuple[RowRange, ...]:
    """Ranges of constant dispatch on a device of that major, split where the row gate shuts.

    They cover 1 to ``limit`` (None: all rows) without gaps; neighbours that dispatch alike are one.

    Raises UsageError: ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"Row limit {limit} is below 1", "the least num_rows that launches is 1")
    ends = {arm.last_row for arm in policy.arms if arm.last_row is not None} | {policy.gate.rows}
    if limit is not None:
        ends = {end for end in ends if end < limit}
    ranges: list[RowRange] = []
    for last in (*sorted(ends), limit):
        first = 1 if not ranges else (ranges[-1].last or 0) + 1
        cluster, path = dispatch(policy, first, major)
        item = RowRange(
            first=first,
            last=last,
            cluster=cluster,
            path=path,
            gate_open=first <= policy.gate.rows,
        )
        if ranges and _alike(ranges[-1], item):
            item = msgspec.structs.replace(item, first=ranges.pop().first)
        ranges.append(item)
    return tuple(ranges)


def _alike(one: RowRange, other: RowRange) -> bool:
    # A shut gate changes nothing for rows that go to the persistent kernel anyway.
    same = (one.cluster, one.path) == (other.cluster, other.path)
    return same and (one.path == "persistent" or one.gate_open == other.gate_open)
