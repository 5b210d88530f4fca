# SPDX-License-Identifier: Apache-2.0
"""``thorprobe report``."""

from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o


def report(
    *,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Stores to render")],
    form: o.FormatOption = o.Format.MARKDOWN,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
) -> None:
    """Render stored evidence: markdown, text, JSON, JUnit or GitHub annotations.

    The verdicts are judged anew from what was recorded; the page is the same for the same store.
    """
    from thorprobe.cli.output import show
    from thorprobe.inquiry import of_recording
    from thorprobe.run.store import read

    documents = [of_recording(read(path)) for path in files]
    show(documents, o.Format.JSON if json else form, output)
