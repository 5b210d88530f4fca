# SPDX-License-Identifier: Apache-2.0
"""All maps of co-scheduling groups that a device may have, given what is published of it.

Where few maps are admissible they are listed. The least and greatest number of hosted clusters
over all of them is computed without the list, so it is exact however many maps there are.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from thorprobe.record import Record

GroupMap = tuple[int, ...]
"""Sizes in SMs of the groups that co-schedule clusters, largest first."""

MAX_MAPS = 5_000
"""Most maps that are listed: 48 SMs of which nothing is known have 1,575, 60 SMs have 5,604."""


def hosted(groups: Sequence[int], cluster: int, ctas_per_sm: int = 1) -> int:
    """Clusters of ``cluster`` CTAs that run at once on ``groups`` (sizes in SMs).

    A group of n SMs hosts such a cluster only if n >= ``cluster``, however many CTAs an SM holds,
    and then floor(n * ctas_per_sm / cluster) of them (2,210 of 2,210 points measured on an H200).
    """
    return sum(n * ctas_per_sm // cluster for n in groups if n >= cluster)


class Constraints(Record, frozen=True, kw_only=True):
    """What is known of a layout, in SMs; None where nothing is.

    A GPC holds whole TPCs of ``sms_per_tpc`` SMs. ``groups_may_split`` says whether one GPC may be
    exposed as several co-scheduling groups (an H200 exposes one as 8+2+2+2+2, measured). The size
    of the largest group can be bounded as well, which is how a published claim enters.
    """

    sms_per_tpc: int = 2
    max_gpcs: int | None = None
    max_sms_per_gpc: int | None = None
    groups_may_split: bool = True
    largest_at_least: int = 0
    largest_at_most: int | None = None


class Admissible(Record, frozen=True, kw_only=True):
    """The maps of a device with ``sms`` SMs: one known map, or all that constraints admit."""

    sms: int
    known: GroupMap | None = None
    constraints: Constraints = Constraints()

    @property
    def count(self) -> int | None:
        """Return the number of maps, None where they are too many to list."""
        if self.known is not None:
            return 1
        maps = enumerate_maps(self.constraints, self.sms)
        return None if maps is None else len(maps)

    @property
    def exists(self) -> bool:
        """Say whether any map is admissible at all."""
        return self.known is not None or _extremes(self.constraints, self.sms, 1, 1) is not None

    def hosted(self, cluster: int, ctas_per_sm: int = 1) -> tuple[int, int]:
        """Return the least and greatest number of clusters that run at once, over all maps.

        Raises ValueError where no map is admissible.
        """
        if self.known is not None:
            exact = hosted(self.known, cluster, ctas_per_sm)
            return exact, exact
        found = _extremes(self.constraints, self.sms, cluster, ctas_per_sm)
        if found is None:
            raise ValueError("no map is admissible")
        return found

    def largest(self, cap: int) -> tuple[int, int]:
        """Return the largest cluster up to ``cap`` that every map hosts, and that some map does."""
        answers = [self.hosted(cluster) for cluster in range(1, cap + 1)]
        low = max((c for c, (least, _) in enumerate(answers, 1) if least), default=0)
        high = max((c for c, (_, most) in enumerate(answers, 1) if most), default=0)
        return low, high


@lru_cache(maxsize=64)
def enumerate_maps(constraints: Constraints, sms: int) -> tuple[GroupMap, ...] | None:
    """Return every multiset of group sizes that ``constraints`` admit on ``sms`` SMs.

    Each map is largest first, the maps in descending order. None where there could be more than
    ``MAX_MAPS``; an empty tuple where the constraints contradict each other.
    """
    unit = constraints.sms_per_tpc
    if sms % unit:
        return ()
    total = sms // unit
    part = _largest_part(constraints, total)
    if _count_partitions(total, part) > MAX_MAPS:
        return None
    gpcs, room = constraints.max_gpcs, _gpc_units(constraints, total)
    maps = []
    for parts in _partitions(total, part):
        if parts[0] * unit < constraints.largest_at_least:
            continue
        if gpcs is not None:
            if not constraints.groups_may_split and len(parts) > gpcs:
                continue
            if not _fits(parts, (room,) * gpcs):
                continue
        maps.append(tuple(size * unit for size in parts))
    return tuple(maps)


def _gpc_units(constraints: Constraints, total: int) -> int:
    """TPCs that one GPC can hold, at most ``total``."""
    if constraints.max_sms_per_gpc is None:
        return total
    return min(total, constraints.max_sms_per_gpc // constraints.sms_per_tpc)


def _largest_part(constraints: Constraints, total: int) -> int:
    """TPCs that one group can hold, at most ``total``."""
    room = _gpc_units(constraints, total)
    if constraints.largest_at_most is None:
        return room
    return min(room, constraints.largest_at_most // constraints.sms_per_tpc)


def _count_partitions(total: int, part: int) -> int:
    ways = [1] + [0] * total
    for size in range(1, part + 1):
        for value in range(size, total + 1):
            ways[value] += ways[value - size]
    return ways[total]


def _partitions(total: int, part: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
        return
    for size in range(min(total, part), 0, -1):
        for rest in _partitions(total - size, size):
            yield (size, *rest)


@lru_cache(maxsize=100_000)
def _fits(parts: tuple[int, ...], bins: tuple[int, ...]) -> bool:
    """Whether groups can be laid into GPCs with so much room each; both largest first."""
    if not parts:
        return True
    if parts[0] == 1:
        return sum(parts) <= sum(bins)
    for index, room in enumerate(bins):
        if room < parts[0] or (index and bins[index - 1] == room):
            continue
        left = sorted((*bins[:index], room - parts[0], *bins[index + 1 :]), reverse=True)
        if _fits(parts[1:], tuple(left)):
            return True
    return False


# Best total without, and with, a group that reaches `largest_at_least`; None where impossible.
_Pair = tuple[int | None, int | None]
_Pick = Callable[[int, int], int]


@lru_cache(maxsize=4096)
def _extremes(
    constraints: Constraints, sms: int, cluster: int, ctas_per_sm: int
) -> tuple[int, int] | None:
    """Least and greatest hosted clusters over all admissible maps; None where there is no map."""
    low = _extreme(constraints, sms, (cluster, ctas_per_sm), min)
    high = _extreme(constraints, sms, (cluster, ctas_per_sm), max)
    return None if low is None or high is None else (low, high)


def _extreme(
    constraints: Constraints, sms: int, question: tuple[int, int], pick: _Pick
) -> int | None:
    unit = constraints.sms_per_tpc
    if sms % unit:
        return None
    total = sms // unit
    groups: list[_Pair] = [(None, None)]
    for units in range(1, _largest_part(constraints, total) + 1):
        value = hosted((units * unit,), *question)
        large = units * unit >= constraints.largest_at_least
        groups.append((None, value) if large else (value, None))
    if constraints.max_gpcs is None:
        return _compose(groups, total, total, pick)[total][1]
    room = _gpc_units(constraints, total)
    if constraints.groups_may_split:
        gpcs = _compose(groups, room, room, pick)
        gpcs[0] = (None, None)
    else:
        gpcs = groups
    return _compose(gpcs, total, min(constraints.max_gpcs, total), pick)[total][1]


def _compose(items: list[_Pair], total: int, count: int, pick: _Pick) -> list[_Pair]:
    """Best sums of at most ``count`` items (by size) for each total size 0..``total``."""
    table: list[_Pair] = [(0, None)] + [(None, None)] * total
    if count >= total:
        for size in range(1, total + 1):
            for item in range(1, min(size, len(items) - 1) + 1):
                table[size] = _better(
                    table[size], _joined(table[size - item], items[item], pick), pick
                )
        return table
    for _ in range(count):
        previous = list(table)
        for size in range(1, total + 1):
            for item in range(1, min(size, len(items) - 1) + 1):
                joined = _joined(previous[size - item], items[item], pick)
                table[size] = _better(table[size], joined, pick)
    return table


def _joined(left: _Pair, right: _Pair, pick: _Pick) -> _Pair:
    plain = _sum(left[0], right[0])
    large = _best(_sum(left[0], right[1]), _sum(left[1], right[0]), pick)
    return plain, _best(large, _sum(left[1], right[1]), pick)


def _better(left: _Pair, right: _Pair, pick: _Pick) -> _Pair:
    return _best(left[0], right[0], pick), _best(left[1], right[1], pick)


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _best(left: int | None, right: int | None, pick: _Pick) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return pick(left, right)
