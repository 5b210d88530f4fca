# SPDX-License-Identifier: Apache-2.0
"""How ``bench --calibrate`` is shown: the fit, how well it chooses, and the costs."""

from collections.abc import Iterator

from thorprobe.answer import Evidence, Kind
from thorprobe.bench.calibration_records import CalibrationSummary, ChoiceTimes
from thorprobe.bench.costs import costs_toml
from thorprobe.render.page import device_line
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted
from thorprobe.topk.ladder import CROWD

Answer = Evidence[ChoiceTimes, CalibrationSummary]

_WAVES = (
    "rows over the rows that run at once, rounded up; the device said how many those are for each "
    f"kernel and partition; a wave counts {CROWD:.0%} more for each further CTA on the busiest SM"
)
_LEGEND = (
    ("launch", "microseconds of a launch"),
    ("wave", "microseconds of a wave's first batch of scores"),
    ("batch", "microseconds of each further batch of a wave"),
    ("megabyte", "microseconds of a MB (10^6 B) that each SM reads"),
    ("waves", _WAVES),
    ("error", "of a prediction, as a part of the time; the median of the choice's times"),
)


def sheet(answer: Answer) -> Sheet:
    """Put a calibration into words."""
    found = answer.summary
    return Sheet(
        title="Calibration of the ladder's cost model",
        device=device_line(answer),  # type: ignore[arg-type]
        finding=found.finding,
        next_action=found.next_action,
        sections=tuple(_sections(answer)),
        legend=_LEGEND,
        closing=(
            f"{counted(len(answer.results), 'series', 'series')} in {answer.wall_s:.1f} s; no Thor "
            "was measured"
        ),
    )


def _sections(answer: Answer) -> Iterator[Section]:
    found, options = answer.summary, answer.options
    rows, columns = (", ".join(f"{n:,}" for n in ns) for ns in (found.rows, found.columns))
    told = (
        f"Every kernel of the ladder with each number of CTAs a row: {rows} rows of {columns} "
        f"columns, standard normal scores, k = {found.k}, {found.dtype}. A time is the median of "
        f"{options.get('replays')} replays of a CUDA graph of {options.get('launches')} launches; "
        "every result was held against a stable sort, index by index, before it was timed."
    )
    yield Section(heading="What was timed", paragraphs=(told,))
    yield _errors(found)
    yield _chosen(found)
    yield _costs(found)
    refused = [one for one in answer.results if one.note]
    if refused:
        yield Section(
            heading="What was not timed",
            items=tuple(f"{one.id}: {one.status.value}, {one.note}" for one in refused),
        )
    if found.notes:
        yield Section(heading="Notes", items=found.notes)
    yield Section(heading=f"costs/{found.k}.toml", code=costs_toml(found), language="toml")


def _errors(found: CalibrationSummary) -> Section:
    told = (("all", found.error), ("up to 1.5 times the best of their shape", found.near))
    rows = [
        (
            which,
            f"{error.points:,}",
            f"{error.median:.1%}",
            f"{error.percentile_90:.1%}",
            f"{error.worst:.0%}",
            error.worst_at,
        )
        for which, error in told
        if error is not None
    ]
    return Section(
        heading="Error of the fit",
        paragraphs=("A time counts for less the farther it is above the best of its shape.",),
        table=Table(
            title="error",
            columns=(
                Column(("times",), numeric=False),
                *(Column((name,)) for name in ("number", "median", "9 of 10", "worst")),
                Column(("worst at",), numeric=False),
            ),
            rows=tuple(tuple((cell,) for cell in row) for row in rows),
        ),
    )


def _chosen(found: CalibrationSummary) -> Section:
    rows = [
        (
            one.partition or "whole device",
            str(one.sms),
            str(one.shapes),
            f"{one.median:.3f}",
            f"{one.percentile_90:.3f}",
            f"{one.worst:.3f}",
            one.worst_at,
        )
        for one in found.auto
    ]
    return Section(
        heading="Time of the preferred choice over the best one's",
        table=Table(
            title="auto",
            columns=(
                Column(("partition",), numeric=False),
                *(Column((name,)) for name in ("SMs", "shapes", "median", "9 of 10", "worst")),
                Column(("worst at",), numeric=False),
            ),
            rows=tuple(tuple((cell,) for cell in row) for row in rows),
        ),
    )


def _costs(found: CalibrationSummary) -> Section:
    rows = [
        (
            choice,
            *(f"{value:g}" for value in (cost.launch, cost.wave, cost.batch, cost.megabyte)),
            str(cost.points),
            f"{cost.error:.1%}",
        )
        for choice, cost in found.costs.items()
    ]
    names = ("launch", "wave", "batch", "megabyte", "times", "error")
    return Section(
        heading="Costs in microseconds",
        table=Table(
            title="costs",
            columns=(Column(("choice",), numeric=False), *(Column((name,)) for name in names)),
            rows=tuple(tuple((cell,) for cell in row) for row in rows),
        ),
    )


KIND = Kind(type=Answer, sheet=sheet)
