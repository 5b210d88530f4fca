# SPDX-License-Identifier: Apache-2.0
"""The evidence of a row's report: who speaks for the subject, who stands in for it, what each says.

A measured drive that was dispatched for the subject's capability on another device stands in for
it: the arms are the subject's, the device is not.
"""

from collections.abc import Iterable, Sequence

from thorprobe.oracle.closing_report_records import ArmAnswer, ArmLine, SizesLine, Who
from thorprobe.oracle.evidence_file import EvidenceFile
from thorprobe.oracle.findings import answers_for, best
from thorprobe.oracle.fleet import Fleet
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Origin, Record, Verdict
from thorprobe.summary import ArmRow

_KERNEL = "trivial"
# The kernel that asks about the cluster alone.


class Sides(Record, frozen=True, kw_only=True):
    """The exhibits of the subject, and the measured ones that stand in for it."""

    own_sweeps: tuple[EvidenceFile, ...]
    own_arms: tuple[EvidenceFile, ...]
    other_sweeps: tuple[EvidenceFile, ...]
    other_arms: tuple[EvidenceFile, ...]


def sides(fleet: Fleet, exhibits: Sequence[EvidenceFile]) -> Sides:
    """Sort the exhibits of launches by whom they speak for."""
    subject = fleet.device(fleet.row.subject)
    own = [x for x in exhibits if answers_for(subject, x)]
    others = [x for x in exhibits if x not in own and x.line.origin is Origin.MEASURED]
    capability = next((x.capability for x in own if x.capability != (0, 0)), (0, 0))
    return Sides(
        own_sweeps=best(x for x in own if x.sweep is not None),
        own_arms=best(x for x in own if x.arms is not None),
        other_sweeps=tuple(x for x in others if x.sweep is not None),
        other_arms=tuple(x for x in others if x.arms is not None and x.dispatched == capability),
    )


def who(exhibit: EvidenceFile) -> Who:
    """Return who answered an exhibit."""
    as_part = ""
    if exhibit.arms is not None and exhibit.dispatched != exhibit.capability:
        as_part = " as cc {}.{}".format(*exhibit.dispatched)
    arms = exhibit.arms.arms if exhibit.arms is not None else ()
    shipped = ", shipped kernel" if any(is_shipped(arm.kernel) for arm in arms) else ""
    return Who(
        evidence=exhibit.line.id,
        label=f"{exhibit.line.device}{as_part}{shipped}",
        origin=exhibit.line.origin,
    )


def sizes(exhibits: Iterable[EvidenceFile]) -> tuple[SizesLine, ...]:
    """Return what each sweep says of the cluster sizes, with the refusal of the largest one."""
    lines = []
    for exhibit in exhibits:
        kernels = exhibit.sweep.kernels if exhibit.sweep is not None else {}
        found = kernels.get(_KERNEL)
        if found is None:
            continue
        refused = sorted(int(size) for size in found.refused if size.isdigit())
        lines.append(
            SizesLine(
                who=who(exhibit),
                launches=found.launches,
                refused=tuple(refused),
                refusal=found.refused[str(refused[-1])] if refused else None,
                undetermined=found.undetermined,
            )
        )
    return tuple(lines)


def arm_lines(k: int, exhibits: Sequence[EvidenceFile]) -> tuple[ArmLine, ...]:
    """Return each cooperative arm that the policies' gates let rows through to, by rows."""
    answers: dict[tuple[str, tuple[int, int | None], int], dict[str, ArmAnswer]] = {}
    for exhibit in exhibits:
        for arm in reached(k, exhibit):
            key = (arm.policy, arm.rows, arm.cluster)
            answers.setdefault(key, {})[exhibit.line.id] = _answer(arm)
    return tuple(
        ArmLine(policy=policy, rows=rows, cluster=cluster, answers=told)
        for (policy, rows, cluster), told in sorted(
            answers.items(), key=lambda pair: (pair[0][0], pair[0][1][0])
        )
    )


def reached(k: int, exhibit: EvidenceFile) -> list[ArmRow]:
    """Return the cooperative arms of an exhibit behind an open gate, at one k."""
    arms = exhibit.arms.arms if exhibit.arms is not None else ()
    return [arm for arm in arms if arm.k == k and arm.gate and arm.path == "cooperative"]


def failing(k: int, exhibits: Iterable[EvidenceFile]) -> tuple[int, ...]:
    """Return the cluster sizes (CTAs) of reached arms that are refused."""
    return tuple(
        sorted(
            {
                arm.cluster
                for exhibit in exhibits
                for arm in reached(k, exhibit)
                if arm.verdict is Verdict.REFUSED
            }
        )
    )


def _answer(arm: ArmRow) -> ArmAnswer:
    return ArmAnswer(
        verdict=arm.verdict,
        code=arm.code,
        cause=arm.cause,
        under_claims=arm.under_claims,
        time_us=arm.time_us,
        time_shape=arm.time_shape,
    )
