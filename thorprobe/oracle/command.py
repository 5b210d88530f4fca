# SPDX-License-Identifier: Apache-2.0
"""``thorprobe oracle``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o


def oracle(
    *,
    fleet: Annotated[
        str, typer.Argument(metavar="FLEET", help="Shipped fleet, or a .toml file that is one")
    ],
    evidence: Annotated[
        list[Path] | None,
        typer.Option(
            "--evidence",
            metavar="FILE",
            help="Evidence, or a folder of it; repeat. Default: the folder reports",
        ),
    ] = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
) -> None:
    """Say which oracle a row has on a fleet, by rule, from evidence files alone.

    What nobody measured is not established; each cell names the files that it rests on.
    """
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import public
    from thorprobe.oracle.answer import ask

    answer = ask(fleet, evidence or [], public(sys.argv[1:]))
    show_evidence([answer], o.Format.JSON if json else form, output)
