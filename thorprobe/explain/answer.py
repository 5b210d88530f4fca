# SPDX-License-Identifier: Apache-2.0
"""Explains one launch: reads what was given, weighs it, and puts the answer together."""

from collections.abc import Sequence
from pathlib import Path

from thorprobe.answer import Evidence
from thorprobe.cli.measure import now, process_age
from thorprobe.errors import UsageError
from thorprobe.explain import evidence_file as files
from thorprobe.explain.asked import Asked
from thorprobe.explain.finding import finding, lowered, next_action, residency
from thorprobe.explain.popular import contradicted
from thorprobe.explain.records import ExplainSummary, Reading, Told
from thorprobe.explain.settle import settles
from thorprobe.explain.terms import TERMS, term
from thorprobe.explain.told import tell
from thorprobe.explain.weigh import OPEN, Weighed, weigh
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.record import Origin

Answer = Evidence[Reading, ExplainSummary]

_LONGEST_NAME = 255


def explain(
    subject: str,
    asked: Asked,
    kernel: str = "",
    cubin: Path | None = None,
    argv: Sequence[str] = (),
) -> Answer:
    """Return what explains a launch: of ``subject`` (a text, a file, a cause or a term), and facts.

    Raises UsageError where nothing was told, and for a file or an option that is wrong.
    """
    started = now()
    origin = Origin.PUBLISHED
    if subject in BY_KEY:
        summary = _entry(subject)
    elif term(subject):
        summary = ExplainSummary(
            finding=f"{subject}: {term(subject)}", term=subject, terms={subject: term(subject)}
        )
    else:
        origin = Origin.RECORDED
        summary = _launch(subject, asked, kernel, cubin)
    return Answer(
        command="explain",
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=origin,
        results=tuple(readings(summary)),
        summary=summary,
        wall_s=round(process_age(), 2),
    )


def summarize(told: Told, weighed: Weighed) -> ExplainSummary:
    """Put what the facts leave into words."""
    remarks = weighed.remarks if weighed.cause else weighed.remarks[1:]  # The finding has it.
    return ExplainSummary(
        finding=finding(told, weighed),
        cause=weighed.cause,
        candidates=weighed.candidates,
        missing=weighed.missing,
        contradicted=contradicted(told, weighed.cause),
        settles=settles(weighed.cause, weighed.missing),
        next_action=next_action(told, weighed),
        said=told.said,
        remarks=tuple(dict.fromkeys((*remarks, *residency(told), *told.remarks))),
        told=told,
    )


def readings(summary: ExplainSummary) -> list[Reading]:
    """Return the cause and the candidates as the catalogue has them."""
    keys = dict.fromkeys(key for key in (summary.cause, *summary.candidates) if key)
    return [
        Reading(
            cause=key,
            number=BY_KEY[key].number,
            fits="settled" if key == summary.cause else "possible",
            sentence=BY_KEY[key].sentence,
            proof=BY_KEY[key].separating_test,
            next_action=BY_KEY[key].next_action,
            codes=BY_KEY[key].codes,
            sources=BY_KEY[key].sources,
        )
        for key in keys
        if key != OPEN or len(keys) == 1
    ]


def _entry(key: str) -> ExplainSummary:
    entry = BY_KEY[key]
    return ExplainSummary(
        finding=f"{entry.name}: {lowered(entry.sentence)}",
        cause=key,
        next_action=entry.next_action,
        term=key,
    )


def _launch(subject: str, asked: Asked, kernel: str, cubin: Path | None) -> ExplainSummary:
    path = _file(subject)
    head = files.head(path) if path else b""
    if path and files.is_store(head):
        told, judged = files.worst(path)
        weighed = weigh(told)
        if judged is None:
            weighed = Weighed(remarks=("every launch of the store went as asked",))
        elif judged == OPEN and weighed.cause is None:
            weighed = Weighed(cause=OPEN, missing=("driver-log",), remarks=weighed.remarks)
        elif judged not in (OPEN, weighed.cause):
            weighed = Weighed(cause=judged, candidates=weighed.candidates)
        return summarize(told, weighed)
    text = subject
    if path:
        if files.is_cubin(head):
            cubin, text = path, ""
        else:
            text = files.log(path)
    facts = files.kernel(cubin, kernel) if cubin else None
    told = tell(asked, text, facts)
    if not told.said and not told.hung and told == tell(Asked(), ""):
        raise UsageError(
            f"{_short(subject)!r} was given, and no sentence, code, cause or term in it is known"
            if subject.strip()
            else "nothing was told of a launch",
            "paste the whole error, give `--code N`, or the launch (`--grid 4,33,1 --block 128 "
            f"--smem 65536 --profile thor`); terms: {', '.join(TERMS)}",
        )
    return summarize(told, weigh(told))


def _file(subject: str) -> Path | None:
    """Return the file that a subject names, None where it is a text."""
    if not subject or "\n" in subject or len(subject) > _LONGEST_NAME or "\0" in subject:
        return None
    path = Path(subject)
    try:
        return path if path.is_file() else None
    except OSError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
