# SPDX-License-Identifier: Apache-2.0
"""How ``model-topk --engine vllm`` is shown."""

from collections.abc import Iterator, Sequence

from thorprobe.answer import Evidence, Kind
from thorprobe.qwen4exp.page import place_line
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import counted
from thorprobe.vllm import engine_judge as judge
from thorprobe.vllm import engine_tables as tables
from thorprobe.vllm.engine_likeness import NEAR
from thorprobe.vllm.engine_words import EngineRun, EngineSummary, OpRun

Answer = Evidence[EngineRun, EngineSummary]

_LEGEND = (
    ("equal", "positions whose best token is transformers' best on the same tokens"),
    (
        "tie",
        (
            "another best token, where none of the best five log-probabilities differs by more "
            f"than {NEAR}; the margin is transformers' own"
        ),
    ),
    ("other", "another best token, where they differ by more"),
    (
        "forced",
        "the engine was made to emit transformers' tokens, so that every prefix is the same",
    ),
    ("sequence", "all tokens of all requests of a run"),
    ("trace", "every bit of every log-probability of a run"),
    ("captured", "a call that went into a CUDA graph; its replays are not counted"),
    (
        "identical, tied, unresolved, wrong",
        (
            "sets of blocks that both selected for a query: the same; others of the same scores; "
            "others whose scores lie closer than the two runs' do; others for no such reason"
        ),
    ),
)


def sheet(answer: Answer) -> Sheet:
    """Put an answer into words."""
    runs, found = answer.results, answer.summary
    sections = (
        _asked(found),
        _said(found),
        _engines(runs),
        *_deaths(runs),
        tables.checks(runs),
        tables.likeness(runs),
        tables.selections(runs),
        tables.repeats(runs),
        tables.times(runs),
        tables.kernels(runs),
        _drop_ins(runs),
        _operators(runs),
        _listed("What was planned and has not ended", found.missing),
        _listed("Notes", found.notes),
    )
    cases = sum(len(run.cases) for run in runs)
    return Sheet(
        title="vLLM's engine on the model's selection",
        device=place_line(answer),
        finding=found.finding,
        next_action=found.next_action,
        sections=tuple(section for section in sections if section is not None),
        legend=_LEGEND,
        closing=(
            f"{counted(cases, 'case')} of {counted(len(runs), 'engine')} in {answer.wall_s:.0f} s"
        ),
    )


def _asked(found: EngineSummary) -> Section:
    pairs = [("vLLM", found.version or "not told")]
    for model in found.models:
        layers = ", ".join(map(str, model.layers))
        sentence = (
            f"{model.sentence}; {model.parameters:,} parameters, {model.k} blocks a query in "
            f"layers {layers}; weights made and saved once by transformers, SHA-256 "
            f"{model.weights}"
        )
        pairs.append((f"Model {model.model}", sentence))
    return Section(heading="What was run", pairs=tuple(pairs))


def _said(found: EngineSummary) -> Section | None:
    return _listed("What was found", found.sentences)


def _listed(heading: str, items: Sequence[str]) -> Section | None:
    return Section(heading=heading, items=tuple(items)) if items else None


def _engines(runs: Sequence[EngineRun]) -> Section:
    rows = []
    for run in runs:
        eager = sum(op.calls for op in run.start_ops if not op.captured)
        captured = sum(op.calls for op in run.start_ops if op.captured)
        became = judge.where(run.death) if run.death else "ran"
        rows.append(
            (
                run.engine,
                run.model,
                run.graph_mode or run.graphs,
                run.drop_in or "-",
                run.partition or "-",
                run.runner or "-",
                ", ".join(dict.fromkeys(run.backends.values())) or "-",
                f"{eager} and {captured}",
                f"{run.start_s:.1f}",
                f"{became}" if not run.death else f"dies {became}",
            )
        )
    heads = (
        ("engine",),
        ("model",),
        ("graphs",),
        ("drop-in",),
        ("partition", "of the operators"),
        ("runner",),
        ("attention",),
        ("calls at start,", "eager and captured"),
        ("start s",),
        ("what became of it",),
    )
    return Section(heading="Engines", table=tables.table(heads, rows, numeric=(8,)))


def _deaths(runs: Sequence[EngineRun]) -> Iterator[Section]:
    for run in runs:
        found = run.death
        if found is None:
            continue
        told = [("When", judge.where(found)), ("Error", found.kind)]
        if found.exit_status is not None:
            told.append(("Exit status", str(found.exit_status)))
        code = "\n".join((*found.frames, "", found.text) if found.frames else (found.text,))
        yield Section(
            heading=f"The death of {run.engine}: {judge.label(run)}",
            pairs=tuple(told),
            code=code,
        )


def _drop_ins(runs: Sequence[EngineRun]) -> Section | None:
    rows = []
    for run in runs:
        seen = run.seen
        if seen is None:
            continue
        rows.append(
            (
                run.engine,
                seen.mode,
                f"{seen.calls:,}",
                f"{seen.captured:,}",
                ", ".join(f"{one.name} {one.calls:,}" for one in seen.rungs) or "-",
                ", ".join(f"{one.name} {one.calls:,}" for one in seen.vllm_arms) or "-",
                "; ".join(f"{one.name} ({one.calls:,})" for one in seen.falls) or "-",
            )
        )
    heads = (
        ("engine",),
        ("mode",),
        ("calls",),
        ("captured",),
        ("rungs of the ladder",),
        ("vLLM's operators",),
        ("calls that went another way",),
    )
    return tables.section("What the drop-in says it did", heads, rows, (2, 3))


def _operators(runs: Sequence[EngineRun]) -> Section | None:
    pairs = []
    for run in runs:
        if run.start_ops:
            pairs.append((f"{run.engine}, at its start", _order(run.start_ops)))
        for case in run.cases:
            if case.ops:
                more = f"; {case.more_ops:,} more calls" if case.more_ops else ""
                pairs.append((f"{run.engine}, {case.case}", _order(case.ops) + more))
    if not pairs:
        return None
    return Section(
        heading="Operators in the order in which they ran",
        paragraphs=("Rows x columns, and how many calls in a row.",),
        pairs=tuple(pairs),
    )


_SHOWN = 24


def _order(runs: Sequence[OpRun]) -> str:
    told = [
        f"{op.op}{' captured' if op.captured else ''} {op.rows:,} x {op.columns:,}"
        + (f" ({op.calls:,} times)" if op.calls > 1 else "")
        for op in runs[:_SHOWN]
    ]
    if len(runs) > _SHOWN:
        calls = sum(op.calls for op in runs[_SHOWN:])
        told.append(f"and {counted(calls, 'call')} more")
    return "; ".join(told)


KIND = Kind(type=Answer, sheet=sheet)
