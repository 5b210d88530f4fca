# SPDX-License-Identifier: Apache-2.0
"""How ``model-topk`` is shown."""

from collections.abc import Sequence
from typing import Any

from thorprobe.answer import Evidence, Kind
from thorprobe.qwen4exp.records import Fallen, ModelStep, ModelSummary, RowsSeen
from thorprobe.qwen4exp.selection import together
from thorprobe.render.page import device_line
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted

Answer = Evidence[ModelStep, ModelSummary]

_LEGEND = (
    ("past budget", "queries that see more blocks than are selected: only these can differ"),
    ("tied", "other blocks than the reference's, with the same scores"),
    (
        "unresolved",
        "other blocks, whose scores are closer than the two runs' scores of that query are",
    ),
    ("wrong", "other blocks, for no such reason"),
    (
        "ties at the cut",
        "rows, of all, in which an unselected score equals the least selected one",
    ),
    (
        "speedup",
        "a query's time in the reference's loop over its time in what replaces it, once warm",
    ),
)
_THOR_UNMEASURED = "No Thor was measured: of cc 11.0 the arms are those of the dispatch alone."


def sheet(answer: Answer) -> Sheet:
    """Put an answer into words."""
    found = answer.summary
    sections = [
        _asked(answer),
        _rows(found),
        _falls(found.fallen),
        _sets(answer.results, found),
        _times(found),
        _steps(answer.results),
        Section(heading="Notes", items=(*found.notes, *busy(answer), _THOR_UNMEASURED)),
    ]
    return Sheet(
        title="The model's own selection through the ladder",
        device=place_line(answer),
        finding=found.finding,
        next_action=found.next_action,
        sections=tuple(section for section in sections if section is not None),
        legend=_LEGEND,
        closing=f"{counted(len(answer.results), 'step')} of both runs in {answer.wall_s:.1f} s",
    )


def place_line(answer: Any) -> str:
    """Return who answered; a CPU is told by its threads."""
    if answer.device is not None:
        return device_line(answer)
    threads = answer.software.get("threads", "")
    told = f"CPU, {counted(int(threads), 'thread')}" if threads.isdigit() else "CPU"
    return f"{told}, {answer.origin.value}"


def busy(answer: Any) -> tuple[str, ...]:
    """Say so where a CPU had other work when the run began: its times are then of little worth."""
    try:
        load, threads = (float(answer.software[name]) for name in ("load", "threads"))
    except (KeyError, ValueError):
        return ()
    if load < threads / 4:
        return ()
    threads_told = counted(int(threads), "thread")
    told = f"A load of {load:.1f} on {threads_told} was there when this began"
    return (f"{told}: the times are of a busy machine",)


def _asked(answer: Answer) -> Section:
    found = answer.summary
    layers = ", ".join(map(str, found.indexer_layers))
    dtype = str(answer.options.get("dtype", ""))
    rate, before = found.tokens_per_second, found.reference_tokens_per_second
    calls = (
        f"{counted(found.requests, 'request')} of {found.context_tokens:,} tokens of context, then "
        f"decoding with {counted(found.query_tokens, 'query token')} a request and step"
    )
    return Section(
        heading="What was run",
        pairs=(
            ("Model", f"{found.model}; {found.parameters:,} parameters, {dtype}"),
            ("Selection", f"{found.k} blocks a query, in {_layer(found)} {layers}"),
            ("Calls", calls),
            (
                "Decoded tokens a second",
                f"{rate:.3g} with the ladder, {before:.3g} with the reference's loop",
            ),
            ("Peak memory", f"{found.peak_memory_bytes / 1e9:.1f} GB"),
        ),
    )


def _layer(found: ModelSummary) -> str:
    return "layer" if len(found.indexer_layers) == 1 else "layers"


def _rows(found: ModelSummary) -> Section:
    capabilities = tuple(dict.fromkeys(cc for seen in found.num_rows for cc in seen.arms))
    policy = found.num_rows[0].policy if found.num_rows else ""
    return Section(
        heading="Rows that reached the selection, and their arms",
        table=Table(
            title="rows",
            columns=(
                Column(("phase",), numeric=False),
                Column(("num_rows",)),
                Column(("calls",)),
                Column(("rung taken",), numeric=False),
                *(
                    Column((f"arm of {policy}", f"on cc {cc}"), numeric=False)
                    for cc in capabilities
                ),
            ),
            rows=tuple(_seen(seen, capabilities) for seen in found.num_rows),
        ),
    )


