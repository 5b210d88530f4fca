# SPDX-License-Identifier: Apache-2.0
"""Whether two runs of a model selected the same blocks, query by query."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thorprobe.qwen4exp.records import Agreement

Floats = NDArray[np.float32]
Ints = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One query in both runs: scores [blocks] and selected blocks, those of -1 left out."""

    reference_scores: Floats
    reference_blocks: Ints
    ladder_scores: Floats
    ladder_blocks: Ints


def compare(pairs: Iterable[Pair], k: int) -> Agreement:
    """Compare what was selected, by the reference's scores as multisets.

    Sets that differ are *unresolved* where sorting cannot tell: scores of the two runs differ by up
    to d for this query (another order of summation, or another state before it), so that the i-th
    best of one lies within d of the i-th best of the other, and its block's score in the other run
    within d of that. A difference above 2 d has another reason, and is *wrong*.
    """
    counts = dict.fromkeys(("identical", "tied", "unresolved", "wrong"), 0)
    past = 0
    largest: float | None = None
    for pair in pairs:
        difference = _difference(pair.reference_scores, pair.ladder_scores)
        counts[_kind(pair, difference)] += 1
        past += len(pair.reference_scores) > k
        largest = difference if largest is None else max(largest, difference)
    return Agreement(
        compared=sum(counts.values()), past_budget=past, max_score_difference=largest, **counts
    )


def together(parts: Iterable[Agreement]) -> Agreement:
    """Return the sums of agreements, and the largest score difference."""
    found = list(parts)
    names = ("compared", "past_budget", "identical", "tied", "unresolved", "wrong")
    sums = {name: sum(getattr(part, name) for part in found) for name in names}
    seen = [p.max_score_difference for p in found if p.max_score_difference is not None]
    return Agreement(**sums, max_score_difference=max(seen, default=None))


def _kind(pair: Pair, difference: float) -> str:
    reference, ladder = np.sort(pair.reference_blocks), np.sort(pair.ladder_blocks)
    if np.array_equal(reference, ladder):
        return "identical"
    blocks = len(pair.reference_scores)
    if len(reference) != len(ladder) or _repeats(ladder) or _outside(ladder, blocks):
        return "wrong"
    chosen = np.sort(pair.reference_scores[reference])
    other = np.sort(pair.reference_scores[ladder])
    apart = _difference(chosen, other)
    if apart == 0:
        return "tied"
    return "unresolved" if apart <= 2 * difference else "wrong"


def _repeats(ordered: Ints) -> bool:
    return bool((ordered[1:] == ordered[:-1]).any())


def _outside(ordered: Ints, blocks: int) -> bool:
    return bool(len(ordered) and (ordered[0] < 0 or ordered[-1] >= blocks))


def _difference(one: Floats, other: Floats) -> float:
    """Largest difference; two NaN, or two equal infinities, do not differ."""
    if len(one) != len(other):
        return float("inf")
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if same.all():
        return 0.0
    apart = np.abs(one[~same].astype(np.float64) - other[~same].astype(np.float64))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max())
