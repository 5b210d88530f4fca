# SPDX-License-Identifier: Apache-2.0
"""What the shapes of one kind came to in a ``bench``, and how each aim stands."""

from typing import Literal

from thorprobe.record import Record

Path = Literal["usual", "exact"]
Verdict = Literal["met", "missed", "open"]


class BenchGroup(Record, frozen=True, kw_only=True):
    """The shapes of one k, type, alignment and path, in one partition ('' for the whole device).

    ``geometric_mean`` and ``least`` are of the best peer's time over that of ``auto``, on the
    ``compared`` shapes that have both; ``slower`` counts those below 1. ``over_floor`` is the
    geometric mean of the time of ``auto`` over its floor. ``over_neighbour`` and its most are of
    the time of ``auto`` over that of the same rows with the nearest aligned number of columns.
    """

    k: int
    dtype: str
    aligned: bool
    path: Path
    partition: str = ""
    shapes: int
    compared: int = 0
    geometric_mean: float | None = None
    least: float | None = None
    least_at: str = ""
    slower: int = 0
    over_floor: float | None = None
    over_neighbour: float | None = None
    over_neighbour_most: float | None = None
    over_neighbour_most_at: str = ""


class AimFound(Record, frozen=True, kw_only=True):
    """How one number of one aim stands: ``found`` over ``shapes`` shapes, against ``goal``.

    ``at_least`` says whether more is better. ``missed_by`` is 0 where it is met. An open aim has no
    number, and ``note`` says why.
    """

    aim: str
    against: str
    measure: str
    goal: float
    at_least: bool
    shapes: int
    found: float | None = None
    found_at: str = ""
    verdict: Verdict
    missed_by: float = 0.0
    note: str = ""
