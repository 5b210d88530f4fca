# SPDX-License-Identifier: Apache-2.0
"""One document put into words, in reading order; text and markdown only lay it out.

Every string of a page is already plain: one line, printable, no control sequence.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from thorprobe.judge.kernel_name import shipped_only
from thorprobe.record import Device, Origin, Status
from thorprobe.render import arms, claim_remarks, observed, shipped, sweep
from thorprobe.render import operator as operator_page
from thorprobe.render.escape import plain
from thorprobe.render.legend import legend
from thorprobe.render.table import Table, counted
from thorprobe.summary import ArmsSummary, Document

RULED_OUT = "Ruled out"
EXCLUDED = "Excluded by the launch itself"
"""Heading of what cannot be the cause: of a prediction no launch has ruled out anything."""


@dataclass(frozen=True)
class Page:
    """What a person reads: ``device`` first (a prediction says so there), provenance last.

    ``incomplete`` is empty where nothing planned lacks a record. ``remarks`` and ``legend`` hold a
    label or word, and its sentence.
    """

    kind: str
    device: str
    incomplete: str
    finding: str
    next_action: str
    rests_on: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    remarks: tuple[tuple[str, str], ...]
    legend: tuple[tuple[str, str], ...]
    ruled_out: tuple[str, ...]
    ruled_out_heading: str
    settles: str
    closing: str


def page(document: Document) -> Page:
    """Put a document into words."""
    summary = document.summary
    if isinstance(summary, ArmsSummary):
        tables = [arms.table(summary, document.device)]
        beside = operator_page.table(document)
        tables += [beside] if beside is not None else []
        remarks = arms.remarks(summary, document) + operator_page.remarks(document)
        whose = " of vLLM's operators" if operator_page.library(document) else ""
        kind = f"Top-k arms{whose or _of_shipped(document)}"
    else:
        tables = sweep.tables(document)
        without = sweep.without_opt_in(document)
        remarks = [("Without the opt-in", without)] if without else []
        remarks.append(("GPC map", sweep.gpc_map(document, summary)))
        remarks += claim_remarks.remarks(document)
        kind = f"Cluster sweep{_of_shipped(document)}"
    remarks += observed.remarks(document)
    return Page(
        kind=kind,
        device=device_line(document),
        incomplete=incomplete(document),
        finding=plain(summary.finding),
        next_action=plain(summary.next_action),
        rests_on=tuple(_rests_on(document)),
        tables=tuple(tables),
        remarks=tuple(remarks),
        legend=tuple(legend(document, tables)),
        ruled_out=tuple(plain(sentence) for sentence in summary.ruled_out),
        ruled_out_heading=EXCLUDED if document.origin is Origin.PREDICTED else RULED_OUT,
        settles=plain(summary.settles),
        closing=closing(document),
    )


def device_line(document: Document) -> str:
    """Return who answered; for a prediction or a recording, first of all that nothing launched."""
    device = _device(document.device)
    if document.origin is Origin.PREDICTED:
        profile = plain(document.device.profile)
        source = f" from profile {profile}" if profile else ""
        return f"PREDICTED{source}, nothing was launched: {device}"
    if document.origin is Origin.RECORDED:
        return f"RECORDED earlier, nothing was launched now: {device}"
    others = document.device.other_processes
    busy = f", {counted(others, 'other process', 'other processes')} on the GPU" if others else ""
    return f"{device}{busy}, {document.origin.value}"


def incomplete(document: Document) -> str:
    """Return how many planned launches have no record, empty where none is missing."""
    if document.missing < 1:
        return ""
    many = counted(document.missing, "planned launch", "planned launches")
    have = "has" if document.missing == 1 else "have"
    return f"INCOMPLETE: {many} {have} no record; `--resume FILE` goes on"


def closing(document: Document) -> str:
    """Return the number of probes, those that did not pass by status, and the time if known."""
    statuses = Counter(outcome.status for outcome in document.results)
    asked = document.summary.probes or len(document.results)
    bad = [
        f"{statuses[status]} {status.value}"
        for status in Status
        if status is not Status.PASS and statuses[status]
    ]
    counts = f" ({', '.join(bad)})" if bad else ""
    # Of a run in several parts the time is not known, and recorded as 0.
    took = f" in {document.wall_s:.2f} s" if document.wall_s else ""
    return f"{counted(asked, 'probe')}{counts}{took}"


def utc(text: str) -> str:
    """Return an ISO 8601 time as ``2026-11-30 12:00:00 UTC``; other text as it is, made plain."""
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            return f"{when:%Y-%m-%d %H:%M:%S} (zone not recorded)"
        return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return plain(text)


def _device(device: Device) -> str:
    major, minor = device.capability
    sms = f"{device.sms} SMs"
    if device.partition:
        sms += f" (partition {plain(device.partition)}: {device.available_sms} SMs)"
    parts = [plain(device.name), f"cc {major}.{minor}", sms]
    if device.driver:
        parts.append(f"driver {plain(device.driver)}")
    return ", ".join(parts)


def _of_shipped(document: Document) -> str:
    return " of shipped kernels" if shipped_only(document.results) else ""


def _rests_on(document: Document) -> list[tuple[str, str]]:
    device = document.device
    found = []
    if isinstance(document.summary, ArmsSummary):
        told = operator_page.library(document) or shipped.kernels(document)
        found.append(("Kernel", told or arms.KERNEL))
    elif told := shipped.kernels(document):
        found.append(("Kernels", told))
    if device.basis:
        found.append(("Rests on", plain(device.basis)))
    if document.origin is Origin.RECORDED:
        sources = sorted({plain(outcome.source) for outcome in document.results if outcome.source})
        found += [("Recorded in", source) for source in sources]
    for claim in device.claims:
        statement = plain(f"{claim.statement} (source: {claim.source})")
        found.append((f"Claim {plain(claim.id)}", statement))
    return found
