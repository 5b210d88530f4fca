# SPDX-License-Identifier: Apache-2.0
"""What a gate decides on a device beside what the launches behind it do there.

The launches are those of ``topk-arms``, whoever answered them. A launch is known by size, bytes,
threads and rows, so that one drive serves every gate that leads to the same launches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from thorprobe.audit.records import (
    AuditResult,
    Decision,
    Finding,
    GateOnSubject,
    GateRange,
    Refused,
    Subject,
)
from thorprobe.judge.arm_launches import results_right
from thorprobe.judge.catalogue import FAILING, SEVERITY
from thorprobe.judge.cause import refusal, settled
from thorprobe.judge.ranges import joined
from thorprobe.judge.runs import runs
from thorprobe.plan.gate import AuditGate
from thorprobe.plan.policy import Policy, RowRange, row_ranges
from thorprobe.plan.policy import gate as policy_gate
from thorprobe.record import Outcome, Record, Verdict
from thorprobe.summary import Document, GateSummary

Spans = tuple[tuple[int, int], ...]

_OPEN = (Verdict.UNDETERMINED, Verdict.NOT_PROBED)


class AuditedGate(Record, frozen=True, kw_only=True):
    """A gate to audit, and the policy with that gate in it."""

    gate: AuditGate
    policy: Policy


class Launches:
    """The judged launches of one subject, found by what a policy would launch."""

    def __init__(self, document: Document) -> None:
        """Take the outcomes of a drive; those of claims are kept apart."""
        self.claims = tuple(claim.id for claim in document.device.claims)
        self._found: dict[tuple[str, int, int, int, int], list[Outcome]] = {}
        strides: set[int] = set()
        for outcome in document.results:
            spec, work = outcome.spec, outcome.spec.workload
            if work is None or not spec.cluster_attribute or len(outcome.assumes) > 1:
                continue
            claim = outcome.assumes[0] if outcome.assumes else ""
            key = (claim, work.rows, spec.cluster_size, spec.threads, spec.dynamic_smem)
            self._found.setdefault(key, []).append(outcome)
            strides.add(work.stride)
        self.stride = max(strides, default=0)

    def at(self, policy: Policy, rows: int, cluster: int, claim: str = "") -> list[Outcome]:
        """Return the launches of a policy's arm at these rows, under one claim or under none."""
        smem = policy.footprint(cluster).dynamic_smem
        return self._found.get((claim, rows, cluster, policy.kernel.threads, smem), [])

    def rows(self) -> list[int]:
        """Return every row count that was asked, ascending."""
        return sorted({key[1] for key in self._found})


class _Answer(Record, frozen=True, kw_only=True):
    """What one gate does at one row count, and what the launch behind it does."""

    cluster: int
    decision: Decision
    reason: str
    verdict: Verdict
    cause: str | None
    code: int | None

    @property
    def finding(self) -> Finding:
        """Whether the gate is right here."""
        if self.verdict in _OPEN:
            asks = self.decision is Decision.ASKS
            return Finding.ON_DEVICE if asks else Finding.UNDETERMINED
        if self.decision in (Decision.ASKS, Decision.UNKNOWN):
            return Finding.UNDETERMINED
        opened = self.decision is Decision.OPEN
        if opened and self.verdict in FAILING:
            return Finding.FALSE_ACCEPT
        if not opened and self.verdict is Verdict.LAUNCHES:
            return Finding.FALSE_REJECT
        return Finding.RIGHT


def audit(
    contender: AuditedGate, subject: Subject, document: Document
) -> tuple[AuditResult, GateOnSubject]:
    """Judge one gate on one subject: its rows range by range, and those decided wrongly.

    Rows that the host code sends to the persistent kernel are of no range: no gate decides them.
    """
    launches = Launches(document)
    trial = _Trial(contender, subject.capability, launches)
    found: list[GateRange] = []
    for extent in row_ranges(contender.policy, subject.capability[0]):
        if extent.path == "cooperative":
            found += trial.ranges(extent)
    result = AuditResult(
        id=f"{subject.name}/{contender.gate.name}",
        subject=subject.name,
        gate=contender.gate.name,
        ranges=tuple(found),
    )
    return result, _summary(found, launches.claims)


def causes(results: Iterable[AuditResult]) -> dict[str, Refused]:
    """Map each cause of a refusal to its code and the cluster sizes that it refuses."""
    found: dict[str, tuple[int | None, set[int]]] = {}
    for result in results:
        for part in result.ranges:
            if part.cause and part.verdict is Verdict.REFUSED:
                _, sizes = found.setdefault(part.cause, (part.code, set()))
                sizes.add(part.cluster)
    return {
        cause: Refused(code=code, clusters=tuple(sorted(sizes)))
        for cause, (code, sizes) in sorted(found.items())
    }


