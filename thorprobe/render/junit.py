# SPDX-License-Identifier: Apache-2.0
"""JUnit XML for the test panels of CI systems: a test case per probe."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree as ET

from thorprobe.record import Outcome, Status
from thorprobe.render import cells
from thorprobe.render.escape import plain
from thorprobe.render.expectation import Line, by_scenario, tally
from thorprobe.render.page import page
from thorprobe.summary import ArmsSummary, Document

ELEMENTS = {
    Status.FAIL: "failure",
    Status.ERROR: "error",
    Status.TIMEOUT: "error",
    Status.WAIVED: "skipped",
}
"""The element of each status; a pass has none."""

_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@dataclass(frozen=True)
class Case:
    """One test case; ``said`` is its message, or what it printed when it passed."""

    suite: str
    name: str
    status: Status
    said: str
    seconds: float = 0.0


def render(document: Document) -> str:
    """Return a suite per footprint (sweep) or per cluster size and footprint (arms)."""
    shown = page(document)
    properties = {"device": shown.device, "finding": shown.finding, "probes": shown.closing}
    if shown.incomplete:
        properties["incomplete"] = shown.incomplete
    is_arms = isinstance(document.summary, ArmsSummary)
    cases = [_case(outcome, is_arms=is_arms) for outcome in document.results]
    return _suites(f"thorprobe {plain(document.command)}", cases, properties)


def render_expectations(lines: Sequence[Line]) -> str:
    """Return a suite per scenario and a test case per expectation."""
    cases = [
        Case(plain(name), f"{number} {plain(sentence)}", Status(status), plain(sentence))
        for name, found in by_scenario(lines).items()
        for number, (_, sentence, status) in enumerate(found, 1)
    ]
    return _suites("thorprobe run", cases, {"expectations": tally(lines)})


def _case(outcome: Outcome, *, is_arms: bool) -> Case:
    call = cells.refusing_call(outcome)
    answer = f"{call.call} answered {call.code} {call.name}: {call.sentence}" if call else ""
    said = [outcome.verdict.value, outcome.cause or "", answer, outcome.note]
    size = f", cluster {outcome.spec.cluster_size}" if is_arms else ""
    return Case(
        suite=plain(outcome.spec.footprint.label + size),
        name=plain(outcome.id),
        status=outcome.status,
        said=plain("; ".join(part for part in said if part)),
        seconds=outcome.duration_us / 1e6,
    )


def _suites(name: str, cases: Iterable[Case], properties: dict[str, str]) -> str:
    ordered = sorted(cases, key=lambda case: case.suite)
    root = ET.Element("testsuites", _totals(name, ordered))
    for suite, found in groupby(ordered, key=lambda case: case.suite):
        members = list(found)
        element = ET.SubElement(root, "testsuite", _totals(suite, members))
        listed = ET.SubElement(element, "properties")
        for key, value in properties.items():
            ET.SubElement(listed, "property", {"name": key, "value": value})
        for case in members:
            _append(element, case, name)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _append(suite: ET.Element, case: Case, name: str) -> None:
    attributes = {
        "classname": f"{name}.{case.suite}".replace(" ", "."),
        "name": case.name,
        "time": f"{case.seconds:.6f}",
    }
    element = ET.SubElement(suite, "testcase", attributes)
    kind = ELEMENTS.get(case.status)
    if kind is None:
        ET.SubElement(element, "system-out").text = case.said
    else:
        ET.SubElement(element, kind, {"message": case.said, "type": case.status.value})


def _totals(name: str, cases: Sequence[Case]) -> dict[str, str]:
    counts = Counter(ELEMENTS.get(case.status) for case in cases)
    totals = {counted: str(counts[element]) for element, counted in _COUNTED.items()}
    seconds = sum(case.seconds for case in cases)
    return {"name": name, "tests": str(len(cases)), **totals, "time": f"{seconds:.6f}"}
