# SPDX-License-Identifier: Apache-2.0
"""``thorprobe report``."""

from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o
from thorprobe.errors import UsageError


def report(
    *,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Stores and answers to render")
    ],
    form: o.FormatOption = o.Format.MARKDOWN,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
) -> None:
    """Render stored evidence: markdown, text, JSON, JUnit or GitHub annotations.

    The verdicts are judged anew from what was recorded; the page is the same for the same store.
    """
    from thorprobe import evidence
    from thorprobe.cli.output import show, show_evidence
    from thorprobe.inquiry import of_recording
    from thorprobe.run.store import read

    shown = o.Format.JSON if json else form
    answers = [evidence.read(path) for path in files if evidence.is_evidence(path)]
    if answers and len(answers) < len(files):
        raise UsageError(
            "stores and single answers were given together, but a page shows one or the other",
            "render them one after the other",
        )
    if answers:
        show_evidence(answers, shown, output)
        return
    show([of_recording(read(path)) for path in files], shown, output)
