# SPDX-License-Identifier: Apache-2.0
"""Fits the four factors of each kernel's cost to its times, and holds the choice against the best.

The model is that of ``thorprobe.topk.ladder``: launch + waves x (wave + batch x further batches) +
megabyte x MB that an SM reads. It is linear in its factors, none may be negative, and an error
counts by its part of the time: non-negative least squares on rows divided by the time. A time far
above the best of its shape says little of which kernel to take, so it counts for less.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from thorprobe.bench.calibration_records import (
    AutoQuality,
    CalibrationSummary,
    ChoiceTimes,
    FitError,
    FittedCost,
)
from thorprobe.bench.least_squares import nonnegative
from thorprobe.record import Record
from thorprobe.topk.contract import SCORE_BYTES
from thorprobe.topk.ladder import starved, waves
from thorprobe.topk.variant import VARIANTS, Variant

FACTORS = ("launch", "wave", "batch", "megabyte")

_RELEVANCE = 4
# Power of best over own time. On the times of an H200 (2026-11-30) the preferred choice took at
# most 1.04 times the best one's time with 4 and 5, 1.05 times with 3, 1.07 times with 1 and 2.
_NEAR = 1.5
# Times up to that factor of the best of their shape are those that decide.

Shape = tuple[str, int, int]
"""Partition, rows and columns."""


class Grid(Record, frozen=True, kw_only=True):
    """The shapes of a calibration: every series has a time for each of ``rows``."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    k: int = 512
    dtype: str = "float32"


