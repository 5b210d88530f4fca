# SPDX-License-Identifier: Apache-2.0
"""Rows of an arm split where what they do changes."""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def runs(first: int, last: int | None, found: Mapping[int, K]) -> list[tuple[int, int, K]]:
    """Join rows ``first`` to ``last`` of equal keys; rows between two different ones are of none.

    Where all probed rows agree the run is the whole range: the launches differ in grid.x alone.
    With an open end the last run ends at the last probed row. Empty where nothing was found.
    """
    split: list[tuple[int, int, K]] = []
    for rows in sorted(found):
        if split and split[-1][2] == found[rows]:
            split[-1] = (split[-1][0], rows, found[rows])
        else:
            split.append((rows, rows, found[rows]))
    if split:
        split[0] = (first, split[0][1], split[0][2])
        end = split[-1]
        split[-1] = (end[0], end[1] if last is None else last, end[2])
    return split
