# SPDX-License-Identifier: Apache-2.0
"""The picture of a bench: time against columns, a line a rung, peers dashed, the floor dotted."""

from collections.abc import Iterator, Sequence
from math import inf

from thorprobe.answer import Evidence
from thorprobe.bench.plan import AUTO
from thorprobe.bench.records import BenchPoint, BenchSummary
from thorprobe.render.escape import plain
from thorprobe.render.page import device_line
from thorprobe.render.svg import COLOURS, Figure, Line, Panel, Style, draw
from thorprobe.topk.contract import RUNGS

_PEERS = ("torch.topk", "shipped-2", "shipped-4", "shipped-8", "shipped-16", "flashinfer", "vllm")
_FLOOR = "floor (copy, launch)"
_BAND = "#bbbbbb"

_Key = tuple[int, str, str, int]
"""k, type, distribution and rows: what the points of a panel share."""


def figure(answer: Evidence[BenchPoint, BenchSummary]) -> str:
    """Return the SVG of a bench: a panel for each k, type, distribution and number of rows."""
    held: dict[_Key, list[BenchPoint]] = {}
    for point in answer.results:
        key = (point.k, point.dtype, point.distribution, point.rows)
        held.setdefault(key, []).append(point)
    panels = tuple(
        Panel(title=plain(_title(key, list(held))), lines=tuple(_lines(held[key])))
        for key in sorted(held, key=lambda key: (key[0], key[1]))
    )
    return draw(
        Figure(
            title=plain(f"Top-k on {device_line(answer)}"),  # type: ignore[arg-type]
            x="columns",
            y="us a launch",
            panels=panels,
        )
    )


def _title(key: _Key, keys: Sequence[_Key]) -> str:
    """Return the number of rows, and what else is not the same in all panels."""
    k, dtype, distribution, rows = key
    told = (f"k {k:,}", dtype, distribution)
    parts = [text for place, text in enumerate(told) if len({one[place] for one in keys}) > 1]
    return ", ".join([f"{rows:,} row{'' if rows == 1 else 's'}", *parts])


def _lines(points: Sequence[BenchPoint]) -> Iterator[Line]:
    """Yield the lines of a panel: the floor, then ``auto`` as a band under the rung it takes."""
    floors = ((point.columns, point.floor.us) for point in points if point.floor)
    yield from _line(_FLOOR, floors, Style(colour=COLOURS[0], dash="1 3"))
    names = dict.fromkeys(
        (one.contender, one.ties, one.peer) for point in points for one in point.times
    )
    asked = [key for key in names if key[0] == AUTO][:1]
    others = [key for key in names if key[0] != AUTO]
    for name, ties, peer in (*asked, *others):
        times = ((point.columns, point.time(name, ties)) for point in points)
        yield from _line(plain(name), times, _style(name, peer=peer))


def _line(label: str, found: "Iterator[tuple[int, float | None]]", style: Style) -> Iterator[Line]:
    # A logarithm takes nothing else, and evidence may hold anything.
    kept = sorted(
        (float(columns), us)
        for columns, us in found
        if us is not None and 0 < us < inf and columns > 0
    )
    if kept:
        yield Line(label=label, points=tuple(kept), style=style)


def _style(name: str, *, peer: bool) -> Style:
    if name == AUTO:
        return Style(colour=_BAND, width=7)
    known = _PEERS if peer else RUNGS
    number = known.index(name) if name in known else len(known)
    colours = COLOURS[1:]
    return Style(colour=colours[number % len(colours)], dash="5 3" if peer else "")
