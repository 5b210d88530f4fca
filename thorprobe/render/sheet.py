# SPDX-License-Identifier: Apache-2.0
"""One answer put into words, section by section, and its layout as text and as markdown.

Commands that answer with one JSON file make a ``Sheet``; text and markdown are two views of it.
Strings are escaped here, so that a sheet may hold untrusted text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from typing import Any

import msgspec

from thorprobe.render import text
from thorprobe.render.escape import command_line, fenced, json_text, markdown, plain
from thorprobe.render.page import utc
from thorprobe.render.table import Table


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands under it, in this order; empty parts are left out.

    ``pairs`` hold a label and its sentence. ``code`` is a block of ``language`` shown as it is.
    ``image`` is a file name beside the page, shown in markdown only.
    """

    heading: str = ""
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    items: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    code: str = ""
    language: str = "text"
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What a person reads. ``device`` says who answered and with which origin, first of all."""

    title: str
    device: str
    finding: str
    next_action: str = ""
    sections: tuple[Section, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    closing: str = ""


def render_markdown(sheet: Sheet, evidence: Any) -> str:
    """Return the page: finding first, provenance last; equal evidence gives equal bytes."""
    return "\n\n".join(_blocks(sheet, evidence)) + "\n"


def _blocks(sheet: Sheet, evidence: Any) -> Iterator[str]:
    yield f"# {markdown(sheet.title)}"
    yield f"**Finding:** {markdown(sheet.finding)}"
    if sheet.next_action:
        yield f"**Next:** {markdown(sheet.next_action)}"
    yield f"**Device:** {markdown(sheet.device)}"
    for section in sheet.sections:
        yield from _section(section)
    if sheet.legend:
        yield "## Legend"
        yield _pairs(sheet.legend)
    yield "## How it was obtained"
    yield fenced(command_line(evidence.command, evidence.argv), "sh")
    if sheet.closing:
        yield markdown(sheet.closing)
    yield "<details>\n<summary>Provenance</summary>"
    yield "\n".join(f"- {markdown(line)}" for line in provenance(evidence))
    yield "</details>"


def _section(section: Section) -> Iterator[str]:
    if section.heading:
        yield f"## {markdown(section.heading)}"
    yield from (markdown(paragraph) for paragraph in section.paragraphs)
    if section.image:
        yield f"![{markdown(section.heading)}]({section.image})"
    if section.table is not None:
        yield _table(section.table)
    if section.items:
        yield "\n".join(f"- {markdown(item)}" for item in section.items)
    if section.pairs:
        yield _pairs(section.pairs)
    if section.code:
        yield fenced(section.code, section.language)


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- **{markdown(label)}:** {markdown(told)}" for label, told in pairs)


def _table(table: Table) -> str:
    heading = " | ".join(markdown(" ".join(column.heading)) for column in table.columns)
    rule = "|".join("--:" if column.numeric else "---" for column in table.columns)
    rows = [" | ".join(markdown(" / ".join(cell)) for cell in row) for row in table.rows]
    return "\n".join((f"| {heading} |", f"|{rule}|", *(f"| {row} |" for row in rows)))


def provenance(evidence: Any) -> list[str]:
    """Return the lines that say which tool, when, with what and from which inputs."""
    tool, schema = evidence.tool, evidence.schema
    lines = [
        f"tool: {tool.name} {tool.version}",
        f"schema: {schema.name} {schema.version}",
        f"origin: {evidence.origin.value}",
        f"started: {utc(evidence.started)}",
        f"ended: {utc(evidence.ended) if evidence.ended else 'not recorded'}",
        f"wall time: {evidence.wall_s:.2f} s",
        f"exit code: {evidence.exit_code}",
    ]
    lines += [f"software {name}: {told}" for name, told in sorted(evidence.software.items())]
    lines += [f"input {name}: SHA-256 {told}" for name, told in sorted(evidence.inputs.items())]
    results = sha256(msgspec.json.encode(evidence.results, order="sorted")).hexdigest()
    lines.append(f"results: {len(evidence.results)}, SHA-256 of their JSON {results}")
    return lines


def render_json(evidence: Any) -> str:
    """Return the evidence as indented JSON that decodes to the same evidence."""
    return json_text(msgspec.json.format(msgspec.json.encode(evidence), indent=2)) + "\n"


def render_text(sheet: Sheet, width: int = text.WIDTH) -> str:
    """Return the sheet as uncoloured text of ``width`` columns, no trailing spaces."""
    stream = StringIO()
    _print(sheet, text.plain_console(stream, width))
    return text.trimmed(stream)


def show(sheet: Sheet, console: Any) -> None:
    """Print the sheet on a console, wrapped to its width; no trailing spaces into a file."""
    if console.is_terminal:
        _print(sheet, console)
    else:
        console.file.write(render_text(sheet, console.width))


def _print(sheet: Sheet, console: Any) -> None:
    from rich.text import Text

    console.print(Text(plain(sheet.device), style="bold"))
    console.print(Text(plain(sheet.finding)))
    if sheet.next_action:
        text.pairs(console, (("Next", plain(sheet.next_action)),))
    for section in sheet.sections:
        _show_section(section, console)
    if sheet.legend:
        text.pairs(console, (("Legend", ""), *_plain(sheet.legend)))
    if sheet.closing:
        console.print()
        console.print(Text(plain(sheet.closing)))


def _plain(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(plain(label), plain(told)) for label, told in pairs]


def _show_section(section: Section, console: Any) -> None:
    from rich.text import Text

    console.print()
    if section.heading:
        console.print(Text(plain(section.heading)))
    for paragraph in section.paragraphs:
        console.print(Text(plain(paragraph)))
    if section.table is not None:
        text.table(console, section.table)
    for item in section.items:
        console.print(Text(f"- {plain(item)}"))
    if section.pairs:
        text.pairs(console, _plain(section.pairs))
    for line in section.code.splitlines():
        console.print(Text(f"  {line}"), soft_wrap=True)
