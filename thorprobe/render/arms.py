# SPDX-License-Identifier: Apache-2.0
"""A drive of the top-k arms as one table: a row per arm, and its gates in words."""

from collections.abc import Callable, Iterable

from thorprobe.record import ArmRow, ArmsSummary, Device, GateSummary, Verdict
from thorprobe.render import words
from thorprobe.render.escape import plain
from thorprobe.render.table import Column, Table

NO_CLUSTER = "none"

MEANINGS = {
    "clu": "CTAs a cluster; none: one CTA a row, without a cluster",
    "bytes": "dynamic shared memory a CTA asks for",
    "gate": "open: the call-site gate lets these rows through to the arm; shut: it does not",
    "best": "cluster size measured fastest at these rows",
}
"""Legend of the headings that do not speak for themselves."""


def table(summary: ArmsSummary, device: Device) -> Table:
    """Return one row per arm; columns that no arm fills (claims, checks, times) are left out."""
    arms = sorted(summary.arms, key=_order)
    kinds = sorted({(arm.k, plain(arm.dtype)) for arm in arms})
    one_kind = len(kinds) == 1
    shown: list[tuple[Column, Callable[[ArmRow], str]]] = [
        (Column(("policy",), numeric=False), lambda arm: plain(arm.policy)),
        (Column(("rows",)), rows_label),
        (Column(("clu",)), cluster_label),
        (Column(("bytes",)), lambda arm: f"{arm.dynamic_smem:,}"),
        (Column(("gate",), numeric=False), lambda arm: "open" if arm.gate else "shut"),
        (Column(("verdict",), numeric=False), _verdict),
    ]
    if not one_kind:
        shown.insert(2, (Column(("k",)), lambda arm: f"{arm.k} {plain(arm.dtype)}"))
    for claim, heading in claim_headings(device).items():
        shown.append((Column((heading,), numeric=False), _under(claim)))
    shown.append((Column(("cause",), numeric=False), lambda arm: plain(arm.cause or "-")))
    if any(arm.checked[1] for arm in arms):
        shown.append((Column(("checked",)), _checked))
    if any(arm.time_us is not None for arm in arms):
        shown.append((Column(("us",)), _time))
        shown.append((Column(("best",)), lambda arm: str(arm.fastest or words.NOT_ASKED)))
    title = f"Arms at k {kinds[0][0]}, {kinds[0][1]}" if one_kind else "Arms"
    return Table(
        title=title,
        columns=tuple(column for column, _ in shown),
        rows=tuple(tuple((cell(arm),) for _, cell in shown) for arm in arms),
    )


def claim_headings(device: Device) -> dict[str, str]:
    """Return the column heading of each claim id of the device."""
    ids = [claim.id for claim in device.claims]
    return {name: "claimed" if len(ids) == 1 else f"claim {i}" for i, name in enumerate(ids, 1)}


def rows_label(arm: ArmRow) -> str:
    """Return the range of num_rows, such as ``1-4``, ``65+``."""
    first, last = arm.rows
    if last is None:
        return f"{first}+"
    return str(first) if first == last else f"{first}-{last}"


def cluster_label(arm: ArmRow) -> str:
    """Return the cluster size of an arm, or ``none`` for the persistent path."""
    return NO_CLUSTER if arm.path == "persistent" else str(arm.cluster)


def meanings(summary: ArmsSummary, device: Device) -> list[tuple[str, str]]:
    """Return the legend of the headings that the table of this summary has."""
    headings = {line for column in table(summary, device).columns for line in column.heading}
    found = [(word, sentence) for word, sentence in MEANINGS.items() if word in headings]
    found += [
        (heading, f"verdict with the claim {plain(claim)} added to the layout")
        for claim, heading in claim_headings(device).items()
    ]
    if "checked" in headings:
        oracles = _joined(arm.oracle for arm in summary.arms)
        found.append(("checked", f"results right / results compared, oracle {oracles or 'none'}"))
    if "us" in headings:
        shapes = _joined(arm.time_shape for arm in summary.arms if arm.time_us is not None)
        at = f", at {shapes}" if shapes else ""
        found.append(("us", f"median time of one launch in microseconds{at}"))
    return found


def remarks(summary: ArmsSummary) -> list[tuple[str, str]]:
    """Return label and sentence of the gates, failing sizes, call site, reasons and notes."""
    found = [(f"Gate {plain(name)}", gate(summary.gates[name])) for name in sorted(summary.gates)]
    sizes = ", ".join(map(str, summary.failing_cluster_sizes)) or "none"
    found.append(("Failing cluster sizes", sizes))
    if summary.call_site:
        found.append(("Call site", plain(summary.call_site)))
    shut = _told(summary, lambda arm: "" if arm.gate else arm.gate_reason)
    found += [(f"Shut for {who}", reason) for reason, who in shut.items()]
    found += [(f"Note on {who}", note) for note, who in _told(summary, lambda a: a.note).items()]
    return found


def gate(summary: GateSummary) -> str:
    """Return which rows a gate decides wrongly, or that there are none."""
    named = (
        ("false accepts", summary.false_accepts),
        ("false rejects", summary.false_rejects),
        ("undetermined", summary.undetermined),
    )
    return "; ".join(f"{name} {_row_ranges(found)}" for name, found in named)


def _told(summary: ArmsSummary, sentence: Callable[[ArmRow], str]) -> dict[str, str]:
    """Return each distinct sentence with the arms it is about."""
    told: dict[str, list[str]] = {}
    for arm in sorted(summary.arms, key=_order):
        if text := plain(sentence(arm)):
            told.setdefault(text, []).append(f"{plain(arm.policy)} rows {rows_label(arm)}")
    return {text: ", ".join(dict.fromkeys(arms)) for text, arms in told.items()}


def _order(arm: ArmRow) -> tuple[str, int, int, str]:
    return (arm.policy, arm.rows[0], arm.k, arm.dtype)


def _verdict(arm: ArmRow) -> str:
    code = f" {arm.code}" if arm.code and arm.verdict is not Verdict.LAUNCHES else ""
    return f"{arm.verdict.value}{code}"


def _under(claim: str) -> Callable[[ArmRow], str]:
    return lambda arm: arm.under_claims[claim].value if claim in arm.under_claims else "-"


def _checked(arm: ArmRow) -> str:
    right, compared = arm.checked
    return f"{right}/{compared}" if compared else words.NOT_ASKED


def _time(arm: ArmRow) -> str:
    return words.NOT_ASKED if arm.time_us is None else f"{arm.time_us:.1f}"


def _row_ranges(found: Iterable[tuple[int, int]]) -> str:
    ranges = [str(a) if a == b else f"{a}-{b}" for a, b in found]
    return f"rows {', '.join(ranges)}" if ranges else "none"


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(plain(text) for text in texts if text))
