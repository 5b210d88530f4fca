# SPDX-License-Identifier: Apache-2.0
"""What a cluster sweep found: sizes per kernel, the GPC map, and the finding."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from thorprobe.judge.catalogue import SEVERITY, cause
from thorprobe.judge.cause import judge, proven, refusal, settled
from thorprobe.judge.finding import (
    Summaries,
    measured_finding,
    nothing_measured,
    predicted_finding,
)
from thorprobe.judge.next_action import next_action
from thorprobe.judge.query import is_query
from thorprobe.judge.ranges import sizes_text
from thorprobe.judge.ruled_out import ruled_out
from thorprobe.judge.topology import group_sizes, solve, union_groups
from thorprobe.record import (
    MAX_CLUSTER,
    PORTABLE_CLUSTER,
    Device,
    Footprint,
    Origin,
    Outcome,
    Verdict,
)
from thorprobe.summary import GpcMap, KernelSummary, Refusal, SweepSummary, UnderClaim

SETTLING_QUERY = "cuOccupancyMaxPotentialClusterSize"
"""With the opt-in it answers the lesser of 16 and the largest group, so that one call decides all
sizes (H200 and 12 of its partitions, measured 2026-11-30)."""

CLUSTER_KERNEL = "trivial"
"""The kernel that asks about the cluster alone."""


def summarize(
    results: Sequence[Outcome],
    device: Device,
    *,
    admissible: Mapping[str, int | None] | None = None,
) -> SweepSummary:
    """Summarise a sweep from any answerer; outcomes need not be judged yet.

    ``admissible`` counts the GPC maps that a prediction enumerated: under ``""`` by the layout
    alone, and under each claim's id with that claim added; None where they are too many to list.
    """
    judged = [judge(outcome, device) for outcome in results]
    base = [o for o in judged if not o.assumes]
    asked = _asked(base)
    summaries = _by_footprint(asked)
    counts = admissible or {}
    # Solving a prediction would give back the map it was made from.
    predicted = bool(device.profile) or _all_predicted(asked)
    gpc_map = GpcMap(
        measured=None if predicted else _measured_map(base),
        solved=None if predicted else _solved_map(asked, device),
        admissible=counts.get(""),
    )
    under = [
        (_under_claim(device, index, claimed, counts), _by_footprint(claimed))
        for index, claim in enumerate(device.claims)
        if (claimed := _asked([o for o in judged if o.assumes == (claim.id,)]))
    ]
    kernels = _by_kernel(asked)
    if _all_predicted(asked):
        several = counts.get("", 1) != 1 or maps_differ(base)
        finding = predicted_finding(summaries, under, several_maps=several)
    else:
        opted_in = not asked or any(o.spec.non_portable for o in base)
        finding = nothing_measured(base) or measured_finding(
            summaries,
            gpc_map,
            device,
            opted_in=opted_in,
            queried=frozenset(o.spec.footprint for o in asked if is_query(o)),
        )
    return SweepSummary(
        finding=finding,
        kernels=kernels,
        gpc_map=gpc_map,
        under_claims=tuple(claim for claim, _ in under),
        ruled_out=ruled_out(asked, device),
        settles=settles(_undetermined(summaries), asked),
        next_action=next_action(asked),
        probes=len(results),
    )


def settles(sizes: Iterable[int], outcomes: Sequence[Outcome]) -> str:
    """Name what would decide the sizes (in CTAs) left open, '' when none is."""
    unknown = sorted(set(sizes))
    if not unknown:
        return ""
    if any(o.origin is not Origin.PREDICTED for o in outcomes):
        return f"{sizes_text(unknown)} CTAs: {cause('undetermined').separating_test}"
    return (
        f"{SETTLING_QUERY} with the opt-in, which answers the lesser of {MAX_CLUSTER} and the "
        "largest group: run `thorprobe cluster-sweep` on the device"
    )


def _all_predicted(outcomes: Sequence[Outcome]) -> bool:
    return bool(outcomes) and all(o.origin is Origin.PREDICTED for o in outcomes)


def _asked(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Keep the launches that say what a size does: with the opt-in, where it was asked with it.

    Launches that hold their SMs to read the GPC map are left out; they repeat a size.
    """
    kept = [o for o in outcomes if not o.spec.spin_cycles]
    opted = {_cell(o) for o in kept if o.spec.non_portable}
    return [
        o
        for o in kept
        if o.spec.cluster_size <= PORTABLE_CLUSTER or o.spec.non_portable or _cell(o) not in opted
    ]


def _cell(outcome: Outcome) -> tuple[Footprint, int]:
    return outcome.spec.footprint, outcome.spec.cluster_size


