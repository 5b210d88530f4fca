# SPDX-License-Identifier: Apache-2.0
"""The closing report of a row as a sheet: what was owed first, the owner's command last."""

from collections.abc import Iterator, Mapping, Sequence

from thorprobe.answer import Evidence, Kind
from thorprobe.judge.finding import code_text
from thorprobe.judge.ranges import ranges, span
from thorprobe.oracle.closing_report_records import (
    ArmAnswer,
    ArmLine,
    Loss,
    Owed,
    RowSummary,
    SizesLine,
    Told,
    Who,
)
from thorprobe.oracle.evidence_file import AUDIT, ENGINE, MODEL
from thorprobe.oracle.page import (
    EVIDENCE,
    GATEABLE,
    answered_from,
    entries_table,
    evidence_pairs,
    marked,
    matrix,
    reasons,
)
from thorprobe.oracle.records import Cell
from thorprobe.record import Verdict
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, words

_TIMES = (
    "Times are graph replays of thorprobe's own kernel, which do not carry over to upstream's, "
    "unless the column says shipped kernel; persistent_topk, where a proposed gate sends these "
    "rows, was not timed"
)
_OWNER = (
    "In a checkout of thorprobe; no vLLM is needed, and what is measured takes the prediction's "
    "place. No time of the device is on record; elsewhere the measuring parts took:"
)
_IN_VLLM = (
    "In the environment of a vLLM, in a checkout of thorprobe: its engine alone, whose death is an "
    "answer, and with the drop-in"
)
_LEGEND = (
    ("measured", "launched and answered by that device"),
    ("predicted", "answered by the model of a profile; nothing was launched"),
    ("as cc", "the device's own kernels, in the arms that this part would take: it stands in"),
    ("?", "undetermined: the facts at hand do not decide it; after it, what a claim would decide"),
    GATEABLE,
)


def sheet(evidence: Evidence[Cell, RowSummary]) -> Sheet:
    """Put a closing report into words."""
    summary = evidence.summary
    marks = marked(summary.evidence)
    entries = next(iter(summary.oracle.rows.values()), {})
    return Sheet(
        title=f"Row {summary.row}: what was owed, and what is known",
        device=answered_from(marks),
        finding=summary.finding,
        next_action=summary.next_action,
        sections=(
            *(_owed(owed, marks) for owed in summary.owed),
            Section(
                heading="Cluster sizes of the trivial kernel",
                table=_sizes(summary.sizes, marks),
            ),
            Section(
                heading="Arms by num_rows",
                table=_arms(summary.arms, summary.who, marks),
            ),
            Section(
                heading="What the proposed gates would lose",
                paragraphs=(_TIMES,),
                table=_losses(summary.losses, summary.who, marks),
                pairs=tuple((loss.oracle, _gate(loss)) for loss in summary.losses),
            ),
            *_told("Gate audit", AUDIT, summary.told, marks),
            *_told("The model's own selection", MODEL, summary.told, marks),
            *_told("vLLM's own engine", ENGINE, summary.told, marks),
            Section(heading="Oracles", table=entries_table(entries)),
            Section(heading="Oracles on each device", table=matrix(entries, evidence.results)),
            Section(heading="Why", pairs=tuple(reasons(evidence.results, marks))),
            Section(heading="Not established", items=summary.open or ("nothing",)),
            Section(
                heading=f"What the owner of {summary.subject} runs",
                paragraphs=(_OWNER,),
                items=summary.took,
                code=summary.command,
                language="sh",
            ),
            *_in_vllm(summary),
            Section(heading=EVIDENCE, pairs=tuple(evidence_pairs(summary.evidence))),
        ),
        legend=(*_LEGEND, *summary.oracle.rules.items()),
    )


def _in_vllm(summary: RowSummary) -> Iterator[Section]:
    if summary.engine_command:
        yield Section(
            heading=f"What the owner of {summary.subject} runs beside a vLLM",
            paragraphs=(_IN_VLLM,),
            code=summary.engine_command,
            language="sh",
        )


