# SPDX-License-Identifier: Apache-2.0
"""Inputs of a top-k launch, and the comparison of its result with an oracle."""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from thorprobe.record import Check, Workload

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

POISON = np.float32(np.nan)
"""Fills a row beyond its length: ranked above everything, so that it shows if it is selected."""


@lru_cache(maxsize=2)
def _base(rows: int, stride: int, distribution: str, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    if distribution == "normal":
        return rng.standard_normal((rows, stride), dtype=np.float32)
    if distribution == "uniform":
        return rng.random((rows, stride), dtype=np.float32)
    if distribution == "ten-values":
        return rng.integers(0, 10, (rows, stride)).astype(np.float32)
    if distribution == "all-equal":
        return np.full((rows, stride), 0.5, dtype=np.float32)
    if distribution == "masked":
        made = rng.standard_normal((rows, stride), dtype=np.float32)
        made[rng.random((rows, stride)) < 0.5] = -np.inf
        return made
    if distribution == "relu-sum":
        parts = rng.standard_normal((4, rows, stride), dtype=np.float32)
        summed: Floats = np.maximum(parts, 0).sum(axis=0, dtype=np.float32)
        return summed
    message = f"unknown distribution {distribution}"
    raise ValueError(message)


def scores(work: Workload) -> Floats:
    """Make the scores, float32 [rows, stride]; cells from ``length`` on hold NaN."""
    # Rows are drawn in order, so the first rows of a larger draw equal a smaller one.
    drawn = _base(work.rows, work.stride, work.distribution, work.seed)
    if work.length >= work.stride:
        return drawn
    made = drawn.copy()
    made[:, work.length :] = POISON
    return made


class Oracle(Protocol):
    """Names itself and gives the k largest values of each row, largest first."""

    name: str

    def __call__(self, valid: Floats, count: int) -> Floats:
        """Return float32 [rows, count] for scores [rows, length]."""


class NumpyOracle:
    """Partition and sort; NaN counts as the largest value, as in torch.topk."""

    name = "numpy.partition"

    def __call__(self, valid: Floats, count: int) -> Floats:
        """Return the ``count`` largest of each row, largest first."""
        if count == 0:
            return np.empty((valid.shape[0], 0), dtype=np.float32)
        best = np.partition(valid, valid.shape[1] - count, axis=1)[:, -count:]
        ordered: Floats = np.sort(best, axis=1)[:, ::-1]
        return ordered


class TorchOracle:
    """torch.topk on the CPU, in float32."""

    def __init__(self, torch: Any) -> None:
        """Take the imported module."""
        self._torch = torch
        self.name = f"torch.topk {torch.__version__}"

    def __call__(self, valid: Floats, count: int) -> Floats:
        """Return the ``count`` largest of each row, largest first."""
        values = self._torch.topk(self._torch.from_numpy(valid), count, dim=1).values
        result: Floats = values.numpy()
        return result


def oracle(name: str) -> Oracle:
    """Return the oracle ``numpy``, ``torch``, or for ``auto`` torch where it imports.

    Raises ImportError for ``torch`` where it is missing.
    """
    if name != "numpy":
        try:
            import torch
        except ImportError:
            if name == "torch":
                raise
        else:
            return TorchOracle(torch)
    return NumpyOracle()


def check(work: Workload, made: Floats, chosen: Ints, judge: Oracle) -> Check:
    """Compare a result with the oracle.

    made: the scores, float32 [rows, stride]. chosen: int32 [rows, k]. A row is right when its
    first ``min(length, k)`` indices are unique, lie below ``length``, select the oracle's values as
    a multiset, and the rest is -1.
    """
    length = max(0, min(work.length, work.stride))
    count = min(length, work.k)
    head, tail = chosen[:, :count], chosen[:, count:]
    expected = judge(np.ascontiguousarray(made[:, :length]), count)
    in_range = ((head >= 0) & (head < length)).all(axis=1)
    ordered = np.sort(head, axis=1)
    unique = (np.diff(ordered, axis=1) > 0).all(axis=1)
    padded = (tail == -1).all(axis=1)
    safe = np.clip(head, 0, max(length - 1, 0))
    values = np.take_along_axis(made, safe.astype(np.int64), axis=1)
    # NaN sorts last in NumPy, and the oracle puts it first: both largest.
    same = (
        (np.sort(values, axis=1) == np.sort(expected, axis=1))
        | (np.isnan(np.sort(values, axis=1)) & np.isnan(np.sort(expected, axis=1)))
    ).all(axis=1)
    verdicts = {
        "an index is out of range": in_range,
        "an index repeats": unique,
        "the tail is not -1": padded,
        "the values differ from the oracle's": same,
    }
    right = in_range & unique & padded & same
    wrong = int((~right).sum())
    detail = ""
    if wrong:
        row = int(np.flatnonzero(~right)[0])
        reasons = [text for text, good in verdicts.items() if not good[row]]
        detail = f"row {row}: {'; '.join(reasons)}"
    return Check(oracle=judge.name, rows=work.rows, wrong_rows=wrong, detail=detail)
