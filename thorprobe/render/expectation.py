# SPDX-License-Identifier: Apache-2.0
"""What became of a scenario's expectations, as every format shows it."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from thorprobe.record import Status
from thorprobe.render.table import counted


class Line(NamedTuple):
    """One expectation: the scenario's name, the sentence that says expected and observed, status.

    Renderers unpack it, so a plain tuple of the three serves as well.
    """

    scenario: str
    sentence: str
    status: Status


def tally(lines: Sequence[Line]) -> str:
    """Return how many expectations of how many scenarios came to which status."""
    counts = Counter(Status(status) for _, _, status in lines)
    scenarios = len({scenario for scenario, _, _ in lines})
    told = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    of = f"{counted(len(lines), 'expectation')} of {counted(scenarios, 'scenario')}"
    return f"{of}: {', '.join(told) or 'none'}"


def by_scenario(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the lines of each scenario, in the order given."""
    found: dict[str, list[Line]] = {}
    for line in map(Line._make, lines):
        found.setdefault(line.scenario, []).append(line)
    return found


def in_order(lines: Sequence[Line], *, verbose: bool) -> list[Line]:
    """Return what a person reads: failures first, then each scenario's passes and waivers.

    Unless ``verbose``, expectations that hold are counted, a line per scenario, and so are those
    that were waived for one reason.
    """
    told = list(map(Line._make, lines))
    quiet = (Status.PASS, Status.WAIVED)
    found = [line for line in told if line.status not in quiet]
    for scenario, members in by_scenario(told).items():
        for status in quiet:
            alike = [line for line in members if line.status == status]
            reasons = {_reason(line) for line in alike}
            if verbose or (status is Status.WAIVED and len(reasons) > 1):
                found += alike
            elif alike:
                some = len(alike) < len(members)
                count = counted(len(members), "expectation")
                count = f"{len(alike)} of {count}" if some else count
                why = f": {reasons.pop()}" if status is Status.WAIVED else ""
                found.append(Line(scenario, count + why, status))
    return found


def _reason(line: Line) -> str:
    """Return why an expectation was waived: what its sentence says last."""
    return line.sentence.rpartition("waived: ")[2]
