# SPDX-License-Identifier: Apache-2.0
"""Which rung for which shape: every kernel that could run, what the device says, what it costs.

A cost is launch + waves x (first batch + further batches) + bytes per SM, with factors that
``thorprobe bench --calibrate`` measured for a k (costs/). Waves come from ``max_active_clusters``
of the very launch on the caller's stream, so a partition, a MIG slice or another GPU answers for
itself; no compute capability is compared anywhere.
"""

import tomllib
from functools import lru_cache
from importlib import resources
from math import ceil

from thorprobe.record import Record
from thorprobe.topk.contract import RUNGS, SCORE_BYTES
from thorprobe.topk.variant import Variant, variants

CLUSTERS = (16, 8, 4, 2)


class Config(Record, frozen=True, kw_only=True):
    """One kernel on one rung: ``ctas`` CTAs a row, in a cluster unless the rung has none."""

    rung: str
    variant: Variant
    ctas: int

    @property
    def clustered(self) -> bool:
        """Whether the CTAs of a row form a cluster."""
        return self.variant.function != "part"

    @property
    def name(self) -> str:
        """How the files of costs name it."""
        return f"{self.variant.name}/{self.ctas}"

    def rows_at_once(self, active: int) -> int:
        """Return the rows that ``max_active_clusters`` of its launch makes room for.

        CTAs without a cluster find room one by one; where not all of a row do, it has them in turn.
        """
        return active if self.clustered else active // self.ctas or min(active, 1)


class Cost(Record, frozen=True, kw_only=True):
    """Factors of one choice, in microseconds.

    For a launch, a wave's first batch, each further batch of a wave, and a MB (10^6 B) that each SM
    reads.
    """

    launch: float
    wave: float
    batch: float
    megabyte: float


class Costs(Record, frozen=True, kw_only=True):
    """What was measured of one k, on which device and when; ``choices`` by the name of each."""

    device: str
    measured: str
    choices: dict[str, Cost]


@lru_cache(maxsize=1)
def _calibrated() -> tuple[int, ...]:
    folder = resources.files("thorprobe") / "topk" / "costs"
    names = (file.name for file in folder.iterdir())
    return tuple(sorted(int(n.removesuffix(".toml")) for n in names if n.endswith(".toml")))


def costs(k: int = 512) -> Costs:
    """Return the calibration that ships with thorprobe of the next larger k, or of the largest."""
    known = _calibrated()
    return _costs(next((one for one in known if one >= k), known[-1]))


@lru_cache(maxsize=8)
def _costs(k: int) -> Costs:
    import msgspec

    folder = resources.files("thorprobe") / "topk" / "costs"
    text = (folder / f"{k}.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Costs)


def choices(columns: int, dtype: str, *, rung: str = "auto") -> list[Config]:
    """Return every kernel that could run rows of ``columns`` scores, on one rung or on all.

    A ``short`` kernel holds the whole row, wherever it starts; all others cut a row of any length
    into what they hold.
    """
    found = []
    for variant in variants(dtype):
        if variant.function == "short":
            if columns <= variant.capacity:
                found.append(Config(rung="one-cta", variant=variant, ctas=1))
        elif variant.function == "part":
            found += [Config(rung="many-ctas", variant=variant, ctas=n) for n in CLUSTERS]
        else:
            found.append(Config(rung="one-cta", variant=variant, ctas=1))
            found += [Config(rung=f"cluster-{n}", variant=variant, ctas=n) for n in CLUSTERS]
    return [choice for choice in found if rung in ("auto", choice.rung)]


_MARGIN = 4.0
# As in the kernel: standard deviations that a CTA's share of k may be off.


_GROUP = 4
# As in the kernel: scores of the smallest group that has a maximum of its own, of any type.


def starved(variant: Variant, ctas: int, columns: int, k: int) -> bool:
    """Say whether a CTA has too few groups of scores for a useful bound.

    The kernel then repeats the row exactly: right, and several times slower (up to 2.4 times the
    best kernel in the calibration of 2026-11-30). Short kernels need no bound.
    """
    if variant.function == "short":
        return False
    held = min(variant.capacity, columns / ctas)
    if ctas == 1 and columns <= variant.capacity:
        wanted = float(k)
    else:
        share = k * held / max(columns, 1)
        wanted = share + _MARGIN * share**0.5 + 4
    return 2 * wanted > held / _GROUP


def below(rung: str) -> tuple[str, ...]:
    """Return the rungs to fall to from one, in order."""
    return RUNGS[RUNGS.index(rung) + 1 :]


CROWD = 0.2
# What each further CTA on the busiest SM adds to a wave, as a part of it: with 0.05 the choice took
# up to 1.24 times the best kernel's time, with 0.12 to 0.25 at most 1.04 (calibration, 2026-11-30).


def waves(rows: int, *, slots: int, ctas: int, sms: int) -> float:
    """Return how many waves rows take, a wave counted for more where CTAs share an SM.

    An SM's share of ``slots`` says how many CTAs it takes; a layout of GPCs then hosts that many
    times fewer rows with an SM for each CTA: an H200 hosts 30 clusters of 4 so, not 33.
    """
    if not rows:
        return 0.0
    many = ceil(rows / max(slots, 1))
    shared = max(ceil(slots * ctas / max(sms, 1)), 1)
    apart = max(slots / shared, 1)
    each = ceil(ceil(rows / many) / apart)
    return many * (1 + CROWD * (each - 1))


def predict(
    choice: Config, *, slots: int, sms: int, rows: int, columns: int, k: int, dtype: str
) -> float:
    """Return the microseconds that a launch takes by the model; ``slots`` rows run at once.

    A choice that was not calibrated costs what its neighbour of the same kernel does.
    """
    known = costs(k).choices
    cost = known.get(choice.name) or _nearest(choice, known)
    many = waves(rows, slots=slots, ctas=choice.ctas, sms=sms)
    batches = -(-columns // (choice.ctas * choice.variant.capacity))
    per_sm = rows * columns * SCORE_BYTES[dtype] / sms / 1e6
    return (
        cost.launch
        + many * (cost.wave + cost.batch * (max(batches, 1) - 1))
        + cost.megabyte * per_sm
    )


def _nearest(choice: Config, known: dict[str, Cost]) -> Cost:
    same = [
        (abs(int(name.rpartition("/")[2]) - choice.ctas), name)
        for name in known
        if name.startswith(f"{choice.variant.function}-")
    ]
    return known[min(same)[1]] if same else Cost(launch=5, wave=5, batch=1, megabyte=10)
