# SPDX-License-Identifier: Apache-2.0
"""The table that text and markdown share: columns of cells, each cell one or more words."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A heading of one or more lines, and the name of each word of its cells.

    ``parts`` is empty for cells of one word.
    """

    heading: tuple[str, ...]
    parts: tuple[str, ...] = ()
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of cells under ``columns``; a cell has as many words as its column has parts."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[tuple[str, ...], ...], ...]

    def words(self) -> set[str]:
        """Return every word of the table, for its legend; the first column labels the rows."""
        return {word for row in self.rows for cell in row[1:] for word in cell}

    def widths(self, column: int) -> tuple[int, ...]:
        """Return the width in characters of each word of one column, its part name included."""
        names = self.columns[column].parts or ("",)
        return tuple(
            max(len(name), *(len(row[column][part]) for row in self.rows), 0)
            for part, name in enumerate(names)
        )

    def select(self, columns: range) -> "Table":
        """Return the first column and those of ``columns``: a slice that fits a narrow page."""
        keep = (0, *columns)
        return Table(
            title=self.title,
            columns=tuple(self.columns[i] for i in keep),
            rows=tuple(tuple(row[i] for i in keep) for row in self.rows),
        )


def counted(number: int, noun: str, several: str = "") -> str:
    """Return ``1 probe`` or ``2,000 probes``; ``several`` where the plural has no s at its end."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def words(names: Iterable[str]) -> tuple[Column, ...]:
    """Return a column of words for each name."""
    return tuple(Column((name,), numeric=False) for name in names)
