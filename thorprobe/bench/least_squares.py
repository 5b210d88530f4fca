# SPDX-License-Identifier: Apache-2.0
"""Least squares with factors that are not negative."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TOLERANCE = 1e-9
_ROUNDS = 64
# A handful of factors settles in as many rounds; numbers that do not settle end here.


def nonnegative(matrix: Floats, target: Floats) -> Floats:
    """Return x >= 0 with the least |matrix x - target|^2, by the active-set method.

    Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23: a factor enters where the
    error falls most steeply, and leaves where the unconstrained solution would make it negative.
    """
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    found = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(_ROUNDS):
        slope = scaled.T @ (target - scaled @ found)
        slope[free] = -np.inf
        steepest = int(np.argmax(slope))
        if free.all() or slope[steepest] <= _TOLERANCE * max(float(np.linalg.norm(target)), 1.0):
            break
        free[steepest] = True
        while free.any():
            wanted = np.zeros_like(found)
            wanted[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            below = free & (wanted <= _TOLERANCE)
            if not below.any():
                found = wanted
                break
            # Go towards it only as far as the first factor that reaches 0, and fix that one.
            part = float(np.min(found[below] / np.maximum(found[below] - wanted[below], 1e-300)))
            found = found + min(part, 1.0) * (wanted - found)
            free &= found > _TOLERANCE
            found[~free] = 0.0
    result: Floats = found / scale
    return result
