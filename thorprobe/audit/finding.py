# SPDX-License-Identifier: Apache-2.0
"""The finding of an audit in one sentence: gate by gate, and why launches are refused."""

from collections.abc import Mapping, Sequence

from thorprobe.audit.records import Gate, GateOnSubject, Refused, Subject
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.judge.cause import CODE_NAMES
from thorprobe.judge.ranges import sizes_text, spans

On = Mapping[str, Mapping[str, GateOnSubject]]
"""What each gate decides wrongly, by subject and gate."""

Spans = tuple[tuple[int, int], ...]


def finding(on: On, gates: Sequence[Gate], subjects: Sequence[Subject]) -> str:
    """Tell what each gate decides wrongly and where; gates that do alike share their part."""
    return "; ".join(by_gate(on, gates, subjects))


def by_gate(on: On, gates: Sequence[Gate], subjects: Sequence[Subject]) -> list[str]:
    """Return one part for each set of gates that decide alike."""
    told: dict[str, list[str]] = {}
    for gate in gates:
        told.setdefault(_of_gate(on, gate.name, subjects), []).append(gate.name)
    return [f"{and_(names)}: {text}" for text, names in told.items()]


def causes_sentence(causes: Mapping[str, Refused]) -> str:
    """Return which sizes a subject refuses and why, each cause with its own code."""
    parts = []
    for key, refused in causes.items():
        name = BY_KEY[key].name if key in BY_KEY else key
        code = refused.code
        answered = f"{code} {CODE_NAMES.get(code, '')}".strip() if code else "no code"
        parts.append(f"{sizes_text(refused.clusters)} CTAs ({name}, {answered})")
    return f"refused are {', '.join(parts)}" if parts else "no arm is refused"


def next_action(on: On) -> str:
    """Say what mends the gates, and what settles the rows that are left open."""
    found = [of for gates in on.values() for of in gates.values()]
    parts = []
    if any(of.false_accepts or of.false_rejects for of in found):
        parts.append(
            "Let cuOccupancyMaxActiveClusters choose for the arm's own kernel and bytes, not the "
            "compute capability"
        )
    if any(of.undetermined or of.on_device for of in found):
        parts.append("`thorprobe cluster-sweep` on the device settles the rows that are open")
    return "; ".join(parts)


def and_(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def labels_text(labels: Sequence[str]) -> str:
    """Return labels of subjects in order; neighbours of one origin share its brackets."""
    groups: list[tuple[str, list[str]]] = []
    for label in labels:
        name, _, basis = label.partition(" (")
        if groups and groups[-1][0] == basis:
            groups[-1][1].append(name)
        else:
            groups.append((basis, [name]))
    return ", ".join(and_(names) + (f" ({basis}" if basis else "") for basis, names in groups)


def _of_gate(on: On, gate: str, subjects: Sequence[Subject]) -> str:
    """Group the subjects by what the gate decides wrongly there."""
    groups: dict[str, list[str]] = {}
    unestablished: dict[str, None] = {}
    asked: dict[str, list[str]] = {}
    for subject in subjects:
        of = on[subject.name][gate]
        unestablished |= dict.fromkeys(of.unestablished)
        if of.on_device:
            asked.setdefault(spans(of.on_device), []).append(subject.label)
        if wrong := _wrong(of):
            groups.setdefault(wrong, []).append(subject.label)
    text = ", ".join(f"on {labels_text(labels)} {wrong}" for wrong, labels in groups.items())
    if unestablished:
        open_ = and_(list(unestablished))
        text += f", as far as its conditions are established ({open_} are not)"
    parts = [text or "no row decided wrongly"]
    for rows, labels in asked.items():
        parts.append(f"which way rows {rows} go on {labels_text(labels)} only the device says")
    return ", ".join(parts)


def _wrong(of: GateOnSubject) -> str:
    accepts = {c: u.false_accepts for c, u in of.under_claims.items()}
    rejects = {c: u.false_rejects for c, u in of.under_claims.items()}
    parts = (
        ("lets", of.false_accepts, accepts, "through to a launch that is refused"),
        ("keeps", of.false_rejects, rejects, "from arms that launch"),
    )
    return " and ".join(
        f"{verb} rows {rows} {end}"
        for verb, found, claimed, end in parts
        if (rows := _rows(found, claimed))
    )


def _rows(found: Spans, claimed: Mapping[str, Spans]) -> str:
    """Return the rows, and in brackets those with each published claim where they are others."""
    others = [
        f"{spans(rows) or 'none'} if the published claim {claim} holds"
        for claim, rows in claimed.items()
        if rows != found
    ]
    if not found:
        return "; ".join(others)
    told = f" ({'; '.join(others)})" if others else ""
    return f"{spans(found)}{told}"
