# SPDX-License-Identifier: Apache-2.0
"""Scores of a bench by distribution: drawn once on the host, the same for every contender."""

import numpy as np

from thorprobe.record import Workload
from thorprobe.run import workload
from thorprobe.run.workload import Floats

_SHARED = ("normal", "uniform", "all-equal", "ten-values", "relu-sum")
# Drawn as the launches of topk-arms draw them.


def scores(rows: int, columns: int, distribution: str, seed: int) -> Floats:
    """Return float32 [rows, columns], the same for the same arguments.

    Raises ValueError for a distribution that ``plan.bench.DISTRIBUTIONS`` does not name.
    """
    if distribution in _SHARED:
        return workload.scores(
            Workload(
                rows=rows,
                columns=columns,
                stride=columns,
                length=columns,
                k=1,
                distribution=distribution,
                seed=seed,
            )
        )
    rng = np.random.default_rng(seed)
    if distribution in ("ascending", "descending"):
        made: Floats = np.sort(rng.random((rows, columns), dtype=np.float32), axis=1)
        return made if distribution == "ascending" else np.ascontiguousarray(made[:, ::-1])
    if distribution == "half-zero":
        return np.maximum(rng.standard_normal((rows, columns), dtype=np.float32), np.float32(0))
    if distribution == "fp16-ties":
        # A step of fp16 at 1 is 2^-10; up to 2^-12 above a multiple of it all rounds down to it.
        step = rng.integers(0, 8, (rows, columns)).astype(np.float32) * np.float32(2**-10)
        fine = rng.integers(0, 2**11, (rows, columns)).astype(np.float32) * np.float32(2**-23)
        return np.float32(1) + step + fine
    if distribution == "nan-inf":
        made = rng.standard_normal((rows, columns), dtype=np.float32)
        kind = rng.integers(0, 64, (rows, columns), dtype=np.uint8)
        for number, value in enumerate((np.nan, np.inf, -np.inf)):
            made[kind == number] = value
        return made
    message = f"unknown distribution {distribution}"
    raise ValueError(message)
