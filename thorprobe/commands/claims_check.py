# SPDX-License-Identifier: Apache-2.0
"""Brings recorded runs before the register of published claims."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from thorprobe.cli.measure import of_recording
from thorprobe.errors import UsageError
from thorprobe.judge.claim import IN_A_PART, weigh, weigh_reported
from thorprobe.judge.claim_records import (
    ClaimLine,
    ClaimResult,
    ClaimsSummary,
    ClaimSubject,
    ReportedLine,
    ReportedResult,
    Standing,
)
from thorprobe.judge.kernel_name import shipped_only
from thorprobe.plan.claim import ClaimStatus, PublishedClaim, register
from thorprobe.plan.reported import ReportedRun, reported
from thorprobe.record import Origin, Record
from thorprobe.run.store import read
from thorprobe.summary import Document

Standings = Mapping[str, Mapping[Standing, tuple[str, ...]]]


class ClaimsCheck(Record, frozen=True, kw_only=True):
    """What came of it, before it is put into an envelope."""

    origin: Origin
    results: tuple[ClaimResult, ...]
    summary: ClaimsSummary
    inputs: dict[str, str]


def check(stores: Sequence[Path]) -> ClaimsCheck:
    """Hold every claim against every store; without a store only the register is told.

    Raises UsageError for a bad store, and for two of one name.
    """
    results: list[ClaimResult] = []
    subjects: list[ClaimSubject] = []
    against: list[ReportedResult] = []
    inputs: dict[str, str] = {}
    for path in stores:
        document = of_recording(read(path))
        if path.stem in {subject.name for subject in subjects}:
            raise UsageError(
                f"two stores are called `{path.stem}`, and the answer is by name",
                "give one of them another name",
            )
        subjects.append(_subject(path, document))
        results += weigh(register(), path.stem, document)
        against += weigh_reported(reported(), path.stem, document)
        inputs[f"store {path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    standings = {
        subject.name: {
            standing: tuple(
                r.claim
                for r in results
                if r.about and r.subject == subject.name and r.standing is standing
            )
            for standing in Standing
        }
        for subject in subjects
    }
    return ClaimsCheck(
        # Without a run there is nothing but what was published.
        origin=Origin.RECORDED if subjects else Origin.PUBLISHED,
        results=tuple(results),
        summary=ClaimsSummary(
            finding=_finding(standings, subjects, against),
            next_action=_next_action(results, subjects),
            register=tuple(_line(claim) for claim in register()),
            subjects=tuple(subjects),
            standings=standings,
            reported=tuple(_reported_line(run) for run in reported()),
            against_reported=tuple(against),
        ),
        inputs=inputs,
    )


def _subject(path: Path, document: Document) -> ClaimSubject:
    device = document.device
    measured = document.origin is Origin.MEASURED
    origin = Origin.RECORDED if measured else document.origin
    where = f" {device.partition}" if device.partition else ""
    whose = "shipped kernels, " if shipped_only(document.results) else ""
    return ClaimSubject(
        name=path.stem,
        label=f"{device.name}{where}, {path.name} ({whose}{origin.value})",
        origin=origin,
    )


def _line(claim: PublishedClaim) -> ClaimLine:
    return ClaimLine(
        id=claim.id,
        statement=claim.statement,
        source=claim.source,
        status=claim.status,
        date=claim.date,
        disputed_by=claim.disputed_by,
        device=claim.device.text,
        says=tuple(said.text for said in claim.says),
    )


def _reported_line(run: ReportedRun) -> ReportedLine:
    return ReportedLine(
        id=run.id,
        hardware=run.hardware,
        seen=run.seen,
        told=run.told,
        sure=run.sure,
        doubt=run.doubt,
        contradicts=run.contradicts,
    )


def _contradictions(
    against: Sequence[ReportedResult], subjects: Sequence[ClaimSubject]
) -> Iterator[str]:
    told = {run.id: run.told for run in reported()}
    labels = {subject.name: subject.label for subject in subjects}
    for result in against:
        if result.standing is Standing.CONTRADICTED:
            yield (
                f"{labels[result.subject]} contradicts the reported run {result.run} "
                f"({told[result.run]}): {result.observed}"
            )


def _finding(
    standings: Standings,
    subjects: Sequence[ClaimSubject],
    against: Sequence[ReportedResult],
) -> str:
    if not subjects:
        disputed = [c.id for c in register() if c.status is ClaimStatus.DISPUTED]
        return f"{len(register())} claims were published; disputed are {', '.join(disputed)}"
    parts = list(_contradictions(against, subjects))
    for subject in subjects:
        found = standings[subject.name]
        told = [
            f"{standing.value} {', '.join(found[standing])}"
            for standing in (Standing.CONTRADICTED, Standing.CONFIRMED)
            if found[standing]
        ]
        many = len(found[Standing.OPEN])
        told.append(f"{many} about this device left open")
        parts.append(f"{subject.label}: {'; '.join(told)}")
    return ". ".join(parts)


def _next_action(results: Sequence[ClaimResult], subjects: Sequence[ClaimSubject]) -> str:
    if not subjects:
        return "`thorprobe claims STORE` holds them against a run"
    if any(result.reason.startswith(IN_A_PART) for result in results):
        return "`thorprobe cluster-sweep` without `--partition` decides what a part leaves open"
    return ""
