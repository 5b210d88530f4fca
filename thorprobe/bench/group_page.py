# SPDX-License-Identifier: Apache-2.0
"""How the groups of a ``bench`` and its aims are shown: a table each."""

from collections.abc import Iterator, Sequence

from thorprobe.bench.aims import HOST_MEASURE
from thorprobe.bench.group_records import AimFound, BenchGroup
from thorprobe.render.sheet import Section
from thorprobe.render.table import Column, Table

_PATHS = {"usual": "usual path", "exact": "exact path"}


def aims(stated: Sequence[AimFound]) -> Section:
    """Return the table of the goals: what was aimed at, what was found, and what is missing."""
    names = ("aim", "held against", "goal")
    return Section(
        heading="Aims",
        table=Table(
            title="aims",
            columns=(
                *(Column((name,), numeric=False) for name in names),
                Column(("shapes",)),
                Column(("found",)),
                Column(("verdict",), numeric=False),
            ),
            rows=tuple(_cells(tuple(_aim(one))) for one in stated),
        ),
    )


def _aim(one: AimFound) -> Iterator[str]:
    bound = "at least" if one.at_least else "at most"
    yield one.aim
    yield one.against
    if one.measure == HOST_MEASURE:
        yield f"{bound} {one.goal:g} {one.measure}"
    else:
        yield f"{one.measure} {bound} {one.goal:g}"
    yield str(one.shapes)
    yield f"{one.found:.2f}" if one.found is not None else "-"
    where = f" ({one.found_at})" if one.found_at else ""
    if one.verdict == "missed":
        yield f"missed by {one.missed_by:.2f}{where}"
    elif one.verdict == "met":
        yield f"met{where}"
    else:
        yield f"open: {one.note}"


def groups(found: Sequence[BenchGroup]) -> Section:
    """Return the table of the groups: ``auto`` against the best peer, floor and neighbour."""
    names = ("shapes", "geometric mean", "least", "slower on", "over floor")
    beside = any(one.over_neighbour is not None for one in found)
    more = ("over neighbour", "at most") if beside else ()
    return Section(
        heading="How many times faster auto is than the best peer, by kind of shape",
        table=Table(
            title="groups",
            columns=(
                Column(("kind",), numeric=False),
                *(Column((name,)) for name in (*names, *more)),
                Column(("least at",), numeric=False),
            ),
            rows=tuple(_cells(tuple(_group(one, beside=beside))) for one in found),
        ),
    )


def _group(one: BenchGroup, *, beside: bool) -> Iterator[str]:
    kind = f"k {one.k:,}, {one.dtype}, {'aligned' if one.aligned else 'unaligned'}"
    yield f"{kind}, {_PATHS.get(one.path, one.path)}"
    yield f"{one.compared} of {one.shapes}" if one.compared < one.shapes else str(one.shapes)
    yield _ratio(one.geometric_mean)
    yield _ratio(one.least)
    yield str(one.slower)
    yield _ratio(one.over_floor)
    if beside:
        yield _ratio(one.over_neighbour)
        yield _ratio(one.over_neighbour_most)
    yield one.least_at or "-"


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else "-"


def _cells(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple((word,) for word in words)