@dataclass(frozen=True)
class Point:
    """One time of one series."""

    series: ChoiceTimes
    rows: int
    columns: int
    us: float
    score_bytes: int = SCORE_BYTES["float32"]

    @property
    def id(self) -> str:
        """Stable, readable name."""
        return f"{self.series.id}/r{self.rows}n{self.columns}"

    @property
    def shape(self) -> Shape:
        """What the choices compete on."""
        return self.series.partition, self.rows, self.columns

    def features(self) -> tuple[float, float, float, float]:
        """Return what the four factors are multiplied by."""
        series = self.series
        many = waves(self.rows, slots=series.slots, ctas=series.ctas, sms=series.sms)
        batches = max(-(-self.columns // (series.ctas * series.capacity)), 1)
        megabytes = self.rows * self.columns * self.score_bytes / max(series.sms, 1) / 1e6
        return 1.0, many, many * (batches - 1), megabytes

    def predicted(self, cost: FittedCost) -> float:
        """Return the microseconds that a cost says."""
        factors = (cost.launch, cost.wave, cost.batch, cost.megabyte)
        return sum(f * x for f, x in zip(factors, self.features(), strict=True))


def points(series: Sequence[ChoiceTimes], grid: Grid) -> Iterator[Point]:
    """Yield every time that was taken, is positive and is of a kernel that ``auto`` may choose.

    A row of at most k scores is taken whole by every kernel: its time says nothing of longer ones.
    """
    for one in series:
        variant = variant_of(one.choice)
        for columns in grid.columns:
            if columns <= grid.k:
                continue
            if variant is not None and starved(variant, one.ctas, columns, grid.k):
                continue
            for rows, us in zip(grid.rows, one.us.get(str(columns), ()), strict=False):
                if one.slots and us is not None and us > 0:
                    yield Point(one, rows, columns, us, SCORE_BYTES[grid.dtype])


def variant_of(choice: str) -> Variant | None:
    """Return the kernel of a choice by its name, None for one that is no more."""
    name = choice.rpartition("/")[0]
    return next((variant for variant in VARIANTS if variant.name == name), None)


def fit(series: Sequence[ChoiceTimes], grid: Grid) -> dict[str, FittedCost]:
    """Return the cost of each choice, over all partitions, with three significant digits."""
    by_choice: dict[str, list[Point]] = {}
    for point in points(series, grid):
        by_choice.setdefault(point.series.choice, []).append(point)
    best = _best(series, grid)
    return {choice: _fitted(taken, best) for choice, taken in sorted(by_choice.items())}


def _best(series: Sequence[ChoiceTimes], grid: Grid) -> dict[Shape, float]:
    """Return the least time of each shape in each partition."""
    best: dict[Shape, float] = {}
    for point in points(series, grid):
        best[point.shape] = min(point.us, best.get(point.shape, point.us))
    return best


def _fitted(taken: Sequence[Point], best: dict[Shape, float]) -> FittedCost:
    times = np.array([point.us for point in taken])
    weights = np.array([(best[point.shape] / point.us) ** _RELEVANCE for point in taken])
    matrix = np.array([point.features() for point in taken]) / times[:, None]
    factors = nonnegative(matrix * weights[:, None], weights)
    rounded: dict[str, Any] = {
        name: float(f"{factor:.3g}") for name, factor in zip(FACTORS, factors, strict=True)
    }
    cost = FittedCost(**rounded, points=len(taken))
    errors = [abs(point.predicted(cost) - point.us) / point.us for point in taken]
    return FittedCost(**rounded, points=len(taken), error=round(median(errors), 4))


def error(
    series: Sequence[ChoiceTimes], grid: Grid, costs: dict[str, FittedCost], *, near: bool = False
) -> FitError | None:
    """Return how far the costs are from the times, None where there is no time.

    ``near`` leaves out times of more than 1.5 times the best of their shape.
    """
    best = _best(series, grid)
    found = [
        (abs(point.predicted(costs[point.series.choice]) - point.us) / point.us, point.id)
        for point in points(series, grid)
        if point.series.choice in costs and (not near or point.us <= _NEAR * best[point.shape])
    ]
    if not found:
        return None
    worst, worst_at = max(found)
    return FitError(
        points=len(found),
        median=round(median(part for part, _ in found), 4),
        percentile_90=round(float(np.percentile([part for part, _ in found], 90)), 4),
        worst=round(worst, 4),
        worst_at=worst_at,
    )


def quality(
    series: Sequence[ChoiceTimes], grid: Grid, costs: dict[str, FittedCost]
) -> tuple[AutoQuality, ...]:
    """Return, for each partition, how much slower the preferred choice is than the best one."""
    shapes: dict[tuple[str, int], dict[tuple[int, int], list[Point]]] = {}
    for point in points(series, grid):
        if point.series.choice in costs:
            part = shapes.setdefault((point.series.partition, point.series.sms), {})
            part.setdefault((point.rows, point.columns), []).append(point)
    found = []
    for (partition, sms), by_shape in shapes.items():
        ratios = []
        for (rows, columns), taken in by_shape.items():
            preferred = min(taken, key=lambda point: point.predicted(costs[point.series.choice]))
            ratio = preferred.us / min(point.us for point in taken)
            ratios.append((ratio, f"r{rows}n{columns} {preferred.series.choice}"))
        worst, worst_at = max(ratios)
        found.append(
            AutoQuality(
                partition=partition,
                sms=sms,
                shapes=len(ratios),
                median=round(median(ratio for ratio, _ in ratios), 3),
                percentile_90=round(float(np.percentile([r for r, _ in ratios], 90)), 3),
                worst=round(worst, 3),
                worst_at=worst_at,
            )
        )
    return tuple(found)


def finding(found: CalibrationSummary) -> str:
    """Return the sentence that stands first: the fit's error, and how well it chooses."""
    if found.error is None:
        return "nothing was timed, so that no cost is known"
    bad = f"WRONG or refused launches in {found.wrong} series; " if found.wrong else ""
    off = found.near or found.error
    fitted = (
        f"costs of {len(found.costs)} choices fitted to {found.error.points:,} times; near the "
        f"best of a shape they are off by {off.median:.1%} in the median and "
        f"{off.percentile_90:.1%} in 9 of 10"
    )
    worst = max(found.auto, key=lambda one: one.worst)
    middle = max(one.median for one in found.auto)
    return (
        f"{bad}{fitted}; the choice they prefer takes {middle:.2f} times the best one's time in "
        f"the median, at most {worst.worst:.2f} ({_where(worst)}, {worst.worst_at})"
    )


def next_action(found: CalibrationSummary) -> str:
    """Return what to do with the costs."""
    if found.wrong:
        return "run `pytest -m gpu`: it holds every rung against a reference"
    if found.error is None:
        return "`thorprobe doctor` says what is missing"
    return "`--costs thorprobe/topk/costs/K.toml` writes the file that the ladder reads for that k"


def _where(one: AutoQuality) -> str:
    return one.partition or "the whole device"