def _seen(seen: RowsSeen, capabilities: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    rungs = ", ".join(
        rung if calls == seen.calls else f"{rung} ({calls})" for rung, calls in seen.rungs.items()
    )
    arms = [seen.arms.get(cc, "-") for cc in capabilities]
    cells = (seen.phase, f"{seen.num_rows:,}", f"{seen.calls:,}", rungs, *arms)
    return tuple((cell,) for cell in cells)


def _falls(fallen: Sequence[Fallen]) -> Section | None:
    if not fallen:
        return None
    return Section(
        heading="Rungs that were refused, and the next one taken",
        items=tuple(fall_line(fall) for fall in fallen),
    )


def fall_line(fall: Fallen) -> str:
    """Say one fall in a line."""
    code = f"code {fall.code}, " if fall.code else ""
    return f"{fall.rung}: {code}{fall.reason}, in {counted(fall.calls, 'call')}"


def _sets(steps: Sequence[ModelStep], found: ModelSummary) -> Section:
    rows = []
    for phase in dict.fromkeys(step.phase for step in steps):
        taken = [s for step in steps if step.phase == phase for s in step.selections]
        part = together(s.agreement for s in taken)
        checks = [s.check for s in taken if s.check]
        cells = (
            phase,
            f"{part.compared:,}",
            f"{part.past_budget:,}",
            f"{part.identical:,}",
            f"{part.tied:,}",
            f"{part.unresolved:,}",
            f"{part.wrong:,}",
            _number(part.max_score_difference),
            f"{sum(s.ties_at_cut for s in taken):,} of {sum(s.num_rows for s in taken):,}",
            f"{sum(c.rows - c.wrong_rows for c in checks):,} of {sum(c.rows for c in checks):,}",
        )
        rows.append(tuple((cell,) for cell in cells))
    names = ("compared", "past budget", "identical", "tied", "unresolved", "wrong")
    return Section(
        heading="Selected sets, query by query",
        paragraphs=(
            f"Every row was also held against the definition of a top-{found.k} of its own scores.",
        ),
        table=Table(
            title="sets",
            columns=(
                Column(("phase",), numeric=False),
                *(Column((name,)) for name in names),
                Column(("largest score", "difference")),
                Column(("ties at", "the cut")),
                Column(("rows", "right")),
            ),
            rows=tuple(rows),
        ),
    )


def _times(found: ModelSummary) -> Section:
    rows = []
    for time in found.times:
        cells = (
            time.phase,
            f"{time.reference_queries:,}",
            _each(time.reference_us, time.reference_queries),
            f"{time.ladder_queries:,}",
            _each(time.ladder_us, time.ladder_queries),
            _each(time.select_us, time.ladder_queries),
            f"{time.speedup:,.1f}" if time.speedup else "-",
        )
        rows.append(tuple((cell,) for cell in cells))
    return Section(
        heading="Time of selection",
        table=Table(
            title="times",
            columns=(
                Column(("phase",), numeric=False),
                Column(("reference", "queries")),
                Column(("us a", "query")),
                Column(("ladder", "queries")),
                Column(("us a", "query")),
                Column(("select", "alone")),
                Column(("speedup",)),
            ),
            rows=tuple(rows),
        ),
    )


def _steps(steps: Sequence[ModelStep]) -> Section:
    rows = []
    for step in steps:
        columns = max((s.columns for s in step.selections), default=0)
        cells = (
            step.id,
            f"{step.first:,}",
            f"{step.requests} x {step.tokens:,}",
            f"{columns:,}",
            _number(step.max_logit_difference),
            f"{step.different_tokens} of {step.compared_tokens}",
            f"{step.reference_us / 1e3:,.1f}",
            f"{step.duration_us / 1e3:,.1f}",
        )
        rows.append(tuple((cell,) for cell in cells))
    return Section(
        heading="Steps",
        table=Table(
            title="steps",
            columns=(
                Column(("step",), numeric=False),
                Column(("from", "position")),
                Column(("requests x", "tokens")),
                Column(("scored", "blocks")),
                Column(("logit", "difference")),
                Column(("tokens", "differ")),
                Column(("reference", "ms")),
                Column(("ladder", "ms")),
            ),
            rows=tuple(rows),
        ),
    )


def _each(microseconds: float, number: int) -> str:
    return f"{microseconds / number:,.1f}" if number else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


KIND = Kind(type=Answer, sheet=sheet)
