# SPDX-License-Identifier: Apache-2.0
"""Asks evidence files for the oracle of a row: reads the fleet and the files, and judges them."""

from collections.abc import Sequence
from pathlib import Path

from thorprobe.answer import Evidence
from thorprobe.cli.measure import now, process_age
from thorprobe.errors import UsageError
from thorprobe.oracle import fleet as fleets
from thorprobe.oracle import table as judge
from thorprobe.oracle.evidence import read_all
from thorprobe.oracle.evidence_file import EvidenceFile, EvidenceLine
from thorprobe.oracle.records import Cell, OracleSummary
from thorprobe.record import Origin

COMMITTED = Path("reports")
"""Where evidence is looked for in the current folder when none is named."""

Answer = Evidence[Cell, OracleSummary]


def ask(fleet: str, places: Sequence[Path], argv: Sequence[str] = ()) -> Answer:
    """Return the oracle table of a fleet, from these files and folders.

    Raises UsageError for a fleet or file that cannot be read, and where there is no evidence.
    """
    started = now()
    found = fleets.load(fleet)
    exhibits = exhibits_of(places)
    cells = judge.cells(found, exhibits)
    summary = judge.summarize(found, exhibits, cells)
    return Answer(
        command="oracle",
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.RECORDED,
        inputs=inputs(found.name, fleet, summary.evidence),
        results=cells,
        summary=summary,
        wall_s=round(process_age(), 2),
    )


def inputs(name: str, fleet: str, lines: Sequence[EvidenceLine]) -> dict[str, str]:
    """Return the SHA-256 of the fleet file and of each evidence file that an answer rests on."""
    return {f"fleet {name}": fleets.digest(fleet), **{line.name: line.sha256 for line in lines}}


def exhibits_of(places: Sequence[Path]) -> tuple[EvidenceFile, ...]:
    """Read the named evidence, or that of the folder ``reports`` where none is named.

    Raises UsageError where there is none.
    """
    if not places and not COMMITTED.is_dir():
        raise UsageError(
            "no evidence was named, and there is no folder `reports` here",
            "`thorprobe topk-arms --profile thor --store thor.jsonl` makes some; name it with "
            "`--evidence thor.jsonl`",
        )
    return read_all(places or (COMMITTED,))