@dataclass(frozen=True)
class _Trial:
    """One gate before the launches of one subject, dispatched for one capability."""

    contender: AuditedGate
    capability: tuple[int, int]
    launches: Launches

    def ranges(self, extent: RowRange) -> list[GateRange]:
        """Split an arm's rows where the decision or the verdict changes."""
        last = extent.last or extent.first
        asked = [
            rows
            for rows in self.launches.rows()
            if extent.first <= rows <= last and self._at(rows, extent.cluster)
        ]
        if not asked:
            return [self._range(extent, (extent.first, last), (_unasked(extent.cluster),))]
        # The base answer first, then one under each claim.
        found = {
            rows: tuple(self._answer(extent, rows, claim) for claim in ("", *self.launches.claims))
            for rows in asked
        }
        keys = {rows: tuple(map(_key, answers)) for rows, answers in found.items()}
        return [
            self._range(extent, (first, end), next(found[r] for r in asked if first <= r <= end))
            for first, end, _ in runs(extent.first, last, keys)
        ]

    def _at(self, rows: int, cluster: int, claim: str = "") -> list[Outcome]:
        return self.launches.at(self.contender.policy, rows, cluster, claim)

    def _answer(self, extent: RowRange, rows: int, claim: str) -> _Answer:
        cluster, stride = extent.cluster, self.launches.stride
        is_open, reason = policy_gate(self.contender.policy, rows, stride, self.capability)
        decision = Decision.OPEN if is_open else Decision.SHUT
        if is_open and self.contender.gate.asks_occupancy:
            cluster, decision = self._resident(cluster, rows, claim)
            reason = f"{reason}; {_asked(decision, cluster)}"
        found = self._at(rows, cluster, claim)
        worst = max(found, key=lambda o: SEVERITY.index(settled(o)), default=None)
        if worst is None:
            return msgspec.structs.replace(_unasked(cluster), reason=reason, decision=decision)
        verdict = settled(worst)
        failed = verdict in FAILING
        return _Answer(
            cluster=cluster,
            decision=decision,
            reason=reason,
            verdict=verdict,
            cause=worst.cause if failed else None,
            code=refusal(worst).code if failed else None,
        )

    def _resident(self, cluster: int, rows: int, claim: str) -> tuple[int, Decision]:
        """Return the size that a gate which asks the device takes, and which way it goes."""
        gate, built = self.contender.gate, sorted(self.contender.policy.clusters, reverse=True)
        for size in [s for s in built if s <= cluster] if gate.steps_down else [cluster]:
            decision = _occupancy(self._at(rows, size, claim))
            if decision is not Decision.SHUT:
                return size, decision
        return cluster, Decision.SHUT

    def _range(
        self, extent: RowRange, rows: tuple[int, int], answers: Sequence[_Answer]
    ) -> GateRange:
        base, policy = answers[0], self.contender.policy
        inside = [r for r in self.launches.rows() if rows[0] <= r <= rows[1]]
        probed = tuple(r for r in inside if self._at(r, base.cluster))
        right, compared, _ = results_right(o for r in probed for o in self._at(r, base.cluster))
        claims = zip(self.launches.claims, answers[1:], strict=False)
        unknown = () if self.contender.gate.asks_occupancy else policy.gate.not_established
        return GateRange(
            rows=rows,
            dispatched=extent.cluster,
            cluster=base.cluster,
            dynamic_smem=policy.footprint(base.cluster).dynamic_smem,
            decision=base.decision,
            reason=base.reason,
            verdict=base.verdict,
            cause=base.cause,
            code=base.code,
            finding=base.finding,
            under_claims={name: answer.finding for name, answer in claims},
            unestablished=unknown if base.decision is Decision.OPEN else (),
            probed_rows=probed,
            checked=(right, compared),
        )


def _unasked(cluster: int) -> _Answer:
    return _Answer(
        cluster=cluster,
        decision=Decision.UNKNOWN,
        reason="the evidence holds no launch of this arm",
        verdict=Verdict.NOT_PROBED,
        cause=None,
        code=None,
    )


def _key(answer: _Answer) -> _Answer:
    # The reason names the row count, which differs between rows that are alike.
    return msgspec.structs.replace(answer, reason="")


def _occupancy(found: Sequence[Outcome]) -> Decision:
    """Return what the answers to the gate's own two calls come to.

    The first sets the shared memory, and where it fails the arm is out whatever its cluster; the
    second is cuOccupancyMaxActiveClusters.
    """
    told: set[Decision] = set()
    for outcome in found:
        seen = outcome.observed
        if any(call.call == "cuFuncSetAttribute" and call.code for call in outcome.calls):
            told.add(Decision.SHUT)
        elif seen.max_active is not None:
            told.add(Decision.OPEN if seen.max_active else Decision.SHUT)
        elif seen.max_active_code:
            told.add(Decision.SHUT)
        elif seen.max_active_range is not None and seen.max_active_range[0]:
            told.add(Decision.OPEN)
        else:
            told.add(Decision.UNKNOWN if seen.max_active_range is None else Decision.ASKS)
    for decision in (Decision.UNKNOWN, Decision.ASKS, Decision.SHUT, Decision.OPEN):
        if decision in told:
            return decision
    return Decision.UNKNOWN


def _asked(decision: Decision, cluster: int) -> str:
    told = {
        Decision.OPEN: f"a cluster of {cluster} is resident",
        Decision.SHUT: f"no cluster of {cluster} is resident",
        Decision.ASKS: f"whether a cluster of {cluster} is resident differs between the maps",
        Decision.UNKNOWN: f"how many clusters of {cluster} are resident is not in the evidence",
    }
    return told[decision]


def _summary(found: Sequence[GateRange], claims: Sequence[str]) -> GateOnSubject:
    def of(wanted: Finding, claim: str = "") -> Spans:
        rows = (
            part.rows
            for part in found
            if (part.under_claims.get(claim) if claim else part.finding) is wanted
        )
        return tuple((first, last) for first, last in joined(rows) if last is not None)

    accepted = [part for part in found if part.finding is Finding.FALSE_ACCEPT]
    return GateOnSubject(
        false_accepts=of(Finding.FALSE_ACCEPT),
        false_rejects=of(Finding.FALSE_REJECT),
        undetermined=of(Finding.UNDETERMINED),
        on_device=of(Finding.ON_DEVICE),
        unestablished=tuple(dict.fromkeys(c for part in accepted for c in part.unestablished)),
        under_claims={
            claim: GateSummary(
                false_accepts=of(Finding.FALSE_ACCEPT, claim),
                false_rejects=of(Finding.FALSE_REJECT, claim),
                undetermined=of(Finding.UNDETERMINED, claim),
            )
            for claim in claims
        },
    )
