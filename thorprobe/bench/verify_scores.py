# SPDX-License-Identifier: Apache-2.0
"""Distributions of scores, drawn on the device from a seed.

The same seed draws the same scores on a device of the same kind.
"""

from collections.abc import Callable
from random import Random
from typing import Any

_HOT = 1_000.0
# Far above a standard normal, and a number of every type.
_SIZES = (32, 128, 1_024, 4_096)
# A warp, a warp's 16-byte loads of fp32, a block of threads, and the scores of its first loads.


class Source:
    """Random numbers of one shape; ``chance`` is the host's, for what is one number an input."""

    def __init__(
        self, torch: Any, shape: tuple[int, int], dtype: str, device: Any, seed: int
    ) -> None:
        """Seed both generators."""
        self.torch, self.shape, self.device = torch, shape, device
        self.dtype = getattr(torch, dtype)
        self.chance = Random(seed)  # noqa: S311  no secret
        self._random = torch.Generator(device)
        self._random.manual_seed(seed)
        self.seed = seed

    def normal(self) -> Any:
        """Draw standard normal, fp32."""
        return self.torch.randn(self.shape, generator=self._random, device=self.device)

    def uniform(self) -> Any:
        """Draw uniform in [0, 1), fp32."""
        return self.torch.rand(self.shape, generator=self._random, device=self.device)

    def whole(self, end: int) -> Any:
        """Draw whole numbers from 0 to below ``end``, int32."""
        return self.torch.randint(
            end, self.shape, generator=self._random, device=self.device, dtype=self.torch.int32
        )

    def index(self) -> Any:
        """Return the number of each column, int32 [1, columns]."""
        return self.torch.arange(self.shape[1], dtype=self.torch.int32, device=self.device)[None]

    def all(self, value: float) -> Any:
        """Return one value everywhere, fp32."""
        return self.torch.full(self.shape, value, device=self.device)

    def share(self) -> float:
        """Draw a share from a half to almost none."""
        return float(0.5 ** self.chance.choice((1, 2, 4, 6, 9)))

    def bits(self, low: int, high: int) -> Any:
        """Draw numbers of the type with bits from ``low`` to below ``high``, and any sign."""
        torch, wide = self.torch, self.dtype == self.torch.float32
        kind, sign = (torch.int32, -(2**31)) if wide else (torch.int16, -(2**15))
        magnitude = torch.randint(
            low, high, self.shape, generator=self._random, device=self.device, dtype=kind
        )
        negative = self.whole(2) == 0
        return torch.where(negative, magnitude | sign, magnitude).view(self.dtype)


def _exceptions(source: Source, *values: float) -> Any:
    """Draw standard normal, a share of each of some values in it."""
    torch, made, chance = source.torch, source.normal(), source.uniform()
    share = source.share()
    for number, value in enumerate(values):
        there = (chance >= number * share) & (chance < (number + 1) * share)
        made = torch.where(there, value, made)
    return made


def _striped(source: Source, size: int) -> Any:
    """Draw bright stripes: each 16th of ``size`` columns, or one column of each ``size``."""
    stripe = source.index() // size if source.seed % 2 else source.index()
    period = 16 if source.seed % 2 else size
    bright = stripe % period == source.chance.randrange(period)
    return source.normal() + bright * _HOT


def _block(source: Source) -> Any:
    """Draw standard normal with one bright block anywhere."""
    columns = source.shape[1]
    length = source.chance.randint(1, max(1, source.chance.randint(1, max(1, columns))))
    begin = source.chance.randint(0, max(0, columns - length))
    index = source.index()
    return source.normal() + ((index >= begin) & (index < begin + length)) * _HOT


def _one_hot(source: Source) -> Any:
    """Return zero but for one score a row; the hot column moves on from row to row."""
    rows, columns = source.shape
    first = source.chance.randrange(max(1, columns))
    row = source.torch.arange(rows, dtype=source.torch.int32, device=source.device)[:, None]
    return ((row * 7 + first) % max(1, columns) == source.index()).float()


def _zeros(source: Source) -> Any:
    """Draw zeros of both signs, with a few ones."""
    torch, which = source.torch, source.whole(5_000)
    return torch.where(which == 0, 1.0, torch.where(which % 2 == 0, 0.0, -0.0))


def _binades(source: Source) -> Any:
    """Draw both signs, uniform in the logarithm over 60 binades."""
    size = (source.uniform() * 60 - 30).exp2()
    return source.torch.where(source.whole(2) == 0, size, -size)


def _denormals(source: Source) -> Any:
    """Draw subnormal numbers of the type itself, both signs and zeros."""
    digits = {source.torch.float16: 10, source.torch.bfloat16: 7}.get(source.dtype, 23)
    return source.bits(0, 2**digits)


def _any_bits(source: Source) -> Any:
    """Draw every pattern of bits: subnormal numbers, infinities, NaN with any payload."""
    return source.bits(0, 2**31 - 1 if source.dtype == source.torch.float32 else 2**15 - 1)


def _relu(source: Source) -> Any:
    """Draw a sum of relu over four heads, as an indexer scores: half of the sums are 0."""
    return sum((source.normal() - 1).relu() for _ in range(4))


Maker = Callable[[Source], Any]
_nan, _inf = float("nan"), float("inf")

DISTRIBUTIONS: dict[str, Maker] = {
    "ascending": lambda s: s.index().float().expand(s.shape),
    "descending": lambda s: -s.index().float().expand(s.shape),
    "equal": lambda s: s.all(1.5),
    "one-hot": _one_hot,
    "two-values": lambda s: s.whole(2).float(),
    "few-values": lambda s: s.whole(10).float() - 5,
    "zeros": _zeros,
    "lowest": lambda s: s.torch.where(s.whole(64) == 0, 1.0, -_inf),
    "normal": lambda s: s.normal(),
    "uniform": lambda s: s.uniform() * 1e-3 - 5e-4,
    "sorted-up": lambda s: s.normal().sort(dim=1).values,
    "sorted-down": lambda s: s.normal().sort(dim=1, descending=True).values,
    "relu-sum": _relu,
    "half-type-ties": lambda s: 1_024 + s.uniform() * 0.25,
    "block": _block,
    **{f"striped-{size}": lambda s, size=size: _striped(s, size) for size in _SIZES},  # type: ignore[misc]
    "nan": lambda s: _exceptions(s, _nan),
    "infinities": lambda s: _exceptions(s, _inf, -_inf),
    "nan-and-infinities": lambda s: _exceptions(s, _nan, _inf, -_inf),
    "all-nan": lambda s: s.torch.where(s.whole(32) == 0, 1.0, _nan),
    "denormals": _denormals,
    "60-binades": _binades,
    "any-bits": _any_bits,
}
"""Makers of scores by name, the simplest first."""


def draw(distribution: str, source: Source) -> Any:
    """Return scores [rows, columns] of the source's type."""
    return DISTRIBUTIONS[distribution](source).to(source.dtype)
