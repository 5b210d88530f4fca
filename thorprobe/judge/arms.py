# SPDX-License-Identifier: Apache-2.0
"""What a drive of the top-k arms found: a row per arm, and what each gate decides wrongly."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from thorprobe.judge.arm_launches import launches_of, results_right
from thorprobe.judge.arms_finding import measured_finding, predicted_finding
from thorprobe.judge.catalogue import FAILING, SEVERITY
from thorprobe.judge.cause import judge, refusal, settled
from thorprobe.judge.finding import nothing_measured
from thorprobe.judge.next_action import next_action
from thorprobe.judge.operator import of_operator
from thorprobe.judge.persistent_path import not_launched
from thorprobe.judge.ranges import joined, ranges, span
from thorprobe.judge.ruled_out import ruled_out
from thorprobe.judge.runs import runs
from thorprobe.judge.sweep import maps_differ, settles
from thorprobe.plan.arm_probe import ArmProbe
from thorprobe.plan.operator import is_operator
from thorprobe.plan.policy import Capability, Policy, RowRange, row_ranges
from thorprobe.record import Device, Origin, Outcome, Verdict
from thorprobe.summary import ArmRow, ArmsSummary, GateSummary

Answers = Mapping[str, Outcome]
"""The judged outcome of each spec id."""

Run = tuple[int, int, Verdict]
"""First and last row of a verdict."""


def summarize(
    probes: Sequence[ArmProbe],
    results: Sequence[Outcome],
    device: Device,
    policies: Sequence[Policy],
    capability: Capability,
    *,
    call_site: str = "",
    admissible: Mapping[str, int | None] | None = None,
) -> ArmsSummary:
    """Summarise the drive of every arm; outcomes need not be judged yet.

    ``capability`` is the one dispatched for, ``call_site`` a sentence that is passed on, and
    ``admissible`` counts the GPC maps behind a prediction, under ``""`` by the layout alone.
    Arms that no probe reached are left out.
    """
    judged = [judge(outcome, device) for outcome in results]
    base = {o.spec.id: o for o in judged if not o.assumes}
    claims = {
        claim.id: {o.spec.id: o for o in judged if o.assumes == (claim.id,)}
        for claim in device.claims
    }
    claims = {name: answers for name, answers in claims.items() if answers}
    arms: list[ArmRow] = []
    by_policy: dict[str, list[tuple[ArmRow, Run]]] = {}
    for policy in policies:
        for extent in row_ranges(policy, capability[0]):
            for own in _by_kind(probes, policy.name, extent):
                arm, found = _arm(extent, own, base, claims)
                arms.append(arm)
                by_policy.setdefault(policy.name, []).extend((arm, run) for run in found)
    asked = _asked(probes, base)
    alone = list(base.values())
    if asked and all(o.origin is Origin.PREDICTED for o in asked):
        several = (admissible or {}).get("", 1) != 1 or maps_differ(asked)
        finding = predicted_finding(arms, device, several_maps=several)
    else:
        finding = nothing_measured(alone) or measured_finding(arms, alone)
    if capability != device.capability:
        major, minor = capability
        finding = f"Dispatched as cc {major}.{minor}: {finding[:1].lower()}{finding[1:]}"
    unknown = [a.cluster for a in arms if a.verdict is Verdict.UNDETERMINED]
    return ArmsSummary(
        finding=finding,
        capability=capability,
        arms=tuple(arms),
        failing_cluster_sizes=_failing_sizes(probes, base),
        gates={name: _gate(found) for name, found in by_policy.items()},
        call_site=call_site,
        ruled_out=ruled_out(alone, device),
        settles=settles(unknown, asked),
        next_action=_next_action(arms, alone),
        probes=len(results),
    )


def _next_action(arms: Iterable[ArmRow], outcomes: Sequence[Outcome]) -> str:
    """Advise on the arms that calls reach; on another launch only where it did worse than refuse.

    An alternative that is refused costs nobody anything: no call takes it.
    """
    reached = [arm for arm in arms if arm.gate and arm.path == "cooperative"]
    worse = [o for o in outcomes if settled(o) is not Verdict.REFUSED]
    return next_action(launches_of(reached, outcomes)) or next_action(worse)


def _by_kind(probes: Iterable[ArmProbe], policy: str, extent: RowRange) -> list[list[ArmProbe]]:
    """Group the probes of one policy whose rows lie in ``extent`` by k and dtype."""
    kinds: dict[tuple[int, str], list[ArmProbe]] = {}
    for probe in probes:
        inside = extent.first <= probe.rows and (extent.last is None or probe.rows <= extent.last)
        if probe.policy == policy and inside:
            kinds.setdefault((probe.k, probe.dtype), []).append(probe)
    groups = [kinds[key] for key in sorted(kinds)]
    return [group for group in groups if any(probe.role == "arm" for probe in group)]


def _arm(
    extent: RowRange,
    probes: Sequence[ArmProbe],
    base: Answers,
    claims: Mapping[str, Answers],
) -> tuple[ArmRow, list[Run]]:
    own = [probe for probe in probes if probe.role == "arm"]
    answers = [base[p.spec.id] for p in own if p.spec.id in base]
    first = own[0]
    worst = max(answers, key=lambda o: SEVERITY.index(settled(o)), default=None)
    verdict = Verdict.NOT_PROBED if worst is None else settled(worst)
    split = _runs(extent, own, base)
    probed = tuple(sorted({p.rows for p in own if p.spec.id in base}))
    right, compared, oracle = results_right(answers)
    row = ArmRow(
        policy=first.policy,
        rows=(extent.first, extent.last),
        k=first.k,
        dtype=first.dtype,
        path=first.path,
        kernel=first.spec.kernel,
        cluster=first.cluster,
        dynamic_smem=first.spec.dynamic_smem,
        gate=first.gate,
        gate_reason=first.gate_reason,
        verdict=verdict,
        cause=_cause(worst, verdict),
        code=None if worst is None or verdict is Verdict.LAUNCHES else refusal(worst).code,
        under_claims={
            name: _worst(settled(found[p.spec.id]) for p in own if p.spec.id in found)
            for name, found in claims.items()
        },
        probed_rows=probed,
        checked=(right, compared),
        oracle=oracle,
        note=_note(extent, probed, split),
    )
    called = is_operator(first.spec.kernel)
    if first.path == "persistent" and not called:
        return not_launched(row, worst), []
    row = msgspec.structs.replace(row, **_timed(probes, base))
    if called:
        row = of_operator(row, answers)
    # No gate decides about rows that the host code gives to the persistent kernel anyway.
    return row, [] if first.path == "persistent" else split


def _cause(worst: Outcome | None, verdict: Verdict) -> str | None:
    if worst is None:
        return "could-not-run"
    # A launch that is not proven has no cause of its own.
    return "undetermined" if verdict is Verdict.UNDETERMINED else worst.cause


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=SEVERITY.index, default=Verdict.NOT_PROBED)


def _runs(extent: RowRange, probes: Iterable[ArmProbe], base: Answers) -> list[Run]:
    """Split the arm's rows where the verdict changes; rows between two verdicts belong to none."""
    by_row: dict[int, list[Verdict]] = {}
    for probe in probes:
        if probe.spec.id in base:
            by_row.setdefault(probe.rows, []).append(settled(base[probe.spec.id]))
    verdicts = {rows: _worst(found) for rows, found in by_row.items()}
    none = [(extent.first, extent.last or extent.first, Verdict.NOT_PROBED)]
    return runs(extent.first, extent.last, verdicts) or none


