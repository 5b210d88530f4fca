# SPDX-License-Identifier: Apache-2.0
"""GitHub Actions: annotations as workflow commands, and the evidence page as a step summary."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from thorprobe.judge.ranges import ranges
from thorprobe.record import Outcome, Status, Verdict
from thorprobe.render import expectation, markdown
from thorprobe.render.escape import command, property_value
from thorprobe.render.escape import markdown as escaped
from thorprobe.render.page import page
from thorprobe.render.sheet import Sheet, render_markdown
from thorprobe.render.table import counted
from thorprobe.summary import Document

SUMMARY_LIMIT = 1_048_576
"""Bytes that one step may put into its summary (GitHub's documentation of workflow commands)."""

_LEVELS: dict[str, str] = {
    Status.FAIL: "error",
    Status.ERROR: "error",
    Status.TIMEOUT: "error",
    Status.WAIVED: "notice",
    Verdict.WRONG: "error",
    Verdict.FAULTS: "error",
    Verdict.HANGS: "error",
    Verdict.UNDETERMINED: "warning",
}


def render(document: Document) -> str:
    """Return the annotations, and append the page to the file of GITHUB_STEP_SUMMARY, if set.

    A refused size is a measurement, so it is no warning: it is part of the finding. Probes that
    went alike share one annotation, because GitHub shows ten of a kind a step.
    """
    shown = page(document)
    lines = [
        _annotation("notice", f"thorprobe {document.command}", f"{shown.device}: {shown.finding}")
    ]
    if shown.incomplete:
        lines.append(_annotation("warning", f"thorprobe {document.command}", shown.incomplete))
    grouped: dict[tuple[str, str, str, str], list[Outcome]] = {}
    for outcome in document.results:
        level = _LEVELS.get(outcome.status) or _LEVELS.get(outcome.verdict)
        if level and not outcome.assumes:
            went = outcome.verdict if outcome.status is Status.PASS else outcome.status
            key = (level, outcome.spec.kernel, went.value, outcome.cause or "")
            grouped.setdefault(key, []).append(outcome)
    for (level, kernel, word, cause), found in sorted(grouped.items()):
        sizes = ranges([outcome.spec.cluster_size for outcome in found])
        because = f", {cause}" if cause and cause != word else ""
        said = f"{counted(len(found), 'probe')} at cluster size {sizes}: {word}{because}"
        lines.append(_annotation(level, f"thorprobe {kernel}", said))
    lines += append_summary((markdown.render(document), markdown.render_brief(document)))
    return "".join(f"{line}\n" for line in lines)


def render_expectations(lines: Sequence[expectation.Line]) -> str:
    """Return an annotation per expectation that does not hold; the table goes to the summary."""
    told = [_annotation("notice", "thorprobe run", expectation.tally(lines))]
    told += [
        _annotation(level, f"thorprobe run {scenario}", sentence)
        for scenario, sentence, status in lines
        if (level := _LEVELS.get(Status(status)))
    ]
    rows = [
        f"| {escaped(scenario)} | {Status(status).value} | {escaped(sentence)} |"
        for scenario, sentence, status in lines
    ]
    heading = f"# thorprobe run\n\n{escaped(expectation.tally(lines))}\n\n"
    table = "\n".join(("| scenario | status | expectation |", "|---|---|---|", *rows, ""))
    told += append_summary((heading + table, heading))
    return "".join(f"{line}\n" for line in told)


def render_evidence(sheet: Sheet, evidence: Any) -> str:
    """Return an annotation of a single answer's finding; its page goes to the step summary."""
    told = [
        _annotation("notice", f"thorprobe {evidence.command}", f"{sheet.device}: {sheet.finding}")
    ]
    brief = Sheet(title=sheet.title, device=sheet.device, finding=sheet.finding)
    told += append_summary((render_markdown(sheet, evidence), render_markdown(brief, evidence)))
    return "".join(f"{line}\n" for line in told)


def append_summary(pages: Iterable[str]) -> list[str]:
    """Append the first page that fits to the step summary; return annotations of what went wrong.

    Nothing happens where GITHUB_STEP_SUMMARY is not set. A summary over the limit would be lost as
    a whole, so what was already in the file counts.
    """
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return []
    path = Path(target)
    try:
        free = SUMMARY_LIMIT - (path.stat().st_size if path.exists() else 0)
        for shorter, text in enumerate(pages):
            encoded = text.encode()
            if len(encoded) <= free:
                with path.open("ab") as stream:
                    stream.write(encoded)
                said = "the step summary holds a shorter page: the whole one is over its limit"
                return [_annotation("notice", "thorprobe", said)] if shorter else []
    except OSError as error:
        said = f"the step summary cannot be written: {error.strerror}"
        return [_annotation("warning", "thorprobe", said)]
    return [_annotation("warning", "thorprobe", "the step summary is full: no page was added")]


def _annotation(level: str, title: str, message: str) -> str:
    return f"::{level} title={property_value(title)}::{command(message)}"
