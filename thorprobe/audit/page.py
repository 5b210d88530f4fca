# SPDX-License-Identifier: Apache-2.0
"""An audit of the gates as a sheet: who is wrong where, range by range, what it costs, what to ask.

Gates that decide a subject alike share their rows.
"""

from collections.abc import Iterator, Sequence

from thorprobe.answer import Kind
from thorprobe.audit import choices_page as audit_choices
from thorprobe.audit.cost import OWN_KERNEL
from thorprobe.audit.finding import causes_sentence, labels_text
from thorprobe.audit.installed_page import installed_sections
from thorprobe.audit.records import (
    Audit,
    AuditResult,
    AuditSummary,
    Cost,
    Decision,
    Finding,
    Gate,
    GateOnSubject,
    GateRange,
    Subject,
)
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.judge.kernel_name import image, kernels_text
from thorprobe.judge.ranges import span, spans
from thorprobe.plan.operator import is_operator
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Origin
from thorprobe.render.escape import plain
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted
from thorprobe.summary import GateSummary

NONE = "-"
UNSURE = "open*"
DITTO = '"'
"""In the first column: the same as in the row above."""

OWN = (
    "Predictions, and launches that are not marked as a shipped kernel's, are of thorprobe's own "
    "kernel with upstream's grid, cluster, threads and bytes: launch or refusal carries over to "
    "upstream's kernel, results and times do not"
)
SHIPPED = (
    "Launches marked as a shipped kernel's are that kernel's own: launch, refusal and results. A "
    "gate of another version is held against them where cluster, threads and bytes are the same, "
    "and the results are none of that version's kernel"
)
OPERATORS = (
    "Launches marked as vLLM's operators are calls of those through torch, host code and all, and "
    "of persistent_topk too; a gate of another version is held against the same library"
)
BUILD = "Whether a build holds code for a device at all is another question: `thorprobe inspect`"
_COST = (
    "What vLLM falls back to is persistent_topk, and no time of it in {where} is on record: "
    "what a shut gate costs against it is not established. Beside an arm stands what ran without "
    "a cluster at the same rows, where something did, which bounds nothing. Times of one kernel "
    "say nothing of another's"
)
_MEANINGS = {
    "accepts": "rows let through to an arm that cannot launch (false accepts)",
    "rejects": "rows kept from an arm that launches (false rejects)",
    "undetermined": "rows of which the evidence does not say whether their arm launches",
    "on the device": "rows that the gate decides by asking: which way is open here, and on each "
    "admissible map the query and the launch go the same way",
    "claimed": "the same with the subject's published claim added to the layout",
    "clu": "CTAs a cluster of the launch behind the gate; 16>8: the gate steps down to 8",
    "bytes": "dynamic shared memory a CTA of that launch asks for",
    "checked": "results of the kernel launched that are right / compared, every k of the store: "
    "thorprobe's own, unless the subject is marked as a shipped kernel's",
    UNSURE: "open as far as the conditions are known that are established of this version",
}


def sheet(answer: Audit) -> Sheet:
    """Return the sheet of an audit."""
    summary = answer.summary
    return Sheet(
        title="Audit of the gates",
        device=_who(summary.subjects),
        finding=summary.finding,
        next_action=summary.next_action,
        sections=tuple(_sections(answer)),
        legend=tuple(_legend(answer)),
        closing=f"{counted(len(summary.gates), 'gate')} on "
        f"{counted(len(summary.subjects), 'subject')}. {'. '.join(_basis(summary.subjects))}",
    )


def _basis(subjects: Sequence[Subject]) -> Iterator[str]:
    if any(not subject.kernel for subject in subjects):
        yield OWN
    if any(subject.kernel and not _called(subject) for subject in subjects):
        yield SHIPPED
    if any(_called(subject) for subject in subjects):
        yield OPERATORS
    yield BUILD


def _called(subject: Subject) -> bool:
    return any(map(is_operator, subject.kernel.split(", ")))


def _who(subjects: Sequence[Subject]) -> str:
    labels = plain(labels_text([subject.label for subject in subjects]))
    predicted = [s for s in subjects if s.origin is Origin.PREDICTED]
    if len(predicted) == len(subjects):
        return f"PREDICTED, nothing was launched: {labels}"
    return f"Nothing was launched now: {labels}"


