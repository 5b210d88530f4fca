# SPDX-License-Identifier: Apache-2.0
"""Line charts on two logarithmic axes as SVG: small panels, one legend, equal bytes for equal data.

No library draws them and no font is measured; text is anchored instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2, log10
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 320, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 26, 34
_TITLE, _LEGEND_LINE, _LEGEND_WIDTH, _MARGIN = 40, 18, 160, 12
_FONT = 'font-family="Helvetica, Arial, sans-serif"'

COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""Colours that stay apart for colour-blind eyes (Okabe and Ito), and a grey."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a line is drawn; ``dash`` is an SVG dash pattern, empty for a solid line."""

    colour: str
    dash: str = ""
    width: float = 1.5


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points (x, y), both above 0, in ascending x; equal labels have one entry in the legend."""

    label: str
    points: tuple[tuple[float, float], ...]
    style: Style


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One small chart; all panels of a figure share their axes."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels in rows of ``across``, with what both axes count."""

    title: str
    x: str
    y: str
    panels: tuple[Panel, ...]
    across: int = 3


@dataclass(frozen=True)
class _Axes:
    """The shared ranges: x in powers of 2, y in powers of 10."""

    ticks: tuple[float, ...]
    low: float
    high: float

    def x(self, value: float) -> float:
        first, last = log2(self.ticks[0]), log2(self.ticks[-1])
        part = (log2(value) - first) / (last - first) if last > first else 0.5
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        part = (log10(value) - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - part * (HEIGHT - _TOP - _BOTTOM)


def draw(figure: Figure) -> str:
    """Return the figure as one SVG document."""
    across = max(1, min(figure.across, len(figure.panels)))
    down = -(-len(figure.panels) // across)
    width = max(across * WIDTH, _LEGEND_WIDTH) + 2 * _MARGIN
    labels = _legend(figure)
    per_line = max(1, (width - 2 * _MARGIN) // _LEGEND_WIDTH)
    below = _TITLE + down * HEIGHT
    height = below + -(-len(labels) // per_line) * _LEGEND_LINE + _MARGIN
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_FONT} font-size="11">',
        f"<title>{escape(figure.title)}</title>",
        f'<rect {size} fill="#ffffff"/>',
        _text(_MARGIN, 22, figure.title, extra=' font-size="14"'),
    ]
    axes = _axes(figure)
    for number, panel in enumerate(figure.panels if axes else ()):
        left = _MARGIN + number % across * WIDTH
        top = _TITLE + number // across * HEIGHT
        parts.append(f'<g transform="translate({left} {top})">')
        parts += _panel(panel, figure, axes) if axes else ()
        parts.append("</g>")
    for number, (label, style) in enumerate(labels.items()):
        left = _MARGIN + number % per_line * _LEGEND_WIDTH
        middle = below + number // per_line * _LEGEND_LINE + 8
        parts.append(_path(((left, middle), (left + 26, middle)), style))
        parts.append(_text(left + 32, middle + 4, label))
    return "\n".join((*parts, "</svg>")) + "\n"


def _legend(figure: Figure) -> dict[str, Style]:
    return {line.label: line.style for panel in figure.panels for line in panel.lines}


def _axes(figure: Figure) -> _Axes | None:
    points = [p for panel in figure.panels for line in panel.lines for p in line.points]
    if not points:
        return None
    low = floor(10 * min(log10(y) for _, y in points)) / 10
    high = ceil(10 * max(log10(y) for _, y in points)) / 10
    return _Axes(tuple(sorted({x for x, _ in points})), low, max(high, low + 0.1))


def _panel(panel: Panel, figure: Figure, axes: _Axes) -> Iterator[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    yield _text(_LEFT, _TOP - 8, panel.title, extra=' font-weight="bold"')
    for tick in axes.ticks:
        at = axes.x(tick)
        yield _rule(at, _TOP, at, bottom)
        yield _text(at, bottom + 14, _short(tick), anchor="middle")
    for tick in _decades(axes):
        at = axes.y(tick)
        yield _rule(_LEFT, at, right, at)
        yield _text(_LEFT - 5, at + 4, f"{tick:g}", anchor="end")
    yield _text((_LEFT + right) / 2, bottom + 27, figure.x, anchor="middle")
    turned = f' transform="rotate(-90 10 {_number((_TOP + bottom) / 2)})"'
    yield _text(10, (_TOP + bottom) / 2, figure.y, anchor="middle", extra=turned)
    for line in panel.lines:
        placed = [(axes.x(x), axes.y(y)) for x, y in line.points]
        yield _path(placed, line.style, line.label)
        if len(placed) == 1:
            ((x, y),) = placed
            where = f'cx="{_number(x)}" cy="{_number(y)}"'
            yield f'<circle {where} r="2.5" fill="{line.style.colour}"/>'


def _decades(axes: _Axes) -> Iterator[float]:
    for power in range(floor(axes.low), ceil(axes.high) + 1):
        for step in (1, 2, 5):
            if axes.low <= log10(step * 10.0**power) <= axes.high + 1e-9:
                yield step * 10.0**power


def _path(points: Sequence[tuple[float, float]], style: Style, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    dash = f' stroke-dasharray="{style.dash}"' if style.dash else ""
    steps = " ".join(f"L{_number(x)} {_number(y)}" for x, y in points)
    return (
        f'<path d="M{steps[1:]}" fill="none" stroke="{style.colour}" '
        f'stroke-width="{style.width:g}"{dash}>{told}</path>'
    )


def _rule(x: float, y: float, to_x: float, to_y: float) -> str:
    ends = f'x1="{_number(x)}" y1="{_number(y)}" x2="{_number(to_x)}" y2="{_number(to_y)}"'
    return f'<line {ends} stroke="#dddddd"/>'


def _text(x: float, y: float, told: str, *, anchor: str = "start", extra: str = "") -> str:
    where = f'x="{_number(x)}" y="{_number(y)}"'
    return f'<text {where} text-anchor="{anchor}"{extra}>{escape(told)}</text>'


def _number(value: float) -> str:
    """Two places are enough for a picture, and hide how a platform rounds its logarithms."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _short(value: float) -> str:
    whole = int(value)
    for size, unit in ((2**20, "M"), (2**10, "K")):
        if whole >= size and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole:,}"
