# SPDX-License-Identifier: Apache-2.0
"""Makes the closing report of a row from evidence files."""

from collections.abc import Sequence
from pathlib import Path

from thorprobe.answer import Evidence
from thorprobe.cli.measure import now, process_age
from thorprobe.errors import UsageError
from thorprobe.oracle import closing_report as judge
from thorprobe.oracle import fleet as fleets
from thorprobe.oracle import table as oracle
from thorprobe.oracle.answer import exhibits_of, inputs
from thorprobe.oracle.closing_report_records import RowSummary
from thorprobe.oracle.records import Cell
from thorprobe.record import Origin

Answer = Evidence[Cell, RowSummary]


def close(row: str, fleet: str, places: Sequence[Path], argv: Sequence[str] = ()) -> Answer:
    """Return the closing report of a row; an empty ``fleet`` is the shipped one of that row.

    Raises UsageError for a row that no fleet is of, a fleet of another row, a file that cannot be
    read, and where there is no evidence.
    """
    started = now()
    name = fleet or fleets.of_row(row)
    found = fleets.load(name)
    if found.row.name != row:
        raise UsageError(
            f"`--row {row}` was asked for, and the fleet {found.name} is of row {found.row.name}",
            f"`--row {found.row.name}`, or another fleet",
        )
    exhibits = exhibits_of(places)
    cells = oracle.cells(found, exhibits)
    table = oracle.summarize(found, exhibits, cells)
    summary = judge.summarize(found, exhibits, cells, table)
    return Answer(
        command="report",
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.RECORDED,
        inputs=inputs(found.name, name, summary.evidence),
        results=cells,
        summary=summary,
        wall_s=round(process_age(), 2),
    )
