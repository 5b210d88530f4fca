# SPDX-License-Identifier: Apache-2.0
"""What a reject costs or gains, and which choice is best, in sentences for an upstream issue."""

from collections.abc import Iterable, Iterator, Sequence

from thorprobe.audit.choice import NO_CLUSTER, place
from thorprobe.audit.records import Choice, Gate, Subject
from thorprobe.judge.ranges import ranges


def name(cluster: int) -> str:
    """Name a choice: ``8 CTAs``, or ``persistent_topk``."""
    return "persistent_topk" if cluster == NO_CLUSTER else f"{cluster} CTAs"


def sentences(
    choices: Sequence[Choice], gates: Sequence[Gate], subjects: Sequence[Subject]
) -> Iterator[str]:
    """Say what giving rows to persistent_topk costs and saves, and what the right gate asks.

    One subject speaks for a place: one that a proposed gate keeps rows out of, where there is one.
    """
    proposed = [gate.name for gate in gates if gate.status == "proposed"]
    spoken = list(_speakers(choices, proposed, subjects))
    for subject in spoken:
        own = [choice for choice in choices if choice.subject == subject.name]
        told = [text for group in _groups(own) if (text := _reject(group))]
        if told:
            shut = [n for n in proposed if any(_keeps_out(choice, n) for choice in own)]
            who = f"An exclusion of the family ({' and '.join(shut)})" if shut else "A reject"
            yield f"{who} on {subject.label}: {'; '.join(told)}."
    best = [
        f"on {subject.label}, {text}"
        for subject in spoken
        if (text := _best([c for c in choices if c.subject == subject.name]))
    ]
    if best:
        yield (
            "So the right gate asks occupancy first, and then goes by rows and by the SMs that "
            f"are there. The fastest on record: {'; '.join(best)}."
        )


def reject(choice: Choice) -> float | None:
    """Return what giving these rows to persistent_topk costs in microseconds, less than 0: saves.

    None where the arm is refused or was not timed: nothing is lost, or it is not known.
    """
    return None if choice.arm_us is None else choice.persistent_us - choice.arm_us


def _keeps_out(choice: Choice, gate: str) -> bool:
    took = choice.took.get(gate)
    return took is not None and took.cluster == NO_CLUSTER and choice.arm_us is not None


def _speakers(
    choices: Sequence[Choice], proposed: Sequence[str], subjects: Sequence[Subject]
) -> Iterator[Subject]:
    by_place: dict[tuple[str, str], list[Subject]] = {}
    told = {choice.subject for choice in choices}
    for subject in subjects:
        if subject.name in told:
            by_place.setdefault(place(subject), []).append(subject)
    for held in by_place.values():
        kept = [
            subject
            for subject in held
            if any(
                c.subject == subject.name and any(_keeps_out(c, gate) for gate in proposed)
                for c in choices
            )
        ]
        yield (kept or held)[0]


def _groups(choices: Iterable[Choice]) -> list[list[Choice]]:
    """Group by k, columns and length."""
    groups: dict[tuple[int, int, int], list[Choice]] = {}
    for choice in choices:
        groups.setdefault((choice.k, choice.columns, choice.length), []).append(choice)
    return [groups[key] for key in sorted(groups)]


def _reject(choices: Sequence[Choice]) -> str:
    """Tell the rows that lose and those that gain, each with the row count that does most so."""
    known = [(choice, lost) for choice in choices if (lost := reject(choice)) is not None]
    losing = [choice for choice, lost in known if lost > 0]
    gaining = [choice for choice, lost in known if lost < 0]
    parts = []
    if losing:
        parts.append(f"costs time at {_most(losing)}")
    if gaining:
        parts.append(f"saves {'it' if losing else 'time'} at {_most(gaining)}")
    return f"{' and '.join(parts)} {_shape(choices[0])}" if parts else ""


def _most(choices: Sequence[Choice]) -> str:
    def factor(choice: Choice) -> float:
        arm = choice.arm_us or choice.persistent_us
        return max(choice.persistent_us / arm, arm / choice.persistent_us)

    most = max(choices, key=factor)
    rows = ranges(choice.rows for choice in choices)
    change = f"{most.arm_us:.1f} us become {most.persistent_us:.1f}"
    return f"num_rows {rows} (at {most.rows}: {change})"


def _shape(choice: Choice) -> str:
    length = "" if choice.length == choice.columns else f", {choice.length:,} of them valid"
    return f"at {choice.columns:,} columns{length}, k {choice.k}"


def _best(choices: Sequence[Choice]) -> str:
    """Name the fastest choice by rows at the longest rows; equal neighbours share their rows."""
    groups = _groups(choices)
    if not groups:
        return ""
    last = max(groups, key=lambda group: (group[0].columns, group[0].length))
    runs: list[tuple[int, list[Choice]]] = []
    for choice in sorted(last, key=lambda c: c.rows):
        if runs and runs[-1][0] == choice.best_cluster:
            runs[-1][1].append(choice)
        else:
            runs.append((choice.best_cluster, [choice]))
    told = [f"num_rows {_rows(held)} {name(cluster)}" for cluster, held in runs]
    return f"{_shape(last[0])}: {', '.join(told)}"


def _rows(held: Sequence[Choice]) -> str:
    first, last = held[0].rows, held[-1].rows
    return str(first) if first == last else f"{first} to {last}"
