# SPDX-License-Identifier: Apache-2.0
"""The evidence page: finding first, table second, provenance last, the same bytes every time."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from thorprobe.judge.kernel_name import kernels_text
from thorprobe.record import Origin, Outcome, Verdict
from thorprobe.render.escape import code, command_line, fenced, json_text, markdown, plain
from thorprobe.render.page import Page, page, utc
from thorprobe.render.table import Table
from thorprobe.summary import ArmsSummary, Document


def render(document: Document) -> str:
    """Return the whole page; equal documents give equal bytes."""
    shown = page(document)
    return _joined((*_findings(document, shown), *_evidence(document, shown)))


def render_brief(document: Document) -> str:
    """Return title, finding, device and tables alone, where space is short."""
    return _joined(_findings(document, page(document)))


def _findings(document: Document, shown: Page) -> Iterator[str]:
    device = document.device
    partition = f", partition {device.partition}" if device.partition else ""
    title = markdown(f"{shown.kind}: {device.name}{partition} ({document.origin.value})")
    yield f"# {title}"
    if shown.incomplete:
        yield f"**{markdown(shown.incomplete)}**"
    yield f"**Finding:** {markdown(shown.finding)}"
    if shown.next_action:
        yield f"**Next:** {markdown(shown.next_action)}"
    yield f"**Device:** {markdown(shown.device)}"
    if shown.rests_on:
        yield _list(shown.rests_on)
    for table in shown.tables:
        yield f"## {markdown(table.title)}"
        yield _table(table)
    if shown.remarks:
        yield _list(shown.remarks)


def _evidence(document: Document, shown: Page) -> Iterator[str]:
    yield "## Legend"
    yield "\n".join(f"- {code(word)}: {markdown(meaning)}" for word, meaning in shown.legend)
    if shown.ruled_out or document.origin is not Origin.PREDICTED:
        yield f"## {shown.ruled_out_heading}"
        listed = "\n".join(f"- {markdown(text)}" for text in shown.ruled_out)
        yield listed or "Nothing was ruled out"
    if shown.settles:
        yield "## What would settle it"
        yield markdown(shown.settles)
    yield "## What the driver answered"
    yield from _driver(document)
    yield "## How it was obtained"
    yield fenced(command_line(document.command, document.argv), "sh")
    yield markdown(shown.closing)
    yield "<details>\n<summary>Provenance</summary>"
    yield _provenance(document)
    yield "</details>"
    yield "<details>\n<summary>Summary as JSON</summary>"
    summary = msgspec.json.encode(document.summary, order="sorted")
    yield fenced(json_text(msgspec.json.format(summary, indent=2)), "json")
    yield "</details>"


def _driver(document: Document) -> Iterator[str]:
    if document.origin is Origin.PREDICTED:
        yield "No driver was asked: this is a prediction"
        return
    told = _alike(_examples(document))
    if not told:
        yield "No launch was refused, faulted or gave a wrong result"
    for outcomes in told:
        outcome = outcomes[0]
        kernels = kernels_text(o.spec.kernel for o in outcomes) + "," * (len(outcomes) > 1)
        label = outcome.spec.footprint.label.removeprefix(outcome.spec.kernel)
        heading = f"{kernels}{label}, cluster {outcome.spec.cluster_size}"
        cause = f", {outcome.cause}" if outcome.cause else ""
        yield f"### {markdown(f'{heading}: {outcome.verdict.value}{cause}')}"
        if outcome.calls:
            yield _calls(outcome)
        yield _log(outcome)


def _examples(document: Document) -> Iterator[Outcome]:
    """Yield the largest cluster of each kernel and cause that went otherwise than launching."""
    failed = [
        outcome
        for outcome in document.results
        if not outcome.assumes
        and outcome.verdict in {Verdict.REFUSED, Verdict.WRONG, Verdict.FAULTS, Verdict.HANGS}
    ]
    seen = set()
    for outcome in sorted(failed, key=lambda o: (-o.spec.cluster_size, o.spec.footprint, o.id)):
        if (key := (outcome.spec.kernel, outcome.cause)) not in seen:
            seen.add(key)
            yield outcome


def _alike(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Join kernels whose launch of one size and footprint got the same answers, call by call."""
    found: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in outcomes:
        spec = outcome.spec
        asked = (spec.cluster_size, spec.threads, spec.dynamic_smem)
        answered = (outcome.verdict, outcome.cause, outcome.calls, outcome.driver_log)
        found.setdefault((*asked, *answered), []).append(outcome)
    return list(found.values())


def _calls(outcome: Outcome) -> str:
    rows = [
        f"| {number} | {code(call.call)} {markdown(call.detail)} | {call.code} "
        f"| {markdown(call.name)} | {markdown(call.sentence)} |"
        for number, call in enumerate(outcome.calls, 1)
    ]
    return "\n".join(("| # | call | code | name | sentence |", "|--:|---|--:|---|---|", *rows))


def _log(outcome: Outcome) -> str:
    if outcome.driver_log is None:
        return "Driver log: could not be read"
    if not outcome.driver_log:
        return "Driver log: silent about this launch"
    quoted = fenced("\n".join(plain(line) for line in outcome.driver_log), "text")
    return f"Driver log:\n\n{quoted}"


def _provenance(document: Document) -> str:
    tool, schema = document.tool, document.schema
    lines = [
        f"tool: {tool.name} {tool.version}",
        f"schema: {schema.name} {schema.version}",
        f"origin: {document.origin.value}",
        f"started: {utc(document.started)}",
        f"ended: {utc(document.ended) if document.ended else 'not recorded'}",
        f"probes: {document.summary.probes or len(document.results)}",
        f"wall time: {document.wall_s:.2f} s",
        f"exit code: {document.exit_code}",
    ]
    lines += [f"software {name}: {text}" for name, text in sorted(document.software.items())]
    lines += [f"input {name}: SHA-256 {text}" for name, text in sorted(document.inputs.items())]
    results = sha256(msgspec.json.encode(document.results, order="sorted")).hexdigest()
    lines.append(f"results: {len(document.results)} outcomes, SHA-256 of their JSON {results}")
    if isinstance(document.summary, ArmsSummary):
        checks = [o.observed.check for o in document.results if o.observed.check is not None]
        wrong = sum(check.wrong_rows > 0 for check in checks)
        lines.append(f"results compared with an oracle: {len(checks)}, of those wrong: {wrong}")
    return "\n".join(f"- {markdown(line)}" for line in lines)


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{markdown(label)}:** {markdown(text)}" for label, text in pairs)


def _table(table: Table) -> str:
    heading = " | ".join(markdown(" ".join(column.heading)) for column in table.columns)
    rule = "|".join("--:" if column.numeric else "---" for column in table.columns)
    rows = [" | ".join(markdown(" / ".join(cell)) for cell in row) for row in table.rows]
    drawn = "\n".join((f"| {heading} |", f"|{rule}|", *(f"| {row} |" for row in rows)))
    parts = next((column.parts for column in table.columns if column.parts), ())
    return f"Each cell: {' / '.join(parts)}\n\n{drawn}" if parts else drawn


def _joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"
