# SPDX-License-Identifier: Apache-2.0
"""The finding of a drive of the top-k arms in one sentence."""

from collections.abc import Iterable, Sequence

from thorprobe.judge.arm_launches import launches_of, results_right
from thorprobe.judge.cause import CODE_NAMES
from thorprobe.judge.finding import code_text
from thorprobe.judge.ranges import sizes_text, spans
from thorprobe.plan.operator import is_operator
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Device, Outcome, Record, Verdict
from thorprobe.summary import ArmRow, Refusal

NOTHING_REACHED = "No cooperative arm was reached"

_WORDS = {
    Verdict.WRONG: "give a wrong result",
    Verdict.FAULTS: "fault",
    Verdict.HANGS: "hang",
    Verdict.UNDETERMINED: "are undetermined",
    Verdict.NOT_PROBED: "were not probed",
    Verdict.LAUNCHES: "launch",
}


class _Segment(Record, frozen=True, kw_only=True):
    """Arms of one outcome: the rows per policy, and the cluster sizes that they take."""

    verdict: Verdict
    code: int | None
    cause: str | None
    kind: str
    arms: tuple[ArmRow, ...]

    @property
    def clusters(self) -> str:
        if all(arm.path == "persistent" for arm in self.arms):
            return "no cluster"
        return f"{sizes_text([arm.cluster for arm in self.arms])} CTAs"

    def rows(self, policies: Sequence[str]) -> str:
        """Write the rows, with the policies' names where those differ."""
        by_policy = {
            name: _ranges(arm for arm in self.arms if arm.policy == name) for name in policies
        }
        told: dict[str, list[str]] = {}
        for name, rows in by_policy.items():
            if rows:
                told.setdefault(rows, []).append(name)
        if len(told) == 1 and len(next(iter(told.values()))) == len(policies):
            return f"rows {next(iter(told))}{self.kind}"
        texts = [f"{rows} ({' and '.join(names)})" for rows, names in told.items()]
        return f"rows {' and '.join(texts)}{self.kind}"


def measured_finding(arms: Sequence[ArmRow], outcomes: Sequence[Outcome]) -> str:
    """Tell which rows fail, with code and cause, and which launch, with the results checked.

    The results are those of the judged ``outcomes`` that the launching arms stand for, each launch
    once, and of the kernel launched, thorprobe's own or a shipped one. Arms that the gate keeps
    rows from are only named.
    """
    policies = list(dict.fromkeys(arm.policy for arm in arms))
    parts = []
    for segment in _segments(_reached(arms)):
        text = _told(segment, policies, "")
        if segment.verdict is Verdict.LAUNCHES:
            text += _results(launches_of(segment.arms, outcomes))
        parts.append(text)
    return _sentence(parts, arms, policies)


def _results(outcomes: Sequence[Outcome]) -> str:
    kernels = {outcome.spec.kernel for outcome in outcomes}
    whose = "the shipped kernel" if any(map(is_shipped, kernels)) else "thorprobe's kernel"
    if any(map(is_operator, kernels)):
        whose = "vLLM's operator"
    _, total, oracle = results_right(outcomes)
    if not total:
        return ""
    # A wrong row would have made its arm's verdict another one.
    checked = f"{total:,} results checked against {oracle}"
    return f", and {whose} is right there ({checked})"


def predicted_finding(arms: Sequence[ArmRow], device: Device, *, several_maps: bool) -> str:
    """Tell which rows fail or launch on every admissible map, which are open, and each claim.

    That nothing was launched is for the page to say, and what a claim says and who says it.
    """
    reached = _reached(arms)
    policies = list(dict.fromkeys(arm.policy for arm in arms))
    every = " on every admissible map" if several_maps else ""
    parts = [_told(segment, policies, every) for segment in _segments(reached)]
    for claim in device.claims:
        changed = [
            arm
            for arm in reached
            if claim.id in arm.under_claims and arm.under_claims[claim.id] is not arm.verdict
        ]
        texts = [
            _claimed(group, verdict, policies)
            for verdict in Verdict
            if (group := [arm for arm in changed if arm.under_claims[claim.id] is verdict])
        ]
        if texts:
            parts.append(f"with the published claim {claim.id}: {', '.join(texts)}")
    return _sentence(parts, arms, policies)


def _reached(arms: Iterable[ArmRow]) -> list[ArmRow]:
    """Return the arms that calls reach and that were launched: of the persistent path operators."""
    return [
        arm for arm in arms if (arm.gate if arm.path == "cooperative" else is_operator(arm.kernel))
    ]


def _segments(arms: Sequence[ArmRow]) -> list[_Segment]:
    """Join arms of the same answer, worst rows first as they come; name k only where it matters."""
    kinds: dict[tuple[str, tuple[int, int | None]], set[tuple[Verdict, str | None]]] = {}
    for arm in arms:
        kinds.setdefault((arm.policy, arm.rows), set()).add((arm.verdict, arm.cause))
    found: dict[tuple[object, ...], list[ArmRow]] = {}
    for arm in arms:
        mixed = len(kinds[arm.policy, arm.rows]) > 1
        kind = f" at k {arm.k} {arm.dtype}" if mixed else ""
        found.setdefault((arm.verdict, arm.code, arm.cause, kind), []).append(arm)
    return [
        _Segment(
            verdict=members[0].verdict,
            code=members[0].code,
            cause=members[0].cause,
            kind=str(key[-1]),
            arms=tuple(members),
        )
        for key, members in found.items()
    ]


def _told(segment: _Segment, policies: Sequence[str], every: str) -> str:
    rows = segment.rows(policies)
    if segment.verdict is Verdict.LAUNCHES:
        return f"{rows} launch{every}"
    if segment.verdict is Verdict.REFUSED:
        name = CODE_NAMES.get(segment.code or 0, "")
        refusal = Refusal(code=segment.code, name=name, cause=segment.cause or "undetermined")
        where = every if segment.cause == "larger-than-any-gpc" else ""
        answered = code_text(refusal, with_cause=True)
        return f"{rows} take {segment.clusters} and are refused{where}: {answered}"
    by_layout = " by the layout" if every and segment.verdict is Verdict.UNDETERMINED else ""
    return f"{rows} take {segment.clusters} and {_WORDS[segment.verdict]}{by_layout}"


def _claimed(arms: Sequence[ArmRow], verdict: Verdict, policies: Sequence[str]) -> str:
    segment = _Segment(verdict=verdict, code=None, cause=None, kind="", arms=tuple(arms))
    does = "are refused" if verdict is Verdict.REFUSED else _WORDS[verdict]
    return f"{segment.rows(policies)} {does}"


def _ranges(arms: Iterable[ArmRow]) -> str:
    """Write the rows of arms, joining ranges that touch: 5-8 and 9-32 give ``5-32``."""
    return spans({arm.rows for arm in arms})


def _sentence(parts: Sequence[str], arms: Sequence[ArmRow], policies: Sequence[str]) -> str:
    """Join the parts, then the rows of cooperative arms that each policy's gate is shut for."""
    shut = [arm for arm in arms if arm.path == "cooperative" and not arm.gate]
    closed = [
        f"{f'{name}: ' if len(policies) > 1 else ''}gate shut for rows {rows}"
        for name in policies
        if (rows := _ranges(arm for arm in shut if arm.policy == name))
    ]
    text = "; ".join([*(parts or [NOTHING_REACHED]), *closed])
    return text[:1].upper() + text[1:]
