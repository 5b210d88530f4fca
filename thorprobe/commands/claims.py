# SPDX-License-Identifier: Apache-2.0
"""``thorprobe claims``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o


def claims(
    *,
    stores: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[STORE]...", help="Recorded stores of cluster-sweep or topk-arms"),
    ] = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
) -> None:
    """List the published claims about cluster limits, and hold recorded runs against them.

    A run confirms, contradicts or leaves open what was published; a prediction confirms nothing.
    """
    from thorprobe.cli.measure import now, process_age
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import public
    from thorprobe.commands import claims_check
    from thorprobe.judge.claim_records import Claims

    started = now()
    held = claims_check.check(list(dict.fromkeys(stores or ())))
    answer = Claims(
        command="claims",
        argv=public(sys.argv[1:]),
        started=started,
        ended=now(),
        origin=held.origin,
        inputs=held.inputs,
        results=held.results,
        summary=held.summary,
        wall_s=round(process_age(), 2),
    )
    show_evidence([answer], o.Format.JSON if json else form, output)
