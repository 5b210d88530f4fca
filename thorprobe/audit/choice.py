# SPDX-License-Identifier: Apache-2.0
"""What each gate's choice takes, as measured: the arm, persistent_topk, or what is faster.

Times of a place (a device or a partition of it) count together, whichever store they are from: they
are of upstream's own kernels, by replays of a graph. Without a time of persistent_topk there is
nothing to compare a reject with, and no choice is told.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from thorprobe.audit.records import AuditResult, Choice, Decision, GateRange, Subject, Took
from thorprobe.driver.partition import parse
from thorprobe.judge.cause import settled
from thorprobe.plan.operator import PERSISTENT, is_operator, operator_of
from thorprobe.plan.policy import Capability, Policy, dispatch
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Record, Verdict
from thorprobe.summary import Document

NO_CLUSTER = 0
"""Stands for persistent_topk where a choice is a cluster size."""

Place = tuple[str, str]
"""Device name and partition, spelt by SMs and flags."""


class Shape(Record, order=True, frozen=True, kw_only=True):
    """The input of a call: times of other inputs are not compared with its time."""

    k: int
    columns: int
    length: int
    rows: int
    stride: int
    dtype: str
    distribution: str
    seed: int


Times = Mapping[Shape, Mapping[int, tuple[float, str]]]
"""Microseconds and their source by shape and choice."""


def place(subject: Subject) -> Place:
    """Return where a subject answered; two spellings of one partition are one place."""
    part = parse(subject.device.partition)
    return subject.device.name, f"{part.sms}/{part.flags}" if part else ""


def times(parties: Iterable[tuple[Subject, Document]]) -> dict[Place, Times]:
    """Collect the times of upstream's own kernels by place, where persistent_topk is among them."""
    found: dict[Place, dict[Shape, dict[int, tuple[float, str]]]] = {}
    for subject, document in parties:
        for outcome in document.results:
            spec, us = outcome.spec, outcome.observed.time_us
            work = spec.workload
            own = is_shipped(spec.kernel) or is_operator(spec.kernel)
            if work is None or us is None or outcome.assumes or not own:
                continue
            if settled(outcome) is not Verdict.LAUNCHES:
                continue
            persistent = operator_of(spec.kernel) == PERSISTENT
            choice = NO_CLUSTER if persistent else spec.cluster_size
            shape = msgspec.convert(msgspec.structs.asdict(work), Shape)
            held = found.setdefault(place(subject), {}).setdefault(shape, {})
            if choice not in held or is_operator(spec.kernel):
                held[choice] = (us, subject.name)  # The operator's own, host code and all.
    return {
        where: kept
        for where, shapes in found.items()
        if (kept := {shape: by for shape, by in shapes.items() if NO_CLUSTER in by})
    }


def choices(
    subject: Subject,
    measured: Times,
    results: Sequence[AuditResult],
    policies: Mapping[str, Policy],
) -> Iterator[Choice]:
    """Yield what each gate takes for each shape that was timed in the subject's place.

    ``policies`` are those of the gates of ``results``, by the gate's name. Shapes of which no gate
    tells what it takes, or whose rows go to persistent_topk by every policy, are left out.
    """
    for shape, by_choice in sorted(measured.items()):
        arm = _arm(results, policies, shape.rows, subject.capability)
        if arm is None:
            continue
        took = {}
        for result in results:
            found = _took(result, policies[result.gate], shape.rows, subject.capability, by_choice)
            if found is not None:
                took[result.gate] = found
        if not took:
            continue
        best = min(by_choice, key=lambda choice: by_choice[choice][0])
        us = by_choice.get(arm.cluster)
        yield Choice(
            subject=subject.name,
            rows=shape.rows,
            columns=shape.columns,
            length=shape.length,
            k=shape.k,
            cluster=arm.cluster,
            arm_us=us[0] if us else None,
            arm_code=arm.code if arm.verdict is Verdict.REFUSED else None,
            persistent_us=by_choice[NO_CLUSTER][0],
            best_cluster=best,
            best_us=by_choice[best][0],
            tried=tuple(sorted(by_choice)),
            took=took,
            sources=tuple(dict.fromkeys(source for _, source in by_choice.values())),
        )


def _arm(
    results: Iterable[AuditResult],
    policies: Mapping[str, Policy],
    rows: int,
    capability: Capability,
) -> "_Arm | None":
    """Return the arm of the first policy that has one at these rows, with what its launch does."""
    for result in results:
        cluster, path = dispatch(policies[result.gate], rows, capability[0])
        part = _range(result, rows)
        if path == "cooperative" and part is not None and part.cluster == cluster:
            return _Arm(cluster=cluster, verdict=part.verdict, code=part.code)
    return None


class _Arm(Record, frozen=True, kw_only=True):
    """What the host code picks, and what became of it."""

    cluster: int
    verdict: Verdict
    code: int | None


def _range(result: AuditResult, rows: int) -> GateRange | None:
    return next((p for p in result.ranges if p.rows[0] <= rows <= p.rows[1]), None)


def _took(
    result: AuditResult,
    policy: Policy,
    rows: int,
    capability: Capability,
    by_choice: Mapping[int, tuple[float, str]],
) -> Took | None:
    """Return what a gate takes at these rows, None where the evidence does not say."""
    if dispatch(policy, rows, capability[0])[1] == "persistent":
        return Took(cluster=NO_CLUSTER, us=by_choice[NO_CLUSTER][0])
    part = _range(result, rows)
    if part is None or part.decision not in (Decision.OPEN, Decision.SHUT):
        return None
    if part.decision is Decision.SHUT:
        return Took(cluster=NO_CLUSTER, us=by_choice[NO_CLUSTER][0])
    if part.verdict is Verdict.REFUSED:
        return Took(cluster=part.cluster, code=part.code)
    us = by_choice.get(part.cluster)
    return Took(cluster=part.cluster, us=us[0]) if us else None