def _sections(answer: Audit) -> Iterator[Section]:
    summary = answer.summary
    if summary.installed is not None:
        yield from installed_sections(summary.installed)
    yield Section(heading="Rows decided wrongly", table=_overview(summary))
    yield Section(
        heading="Gates",
        pairs=tuple(
            (gate.name, f"{_STATUSES[gate.status]}: {'; '.join(_gate(gate))}")
            for gate in summary.gates
        ),
    )
    yield Section(heading="Subjects", pairs=tuple(_subjects(summary)))
    for subject in summary.subjects:
        own = [result for result in answer.results if result.subject == subject.name]
        yield Section(
            heading=f"Arms behind the gates: {subject.label}", table=_ranges(own, subject)
        )
    if summary.costs:
        told = _COST.format(where="these partitions" if summary.choices else "a partition")
        yield Section(heading="What kept-out rows lose", paragraphs=(told,), table=_costs(summary))
        yield Section(pairs=tuple(_sources(summary.costs)))
    yield from audit_choices.sections(summary)
    if summary.proposal is not None:
        yield Section(
            heading="The gate that would be right, as text for an upstream issue",
            paragraphs=summary.proposal.paragraphs,
            code=summary.proposal.code,
            language="python",
        )


def _gate(gate: Gate) -> Iterator[str]:
    yield gate.title
    yield f"source: {gate.source}"
    yield from gate.notes


def _subjects(summary: AuditSummary) -> Iterator[tuple[str, str]]:
    for subject in summary.subjects:
        device = subject.device
        parts = [f"{device.name}, {device.available_sms} SMs", subject.source]
        if subject.kernel:
            labels = subject.kernel.split(", ")
            digits = " and ".join(dict.fromkeys(map(image, labels)))
            did, of = ("called", "library") if _called(subject) else ("launched", "image")
            parts.append(f"{did} were {kernels_text(labels)} of {of} {digits}")
        if device.basis:
            parts.append(f"rests on {device.basis}")
        parts += [f"claim {c.id}: {c.statement} (source: {c.source})" for c in device.claims]
        parts.append(causes_sentence(summary.causes.get(subject.name, {})))
        yield subject.label, "; ".join(parts)


def _overview(summary: AuditSummary) -> Table:
    headings = ("subject", "gates", "accepts", "rejects", "undetermined", "on the device")
    claims = any(subject.device.claims for subject in summary.subjects)
    columns = [Column((heading,), numeric=False) for heading in headings]
    if claims:
        columns.append(Column(("claimed",), numeric=False))
    rows = []
    for subject in summary.subjects:
        told: dict[tuple[str, ...], list[str]] = {}
        for gate in summary.gates:
            of = summary.on[subject.name][gate.name]
            cells = (
                _rows(of.false_accepts) + ("*" if of.unestablished else ""),
                _rows(of.false_rejects),
                _rows(of.undetermined),
                _rows(of.on_device),
                *((_claimed(of),) if claims else ()),
            )
            told.setdefault(cells, []).append(gate.name)
        rows += [
            (
                (DITTO if number else subject.label,),
                (", ".join(names),),
                *((cell,) for cell in cells),
            )
            for number, (cells, names) in enumerate(told.items())
        ]
    return Table(title="", columns=tuple(columns), rows=tuple(rows))


def _rows(found: Sequence[tuple[int, int]]) -> str:
    return spans(found) or NONE


def _claimed(of: GateOnSubject) -> str:
    return "; ".join(_wrong(under) for under in of.under_claims.values()) or NONE


def _wrong(of: GateSummary) -> str:
    named = (
        ("accepts", of.false_accepts),
        ("rejects", of.false_rejects),
        ("undetermined", of.undetermined),
    )
    return ", ".join(f"{name} {spans(rows)}" for name, rows in named if rows) or "none wrong"


def _ranges(results: Sequence[AuditResult], subject: Subject) -> Table:
    claims = [claim.id for claim in subject.device.claims]
    headings = [
        *(("gates", False), ("rows", True), ("clu", True), ("bytes", True), ("gate", False)),
        *(("verdict, cause", False), ("gate is", False)),
        *(("claimed" if len(claims) == 1 else f"claim {c}", False) for c in claims),
        *((("checked", True),) if any(p.checked[1] for r in results for p in r.ranges) else ()),
    ]
    told: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for result in results:
        cells = tuple(_cells(part, claims, len(headings) - 1) for part in result.ranges)
        told.setdefault(cells, []).append(result.gate)
    rows = [
        ((DITTO if number else ", ".join(names),), *((word,) for word in cells))
        for parts, names in told.items()
        for number, cells in enumerate(parts)
    ]
    columns = tuple(Column((text,), numeric=numeric) for text, numeric in headings)
    return Table(title="", columns=columns, rows=tuple(rows))


def _cells(part: GateRange, claims: Sequence[str], count: int) -> tuple[str, ...]:
    stepped = "" if part.cluster == part.dispatched else f"{part.dispatched}>"
    sure = part.decision is not Decision.OPEN or not part.unestablished
    verdict = f"{part.verdict.value}{f' {part.code}' if part.code else ''}"
    right, compared = part.checked
    cells = (
        span(*part.rows),
        f"{stepped}{part.cluster}",
        f"{part.dynamic_smem:,}",
        part.decision.value if sure else UNSURE,
        f"{verdict}, {part.cause}" if part.cause else verdict,
        part.finding.value,
        *(part.under_claims[c].value if c in part.under_claims else NONE for c in claims),
        f"{right}/{compared}" if compared else NONE,
    )
    return cells[:count]


