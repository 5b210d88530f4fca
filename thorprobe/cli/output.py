# SPDX-License-Identifier: Apache-2.0
"""Where what a command shows goes: standard output, or a file that is written whole or not."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from thorprobe.cli.options import Format
from thorprobe.errors import UsageError


def show(documents: Sequence[Any], form: Format, output: Path | None) -> None:
    """Render the documents to a file or to standard output.

    Raises UsageError where the file cannot be written.
    """
    if output is None and form is Format.TEXT:
        from thorprobe.render.text import show as show_text
        from thorprobe.render.text import terminal

        console = terminal(sys.stdout)
        for document in documents:
            show_text(document, console)
        return
    from thorprobe.render import FORMATS
    from thorprobe.render.several import together

    render = FORMATS[form.value]
    write(together(form.value, [render(document) for document in documents]), output)


def show_evidence(answers: Sequence[Any], form: Format, output: Path | None) -> None:
    """Render single answers (text, json, markdown, github) to a file or to standard output.

    Raises UsageError for another format, and where the file cannot be written.
    """
    from thorprobe.answer import sheets
    from thorprobe.render import sheet as pages
    from thorprobe.render.several import together
    from thorprobe.render.text import terminal

    made = sheets(answers)
    if form is Format.TEXT and output is None:
        console = terminal(sys.stdout)
        for one in made:
            pages.show(one, console)
        return
    if form is Format.TEXT:
        texts = [pages.render_text(one) for one in made]
    elif form is Format.JSON:
        texts = [pages.render_json(answer) for answer in answers]
    elif form is Format.MARKDOWN:
        texts = [pages.render_markdown(*pair) for pair in zip(made, answers, strict=True)]
    elif form is Format.GITHUB:
        from thorprobe.render.github import render_evidence

        texts = [render_evidence(*pair) for pair in zip(made, answers, strict=True)]
    else:
        raise UsageError(
            f"`--format {form.value}` was asked for, but this answer has text, json, markdown "
            "and github",
            "jsonl and junit show runs of `cluster-sweep` and `topk-arms`",
        )
    write(together(form.value, texts), output)


def write(text: str, output: Path | None) -> None:
    """Write text to a file, whole or not at all, or to standard output.

    Raises UsageError where the file cannot be written; what was there before is then still there.
    """
    if not text.endswith("\n"):
        text += "\n"
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        if _in_place(output):
            output.write_text(text, encoding="utf-8")
            return
        output.parent.mkdir(parents=True, exist_ok=True)
        _replace(output.resolve(), text)  # A link stays one; what it points to is replaced.
    except OSError as error:
        raise UsageError(
            f"`--output {output}` cannot be written: {(error.strerror or str(error)).lower()}",
            "choose another place; what was measured is kept, and `thorprobe report` shows it",
        ) from error


def _in_place(output: Path) -> bool:
    """Say whether to write to what is there: a folder (which refuses), a pipe or a device.

    /dev/stdout is a link that a regular file may be behind, and must stay that link.
    """
    special = output.absolute().parts[1:2] in (("dev",), ("proc",))
    return special or (output.exists() and not output.is_file())


def _replace(output: Path, text: str) -> None:
    beside = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(output)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
