# SPDX-License-Identifier: Apache-2.0
"""A drive of the top-k arms as one table: a row per arm, and its gates in words."""

from collections.abc import Callable, Iterable

from thorprobe.judge.arm_launches import launches_of
from thorprobe.judge.ranges import ranges, span, spans
from thorprobe.plan.operator import is_operator
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Device, Outcome, Verdict
from thorprobe.render import cells
from thorprobe.render.escape import plain
from thorprobe.render.table import Column, Table
from thorprobe.summary import ArmRow, ArmsSummary, Document, GateSummary

NO_CLUSTER = "none"

KERNEL = (
    "thorprobe's cluster_topk with upstream's grid, cluster, threads and bytes: launch or refusal "
    "carries over to upstream's kernel, results and times are its own"
)
"""What was launched, and what of it may be said of the kernel that a model calls."""

OWN, SHIPPED, OPERATOR = "thorprobe's kernel", "the shipped kernel", "vLLM's operator"

ONE_CTA_LENGTH = 16_384
"""Longest row that one CTA of a cluster selects alone (kernels/topk.cu, as upstream's)."""

MEANINGS = {
    "clu": "CTAs a cluster; none: upstream's persistent kernel, which has no cluster",
    "bytes": "dynamic shared memory a CTA asks for",
    "gate": "open: the call-site gate lets these rows through to the arm; shut: it does not; "
    "-: rows that go to the persistent kernel by design",
    "best": "cluster size at which thorprobe's kernel was fastest at the last of these rows",
}
"""Legend of the headings that do not speak for themselves."""

TIMED = "median of 7 graph replays, inputs warm in cache where they fit, largest length"
"""How a time was measured (thorprobe/driver/launch.py)."""


def _whose(summary: ArmsSummary) -> str:
    if any(is_operator(arm.kernel) for arm in summary.arms):
        return OPERATOR
    return SHIPPED if any(is_shipped(arm.kernel) for arm in summary.arms) else OWN


def table(summary: ArmsSummary, device: Device) -> Table:
    """Return one row per arm; columns that no arm fills (claims, checks, times) are left out."""
    arms = sorted(summary.arms, key=_order)
    kinds = sorted({(arm.k, plain(arm.dtype)) for arm in arms})
    policies = {plain(arm.policy) for arm in arms}
    dtypes = {dtype for _, dtype in kinds}
    shown: list[tuple[Column, Callable[[ArmRow], str]]] = [
        (Column(("rows",)), rows_label),
        (Column(("clu",)), cluster_label),
        (Column(("bytes",)), _bytes),
        (Column(("gate",), numeric=False), _gate_word),
        (Column(("verdict",), numeric=False), _verdict),
    ]
    # What all arms share is in the title: a line has room for what differs.
    if len(kinds) > 1:
        dtype = "" if len(dtypes) == 1 else " {}"
        shown.insert(1, (Column(("k",)), lambda arm: f"{arm.k}{dtype.format(plain(arm.dtype))}"))
    if len(policies) > 1:
        shown.insert(0, (Column(("policy",), numeric=False), lambda arm: plain(arm.policy)))
    for claim, heading in claim_headings(device).items():
        shown.append((Column((heading,), numeric=False), _under(claim)))
    shown.append((Column(("cause",), numeric=False), lambda arm: plain(arm.cause or "-")))
    if any(arm.checked[1] for arm in arms):
        shown.append((Column(("checked",)), _checked))
    if any(arm.time_us is not None for arm in arms):
        shown.append((Column(("us",)), _time))
        shown.append((Column(("best",)), lambda arm: str(arm.fastest or cells.NOT_ASKED)))
    title = ["Arms", *(f"of policy {name}" for name in policies if len(policies) == 1)]
    if summary.capability not in ((0, 0), device.capability):
        major, minor = summary.capability
        title.append(f"dispatched as cc {major}.{minor}")
    if len(kinds) == 1:
        title.append(f"at k {kinds[0][0]}, {kinds[0][1]}")
    elif len(dtypes) == 1:
        title.append(f"in {kinds[0][1]}")
    return Table(
        title=" ".join(title),
        columns=tuple(column for column, _ in shown),
        rows=tuple(tuple((cell(arm),) for _, cell in shown) for arm in arms),
    )


def claim_headings(device: Device) -> dict[str, str]:
    """Return the column heading of each claim id of the device."""
    ids = [claim.id for claim in device.claims]
    return {name: "claimed" if len(ids) == 1 else f"claim {i}" for i, name in enumerate(ids, 1)}


def rows_label(arm: ArmRow) -> str:
    """Return the range of num_rows, such as ``1-4``, ``65+``."""
    return span(*arm.rows)


def cluster_label(arm: ArmRow) -> str:
    """Return the cluster size of an arm, or ``none`` for the persistent path."""
    return NO_CLUSTER if _persistent(arm) else str(arm.cluster)


