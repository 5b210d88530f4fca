# SPDX-License-Identifier: Apache-2.0
"""Parts the shapes of a bench by k, type, alignment and path, and says what each part came to."""

from collections.abc import Iterator, Sequence

from thorprobe.bench.group_records import BenchGroup, Path
from thorprobe.bench.plan import EXACT_PATH, aligned, neighbour
from thorprobe.bench.records import BenchPoint
from thorprobe.bench.times import auto, best_peer, geometric_mean, us
from thorprobe.topk.contract import SCORE_BYTES

Ratio = tuple[BenchPoint, float]
"""A shape, and a ratio of two times on it."""

_Key = tuple[str, int, bool, Path]


def groups(points: Sequence[BenchPoint], partition: str = "") -> tuple[BenchGroup, ...]:
    """Return the groups in the order in which their first shape was timed."""
    held: dict[_Key, list[BenchPoint]] = {}
    for point in points:
        held.setdefault(_key(point), []).append(point)
    neighbours = dict(_beside(points))
    return tuple(_group(key, found, neighbours, partition) for key, found in held.items())


def peer_ratios(points: Sequence[BenchPoint], peer: str = "") -> list[Ratio]:
    """Return the time of a peer, the best of each shape where none is named, over that of auto."""
    found = []
    for point in points:
        mine = us(auto(point))
        other = point.time(peer) if peer else us(best_peer(point))
        if mine and other:
            found.append((point, other / mine))
    return found


def neighbour_ratios(points: Sequence[BenchPoint], among: Sequence[BenchPoint]) -> list[Ratio]:
    """Return the time of auto over that of the aligned neighbour, which is looked for in ``among``.

    Aligned shapes have none.
    """
    beside = dict(_beside(among))
    found = []
    for point in points:
        mine, other = us(auto(point)), beside.get(point.id)
        if mine and other:
            found.append((point, mine / other))
    return found


def _key(point: BenchPoint) -> _Key:
    path: Path = "exact" if point.distribution in EXACT_PATH else "usual"
    return point.dtype, point.k, _aligned(point), path


def _aligned(point: BenchPoint) -> bool:
    # Evidence comes from strangers: a type that nobody knows has no alignment to lose.
    return point.dtype not in SCORE_BYTES or aligned(point.columns, point.dtype)


def _beside(points: Sequence[BenchPoint]) -> Iterator[tuple[str, float]]:
    """Yield the id of each unaligned shape with the microseconds of its aligned neighbour."""
    times = {_place(point, point.columns): us(auto(point)) for point in points}
    for point in points:
        if not _aligned(point) and (found := times.get(_place(point, neighbour(point.columns)))):
            yield point.id, found


def _place(point: BenchPoint, columns: int) -> tuple[str, str, int, int, int]:
    return point.distribution, point.dtype, point.k, columns, point.rows


def _group(
    key: _Key, points: Sequence[BenchPoint], neighbours: dict[str, float], partition: str
) -> BenchGroup:
    dtype, k, is_aligned, path = key
    ratios = peer_ratios(points)
    least_at, least = min(ratios, key=lambda pair: pair[1], default=(None, None))
    beside = [
        (p, mine / neighbours[p.id]) for p in points if p.id in neighbours if (mine := us(auto(p)))
    ]
    most_at, most = max(beside, key=lambda pair: pair[1], default=(None, None))
    floors = [
        mine / p.floor.us for p in points if p.floor and p.floor.us > 0 if (mine := us(auto(p)))
    ]
    return BenchGroup(
        k=k,
        dtype=dtype,
        aligned=is_aligned,
        path=path,
        partition=partition,
        shapes=len(points),
        compared=len(ratios),
        geometric_mean=_mean([ratio for _, ratio in ratios]),
        least=round(least, 3) if least is not None else None,
        least_at=least_at.id if least_at else "",
        slower=sum(ratio < 1 for _, ratio in ratios),
        over_floor=_mean(floors),
        over_neighbour=_mean([ratio for _, ratio in beside]),
        over_neighbour_most=round(most, 3) if most is not None else None,
        over_neighbour_most_at=most_at.id if most_at else "",
    )


def _mean(ratios: Sequence[float]) -> float | None:
    return round(geometric_mean(ratios), 3) if ratios else None