def _note(extent: RowRange, probed: Sequence[int], split: Sequence[Run]) -> str:
    parts = []
    if len(split) > 1:
        told = (f"{span(first, last)} {verdict.value}" for first, last, verdict in split)
        parts.append("the verdict changes within these rows: " + ", ".join(told))
    # No row stands for all rows up to no end.
    whole = extent.last is not None and {extent.first, extent.last} <= set(probed)
    if probed and not whole:
        parts.append(f"probed at rows {ranges(probed)} only")
    return "; ".join(parts)


def _timed(probes: Sequence[ArmProbe], base: Answers) -> dict[str, object]:
    """Return time, shape and fastest size at the last row and the whole length that were timed."""
    times: dict[tuple[int, int], dict[int, tuple[str, float]]] = {}
    for probe in probes:
        outcome = base.get(probe.spec.id)
        if outcome is None or settled(outcome) is not Verdict.LAUNCHES:
            continue
        if outcome.observed.time_us is not None:
            entry = times.setdefault((probe.rows, probe.length), {})
            entry[probe.cluster] = (probe.role, outcome.observed.time_us)
    if not times:
        return {}
    rows, length = max(times)
    found = times[rows, length]
    own = next((time for role, time in found.values() if role == "arm"), None)
    # One size alone is fastest of nothing.
    fastest = min(found, key=lambda size: found[size][1]) if len(found) > 1 else None
    shape = f"{rows:,} x {length:,}"
    return {"time_us": own, "time_shape": shape, "fastest": fastest}


def _gate(found: Sequence[tuple[ArmRow, Run]]) -> GateSummary:
    """Compare what the gate decides with what the arms do; the persistent path has no run."""
    lists: dict[str, list[tuple[int, int]]] = {"accepts": [], "rejects": [], "unknown": []}
    for arm, (first, last, verdict) in found:
        if verdict in (Verdict.UNDETERMINED, Verdict.NOT_PROBED):
            lists["unknown"].append((first, last))
        elif arm.gate and verdict in FAILING:
            lists["accepts"].append((first, last))
        elif not arm.gate and verdict is Verdict.LAUNCHES:
            lists["rejects"].append((first, last))
    return GateSummary(
        false_accepts=_closed(lists["accepts"]),
        false_rejects=_closed(lists["rejects"]),
        undetermined=_closed(lists["unknown"]),
    )


def _closed(found: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, last) for first, last in joined(found) if last is not None)


def _failing_sizes(probes: Iterable[ArmProbe], base: Answers) -> tuple[int, ...]:
    """Cluster sizes (CTAs) that failed in any cooperative launch, asked as an arm or beside one."""
    return tuple(
        sorted(
            {
                probe.cluster
                for probe in probes
                if probe.path == "cooperative"
                and probe.spec.id in base
                and settled(base[probe.spec.id]) in FAILING
            }
        )
    )


def _asked(probes: Iterable[ArmProbe], base: Answers) -> list[Outcome]:
    """Return each outcome of an arm once, though several policies share it."""
    ids = dict.fromkeys(p.spec.id for p in probes if p.role == "arm" and p.spec.id in base)
    return [base[name] for name in ids]
