# SPDX-License-Identifier: Apache-2.0
"""Inputs of the tests of ``thorprobe.topk``, and a selection by Python's own sort to hold against.

Shared by the tests on a CPU and on a GPU, which read it by path.
"""

import math

import torch


def expected(row, length, k, *, nan="largest", ordered=False):
    """Return the k indices of one row by sorting its scores as Python floats, padded with -1.

    ``row`` is a list of floats. Larger scores come first, equal ones by index; -0 equals 0.
    """
    length = max(0, min(length, len(row)))

    def rank(index):
        score = row[index]
        if math.isnan(score):
            return (0 if nan == "largest" else 2, 0.0, index)
        return (1, -score, index)

    chosen = sorted(range(length), key=rank)[:k]
    if length <= k and not ordered:
        chosen = list(range(length))
    return chosen + [-1] * (k - len(chosen))


class _Source:
    """Random numbers of one shape, fp32."""

    def __init__(self, shape, device, seed):
        self._shape, self._device = shape, device
        self._random = torch.Generator(device).manual_seed(seed)

    def normal(self):
        return torch.randn(self._shape, generator=self._random, device=self._device)

    def uniform(self):
        return torch.rand(self._shape, generator=self._random, device=self._device)

    def whole(self, end):
        """Whole numbers from 0 to below ``end``."""
        made = torch.randint(end, self._shape, generator=self._random, device=self._device)
        return made.float()

    def all(self, value):
        return torch.full(self._shape, value, device=self._device)


def _nan_and_inf(source):
    made, which = source.normal(), source.whole(20)
    for value, number in ((0, torch.nan), (1, torch.inf), (2, -torch.inf)):
        made = torch.where(which == value, number, made)
    return made


def _zeros(source):
    made = torch.where(source.whole(2) == 0, 0.0, -0.0)
    return torch.where(source.whole(5_000) == 0, 1.0, made)


_MAKERS = {
    "normal": lambda source: source.normal(),
    "uniform": lambda source: source.uniform() * 1e-3 - 5e-4,
    "up": lambda source: source.normal().sort(dim=1).values,
    "down": lambda source: source.normal().sort(dim=1, descending=True).values,
    "equal": lambda source: source.all(1.5),
    "ten": lambda source: source.whole(10) - 5,
    # Four heads, each zero for 84 of 100 scores: half of the sums are exactly zero.
    "relu": lambda source: sum((source.normal() - 1).relu() for _ in range(4)),
    # Closer together than the step of fp16 there: a key of 16 bits cannot tell them apart.
    "fp16-collisions": lambda source: 1024 + source.uniform() * 0.25,
    "nan-and-inf": _nan_and_inf,
    "zeros-of-both-signs": _zeros,
    "all-lowest": lambda source: source.all(-torch.inf),
    # Subnormal in fp32, zero in the other types.
    "tiny": lambda source: source.whole(1_000) * 1e-42 - 5e-40,
}

DISTRIBUTIONS = tuple(_MAKERS)
"""Those that the ladder's exactness is claimed for, and the corners of the number line."""


def scores(name, shape, dtype=torch.float32, device="cpu", seed=0):
    """Make scores [rows, columns] of one distribution."""
    return _MAKERS[name](_Source(shape, device, seed)).to(dtype)
