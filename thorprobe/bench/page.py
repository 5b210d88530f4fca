# SPDX-License-Identifier: Apache-2.0
"""How ``bench`` is shown: what ``auto`` is held against, then every time."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TypeGuard

from thorprobe.answer import Evidence, Kind
from thorprobe.bench.group import neighbour_ratios
from thorprobe.bench.group_page import aims, groups
from thorprobe.bench.plan import AUTO, DISTRIBUTIONS
from thorprobe.bench.records import Against, BenchPoint, BenchSummary, BenchTime, Floor
from thorprobe.bench.times import auto, best, best_peer, best_rung
from thorprobe.record import Status
from thorprobe.render.page import device_line
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted

Answer = Evidence[BenchPoint, BenchSummary]

_FLOOR = (
    "bytes read and written over the measured copy rate, and an empty cluster launch; inputs that "
    "fit in the L2 cache are read faster than they are copied"
)
_EMPTY = (
    "as many clusters as rows, at the cluster size of the fastest rung: 32 threads a CTA, two "
    "cluster barriers and a word read of each CTA"
)
_LEGEND = (
    ("*", "the fastest of its table"),
    ("ratio", "time of the best peer over the time of auto: above 1 auto is faster"),
    ("floor", _FLOOR),
    ("over floor", "time of auto over the floor: 1 would be the floor itself"),
    ("over neighbour", "time of auto over that of the nearest multiple of 8 columns, same rows"),
    ("exact path", "sorted rows, ties in masses, NaN: the usual path does not settle them"),
    ("empty launch", _EMPTY),
    ("spread", "the largest less the least replay, of auto"),
    ("host", "microseconds of the host in a call of auto after warm-up"),
    ("refused", "the device cannot host it: see what was not timed"),
    ("wrong", "its result is wrong, so it was not timed"),
    ("error", "it could not be timed: see what was not timed"),
)


def sheet(answer: Answer) -> Sheet:
    """Put a bench into words."""
    found = answer.summary
    return Sheet(
        title="Top-k rungs against their peers",
        device=device_line(answer),  # type: ignore[arg-type]
        finding=found.finding,
        next_action=found.next_action,
        sections=tuple(_sections(answer)),
        legend=_LEGEND,
        closing=(
            f"{counted(len(answer.results), 'shape')} of "
            f"{counted(len(found.contenders), 'contender')} in {answer.wall_s:.1f} s; no Thor was "
            "measured"
        ),
    )


def _sections(answer: Answer) -> Iterator[Section]:
    found, points = answer.summary, answer.results
    if found.aims:
        yield aims(found.aims)
    if found.groups:
        yield groups(found.groups)
    yield Section(
        heading="Times against columns",
        paragraphs=tuple(_how(answer)),
        # Evidence comes from strangers: a page shows a picture beside it, and no other place.
        image=PurePath(str(answer.options.get("svg", ""))).name,
    )
    if found.against:
        yield _comparisons(found)
    kinds = dict.fromkeys((point.k, point.dtype) for point in points)
    for k, dtype in kinds:
        drawn = [point for point in points if (point.k, point.dtype) == (k, dtype)]
        yield _overview(drawn, f"k {k:,}, {dtype}" if len(kinds) > 1 else "Every shape")
        for peer in (False, True):
            yield from _times(drawn, peer=peer)
    yield Section(
        heading="Scores",
        pairs=tuple(
            (name, DISTRIBUTIONS.get(name, "not known here"))
            for name in dict.fromkeys(point.distribution for point in points)
        ),
    )
    if found.missing:
        yield Section(
            heading="What was not timed",
            items=tuple(
                f"{one.contender}: {one.status.value}, {one.reason} "
                f"({counted(one.shapes, 'shape')})"
                for one in found.missing
            ),
        )
    if found.notes:
        yield Section(heading="Notes", items=found.notes)


def _how(answer: Answer) -> Iterator[str]:
    options, found = answer.options, answer.summary
    k, dtype = options.get("k"), options.get("dtype")
    yield (
        f"Microseconds a launch: the median of {options.get('replays')} replays of a CUDA graph of "
        f"{options.get('launches')} launches (fewer of a launch so slow that a replay would take "
        f"over 4 ms), k = {_listed(k)}, {_listed(dtype)}."
    )
    yield (
        "Every contender gets the same scores, and its result was checked before it was timed. The "
        "ladder's with lowest ties are compared index by index, all others as value multisets of "
        "valid, unique indices."
    )
    if found.copy_rates:
        rates = "; ".join(f"{r.how} {r.gb_per_s:,.0f} GB/s" for r in found.copy_rates)
        yield f"Copies, read and written bytes: {rates}."


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _comparisons(found: BenchSummary) -> Section:
    rows = sorted({int(n) for one in found.against for n in one.by_rows if n.isdigit()})
    return Section(
        heading="How many times faster auto is",
        table=Table(
            title="against",
            columns=(
                Column(("than",), numeric=False),
                Column(("shapes",)),
                Column(("geometric", "mean")),
                Column(("least",)),
                Column(("slower", "on")),
                *(Column((f"{n:,} row{'' if n == 1 else 's'}",)) for n in rows),
            ),
            rows=tuple(_compared(one, rows) for one in found.against),
        ),
        items=tuple(
            f"auto is slower than {one.what} at {shape}"
            for one in found.against[:1]
            for shape in one.slower
        ),
        pairs=tuple(_host(found)),
    )


def _host(found: BenchSummary) -> Iterator[tuple[str, str]]:
    call, most, added = found.host_us, found.host_most_us, found.host_over_named_us
    if call is not None and most is not None and added is not None:
        told = f"{call:.2f} us a call after warm-up (median of the shapes, at most {most:.2f})"
        yield "Host cost of auto", f"{told}, {added:+.2f} us against the same rung named"
    if isinstance(found.host_prepared_us, float):
        yield "Host cost of a prepared call", f"{found.host_prepared_us:.2f} us (median)"
    for name, cost in (found.host_peers_us or {}).items():
        yield f"Host cost of {name}", f"{cost:.2f} us a call (median)"


def _compared(one: Against, rows: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    means = [one.by_rows.get(str(n)) for n in rows]
    cells = (
        one.what,
        str(one.shapes),
        f"{one.geometric_mean:.2f}",
        f"{one.least:.2f}",
        str(len(one.slower)),
        *(f"{mean:.2f}" if mean is not None else "-" for mean in means),
    )
    return tuple((cell,) for cell in cells)


def _overview(points: Sequence[BenchPoint], heading: str) -> Section:
    names = ("auto", "spread", "floor", "over floor", "best rung", "best peer", "ratio", "host")
    beside = {point.id: f"{ratio:.2f}" for point, ratio in neighbour_ratios(points, points)}
    more = ("over neighbour",) if beside else ()
    taken = (Column(("rung taken",), numeric=False), Column(("kernel",), numeric=False))
    return Section(
        heading=heading,
        table=Table(
            title="overview",
            columns=(
                Column((_heading(points),), numeric=False),
                *taken,
                *(Column((name,)) for name in (*names, *more)),
            ),
            rows=tuple(
                _row(point, label, (beside.get(point.id, "-"),) if more else ())
                for point, label in _labelled(points)
            ),
        ),
    )


def _row(point: BenchPoint, label: str, more: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    mine, rung, peer = auto(point), best_rung(point), best_peer(point)
    ratio = f"{peer.us / mine.us:.2f}" if mine and peer and mine.us and peer.us else "-"
    cells = (
        label,
        mine.rung if mine else _why(point),
        (mine.choice if mine else "") or "-",
        _us(mine.us if mine else None),
        _us(mine.spread_us if mine else None),
        _us(point.floor.us if point.floor else None),
        f"{mine.us / point.floor.us:.2f}" if mine and mine.us and _above(point.floor) else "-",
        f"{_us(rung.us)} {rung.contender}" if rung else "-",
        f"{_us(peer.us)} {peer.contender}" if peer else "-",
        ratio,
        _us(point.host.auto_us if point.host else None),
        *more,
    )
    return tuple((cell,) for cell in cells)


def _times(points: Sequence[BenchPoint], *, peer: bool) -> Iterator[Section]:
    """Yield the table of every rung, or of every peer, the fastest of each shape marked."""
    names = list(
        dict.fromkeys(
            (one.contender, one.ties) for p in points for one in p.times if one.peer is peer
        )
    )
    if not names:
        return
    several = len({ties for name, ties in names if name == AUTO}) > 1
    rows = []
    for point, label in _labelled(points):
        times = {(one.contender, one.ties): one for one in point.times if one.peer is peer}
        mine = auto(point)
        fastest = best([t for t in times.values() if peer or (mine and t.ties == mine.ties)])
        cells = [_cell(times.get(name), fastest) for name in names]
        rows.append(tuple((cell,) for cell in (label, *cells)))
    yield Section(
        heading="Every peer" if peer else "Every rung",
        table=Table(
            title="peers" if peer else "rungs",
            columns=(
                Column((_heading(points),), numeric=False),
                *(
                    Column((name, f"{ties} ties") if several and name == AUTO else (name,))
                    for name, ties in names
                ),
            ),
            rows=tuple(rows),
        ),
    )


def _cell(one: BenchTime | None, fastest: BenchTime | None) -> str:
    if one is None:
        return "-"
    if one.us is None:
        return {Status.WAIVED: "refused", Status.FAIL: "wrong"}.get(one.status, "error")
    return f"{_us(one.us)}{'*' if one is fastest else ''}"


def _why(point: BenchPoint) -> str:
    """Return what became of ``auto`` where it has no time."""
    return next((one.status.value for one in point.times if one.contender == AUTO), "not asked")


def _heading(points: Sequence[BenchPoint]) -> str:
    return "scores, columns x rows" if _several(points) else "columns x rows"


def _labelled(points: Sequence[BenchPoint]) -> Iterator[tuple[BenchPoint, str]]:
    """Yield each shape with its name, the distribution first where there are several."""
    several = _several(points)
    for point in points:
        shape = f"{point.columns:,} x {point.rows:,}"
        yield point, f"{point.distribution} {shape}" if several else shape


def _several(points: Sequence[BenchPoint]) -> bool:
    return len({point.distribution for point in points}) > 1


def _above(floor: Floor | None) -> TypeGuard[Floor]:
    return floor is not None and floor.us > 0


def _us(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 1_000 else f"{value:,.0f}"


KIND = Kind(type=Answer, sheet=sheet)
