# SPDX-License-Identifier: Apache-2.0
"""Whose time of a shape is meant: of ``auto``, of the best peer, of the best rung."""

from collections.abc import Iterable, Sequence
from math import exp, log

from thorprobe.bench.plan import AUTO
from thorprobe.bench.records import BenchPoint, BenchTime


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return exp(sum(map(log, ratios)) / len(ratios))


def auto(point: BenchPoint) -> BenchTime | None:
    """Return the time of ``auto`` that others are compared with: with the lowest ties, if any."""
    found = [one for one in point.times if one.contender == AUTO and one.us is not None]
    return next((one for one in found if one.ties == "lowest"), found[0] if found else None)


def best(times: Iterable[BenchTime]) -> BenchTime | None:
    """Return the fastest of those that were timed."""
    return min((one for one in times if one.us), key=lambda one: one.us or 0.0, default=None)


def best_peer(point: BenchPoint) -> BenchTime | None:
    """Return the fastest peer of a shape."""
    return best([one for one in point.times if one.peer])


def best_rung(point: BenchPoint) -> BenchTime | None:
    """Return the fastest rung that was named, asked the same of ties as ``auto``."""
    asked = auto(point)
    return best(
        [
            one
            for one in point.times
            if asked and not one.peer and one.contender != AUTO and one.ties == asked.ties
        ]
    )


def us(time: BenchTime | None) -> float | None:
    """Return the microseconds of a time, None where there is none."""
    return time.us if time else None