def _summary(outcomes: Iterable[Outcome]) -> KernelSummary:
    """Tell sizes apart by the worst of their launches; the least footprint's refusal is named."""
    sizes: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        sizes.setdefault(outcome.spec.cluster_size, []).append(outcome)
    lists: dict[str, list[int]] = {
        name: [] for name in ("launches", "verified", "undetermined", "wrong", "not_probed")
    }
    refused: dict[str, Refusal] = {}
    for size in sorted(sizes):
        group = sorted(sizes[size], key=lambda o: o.spec.footprint)
        worst = max((settled(o) for o in group), key=SEVERITY.index)
        if worst is Verdict.REFUSED:
            first = next(o for o in group if o.verdict is Verdict.REFUSED)
            refused[str(size)] = refusal(first)
        elif worst is Verdict.LAUNCHES:
            lists["launches"].append(size)
            if all(proven(o) for o in group):
                lists["verified"].append(size)
        elif worst is Verdict.UNDETERMINED:
            lists["undetermined"].append(size)
        elif worst is Verdict.NOT_PROBED:
            lists["not_probed"].append(size)
        else:
            lists["wrong"].append(size)
    return KernelSummary(
        launches=tuple(lists["launches"]),
        verified=tuple(lists["verified"]),
        refused=refused,
        undetermined=tuple(lists["undetermined"]),
        wrong=tuple(lists["wrong"]),
        not_probed=tuple(lists["not_probed"]),
        largest=max(lists["launches"], default=None),
    )


def _by_footprint(outcomes: Iterable[Outcome]) -> Summaries:
    groups: dict[Footprint, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.spec.footprint, []).append(outcome)
    return {footprint: _summary(groups[footprint]) for footprint in sorted(groups)}


def _by_kernel(outcomes: Sequence[Outcome]) -> dict[str, KernelSummary]:
    """Sum up each kernel: the trivial one where it asks for least shared memory.

    That is the question about the cluster itself. Another kernel's launch needs its memory, so a
    size of it counts at every footprint.
    """
    found: dict[str, KernelSummary] = {}
    names = {o.spec.kernel for o in outcomes}
    for kernel in sorted(names, key=lambda name: (name != CLUSTER_KERNEL, name)):
        own = [o for o in outcomes if o.spec.kernel == kernel]
        least = min(o.spec.dynamic_smem for o in own)
        counting = kernel != CLUSTER_KERNEL
        whole = _summary(o for o in own if counting or o.spec.dynamic_smem == least)
        parts = {footprint.label: part for footprint, part in _by_footprint(own).items()}
        if any(part != whole for part in parts.values()):
            whole = msgspec.structs.replace(whole, by_footprint=parts)
        found[kernel] = whole
    return found


def _undetermined(summaries: Summaries) -> list[int]:
    return [size for summary in summaries.values() for size in summary.undetermined]


def _under_claim(
    device: Device, index: int, outcomes: Sequence[Outcome], counts: Mapping[str, int | None]
) -> UnderClaim:
    claim = device.claims[index]
    kernels = _by_kernel(outcomes)
    return UnderClaim(claim=claim, kernels=kernels, admissible=counts.get(claim.id) or 0)


def maps_differ(outcomes: Iterable[Outcome]) -> bool:
    """Say whether a prediction gives a range, so that it rests on several admissible maps."""
    ranges = (o.observed.max_active_range for o in outcomes)
    return any(found is not None and found[0] != found[1] for found in ranges)


def _measured_map(outcomes: Sequence[Outcome]) -> tuple[int, ...] | None:
    """Join the SM ids of clusters held together at every size that runs; else None.

    Ids of some sizes alone would join too few SMs, and be taken for the whole.
    """
    held = [o for o in outcomes if o.verdict is Verdict.LAUNCHES and o.observed.sm_groups]
    mapped = {o.spec.cluster_size for o in held}
    active: dict[int, int] = {}
    for outcome in outcomes:
        if not outcome.spec.spin_cycles and outcome.observed.max_active is not None:
            size = outcome.spec.cluster_size
            active[size] = max(active.get(size, 0), outcome.observed.max_active)
    # At size 1 a cluster joins nothing.
    wanted = {size for size in range(2, MAX_CLUSTER + 1) if active.get(size, 1)}
    if not held or not wanted <= mapped:
        return None
    return group_sizes(union_groups(group for o in held for group in o.observed.sm_groups))


def _solved_map(outcomes: Iterable[Outcome], device: Device) -> tuple[int, ...] | None:
    """Solve the max_active answers of a footprint that fills an SM with one CTA, sizes 1..16."""
    answers: dict[Footprint, dict[int, int]] = {}
    for outcome in outcomes:
        active = outcome.observed.max_active
        if active is not None:
            answers.setdefault(outcome.spec.footprint, {})[outcome.spec.cluster_size] = active
    for footprint in sorted(answers, key=lambda f: f.dynamic_smem, reverse=True):
        by_size = answers[footprint]
        complete = all(size in by_size for size in range(1, MAX_CLUSTER + 1))
        # As many single CTAs as SMs: one CTA an SM, which the solver presumes.
        if complete and by_size[1] == device.available_sms:
            return solve([by_size[size] for size in range(1, MAX_CLUSTER + 1)])
    return None
