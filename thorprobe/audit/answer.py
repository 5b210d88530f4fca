# SPDX-License-Identifier: Apache-2.0
"""Brings devices before the gates: profiles that the model answers for, and recorded stores."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from thorprobe.audit import agreement as judge_installed
from thorprobe.audit import judge, recorded_times
from thorprobe.audit.choice import choices, place, times
from thorprobe.audit.cost import costs
from thorprobe.audit.finding import finding, next_action
from thorprobe.audit.installed import Sources
from thorprobe.audit.installed_records import Installed
from thorprobe.audit.proposal import proposal
from thorprobe.audit.records import (
    AuditResult,
    AuditSummary,
    Choice,
    Cost,
    Gate,
    GateOnSubject,
    Subject,
)
from thorprobe.cli.measure import measure, of_recording
from thorprobe.cli.study import ArmsStudy
from thorprobe.errors import UsageError
from thorprobe.judge.kernel_name import natural
from thorprobe.plan import gate as gates
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.gate import AuditGate
from thorprobe.plan.operator import is_operator
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Origin, Record
from thorprobe.run.model import ModelAnswerer
from thorprobe.run.store import read
from thorprobe.summary import ArmsSummary, Document

PROFILES = ("thor", "h200", "gb10")
"""Who is answered for where nobody was named."""


class Party(Record, frozen=True, kw_only=True):
    """A subject with its drive of the arms; ``inputs`` are SHA-256 of what the drive rests on."""

    subject: Subject
    document: Document
    inputs: dict[str, str]
    software: dict[str, str]


def of_profile(name: str) -> Party:
    """Let the model answer for a profile. Raises UsageError for an unknown or bad one."""
    answerer = ModelAnswerer(name)
    capability = answerer.device.capability
    document = measure(ArmsStudy(ArmsOptions(capability=capability)), answerer)
    subject = Subject(
        name=answerer.profile.name,
        label=f"{answerer.profile.name} (predicted)",
        origin=Origin.PREDICTED,
        device=document.device,
        capability=capability,
        source=f"profile {answerer.profile.name}",
    )
    return Party(
        subject=subject,
        document=document,
        inputs=document.inputs,
        software=document.software,
    )


def of_store(path: Path) -> Party:
    """Take a recorded drive of the arms; what was measured there is recorded here.

    Raises UsageError for a bad store, and for one of another command.
    """
    recording = read(path)
    document = of_recording(recording)
    if not isinstance(document.summary, ArmsSummary):
        raise UsageError(
            f"`{path}` holds a `{document.command}`, but an audit needs the launches of a "
            "`topk-arms`",
            "`thorprobe topk-arms --store FILE` makes such a store",
        )
    device, capability = document.device, document.summary.capability
    measured = document.origin is Origin.MEASURED
    origin = Origin.RECORDED if measured else document.origin
    where = f" {device.partition}" if device.partition else ""
    labels = {o.spec.kernel for o in document.results if is_shipped(o.spec.kernel)}
    whose = "shipped kernel, " if labels else ""
    if any(map(is_operator, labels)):
        whose = "vLLM's operators, "
    as_other = "" if capability == device.capability else " as cc {}.{}".format(*capability)
    model = device.name.removeprefix("NVIDIA ")
    subject = Subject(
        name=path.stem,
        label=f"{model}{where}{as_other} ({whose}{origin.value})",
        origin=origin,
        device=device,
        capability=capability,
        source=f"store {path.name}, {document.started}",
        kernel=", ".join(sorted(labels, key=natural)),
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Party(
        subject=subject, document=document, inputs={f"store {path.name}": digest}, software={}
    )


class Audited(Record, frozen=True, kw_only=True):
    """What an audit came to, before it is put into an envelope."""

    origin: Origin
    results: tuple[AuditResult, ...]
    summary: AuditSummary
    inputs: dict[str, str]
    software: dict[str, str]


def audit(
    parties: Sequence[Party], wanted: Iterable[str], sources: Sources | None = None
) -> Audited:
    """Judge every gate on every subject; ``wanted`` are names of gates or paths of gate files.

    A gate read from ``sources`` that differs from the data of its version is judged as well.

    Raises UsageError for an unknown gate and for two parties or two gates of one name.
    """
    _distinct("subject", [party.subject.name for party in parties])
    contenders = [_contender(gates.load(name)) for name in dict.fromkeys(wanted)]
    installed = None
    if sources is not None:
        installed = judge_installed.compare(sources.source, sources.version, sources.gates)
        contenders += _as_read(installed)
    _distinct("gate", [contender.gate.name for contender in contenders])
    results: list[AuditResult] = []
    on: dict[str, dict[str, GateOnSubject]] = {}
    found_costs: list[Cost] = []
    recorded = recorded_times.load()
    timed = {_place(party) for party in parties if party.subject.kernel}
    measured = times((party.subject, party.document) for party in parties)
    policies = {contender.gate.name: contender.policy for contender in contenders}
    found_choices: list[Choice] = []
    for party in parties:
        own = []
        for contender in contenders:
            result, summary = judge.audit(contender, party.subject, party.document)
            on.setdefault(party.subject.name, {})[contender.gate.name] = summary
            own.append(result)
        results += own
        held = measured.get(place(party.subject))
        # What a shut gate costs is told against persistent_topk wherever that was timed.
        if held is not None:
            if party.subject.kernel:
                found_choices += choices(party.subject, held, own, policies)
            continue
        # Of a place where the shipped kernel was timed, its store has the better times.
        known = party.subject.kernel or _place(party) not in timed
        found_costs += costs(party.subject, party.document, own, recorded if known else ())
    subjects = tuple(party.subject for party in parties)
    shown = tuple(_shown(contender.gate) for contender in contenders)
    causes = {
        subject.name: judge.causes(r for r in results if r.subject == subject.name)
        for subject in subjects
    }
    told = finding(on, shown, subjects)
    summary_ = AuditSummary(
        finding=f"{installed.finding}. {told}" if installed else told,
        next_action=next_action(on),
        subjects=subjects,
        gates=shown,
        on=on,
        causes=causes,
        costs=tuple(found_costs),
        choices=tuple(found_choices) or msgspec.UNSET,
        installed=installed,
        proposal=proposal(on, shown, subjects, causes, found_costs, choices=found_choices),
    )
    predicted = any(subject.origin is Origin.PREDICTED for subject in subjects)
    return Audited(
        # The weakest origin among the answers; each subject says its own.
        origin=Origin.PREDICTED if predicted else Origin.RECORDED,
        results=tuple(results),
        summary=summary_,
        inputs=_merged([p.inputs for p in parties]) | (sources.inputs if sources else {}),
        software=_merged([p.software for p in parties]),
    )


def _place(party: Party) -> tuple[str, str]:
    return party.subject.device.name, party.subject.device.partition


def _contender(gate: AuditGate) -> judge.AuditedGate:
    return judge.AuditedGate(gate=gate, policy=gate.effective())


def _as_read(installed: Installed) -> list[judge.AuditedGate]:
    read_gate = judge_installed.as_gate(installed)
    if read_gate is None:
        return []
    gate, bounds = read_gate
    policy = msgspec.structs.replace(gate.effective(), gate=bounds)
    return [judge.AuditedGate(gate=gate, policy=policy)]


def _shown(gate: AuditGate) -> Gate:
    return Gate(
        name=gate.name,
        title=gate.title,
        status=gate.status,
        policy=gate.policy,
        source=gate.source,
        notes=gate.notes,
    )


def _distinct(noun: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"two {noun}s are called `{name}`, and the answer is by name",
                "leave one of them out, or give its file another name",
            )


def _merged(found: Iterable[dict[str, str]]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for each in found:
        merged |= each
    return merged
