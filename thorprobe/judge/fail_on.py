# SPDX-License-Identifier: Apache-2.0
"""What ``--fail-on`` asks of a finished measurement."""

from collections.abc import Iterable, Sequence

from thorprobe.judge.arm_launches import launches_of
from thorprobe.record import Outcome, Verdict
from thorprobe.summary import ArmsSummary, Document


def failing(
    document: Document, wanted: Sequence[str], baseline: Iterable[Outcome] | None = None
) -> str:
    """Return the first reason to fail, empty when there is none.

    wanted: any of ``refused``, ``wrong``, ``changed``. A launch without the opt-in that it needs is
    refused by design and counts for none of them. ``refused`` counts of a drive the arms that calls
    reach: none behind a shut gate, and no other size asked beside an arm. ``changed`` compares
    verdict and code of every launch that both runs hold, and a launch that only one of them holds
    is a change.
    """
    asked = [o for o in document.results if not o.assumes and not _refused_by_design(o)]
    if "refused" in wanted:
        for outcome in _reached(document, asked):
            if outcome.verdict is Verdict.REFUSED:
                return f"`{outcome.id}` is refused ({outcome.cause})"
    if "wrong" in wanted:
        for outcome in asked:
            if outcome.verdict in (Verdict.WRONG, Verdict.FAULTS, Verdict.HANGS):
                return f"`{outcome.id}`: {outcome.verdict.value} ({outcome.cause})"
    if "changed" in wanted and baseline is not None:
        return _changed(document.results, baseline)
    return ""


def _reached(document: Document, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    summary = document.summary
    if not isinstance(summary, ArmsSummary):
        return outcomes
    open_arms = [arm for arm in summary.arms if arm.gate and arm.path == "cooperative"]
    return launches_of(open_arms, outcomes)


def _refused_by_design(outcome: Outcome) -> bool:
    return outcome.cause == "non-portable-not-enabled"


def _changed(results: Iterable[Outcome], baseline: Iterable[Outcome]) -> str:
    before = {o.id: o for o in baseline}
    after = {o.id: o for o in results}
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            return f"`{key}` is only in the {'baseline' if new is None else 'new run'}"
        was = (old.verdict, old.observed.launch_code)
        now = (new.verdict, new.observed.launch_code)
        if was != now:
            return f"`{key}` was {_said(old)} and is {_said(new)}"
    return ""


def _said(outcome: Outcome) -> str:
    code = outcome.observed.launch_code
    return f"{outcome.verdict.value}{f' ({code})' if code else ''}"
