# SPDX-License-Identifier: Apache-2.0
"""What each gate's choice takes beside the best on record, as a table a subject."""

from collections.abc import Iterator, Sequence

from thorprobe.audit.choice import NO_CLUSTER
from thorprobe.audit.choice_text import name, reject
from thorprobe.audit.records import AuditSummary, Choice, Took
from thorprobe.render.sheet import Section
from thorprobe.render.table import Column, Table

NONE = "-"
HEADING = "What each gate's choice takes"
TEXT = (
    "Measured with persistent_topk, which vLLM falls back to, at the same input in the same place; "
    "medians of graph replays of upstream's own kernels, inputs warm in cache where they fit. They "
    "hold for these rows, columns and lengths, and for this place"
)
MEANINGS = {
    "arm": "CTAs a cluster that the host code picks at these rows",
    "persistent": "microseconds of persistent_topk at the same input",
    "reject": "microseconds that giving the rows to persistent_topk costs (+) or saves (-)",
    "best": "fastest choice on record for this input: a cluster size, or persistent_topk (pers); "
    "where the arm's own operator was called, no other size could be",
    "gates": "each gate's time over that of the best choice; or the code that its launch ends with",
}


def sections(summary: AuditSummary) -> Iterator[Section]:
    """Yield a table for each subject in whose place persistent_topk was timed."""
    found = summary.choices or ()
    told = [s for s in summary.subjects if any(c.subject == s.name for c in found)]
    for number, subject in enumerate(told):
        own = [choice for choice in found if choice.subject == subject.name]
        sources = ", ".join(dict.fromkeys(source for c in own for source in c.sources))
        yield Section(
            heading=f"{HEADING}: {subject.label}",
            paragraphs=(() if number else (TEXT,)),
            table=_table(own),
        )
        yield Section(pairs=((f"times of {subject.label}", f"stores {sources}"),))


def meanings(summary: AuditSummary) -> list[tuple[str, str]]:
    """Return the legend of the headings, empty where there is no such table."""
    return list(MEANINGS.items()) if summary.choices else []


def _table(choices: Sequence[Choice]) -> Table:
    headings = ("columns", "length", "rows", "arm", "arm us", "persistent", "reject", "best")
    kinds = len({choice.k for choice in choices}) > 1
    columns = [Column((text,)) for text in (*(("k",) if kinds else ()), *headings)]
    columns += [Column(("best us",)), Column(("gates",), numeric=False)]
    rows = sorted(choices, key=lambda c: (c.k, c.columns, c.length, c.rows))
    return Table(
        title="",
        columns=tuple(columns),
        rows=tuple(
            tuple((word,) for word in (*((str(c.k),) if kinds else ()), *_cells(c))) for c in rows
        ),
    )


def _cells(choice: Choice) -> Iterator[str]:
    yield f"{choice.columns:,}"
    yield f"{choice.length:,}"
    yield f"{choice.rows:,}"
    yield str(choice.cluster)
    refused = f"refused {choice.arm_code or ''}".strip()
    untimed = refused if choice.arm_code else NONE
    yield untimed if choice.arm_us is None else f"{choice.arm_us:.1f}"
    yield f"{choice.persistent_us:.1f}"
    lost = reject(choice)
    yield NONE if lost is None else f"{lost:+.1f}"
    yield "pers" if choice.best_cluster == NO_CLUSTER else str(choice.best_cluster)
    yield f"{choice.best_us:.1f}"
    yield "; ".join(_gates(choice))


def _gates(choice: Choice) -> Iterator[str]:
    """Yield what each set of gates that take alike comes to."""
    told: dict[Took, list[str]] = {}
    for gate, took in choice.took.items():
        told.setdefault(took, []).append(gate)
    for took, gates in told.items():
        if took.us is None:
            came = f"{name(took.cluster)}, refused {took.code or ''}".strip()
        else:
            came = f"{took.us / choice.best_us:.2f} ({name(took.cluster)})"
        yield f"{', '.join(gates)} {came}"