def meanings(summary: ArmsSummary, document: Document) -> list[tuple[str, str]]:
    """Return the legend of the headings that the table of this summary has."""
    device = document.device
    headings = {line for column in table(summary, device).columns for line in column.heading}
    whose = _whose(summary)
    told = {word: sentence.replace(OWN, whose) for word, sentence in MEANINGS.items()}
    if whose == OPERATOR:
        told["best"] += "; 1: persistent_topk, which has no cluster, was faster"
    found = [(word, sentence) for word, sentence in told.items() if word in headings]
    found += [
        (heading, f"verdict with the claim {plain(claim)} added to the layout")
        for claim, heading in claim_headings(device).items()
    ]
    if "checked" in headings:
        found.append(("checked", _checked_meaning(summary, document)))
    if "us" in headings:
        shapes = _joined(arm.time_shape for arm in summary.arms if arm.time_us is not None)
        at = f" (rows x length {shapes})" if shapes else ""
        found.append(("us", f"microseconds a launch of {whose} at the last row: {TIMED}{at}"))
    return found


def remarks(summary: ArmsSummary, document: Document) -> list[tuple[str, str]]:
    """Return label and sentence of the gates, failing sizes, call site, reasons and notes."""
    found = [(f"Gate {plain(name)}", gate(summary.gates[name])) for name in sorted(summary.gates)]
    asked = [o for o in document.results if not o.assumes and o.spec.cluster_attribute]
    refused = _sizes(asked, (Verdict.REFUSED,))
    found.append(("Refused sizes (arms and alternatives)", refused or "none"))
    if worse := _sizes(asked, (Verdict.WRONG, Verdict.FAULTS, Verdict.HANGS)):
        found.append(("Wrong, faulting or hanging sizes", worse))
    if summary.call_site:
        found.append(("Call site", plain(summary.call_site)))
    shut = _told(summary, lambda arm: "" if arm.gate or _persistent(arm) else arm.gate_reason)
    found += [(f"Shut for {who}", reason) for reason, who in shut.items()]
    found += [(f"Note on {who}", note) for note, who in _told(summary, lambda a: a.note).items()]
    return found


def gate(summary: GateSummary) -> str:
    """Return which rows a gate decides wrongly or cannot be judged on, or that there are none."""
    named = (
        ("false accepts", summary.false_accepts),
        ("false rejects", summary.false_rejects),
        ("undetermined", summary.undetermined),
    )
    told = [f"{name} rows {spans(found)}" for name, found in named if found]
    return "; ".join(told) or "no false accepts, no false rejects"


def _told(summary: ArmsSummary, sentence: Callable[[ArmRow], str]) -> dict[str, str]:
    """Return each distinct sentence with the arms it is about."""
    told: dict[str, list[str]] = {}
    for arm in sorted(summary.arms, key=_order):
        if text := plain(sentence(arm)):
            told.setdefault(text, []).append(f"{plain(arm.policy)} rows {rows_label(arm)}")
    return {text: ", ".join(dict.fromkeys(arms)) for text, arms in told.items()}


def _order(arm: ArmRow) -> tuple[str, int, int, str]:
    return (arm.policy, arm.rows[0], arm.k, arm.dtype)


def _persistent(arm: ArmRow) -> bool:
    return arm.path == "persistent"


def _bytes(arm: ArmRow) -> str:
    return cells.NOT_ASKED if _persistent(arm) else f"{arm.dynamic_smem:,}"


def _gate_word(arm: ArmRow) -> str:
    if _persistent(arm):
        return cells.NOT_ASKED
    return "open" if arm.gate else "shut"


def _verdict(arm: ArmRow) -> str:
    code = f" {arm.code}" if arm.code and arm.verdict is not Verdict.LAUNCHES else ""
    return f"{arm.verdict.value}{code}"


def _under(claim: str) -> Callable[[ArmRow], str]:
    return lambda arm: arm.under_claims[claim].value if claim in arm.under_claims else "-"


def _checked(arm: ArmRow) -> str:
    right, compared = arm.checked
    return f"{right}/{compared}" if compared else cells.NOT_ASKED


def _time(arm: ArmRow) -> str:
    return cells.NOT_ASKED if arm.time_us is None else f"{arm.time_us:.1f}"


def _checked_meaning(summary: ArmsSummary, document: Document) -> str:
    """Say what was compared, and how many of the results a whole cluster worked on."""
    oracles = _joined(arm.oracle for arm in summary.arms)
    text = f"results of {_whose(summary)} right / compared, oracle {oracles or 'none'}"
    checks = [
        (o.observed.check.rows, o.spec.workload.length > ONE_CTA_LENGTH)
        for o in launches_of(summary.arms, document.results)
        if o.observed.check and o.spec.workload and o.spec.cluster_attribute
    ]
    compared = sum(rows for rows, _ in checks)
    if not compared:
        return text
    whole = sum(rows for rows, longer in checks if longer)
    path = f"took the cluster path (length over {ONE_CTA_LENGTH:,})"
    return f"{text}; {whole:,} of {compared:,} results, each launch once, {path}"


def _sizes(outcomes: Iterable[Outcome], verdicts: tuple[Verdict, ...]) -> str:
    return ranges(o.spec.cluster_size for o in outcomes if o.verdict in verdicts)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(plain(text) for text in texts if text))
