# SPDX-License-Identifier: Apache-2.0
"""Which arms the model's own calls reached, and what tells them apart."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from thorprobe.judge.ranges import sizes_text
from thorprobe.plan.policy import Capability, arm_name
from thorprobe.qwen4exp.judge import count_falls
from thorprobe.qwen4exp.through_records import ArmCall, ArmReached, ThroughSummary


def summarize(
    calls: Sequence[ArmCall], capability: Capability, model: str, context: int, k: int
) -> ThroughSummary:
    """Return the arms in the order in which they were asked for, and the finding."""
    keys = dict.fromkeys((call.policy, call.cluster, call.path) for call in calls)
    arms = tuple(_arm([c for c in calls if (c.policy, c.cluster, c.path) == key]) for key in keys)
    missed = sum(1 for c in calls if c.cluster != c.wanted_cluster or c.num_rows != c.wanted_rows)
    return ThroughSummary(
        finding=_finding(arms, capability, missed),
        capability=capability,
        model=model,
        context_tokens=context,
        k=k,
        arms=arms,
        missed=missed,
        contrasts=tuple(contrasts(calls)),
    )


def contrasts(calls: Sequence[ArmCall]) -> Iterator[str]:
    """Yield, a policy, the same requests in two arms, and the same arm by two settings."""
    for policy in dict.fromkeys(call.policy for call in calls):
        decodes = [c for c in calls if c.policy == policy and c.kind == "decode"]
        for one, other in combinations(decodes, 2):
            if one.requests == other.requests and one.cluster != other.cluster:
                yield f"{policy}: equal requests, different arms: {_told(one)}; {_told(other)}"
                break
        for one, other in combinations(decodes, 2):
            if one.requests != other.requests and one.num_rows == other.num_rows:
                yield f"{policy}: different requests, one arm: {_told(one)}; {_told(other)}"
                break


def _told(call: ArmCall) -> str:
    return f"{call.setting} -> {call.num_rows} rows -> {arm_name(call.cluster, call.path)}"


def _arm(calls: Sequence[ArmCall]) -> ArmReached:
    first = calls[0]
    ordered = sorted(calls, key=lambda call: (call.num_rows, call.requests))
    rows = sum(call.check.rows for call in calls)
    return ArmReached(
        policy=first.policy,
        cluster=first.cluster,
        path=first.path,
        calls=len(calls),
        num_rows=tuple(sorted({call.num_rows for call in calls})),
        settings=tuple(dict.fromkeys((ordered[0].setting, ordered[-1].setting))),
        rungs=dict(sorted(Counter(call.rung for call in calls).items())),
        falls=sum(1 for call in calls if call.falls),
        fallen=count_falls(calls),
        checked=(rows - sum(call.check.wrong_rows for call in calls), rows),
    )


def _finding(arms: Sequence[ArmReached], capability: Capability, missed: int) -> str:
    right, total = sum(a.checked[0] for a in arms), sum(a.checked[1] for a in arms)
    told = []
    for policy in dict.fromkeys(arm.policy for arm in arms):
        own = [arm for arm in arms if arm.policy == policy]
        parts = [f"{arm_name(a.cluster, a.path)} by {_span(a.num_rows)} rows" for a in own]
        told.append(f"{policy}: {', '.join(parts)}")
    start = (
        f"{missed} calls brought other rows, or took another arm, than their settings should"
        if missed
        else "The rows of every arm came through the model, by requests and query tokens alone"
    )
    major, minor = capability
    return (
        f"{start} (dispatch of cc {major}.{minor}); {_launched(arms)}; {right:,} of {total:,} rows "
        f"are right; {'; '.join(told)}"
    )


def _launched(arms: Sequence[ArmReached]) -> str:
    """Say which cluster sizes the ladder launched where the dispatch picks them."""
    own = [arm for arm in arms if arm.path == "cooperative"]
    ran = {arm.cluster for arm in own if f"cluster-{arm.cluster}" in arm.rungs}
    fell = {arm.cluster for arm in own if arm.falls}
    parts = []
    if ran:
        parts.append(f"the ladder launched {sizes_text(sorted(ran))} CTAs where it picks them")
    if fell:
        parts.append(f"{sizes_text(sorted(fell))} CTAs were refused and the next rung answered")
    return "; ".join(parts) or "no cluster was launched here"


def _span(rows: Sequence[int]) -> str:
    return f"{rows[0]}" if len(rows) == 1 else f"{rows[0]} to {rows[-1]}"