def _costs(summary: AuditSummary) -> Table:
    kinds = len({_whose(cost) for cost in summary.costs}) > 1
    headings = ["subject", *(["kernel"] if kinds else []), "rows", "lost by", "clu", "us"]
    headings += ["best us", "without us", "x"]
    words = ("subject", "kernel", "lost by", "best us")
    columns = tuple(Column((text,), numeric=text not in words) for text in headings)
    labels = {subject.name: subject.label for subject in summary.subjects}
    rows = []
    for before, cost in zip((None, *summary.costs), summary.costs, strict=False):
        same = before is not None and before.subject == cost.subject
        label = DITTO if same else labels[cost.subject]
        whose = [_whose(cost)] if kinds else []
        rows.append(tuple((word,) for word in (label, *whose, *_cost(cost))))
    return Table(title="", columns=columns, rows=tuple(rows))


def _cost(cost: Cost) -> Iterator[str]:
    yield str(cost.rows)
    yield ", ".join(cost.gates) or "no step down"
    yield str(cost.cluster)
    yield f"{cost.arm_us:.1f}"
    yield f"{cost.best_us:.1f} (clu {cost.best_cluster})"
    yield NONE if cost.other_us is None else f"{cost.other_us:.1f}"
    yield NONE if cost.other_us is None else f"{cost.other_us / cost.arm_us:.1f}"


def _whose(cost: Cost) -> str:
    if cost.kernel == OWN_KERNEL:
        return "thorprobe's"
    # The same kernel, in an older recording that timed it another way.
    return "shipped" if is_shipped(cost.kernel) else "shipped, loop"


def _sources(costs: Sequence[Cost]) -> Iterator[tuple[str, str]]:
    """Say whose times they are, and where they and those without a cluster come from."""
    told: dict[tuple[str, str], dict[str, None]] = {}
    others: dict[tuple[str, str], None] = {}
    for cost in costs:
        k = f"k {cost.k}, " if cost.k else ""
        what = f"{cost.kernel}, {k}{cost.columns:,} columns"
        told.setdefault((_whose(cost), what), {})[cost.source] = None
        if cost.other_us is not None:
            others[cost.other, cost.other_source or cost.source] = None
    for (whose, what), sources in sorted(told.items()):
        yield whose, f"{what}; {'; '.join(sources)}"
    for other, source in sorted(others):
        yield "without us", f"{other}; {source}"


def _legend(answer: Audit) -> Iterator[tuple[str, str]]:
    summary = answer.summary
    parts = [part for result in answer.results for part in result.ranges]
    open_ = sorted({name for part in parts for name in part.unestablished})
    shown = dict(_MEANINGS)
    if not any(subject.device.claims for subject in summary.subjects):
        shown.pop("claimed")
    if not any(part.checked[1] for part in parts):
        shown.pop("checked")
    if not open_:
        shown.pop(UNSURE)
    yield from shown.items()
    for capability in sorted({s.capability for s in summary.subjects if _disguised(s)}):
        word = "as cc {}.{}".format(*capability)
        yield word, "dispatched and gated as for that capability; the SMs are the device's own"
    if open_:
        yield "*", f"one of these, not established, may shut the gate: {', '.join(open_)}"
    for finding in Finding:
        if finding in _FINDINGS and any(part.finding is finding for part in parts):
            yield finding.value, _FINDINGS[finding]
    if summary.costs:
        yield from _COSTS.items()
    yield from audit_choices.meanings(summary)
    for cause in sorted({part.cause for part in parts if part.cause}):
        yield cause, BY_KEY[cause].sentence if cause in BY_KEY else "a cause of another version"


def _disguised(subject: Subject) -> bool:
    return subject.capability != subject.device.capability


_STATUSES = {
    "shipped": "shipped",
    "proposed": "proposed upstream",
    "thorprobe": "thorprobe's own",
    "installed": "installed",
}
_FINDINGS = {
    Finding.FALSE_ACCEPT: "the gate is open and the launch fails",
    Finding.FALSE_REJECT: "the gate is shut and the launch goes through; where results were "
    "checked, they are right",
    Finding.ON_DEVICE: "gate and launch agree on every admissible map",
}
_COSTS = {
    "us": "microseconds a launch at the arm's own cluster size",
    "best us": "the same at the fastest size on record",
    "without us": "what ran without a cluster at these rows; not what vLLM falls back to",
    "x": "without us over us",
    "no step down": "the arm's own size is refused, and no gate but one that steps down takes the "
    "size shown",
}

KIND = Kind(type=Audit, sheet=sheet)
"""How ``thorprobe report`` reads and shows an audit."""