def _owed(owed: Owed, marks: Mapping[str, str]) -> Section:
    origin = f"{owed.origin.value} for the subject" if owed.origin else "open for the subject"
    named = ", ".join(marks.get(name, name) for name in owed.because)
    basis = f"{origin} ({named})" if named else origin
    return Section(
        heading=f"Owed {owed.number}: {owed.question}", paragraphs=(basis,), items=owed.answers
    )


def _sizes(lines: Sequence[SizesLine], marks: Mapping[str, str]) -> Table:
    rows = tuple(
        tuple(
            (word,)
            for word in (
                line.who.label,
                line.who.origin.value,
                _numbers(line.launches),
                _refused(line),
                _numbers(line.undetermined),
                marks.get(line.who.evidence, line.who.evidence),
            )
        )
        for line in lines
    )
    names = ("device", "origin", "launches", "refused", "undetermined", "evidence")
    return Table(title="", columns=words(names), rows=rows)


def _numbers(sizes: Sequence[int]) -> str:
    return ranges(sizes) if sizes else "-"


def _refused(line: SizesLine) -> str:
    if not line.refused:
        return "-"
    why = f": {code_text(line.refusal, with_cause=True)}" if line.refusal else ""
    return f"{ranges(line.refused)}{why}"


def _arms(arms: Sequence[ArmLine], who: Sequence[Who], marks: Mapping[str, str]) -> Table:
    """Return a column per device: what each arm does there."""
    rows = tuple(
        (
            (arm.policy,),
            (span(*arm.rows),),
            (str(arm.cluster),),
            *((_answer(arm.answers.get(one.evidence)),) for one in who),
        )
        for arm in arms
    )
    return Table(
        title="",
        columns=(*words(("policy", "rows", "CTAs")), *_answering(who, marks)),
        rows=rows,
    )


def _answering(who: Sequence[Who], marks: Mapping[str, str]) -> list[Column]:
    return [
        Column(
            (f"{one.label} ({one.origin.value}, {marks.get(one.evidence, one.evidence)})",),
            numeric=False,
        )
        for one in who
    ]


def _answer(answer: ArmAnswer | None) -> str:
    if answer is None:
        return "-"
    if answer.verdict is Verdict.REFUSED:
        return f"refused {answer.code or ''}".strip()
    if answer.verdict is Verdict.UNDETERMINED:
        claimed = ", ".join(verdict.value for verdict in answer.under_claims.values())
        return f"? ({claimed})" if claimed else "?"
    return answer.verdict.value


def _losses(losses: Sequence[Loss], who: Sequence[Who], marks: Mapping[str, str]) -> Table:
    rows = tuple(
        (
            (loss.oracle,),
            (span(*arm.rows),),
            (str(arm.cluster),),
            *((_timed(arm.answers.get(one.evidence)),) for one in who),
        )
        for loss in losses
        for arm in loss.arms
    )
    return Table(
        title="",
        columns=(*words(("oracle", "rows", "CTAs")), *_answering(who, marks)),
        rows=rows,
    )


def _gate(loss: Loss) -> str:
    lost = "" if loss.arms else "; it keeps no rows from an arm that is not refused"
    return f"{loss.gate} (source: {loss.source}){lost}"


def _timed(answer: ArmAnswer | None) -> str:
    if answer is None or answer.time_us is None:
        return _answer(answer)
    return f"{_answer(answer)}, {answer.time_us:.1f} us at {answer.time_shape}"


def _told(
    heading: str, command: str, told: Sequence[Told], marks: Mapping[str, str]
) -> Iterator[Section]:
    pairs = tuple(
        (marks.get(one.who.evidence, one.who.evidence), _finding(one))
        for one in told
        if one.command == command
    )
    if pairs:
        yield Section(heading=heading, pairs=pairs)


def _finding(told: Told) -> str:
    # An audit is of several devices, and names them itself.
    where = "" if told.command == AUDIT else f"{told.who.label} ({told.who.origin.value}): "
    return f"{where}{told.finding}"


KIND = Kind(type=Evidence[Cell, RowSummary], sheet=sheet)
