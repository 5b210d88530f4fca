# SPDX-License-Identifier: Apache-2.0
"""Text for a terminal: device, finding, tables, legend; understandable without colour."""

from collections.abc import Sequence
from io import StringIO
from typing import TextIO

from rich.console import Console
from rich.table import Table as Layout
from rich.text import Text

from thorprobe.record import Status
from thorprobe.render import cells
from thorprobe.render.escape import plain
from thorprobe.render.expectation import Line, in_order, tally
from thorprobe.render.page import Page, page
from thorprobe.render.table import Table
from thorprobe.summary import Document

WIDTH = 100
"""Columns where there is no terminal to ask: six footprints fit side by side."""

_GAP = 2
_GOOD = {cells.PROVEN, cells.RAN, cells.PREDICTED, "launches", "pass"}
_DOUBT = {cells.UNKNOWN, "undetermined", cells.WAIVED, "waived"}
_BAD = {cells.WRONG, cells.FAULT, cells.HANG, cells.ERROR, "fail", "error", "timeout"}
_BAD_STARTS = ("refused", "wrong", "faults", "hangs")


def terminal(stream: TextIO) -> Console:
    """Return a console on ``stream``: colour only on a terminal that has not set NO_COLOR."""
    if stream.isatty():
        return Console(file=stream, highlight=False, markup=False, emoji=False)
    return plain_console(stream, WIDTH)


def render(document: Document, width: int = WIDTH) -> str:
    """Return the document as uncoloured text of ``width`` columns, no trailing spaces."""
    stream = StringIO()
    _print_document(document, plain_console(stream, width))
    return trimmed(stream)


def show(document: Document, console: Console) -> None:
    """Print the document on a console, wrapped to its width; no trailing spaces into a file."""
    if console.is_terminal:
        _print_document(document, console)
    else:
        console.file.write(render(document, console.width))


def _print_document(document: Document, console: Console) -> None:
    shown = page(document)
    console.print(Text(shown.device, style="bold"))
    if shown.incomplete:
        console.print(Text(shown.incomplete, style="yellow"))
    console.print(Text(shown.finding))
    following = (("Next", shown.next_action),) if shown.next_action else ()
    pairs(console, (*following, *shown.rests_on))
    for table_ in shown.tables:
        for part in _fitting(table_, console.width):
            console.print()
            console.print(Text(part.title))
            console.print(_layout(part))
    pairs(console, shown.remarks)
    pairs(console, (("Legend", ""), *shown.legend))
    _closing(console, shown)


def render_expectations(lines: Sequence[Line], width: int = WIDTH, *, verbose: bool = False) -> str:
    """Return what ``show_expectations`` prints, as uncoloured text."""
    stream = StringIO()
    _print_expectations(lines, plain_console(stream, width), verbose=verbose)
    return trimmed(stream)


def show_expectations(lines: Sequence[Line], console: Console, *, verbose: bool = False) -> None:
    """Print what fails first, then a line per scenario that passes or is waived, then the count.

    ``verbose`` prints each expectation that holds, or is waived, as well.
    """
    if console.is_terminal:
        _print_expectations(lines, console, verbose=verbose)
    else:
        console.file.write(render_expectations(lines, console.width, verbose=verbose))


def _print_expectations(lines: Sequence[Line], console: Console, *, verbose: bool) -> None:
    grid = Layout.grid(padding=(0, _GAP, 0, 0))
    for scenario, sentence, status in in_order(lines, verbose=verbose):
        word = _styled(Status(status).value)
        grid.add_row(word, Text(plain(scenario)), Text(plain(sentence)))
    if lines:
        console.print(grid)
    console.print(Text(tally(lines)))


def _closing(console: Console, shown: Page) -> None:
    if shown.ruled_out:
        console.print()
        console.print(Text(shown.ruled_out_heading))
        grid = Layout.grid(padding=(0, 1, 0, 0))
        for sentence in shown.ruled_out:
            grid.add_row(Text("-"), Text(sentence))
        console.print(grid)
    if shown.settles:
        pairs(console, (("To settle it", shown.settles),))
    console.print()
    console.print(Text(shown.closing))


def pairs(console: Console, told: Sequence[tuple[str, str]]) -> None:
    """Print labels and sentences in two columns, the sentences wrapped beside their labels."""
    if not told:
        return
    console.print()
    grid = Layout.grid(padding=(0, _GAP, 0, 0))
    # A long label takes no more than a third of the line, or its sentence would be squeezed.
    grid.add_column(max_width=console.width // 3)
    grid.add_column()
    for label, sentence in told:
        grid.add_row(Text(label), Text(sentence))
    console.print(grid)


def _fitting(table: Table, width: int) -> list[Table]:
    """Split a table of footprints into slices that fit ``width``, at least one column each."""
    if not any(column.parts for column in table.columns):
        return [table]
    spare = width - _column_width(table, 0)
    slices: list[Table] = []
    first = 1
    while first < len(table.columns):
        last, used = first, 0
        while last < len(table.columns):
            used += _GAP + _column_width(table, last)
            if used > spare and last > first:
                break
            last += 1
        slices.append(table.select(range(first, last)))
        first = last
    return slices or [table]


def _column_width(table: Table, column: int) -> int:
    heading = max(map(len, table.columns[column].heading))
    parts = table.widths(column)
    return max(heading, sum(parts) + len(parts) - 1)


def _layout(table: Table) -> Layout:
    layout = Layout(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="")
    # Headings stand on their last line, so that `size` is beside the names of the words.
    height = max(len(column.heading) + bool(column.parts) for column in table.columns)
    for number, column in enumerate(table.columns):
        names = (_aligned(table, number, column.parts).plain,) if column.parts else ()
        lines = (*column.heading, *names)
        text = "\n".join((*[""] * (height - len(lines)), *lines))
        right = column.numeric and not column.parts
        # A word wider than its column goes on below: nothing may be cut from evidence.
        layout.add_column(
            Text(text),
            justify="right" if right else "left",
            no_wrap=bool(column.parts),
            overflow="fold",
        )
    for row in table.rows:
        layout.add_row(*(_aligned(table, number, cell) for number, cell in enumerate(row)))
    return layout


def _aligned(table: Table, column: int, cell: tuple[str, ...]) -> Text:
    """Return the words of a cell under their names: numbers to the right, the last to the left."""
    if len(cell) == 1:
        return _styled(cell[0])
    text = Text()
    widths = table.widths(column)
    for word, width in zip(cell[:-1], widths, strict=False):
        text.append(word.rjust(width) + " ")
    return text.append_text(_styled(cell[-1], code=True))


def _styled(word: str, *, code: bool = False) -> Text:
    if word in _BAD or word.startswith(_BAD_STARTS) or (code and word.isdigit()):
        return Text(word, style="red")
    if word in _GOOD:
        return Text(word, style="green")
    return Text(word, style="yellow" if word in _DOUBT else "")


def table(console: Console, shown: Table) -> None:
    """Print a table without its title, in slices that fit the console."""
    for part in _fitting(shown, console.width):
        console.print(_layout(part))


def plain_console(stream: TextIO, width: int) -> Console:
    """Return a console that writes neither colours nor control sequences."""
    return Console(
        file=stream,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def trimmed(stream: StringIO) -> str:
    """Return what was printed, without trailing spaces."""
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
