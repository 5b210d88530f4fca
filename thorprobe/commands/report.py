# SPDX-License-Identifier: Apache-2.0
"""``thorprobe report``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o
from thorprobe.errors import UsageError


def report(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Stores and answers; with --row folders too"),
    ] = None,
    row: Annotated[
        str,
        typer.Option("--row", metavar="ROW", help="Close this row's report from the evidence"),
    ] = "",
    fleet: Annotated[
        str, typer.Option("--fleet", metavar="FLEET", help="Fleet of --row; default: the shipped")
    ] = "",
    form: o.FormatOption = o.Format.MARKDOWN,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
) -> None:
    """Render stored evidence: markdown, text, JSON, JUnit or GitHub annotations.

    The verdicts are judged anew from what was recorded; the page is the same for the same store.
    With --row it is the report that closes the row, from these files or the folder reports.
    """
    from thorprobe import answer as evidence
    from thorprobe.cli.measure import of_recording
    from thorprobe.cli.output import show, show_evidence
    from thorprobe.run.store import read

    shown = o.Format.JSON if json else form
    files = files or []
    if row:
        from thorprobe.cli.session import public
        from thorprobe.oracle.closing_report_answer import close

        show_evidence([close(row, fleet, files, public(sys.argv[1:]))], shown, output)
        return
    if fleet or not files:
        raise UsageError(
            f"`--fleet {fleet}` was given without a row" if fleet else "no FILE was named",
            "name a store, or `--row ROW` for the report that closes a row",
        )
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
