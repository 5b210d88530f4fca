# SPDX-License-Identifier: Apache-2.0
"""The oracle of a row over a fleet: each candidate on each device by rule, then what it weighs.

Statuses follow from exhibits alone. docs/oracle.md has the rules as a table; the first that fits
decides, and where nothing was measured the answer is *not established*.
"""

from collections.abc import Sequence

import msgspec

from thorprobe.oracle import engine as oracle_engine
from thorprobe.oracle import model as oracle_model
from thorprobe.oracle import vllm as oracle_vllm
from thorprobe.oracle.evidence_file import EvidenceFile
from thorprobe.oracle.findings import answers_for, best, testimonies
from thorprobe.oracle.fleet import Candidate, Fleet, FleetDevice
from thorprobe.oracle.records import (
    UNMEASURED,
    Cell,
    Gateable,
    OracleEntry,
    OracleStatus,
    OracleSummary,
)
from thorprobe.oracle.vllm import Ruling
from thorprobe.oracle.weight import conclusion, counting, weighed
from thorprobe.plan.policy import load as load_policy

RULES: dict[str, str] = {
    "V0": "a device that exposes no GPU runs no vLLM: not probed",
    "E1": "its engine dies in the selection on the device: blocked",
    "E2": "its engine ran, and a row is no top-k, or sets or best tokens are others than the "
    "reference's, and no ties: blocked",
    "E3": "its engine ran past the budget and does not repeat itself: runs, and gates nothing",
    "E4": "its engine ran past the budget and repeats itself: runs",
    "E5": "its engine ran past the budget, and whether it repeats itself was not asked: runs",
    "D1": "no evidence of its engine with the drop-in on the device: not established",
    "V1": "no evidence of the version's arms on the device: not established",
    "V2": "the gate lets rows through to an arm that fails: blocked at that arm, with its cause",
    "V3": "an arm fails, and whether this version's gate lets rows through to it is not known: not "
    "established",
    "V4": "an arm that is reached is undetermined, not probed, or failed in thorprobe's own kernel "
    "only: not established",
    "V5": "the decode of one request goes to persistent_topk, whose kernel was not launched: not "
    "probed",
    "V6": "every arm that is reached launches, and vLLM's own results are not measured: not "
    "established",
    "T1": "no evidence of the model on the device: not established",
    "T2": "not the wanted model or version ran, or it is not recorded: not established",
    "T3": "the reference ran within the budget only: runs, and gates nothing",
    "T4": "the reference ran past the budget: runs",
    "L1": "no evidence of the model on the device: not established",
    "L2": "not the wanted model or version ran, or it is not recorded: not established",
    "L3": "other blocks were selected than by the reference, or no top-k: blocked",
    "L4": "no query past the budget was compared, and a wrong selection cannot show: not "
    "established",
    "L5": "equal blocks, other greedy tokens: not established",
    "L6": "equal blocks and tokens past the budget: runs, with fallback where a rung was refused",
    "X1": "nothing of thorprobe runs it: not probed",
}
"""Every rule, in the order in which those of one letter are tried."""

_BEST = tuple(OracleStatus)


def cells(fleet: Fleet, exhibits: Sequence[EvidenceFile]) -> tuple[Cell, ...]:
    """Return every candidate on every device, in the order of the fleet."""
    made = []
    for candidate in fleet.candidates:
        for device in fleet.devices:
            ruling = _ruling(fleet, candidate, device, exhibits)
            made.append(
                Cell(
                    row=fleet.row.name,
                    oracle=candidate.oracle,
                    role=candidate.role,
                    pin=_pin(candidate),
                    device=device.name,
                    status=ruling.status,
                    rule=ruling.rule,
                    reason=ruling.reason,
                    gateable=ruling.gateable,
                    origin=ruling.origin,
                    arm=ruling.arm,
                    because=ruling.because,
                )
            )
    return tuple(made)


def summarize(
    fleet: Fleet, exhibits: Sequence[EvidenceFile], made: Sequence[Cell]
) -> OracleSummary:
    """Return the table of the fleet's row, and what each GPU alone would leave of it."""
    entries = table(fleet, made)
    alone = {
        device.name: conclusion(_only(fleet, device), table(_only(fleet, device), made), made)
        for device in fleet.devices
        if device.exposes_gpu
    }
    told = conclusion(fleet, entries, made)
    used = {name for cell in made for name in cell.because}
    return OracleSummary(
        finding=f"No {told[3:]}" if told.startswith("no ") else told,
        fleet=fleet.name,
        rows={fleet.row.name: entries},
        alone=alone,
        open=still_open(made),
        rules={rule: RULES[rule] for rule in RULES if rule in {cell.rule for cell in made}},
        evidence=tuple(x.line for x in exhibits if x.line.id in used),
    )


