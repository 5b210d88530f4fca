# SPDX-License-Identifier: Apache-2.0
"""What an oracle weighs on a fleet, and what follows for the row: rules W1 to W7."""

from collections.abc import Mapping, Sequence

from thorprobe.oracle.fleet import Candidate, Fleet
from thorprobe.oracle.records import Cell, Gateable, OracleEntry, OracleStatus, Weight
from thorprobe.record import Origin

WEIGHTS: dict[str, str] = {
    "W1": "vLLM as shipped that can gate the row on a device that exposes a GPU: carries the row",
    "W2": "vLLM, as shipped or proposed, that is blocked on every device that exposes a GPU, or "
    "where none does: none",
    "W3": "vLLM otherwise, and every proposed gate: open",
    "W4": "the reference that can gate the row somewhere: carries the algorithm; otherwise open",
    "W5": "the ladder, and vLLM with the drop-in, that can gate the row: corroborates; blocked "
    "everywhere: none; otherwise open",
    "W6": "the secondary entry where a vLLM carries the row: corroborates",
    "W7": "the secondary entry otherwise: carries the row, for good where every vLLM as shipped "
    "weighs none, else until one is established",
}
"""Every rule of weight."""

_RUNS = (OracleStatus.RUNS, OracleStatus.FALLBACK)


def weighed(fleet: Fleet, candidate: Candidate, made: Sequence[Cell]) -> Weight:
    """Return what a candidate's word counts for, given every cell of the fleet."""
    if candidate.kind == "external":
        carried = any(
            weighed(fleet, other, made) is Weight.ROW
            for other in fleet.candidates
            if other.kind == "vllm"
        )
        return Weight.CORROBORATES if carried else Weight.ROW
    own = counting(fleet, candidate, made)
    if not own or all(cell.status is OracleStatus.BLOCKED for cell in own):
        return Weight.NONE
    gates = any(c.status in _RUNS and c.gateable is Gateable.YES for c in own)
    if not gates or candidate.gate:
        return Weight.OPEN
    if candidate.drop_in:
        return Weight.CORROBORATES
    return {"vllm": Weight.ROW, "transformers": Weight.ALGORITHM}.get(
        candidate.kind, Weight.CORROBORATES
    )


def counting(fleet: Fleet, candidate: Candidate, made: Sequence[Cell]) -> list[Cell]:
    """Return a candidate's cells that count: for vLLM those of devices that expose a GPU."""
    own = [cell for cell in made if cell.oracle == candidate.oracle]
    if candidate.kind != "vllm":
        return own
    exposing = {device.name for device in fleet.devices if device.exposes_gpu}
    return [cell for cell in own if cell.device in exposing]


def conclusion(fleet: Fleet, entries: Mapping[str, OracleEntry], made: Sequence[Cell]) -> str:
    """Return in one sentence which oracle carries the row, and which the algorithm."""
    parts = (_row(fleet, entries, made), *_engines(fleet, made), *_algorithm(fleet, entries))
    return "; ".join(parts)


def _row(fleet: Fleet, entries: Mapping[str, OracleEntry], made: Sequence[Cell]) -> str:
    shipped = [c for c in fleet.candidates if c.kind == "vllm" and c.shipped]
    carrying = [c.oracle for c in shipped if entries[c.oracle].weight is Weight.ROW]
    if carrying:
        return f"{' and '.join(carrying)} carries the row"
    secondary = [entries[c.oracle] for c in fleet.candidates if c.kind == "external"]
    names = " and ".join(entry.oracle for entry in secondary)
    who = f"the secondary entry {names} carries the row" if names else "nothing carries the row"
    itself = f", and is itself {secondary[0].status.value}" if secondary else ""
    if all(entries[c.oracle].weight is Weight.NONE for c in shipped):
        cells = [cell for c in shipped for cell in counting(fleet, c, made)]
        predicted = any(cell.origin is Origin.PREDICTED for cell in cells)
        by = ", by prediction" if predicted else ""
        return f"no vLLM oracle on this fleet{by}: {who}{itself}"
    return f"no vLLM oracle is established on this fleet: until one is, {who}{itself}"


def _engines(fleet: Fleet, made: Sequence[Cell]) -> list[str]:
    """Say where vLLM's own engine ran, and whether a gate can rest on it."""
    told = []
    for candidate in fleet.candidates:
        if candidate.kind != "vllm":
            continue
        ran = [c for c in counting(fleet, candidate, made) if c.status in _RUNS]
        if ran:
            where = ", ".join(cell.device for cell in ran)
            gates = any(cell.gateable is Gateable.YES for cell in ran)
            rests = "" if gates else ", and no gate can rest on it"
            told.append(
                f"{candidate.oracle} runs on {where} (reduced model, random weights){rests}"
            )
    return told


def _algorithm(fleet: Fleet, entries: Mapping[str, OracleEntry]) -> list[str]:
    told = []
    for candidate in fleet.candidates:
        entry = entries[candidate.oracle]
        if candidate.kind != "transformers":
            continue
        if entry.weight is Weight.ALGORITHM:
            where = [name for name, status in entry.devices.items() if status in _RUNS]
            told.append(f"{entry.oracle} carries the algorithm ({', '.join(where)})")
        else:
            told.append(f"{entry.oracle} is {entry.status.value}, so nothing carries the algorithm")
    return told
