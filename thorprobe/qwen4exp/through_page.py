# SPDX-License-Identifier: Apache-2.0
"""How ``topk-arms --through-model`` is shown."""

from collections.abc import Sequence

from thorprobe.answer import Evidence, Kind
from thorprobe.plan.policy import arm_name
from thorprobe.qwen4exp.page import busy, fall_line, place_line
from thorprobe.qwen4exp.through_records import ArmCall, ArmReached, ThroughSummary
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted

Answer = Evidence[ArmCall, ThroughSummary]

_LEGEND = (
    ("num_rows", "rows that the selection was called with: what the dispatch decides by"),
    ("arm", "what the policy's gate and dispatch take for these rows"),
    ("rung", "what thorprobe's ladder answered with; on a GPU the arm's own size is asked of it"),
)
_NOTES = (
    "The arm follows from the num_rows seen at the call; upstream's kernel was not launched",
    "Columns are this context's; the gate is asked with vLLM's, which follow from max_model_len",
    "No Thor was measured: on any other device its arms are those of the dispatch alone",
)


def sheet(answer: Answer) -> Sheet:
    """Put an answer into words."""
    found = answer.summary
    model = f"{found.model}; a request holds {found.context_tokens:,} tokens before the step."
    fallen = [fall for arm in found.arms for fall in arm.fallen]
    sections = [
        Section(
            heading="Arms reached through the model",
            paragraphs=(model,),
            table=_arms(found.arms),
        ),
        Section(heading="What tells the arms apart", items=found.contrasts),
        Section(heading="Calls", table=_calls(answer.results)),
        Section(heading="Notes", items=(*busy(answer), *_NOTES)),
    ]
    if fallen:
        told = tuple(dict.fromkeys(fall_line(fall) for fall in fallen))
        sections.insert(
            2, Section(heading="Rungs that were refused, and the next one taken", items=told)
        )
    return Sheet(
        title="Arms of the dispatch, through the model",
        device=place_line(answer),
        finding=found.finding,
        sections=tuple(sections),
        legend=_LEGEND,
        closing=f"{counted(len(answer.results), 'call')} in {answer.wall_s:.1f} s",
    )


def _arms(arms: Sequence[ArmReached]) -> Table:
    rows = []
    for arm in arms:
        right, total = arm.checked
        cells = (
            f"{arm.policy}, {arm_name(arm.cluster, arm.path)}",
            ", ".join(map(str, arm.num_rows)),
            "; ".join(arm.settings),
            ", ".join(f"{rung} ({calls})" for rung, calls in arm.rungs.items()),
            f"{arm.falls} of {arm.calls}",
            f"{right:,} of {total:,}",
        )
        rows.append(tuple((cell,) for cell in cells))
    return Table(
        title="arms",
        columns=(
            Column(("arm",), numeric=False),
            Column(("num_rows seen",), numeric=False),
            Column(("least and", "most rows by"), numeric=False),
            Column(("rung (calls)",), numeric=False),
            Column(("calls that", "fell")),
            Column(("rows", "right")),
        ),
        rows=tuple(rows),
    )


def _calls(calls: Sequence[ArmCall]) -> Table:
    rows = []
    for call in calls:
        gate = "open" if call.gate else "shut"
        cells = (
            call.policy,
            call.setting,
            str(call.num_rows),
            arm_name(call.cluster, call.path),
            gate,
            call.rung,
            f"{call.duration_us:,.0f}",
        )
        rows.append(tuple((cell,) for cell in cells))
    return Table(
        title="calls",
        columns=(
            Column(("policy",), numeric=False),
            Column(("settings",), numeric=False),
            Column(("num_rows",)),
            Column(("arm",), numeric=False),
            Column(("gate",), numeric=False),
            Column(("rung",), numeric=False),
            Column(("us",)),
        ),
        rows=tuple(rows),
    )


KIND = Kind(type=Answer, sheet=sheet)
