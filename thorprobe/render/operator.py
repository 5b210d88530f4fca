# SPDX-License-Identifier: Apache-2.0
"""vLLM's operators on the page of a drive: whose they are, what ran, what a refusal left behind."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from thorprobe.judge.ranges import ranges
from thorprobe.plan.operator import COOPERATIVE, PERSISTENT, OperatorLibrary, is_operator
from thorprobe.record import KernelSeen, OperatorCall, Outcome, Verdict
from thorprobe.render.escape import plain
from thorprobe.render.table import Column, Table
from thorprobe.summary import Document

NONE = "-"
MEANINGS = {
    "coop us": "microseconds of cooperative_topk on the device: median of 7 replays of a graph of "
    "calls; a number after `refused` is the code",
    "pers us": "the same of persistent_topk, called with the same tensors",
    "coop call": "microseconds of one call of cooperative_topk after another by the host's clock, "
    "synchronised at the end: never less than the device takes",
    "pers call": "the same of persistent_topk",
    "pers/coop": "time of persistent_topk over that of cooperative_topk, in a graph",
}
"""Legend of the table's headings."""

Pair = tuple[int, int, int]
"""k, rows and length of a call."""


def calls(document: Document) -> list[tuple[Outcome, OperatorCall]]:
    """Return the outcomes of operators with what was seen of their calls."""
    return [(o, o.observed.operator) for o in document.results if o.observed.operator]


def library(document: Document) -> str:
    """Say whose operators were called and how; '' where none was."""
    if not any(is_operator(o.spec.kernel) for o in document.results):
        return ""
    try:
        held = msgspec.convert(document.options.get("library"), OperatorLibrary)
    except msgspec.ValidationError:
        return "vLLM's own operators, of a library that the record does not name"
    version = f"vLLM {held.version}" if held.version else f"a vLLM that follows {held.policy}"
    copy = f", a copy of {held.of[:12]} ({held.pruned or 'as it was'})" if held.of else ""
    text = (
        f"_C::{COOPERATIVE} and _C::{PERSISTENT} of {version}, host code and kernels, library "
        f"{held.sha256[:12]}{copy} (SHA-256, whole among the inputs), called through torch behind "
        "the gate of each policy, with the call site's workspace and width"
    )
    return plain(text)


def table(document: Document) -> Table | None:
    """Return a row per rows and length that were timed: both operators side by side."""
    by_pair: dict[Pair, dict[str, Outcome]] = {}
    for outcome, told in calls(document):
        work = outcome.spec.workload
        if work is not None and outcome.spec.repeats:
            by_pair.setdefault((work.k, work.rows, work.length), {})[told.operator] = outcome
    if not by_pair:
        return None
    several = len({k for k, _, _ in by_pair}) > 1
    shown: list[tuple[str, Callable[[Pair, Outcome | None, Outcome | None], str]]] = [
        *([("k", lambda pair, _c, _p: str(pair[0]))] if several else []),
        ("rows", lambda pair, _c, _p: f"{pair[1]:,}"),
        ("length", lambda pair, _c, _p: f"{pair[2]:,}"),
        ("coop us", lambda _pair, c, _p: _time(c)),
        ("pers us", lambda _pair, _c, p: _time(p)),
        ("pers/coop", lambda _pair, c, p: _ratio(c, p)),
        ("coop call", lambda _pair, c, _p: _call(c)),
        ("pers call", lambda _pair, _c, p: _call(p)),
    ]
    columns = {w.columns for o, _ in calls(document) if (w := o.spec.workload)}
    kinds = "" if several else f", k {next(iter(by_pair))[0]}"
    return Table(
        title=f"Both operators at {' and '.join(f'{c:,}' for c in sorted(columns))} columns{kinds}",
        columns=tuple(Column((name,)) for name, _ in shown),
        rows=tuple(
            tuple((cell(pair, found.get(COOPERATIVE), found.get(PERSISTENT)),) for _, cell in shown)
            for pair, found in sorted(by_pair.items())
        ),
    )


def meanings(document: Document) -> list[tuple[str, str]]:
    """Return the legend of the table, empty where there is none."""
    return list(MEANINGS.items()) if table(document) is not None else []


def remarks(document: Document) -> list[tuple[str, str]]:
    """Return label and sentence of what ran, what was raised and what it left behind."""
    found = calls(document)
    told = [
        *_each("Ran, by torch's profiler", found, lambda call: ", ".join(call.ran)),
        *_each("Captured", found, _captured),
        *_each("Raised", found, lambda call: call.raised),
        *_each("Left behind", found, _left),
    ]
    for text, rows in _grouped(found, lambda call: "; ".join(call.remarks)):
        told.append((f"Not seen at rows {rows}", text))
    return told


def _each(
    label: str,
    found: Iterable[tuple[Outcome, OperatorCall]],
    sentence: Callable[[OperatorCall], str],
) -> Iterator[tuple[str, str]]:
    for text, rows in _grouped(found, sentence):
        yield f"{label} at rows {rows}", text


def _grouped(
    found: Iterable[tuple[Outcome, OperatorCall]], sentence: Callable[[OperatorCall], str]
) -> list[tuple[str, str]]:
    """Return each distinct sentence with the rows of its calls."""
    rows: dict[str, set[int]] = {}
    for outcome, call in found:
        text = plain(sentence(call))
        if text and outcome.spec.workload is not None:
            rows.setdefault(text, set()).add(outcome.spec.workload.rows)
    return [(text, ranges(held)) for text, held in rows.items()]


def _captured(call: OperatorCall) -> str:
    return ", ".join(_kernel(kernel) for kernel in call.captured)


def _kernel(kernel: KernelSeen) -> str:
    """Write a kernel node; its first grid dimension is the rows, which the line names already."""
    x, y, z = kernel.cluster or (1, 1, 1)
    cluster = f", clusters of {x * y * z}" if kernel.cluster and x * y * z > 1 else ""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    grid = "" if cluster else f", {kernel.grid[0] * kernel.grid[1] * kernel.grid[2]:,} CTAs"
    return f"{kernel.name}{cluster}{grid}, {threads:,} threads, {kernel.dynamic_smem:,} B"


def _left(call: OperatorCall) -> str:
    """Say what a refused call left to the next one."""
    if not call.raised:
        return ""
    if call.pending_code is None and not call.pending:
        return "whether an error stayed pending could not be asked"
    if not call.pending_code and not call.pending:
        return "no error stayed pending"
    code = "an error" if call.pending_code is None else f"error {call.pending_code}"
    met = f"the next call of torch raised: {call.pending}" if call.pending else "torch met none"
    cleared = "it was cleared by that" if call.cleared else "it was not cleared by that"
    return f"{code} stayed pending; {met}; {cleared}"


def _time(outcome: Outcome | None) -> str:
    if outcome is None:
        return NONE
    if outcome.observed.time_us is not None:
        return f"{outcome.observed.time_us:.1f}"
    refused = outcome.verdict is Verdict.REFUSED
    return f"refused {outcome.observed.launch_code}" if refused else outcome.verdict.value


def _call(outcome: Outcome | None) -> str:
    call = outcome.observed.operator if outcome is not None else None
    return f"{call.call_us:.1f}" if call and call.call_us is not None else NONE


def _ratio(cooperative: Outcome | None, persistent: Outcome | None) -> str:
    one = cooperative.observed.time_us if cooperative is not None else None
    other = persistent.observed.time_us if persistent is not None else None
    return f"{other / one:.2f}" if one and other else NONE
