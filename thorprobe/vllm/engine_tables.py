# SPDX-License-Identifier: Apache-2.0
"""The tables of an engine's page: what was checked, compared, repeated and timed."""

from collections.abc import Iterator, Sequence

from thorprobe.render.sheet import Section
from thorprobe.render.table import Column, Table
from thorprobe.vllm import engine_judge as judge
from thorprobe.vllm.engine_words import CaseRun, EngineRun


def checks(runs: Sequence[EngineRun]) -> Section | None:
    """Return every checked row, by case and operator."""
    rows = [
        (
            run.engine,
            case.case,
            name,
            f"{check.rows:,}",
            f"{check.wrong_rows:,}",
            check.detail or "-",
        )
        for run, case in cases(runs)
        for name, check in sorted(case.checks.items())
    ]
    heads = (("engine",), ("case",), ("operator",), ("rows checked",), ("wrong",), ("detail",))
    return section("Selected rows, each against torch.topk", heads, rows, (3, 4))


def likeness(runs: Sequence[EngineRun]) -> Section | None:
    """Return tokens and log-probabilities against transformers, ties named."""
    rows, named = [], []
    for run, case in cases(runs):
        alike = case.likeness
        if alike is None:
            continue
        rows.append(
            (
                run.engine,
                case.case,
                "yes" if alike.forced else "no",
                f"{alike.positions}",
                f"{alike.equal}",
                f"{alike.ties}",
                f"{alike.other}",
                "-" if alike.max_difference is None else f"{alike.max_difference:.3f}",
            )
        )
        named += [f"{run.engine}, {case.case}, {told}" for told in alike.ties_named]
    heads = (
        ("engine",),
        ("case",),
        ("forced",),
        ("positions",),
        ("equal",),
        ("tie",),
        ("other",),
        ("largest difference", "of the best five"),
    )
    made = section(
        "Tokens and log-probabilities against transformers on the same weights",
        heads,
        rows,
        (3, 4, 5, 6, 7),
    )
    if made is None:
        return None
    return Section(heading=made.heading, table=made.table, items=tuple(named))


def selections(runs: Sequence[EngineRun]) -> Section | None:
    """Return selected sets against transformers', query by query."""
    rows = []
    for run, case in cases(runs):
        if case.likeness is None:
            continue
        for phase, part in (("prefill", case.likeness.prefill), ("decode", case.likeness.decode)):
            if not part.compared:
                continue
            rows.append(
                (
                    run.engine,
                    case.case,
                    phase,
                    f"{part.compared:,}",
                    f"{part.past_budget:,}",
                    f"{part.identical:,}",
                    f"{part.tied:,}",
                    f"{part.unresolved:,}",
                    f"{part.wrong:,}",
                    "-"
                    if part.max_score_difference is None
                    else f"{part.max_score_difference:.2g}",
                )
            )
    heads = (
        ("engine",),
        ("case",),
        ("phase",),
        ("compared",),
        ("past budget",),
        ("identical",),
        ("tied",),
        ("unresolved",),
        ("wrong",),
        ("largest score", "difference"),
    )
    return section("Selected sets against transformers'", heads, rows, tuple(range(3, 10)))


def repeats(runs: Sequence[EngineRun]) -> Section | None:
    """Return how many answers the same prompts had."""
    rows = [
        (
            run.engine,
            run.drop_in or "-",
            run.graphs,
            f"{case.requests}",
            f"{case.prompt_tokens:,}",
            f"{case.repeats.runs}",
            f"{case.repeats.sequences}",
            f"{case.repeats.traces}",
            f"{case.repeats.worst_sequences} and {case.repeats.worst_traces}",
        )
        for run, case in cases(runs)
        if case.repeats is not None
    ]
    heads = (
        ("engine",),
        ("drop-in",),
        ("graphs",),
        ("requests",),
        ("prompt tokens",),
        ("runs",),
        ("sequences",),
        ("traces",),
        ("of the worst", "request"),
    )
    return section("The same prompts again and again", heads, rows, (3, 4, 5, 6, 7))


def times(runs: Sequence[EngineRun]) -> Section | None:
    """Return prefill, token and selection times."""
    rows = []
    for run, case in cases(runs):
        times = case.times
        if times is None:
            continue
        tokens = max(case.new_tokens, 2) - 1
        rows.append(
            (
                run.engine,
                run.drop_in or "-",
                run.graphs,
                f"{case.requests}",
                f"{case.prompt_tokens:,}",
                f"{times.prefill_us / 1e3:,.2f}",
                f"{times.prefill_spread_us / 1e3:,.2f}",
                f"{times.token_us / 1e3:,.3f}",
                f"{times.token_spread_us / 1e3:,.3f}",
                f"{judge.selection_us(case, 'prefill'):,.1f}",
                f"{judge.selection_us(case, 'decode') / tokens:,.1f}",
            )
        )
    heads = (
        ("engine",),
        ("drop-in",),
        ("graphs",),
        ("requests",),
        ("prompt tokens",),
        ("prefill ms",),
        ("spread",),
        ("a token ms",),
        ("spread",),
        ("selection us,", "prefill"),
        ("selection us,", "a token"),
    )
    return section("Times", heads, rows, tuple(range(3, 11)))


def kernels(runs: Sequence[EngineRun]) -> Section | None:
    """Return the kernels that ran, by case and phase."""
    rows = [
        (
            run.engine,
            case.case,
            kernel.phase,
            kernel.name,
            f"{kernel.calls:,}",
            f"{kernel.total_us / kernel.calls:,.1f}" if kernel.calls else "-",
        )
        for run, case in cases(runs)
        if case.times is not None
        for kernel in case.times.kernels
    ]
    heads = (("engine",), ("case",), ("phase",), ("kernel",), ("calls",), ("us each",))
    return section("Kernels of the selection, as they ran", heads, rows, (4, 5))


def cases(runs: Sequence[EngineRun]) -> Iterator[tuple[EngineRun, CaseRun]]:
    """Yield every case with its engine."""
    for run in runs:
        for case in run.cases:
            yield run, case


def section(
    heading: str,
    heads: Sequence[tuple[str, ...]],
    rows: Sequence[tuple[str, ...]],
    numeric: Sequence[int],
) -> Section | None:
    """Return a section with a table; None without rows."""
    """Yield every case with its engine."""
    if not rows:
        return None
    return Section(heading=heading, table=table(heads, rows, numeric=numeric))


def table(
    heads: Sequence[tuple[str, ...]], rows: Sequence[tuple[str, ...]], numeric: Sequence[int]
) -> Table:
    """Return a table of single words, with these columns right-aligned."""
    return Table(
        title="",
        columns=tuple(Column(head, numeric=i in numeric) for i, head in enumerate(heads)),
        rows=tuple(tuple((cell,) for cell in row) for row in rows),
    )