def table(fleet: Fleet, made: Sequence[Cell]) -> dict[str, OracleEntry]:
    """Return the entry of each oracle: the best status of the devices that count for it.

    For vLLM those are the devices that expose a GPU.
    """
    entries: dict[str, OracleEntry] = {}
    for candidate in fleet.candidates:
        own = [cell for cell in made if cell.oracle == candidate.oracle]
        counted = counting(fleet, candidate, made)
        top = min(counted or own, key=lambda cell: _BEST.index(cell.status))
        entries[candidate.oracle] = OracleEntry(
            row=fleet.row.name,
            oracle=candidate.oracle,
            role=candidate.role,
            pin=_pin(candidate),
            gateable=_gateable(counted, top),
            status=top.status if counted else OracleStatus.NOT_PROBED,
            weight=weighed(fleet, candidate, made),
            reason=_reason(counted, top),
            because=tuple(sorted({name for cell in counted for name in cell.because})),
            devices={cell.device: cell.status for cell in counted},
        )
    return entries


def still_open(made: Sequence[Cell]) -> tuple[str, ...]:
    """Return what is neither measured nor blocked, those of one reason together.

    That no vLLM runs without a GPU leaves nothing open.
    """
    unknown = (OracleStatus.NOT_ESTABLISHED, OracleStatus.NOT_PROBED)
    left = [cell for cell in made if cell.status in unknown and cell.rule != "V0"]
    return tuple(f"{where}: {cell.reason}" for where, cell in together(left))


def together(made: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Join cells that say the same of one oracle, then of several: names, and one of the cells."""
    by_reason: dict[tuple[object, ...], dict[str, list[str]]] = {}
    first: dict[tuple[object, ...], Cell] = {}
    for cell in made:
        key: tuple[object, ...] = (cell.rule, cell.reason, cell.origin, cell.because)
        first.setdefault(key, cell)
        by_reason.setdefault(key, {}).setdefault(cell.oracle, []).append(cell.device)
    told = []
    for key, oracles in by_reason.items():
        devices: dict[str, list[str]] = {}
        for oracle, names in oracles.items():
            devices.setdefault(", ".join(names), []).append(oracle)
        texts = [f"{', '.join(names)} on {where}" for where, names in devices.items()]
        told.append(("; ".join(texts), first[key]))
    return told


def _ruling(
    fleet: Fleet, candidate: Candidate, device: FleetDevice, exhibits: Sequence[EvidenceFile]
) -> Ruling:
    if candidate.kind == "external":
        return Ruling(
            rule="X1",
            status=OracleStatus.NOT_PROBED,
            reason=f"nothing of thorprobe runs {candidate.oracle}",
        )
    own = [exhibit for exhibit in exhibits if answers_for(device, exhibit)]
    if candidate.kind == "vllm":
        if not device.exposes_gpu:
            return Ruling(
                rule="V0",
                status=OracleStatus.NOT_PROBED,
                reason=f"{device.name} exposes no GPU",
            )
        # What vLLM itself did outranks what follows from its arms; a gate was never run as it is.
        ran = None if candidate.gate else oracle_engine.rule(candidate, fleet.row, own)
        if ran is not None:
            return ran
        policy = load_policy(candidate.pin)
        told = testimonies(policy, fleet.row.k, own)
        capability = next((x.capability for x in own if x.arms is not None), (0, 0))
        return oracle_vllm.rule(candidate, device, policy, told, capability)
    judged = oracle_model.reference if candidate.kind == "transformers" else oracle_model.ladder
    return judged(candidate, fleet.row, best(x for x in own if x.model is not None))


def _only(fleet: Fleet, only: FleetDevice) -> Fleet:
    """Return the fleet in which no other device exposes a GPU."""
    devices = tuple(
        msgspec.structs.replace(device, exposes_gpu=device.exposes_gpu and device is only)
        for device in fleet.devices
    )
    return msgspec.structs.replace(fleet, devices=devices)


def _gateable(counted: Sequence[Cell], top: Cell) -> Gateable:
    if any(cell.gateable is Gateable.YES for cell in counted):
        return Gateable.YES
    return top.gateable if counted else Gateable.UNMEASURED


def _reason(counted: Sequence[Cell], top: Cell) -> str:
    if not counted:
        return "no device of the fleet exposes a GPU"
    same = [cell.device for cell in counted if cell.reason == top.reason]
    return top.reason if len(same) == len(counted) else f"on {', '.join(same)}: {top.reason}"


def _pin(candidate: Candidate) -> str:
    if candidate.pin:
        return candidate.pin
    return f">={candidate.at_least}" if candidate.at_least else UNMEASURED
