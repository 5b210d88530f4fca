# SPDX-License-Identifier: Apache-2.0
"""Which groups of SMs a device has, from what it answered and where its clusters ran.

A *map* is a tuple of group sizes in SMs, largest first. Two roads lead to a device's map: joining
the SM ids seen in one cluster (``union_groups``), and solving the occupancy answers at cluster
sizes 1..16 (``solve``). They may differ: SMs of one GPC are not always co-scheduled as one group,
and the solved map is what decides a launch (13 partitions of an H200, measured 2026-11-30).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from thorprobe.model.gpc_maps import GroupMap, hosted
from thorprobe.record import MAX_CLUSTER

MAX_STEPS = 100_000
"""Search steps of one ``solve``, about a tenth of a second; beyond it the answer is None."""


def answers(groups: Sequence[int]) -> tuple[int, ...]:
    """Return the sixteen max_active answers of a map at one CTA per SM, sizes 1..16."""
    return tuple(hosted(groups, c) for c in range(1, MAX_CLUSTER + 1))


def solve(max_active: Sequence[int]) -> GroupMap | None:
    """Return the one map of even group sizes with these max_active answers at one CTA per SM.

    ``max_active[i]`` answers for cluster size i + 1, sixteen in all. None when no map has these
    answers, when several have them, or when the search ends undecided after ``MAX_STEPS`` steps.
    """
    if len(max_active) != MAX_CLUSTER or min(max_active) < 0 or not any(max_active):
        return None
    search = _Search(tuple(max_active))
    search.run()
    return search.found[0] if len(search.found) == 1 and not search.exhausted else None


class _Search:
    """Depth-first search over group sizes, largest first, for all maps with given answers.

    ``rest[c - 1]`` is what the groups still to be chosen must add to the answer at size c. The
    sizes left are at most ``size``, so answers that none of them can tell apart must be equal.
    """

    def __init__(self, target: tuple[int, ...]) -> None:
        self.target = target
        self.found: list[GroupMap] = []
        self.steps = 0
        self.exhausted = False
        total = target[0]
        self.top = total - total % 2
        self.equal_pairs = _indistinct_pairs(self.top)

    def run(self) -> None:
        """Fill ``found`` with the first two maps, or set ``exhausted``."""
        if self.target[0] % 2 == 0:
            self._descend(self.top, self.target, ())

    def _descend(self, size: int, rest: tuple[int, ...], chosen: GroupMap) -> None:
        while True:
            self.steps += 1
            if self.steps > MAX_STEPS:
                self.exhausted = True
            if self.exhausted or len(self.found) > 1 or not _possible(rest, size):
                return
            if not rest[0]:
                self.found.append(chosen)
                return
            if any(rest[c - 1] != rest[c] for c in self.equal_pairs[size]):
                return
            most = min(rest[c - 1] // (size // c) for c in range(1, min(size, MAX_CLUSTER) + 1))
            if size <= MAX_CLUSTER:
                # Smaller groups add nothing to the answer at this size: the count is forced.
                if rest[size - 1] > most:
                    return
                most = least = rest[size - 1]
            else:
                least = 0
            for count in range(most, least, -1):
                self._descend(size - 2, _without(rest, size, count), chosen + (size,) * count)
            rest, chosen = _without(rest, size, least), chosen + (size,) * least
            size -= 2


def _without(rest: tuple[int, ...], size: int, count: int) -> tuple[int, ...]:
    """``rest`` less the answers of ``count`` groups of ``size`` SMs."""
    if not count:
        return rest
    return tuple(value - count * (size // c) for c, value in enumerate(rest, start=1))


def _possible(rest: tuple[int, ...], size: int) -> bool:
    """Whether groups of at most ``size`` SMs can still have these answers (necessary only)."""
    if any(low < high for low, high in pairwise(rest)):
        return False
    if rest[0] != 2 * rest[1] or any(rest[0] < c * value for c, value in enumerate(rest, 1)):
        return False
    return size >= MAX_CLUSTER or not rest[max(size, 0)]


def _indistinct_pairs(top: int) -> dict[int, tuple[int, ...]]:
    """For each even size up to ``top``: the c where no group that small differs at c and c + 1."""
    open_pairs = set(range(1, MAX_CLUSTER))
    pairs: dict[int, tuple[int, ...]] = {}
    for size in range(2, top + 1, 2):
        open_pairs = {c for c in open_pairs if size // c == size // (c + 1)}
        pairs[size] = tuple(sorted(open_pairs))
    return pairs


def union_groups(clusters: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Join SM ids that were seen in one cluster; groups of sorted ids, largest group first.

    ``clusters`` holds, per cluster that ran, the ``%smid`` of each of its CTAs.
    """
    parent: dict[int, int] = {}

    def root(sm: int) -> int:
        parent.setdefault(sm, sm)
        while parent[sm] != sm:
            parent[sm] = parent[parent[sm]]
            sm = parent[sm]
        return sm

    for ids in clusters:
        for sm in ids:
            parent[root(sm)] = root(ids[0])
    groups: dict[int, list[int]] = {}
    for sm in sorted(parent):
        groups.setdefault(root(sm), []).append(sm)
    return tuple(sorted(map(tuple, groups.values()), key=lambda group: (-len(group), group)))


def group_sizes(groups: Iterable[Sequence[int]]) -> GroupMap:
    """Return the map of joined groups: their sizes in SMs, largest first."""
    return tuple(sorted((len(group) for group in groups), reverse=True))
