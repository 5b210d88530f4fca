# SPDX-License-Identifier: Apache-2.0
"""How each aim stands: met, missed and by how much, or open and why."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from thorprobe.bench.aims import AIMS, Aim, Goal, Measure
from thorprobe.bench.group import Ratio, neighbour_ratios, peer_ratios
from thorprobe.bench.group_records import AimFound
from thorprobe.bench.records import BenchPoint
from thorprobe.bench.times import geometric_mean

Numbers = Callable[[Sequence[Ratio]], tuple[float, str]]


def aims(
    points: Sequence[BenchPoint], partition: str = "", table: Sequence[Aim] = AIMS
) -> tuple[AimFound, ...]:
    """Return the aims whose shapes were all timed; none in a partition, since they are of a whole.

    A bench without a time of the host says nothing of the host's aim.
    """
    return tuple(_stated(points, table)) if not partition else ()


def _stated(points: Sequence[BenchPoint], table: Sequence[Aim]) -> Iterator[AimFound]:
    for aim in table:
        held = _covered(aim, points)
        if not held:
            continue
        if aim.against == "the host":
            yield from _of_host(aim, held)
            continue
        named = aim.against if aim.against == "flashinfer" else ""
        if aim.against == "its aligned neighbour":
            ratios = neighbour_ratios(held, points)
        else:
            ratios = peer_ratios(held, named)
        lacking = _lacking(aim, held, len(ratios))
        for goal in aim.goals:
            yield _found(aim, goal, held, ratios, lacking)


def _covered(aim: Aim, points: Sequence[BenchPoint]) -> list[BenchPoint]:
    """Return the shapes of an aim, none unless all of them are there."""
    if not aim.columns:
        return [point for point in points if point.host]
    held = {
        (point.distribution, point.dtype, point.k, point.columns, point.rows): point
        for point in points
    }
    wanted = [
        (distribution, dtype, k, columns, rows)
        for k in aim.k or sorted({point.k for point in points})
        for dtype in aim.dtypes
        for distribution in aim.distributions
        for columns in aim.columns
        for rows in aim.rows
    ]
    return [held[one] for one in wanted] if all(one in held for one in wanted) else []


def _lacking(aim: Aim, held: Sequence[BenchPoint], compared: int) -> str:
    """Return what keeps an aim open, '' where nothing does."""
    if aim.peers:
        without = sum(
            not any(t.peer and t.us and t.contender.startswith(aim.peers) for t in point.times)
            for point in held
        )
        if without:
            return f"{aim.peers[0]} has no time on {without} of {len(held)} shapes"
    if compared < len(held):
        return f"{len(held) - compared} of {len(held)} shapes have nothing to be held against"
    return ""


def _of_host(aim: Aim, held: Sequence[BenchPoint]) -> Iterator[AimFound]:
    """Hold the cheaper kind of call against the goal, by the medians over the shapes."""
    costs = [point.host for point in held if point.host]
    kinds = {"select": median(cost.auto_us for cost in costs)}
    prepared = [cost.prepared_us for cost in costs if isinstance(cost.prepared_us, float)]
    if prepared:
        kinds["prepared"] = median(prepared)
    kind = min(kinds, key=lambda name: kinds[name])
    for goal in aim.goals:
        yield _stand(aim, goal, len(costs), kinds[kind], kind)


def _found(
    aim: Aim, goal: Goal, held: Sequence[BenchPoint], ratios: Sequence[Ratio], lacking: str
) -> AimFound:
    if lacking:
        return AimFound(
            aim=aim.name,
            against=aim.against,
            measure=goal.measure,
            goal=goal.value,
            at_least=goal.at_least,
            shapes=len(held),
            verdict="open",
            note=lacking,
        )
    number, where = _NUMBERS[goal.measure](ratios)
    return _stand(aim, goal, len(held), number, where)


def _stand(aim: Aim, goal: Goal, shapes: int, number: float, where: str) -> AimFound:
    short = goal.value - number if goal.at_least else number - goal.value
    return AimFound(
        aim=aim.name,
        against=aim.against,
        measure=goal.measure,
        goal=goal.value,
        at_least=goal.at_least,
        shapes=shapes,
        found=round(number, 3),
        found_at=where,
        verdict="missed" if short > 0 else "met",
        missed_by=round(max(short, 0.0), 3),
    )


def _extreme(pick: Callable[..., Ratio]) -> Numbers:
    def of(ratios: Sequence[Ratio]) -> tuple[float, str]:
        point, ratio = pick(ratios, key=lambda pair: pair[1])
        return ratio, point.id

    return of


_NUMBERS: dict[Measure, Numbers] = {
    "geometric mean": lambda ratios: (geometric_mean([ratio for _, ratio in ratios]), ""),
    "least": _extreme(min),
    "most": _extreme(max),
}
