# SPDX-License-Identifier: Apache-2.0
"""The oracle table as a sheet: what each candidate weighs, and on what evidence."""

from collections.abc import Iterable, Mapping, Sequence

from thorprobe.answer import Evidence, Kind
from thorprobe.oracle.engine import MODEL
from thorprobe.oracle.evidence_file import EvidenceLine
from thorprobe.oracle.records import Cell, Gateable, OracleEntry, OracleSummary
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Table, counted, words

_ENGINE_RAN = ("E3", "E4", "E5")

EVIDENCE = "Evidence, each file with its SHA-256"

GATEABLE = (
    "gateable",
    "whether a gate on the row can rest on it; UNMEASURED: nobody measured it",
)
_MEANINGS = (
    ("runs", "it ran, measured"),
    ("runs with fallback", "it ran, measured, and a rung that was refused was replaced"),
    ("blocked", "an arm that its gate lets rows through to fails, or it selects wrongly"),
    ("not established", "what was measured, if anything, does not say whether it runs"),
    ("not probed", "what it depends on was launched by nobody"),
    GATEABLE,
)


def sheet(evidence: Evidence[Cell, OracleSummary]) -> Sheet:
    """Put an oracle table into words."""
    summary = evidence.summary
    # One row a fleet; a file that was edited may hold none.
    row, entries = next(iter(summary.rows.items()), ("no row", {}))
    marks = marked(summary.evidence)
    return Sheet(
        title=f"Oracle of {row} on fleet {summary.fleet}",
        device=answered_from(marks),
        finding=summary.finding,
        sections=(
            Section(heading="Oracles", table=entries_table(entries)),
            Section(heading="On each device", table=matrix(entries, evidence.results)),
            Section(heading="Why", pairs=tuple(reasons(evidence.results, marks))),
            Section(
                heading="Where one GPU is the only one",
                pairs=tuple(summary.alone.items()),
            ),
            Section(heading=EVIDENCE, pairs=tuple(evidence_pairs(summary.evidence))),
        ),
        legend=(*_MEANINGS, *summary.rules.items()),
    )


def answered_from(marks: Mapping[str, str]) -> str:
    """Return who answered: as many evidence files as there are marks."""
    return (
        f"RECORDED: answered from {counted(len(marks), 'evidence file')}, nothing was launched now"
    )


def marked(lines: Iterable[EvidenceLine]) -> dict[str, str]:
    """Give each evidence id a short mark, E1 and so on, in order."""
    return {line.id: f"E{number}" for number, line in enumerate(lines, 1)}


def evidence_pairs(lines: Sequence[EvidenceLine]) -> list[tuple[str, str]]:
    """Return each file's mark, and its name, hash, device and origin."""
    marks = marked(lines)
    return [
        (
            marks[line.id],
            f"{line.name}: {line.command}, {line.device}, {line.origin.value}; {line.sha256}",
        )
        for line in lines
    ]


def entries_table(entries: Mapping[str, OracleEntry]) -> Table:
    """Return the entries as they go into the row's record."""
    names = ("oracle", "role", "pin", "gateable", "status", "weight")
    rows = tuple(
        tuple(
            (word,)
            for word in (e.oracle, e.role, e.pin, e.gateable.value, e.status.value, e.weight.value)
        )
        for e in entries.values()
    )
    return Table(title="", columns=words(names), rows=rows)


def matrix(entries: Mapping[str, OracleEntry], cells: Sequence[Cell]) -> Table:
    """Return the status of each oracle on each device, with the rule that decided."""
    devices = list(dict.fromkeys(cell.device for cell in cells))
    found = {(cell.oracle, cell.device): cell for cell in cells}
    rows = tuple(
        ((oracle,), *((_status(found.get((oracle, device))),) for device in devices))
        for oracle in entries
    )
    return Table(title="", columns=words(("oracle", *devices)), rows=rows)


def reasons(cells: Sequence[Cell], marks: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return why each cell is what it is: rule, origin, evidence, and the sentence."""
    from thorprobe.oracle.table import together

    told = []
    for where, cell in together(cells):
        # An id that no evidence line explains (an edited file) is shown as it is.
        named = [marks.get(name, name) for name in cell.because]
        basis = ", ".join([cell.rule, *([cell.origin.value] if cell.origin else []), *named])
        told.append((where, f"{cell.status.value} ({basis}): {cell.reason}"))
    return told


def _status(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    predicted = " (predicted)" if cell.gateable is Gateable.NO_PREDICTED else ""
    # What an engine ran is no checkpoint, and the cell says so.
    reduced = f" ({MODEL})" if cell.rule in _ENGINE_RAN else ""
    return f"{cell.status.value}{predicted}{reduced}"


KIND = Kind(type=Evidence[Cell, OracleSummary], sheet=sheet)
