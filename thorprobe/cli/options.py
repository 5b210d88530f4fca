# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thorprobe.errors import UsageError


class Format(StrEnum):
    """Formats of ``--format``."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    GITHUB = "github"


class FailOn(StrEnum):
    """Findings that ``--fail-on`` turns into exit code 1."""

    REFUSED = "refused"
    WRONG = "wrong"
    CHANGED = "changed"


def only_wrong(asked: list[FailOn] | None, what: str) -> None:
    """Raise UsageError for a ``--fail-on`` other than ``wrong``, where no other can be told."""
    for kind in asked or ():
        if kind is not FailOn.WRONG:
            raise UsageError(
                f"`--fail-on {kind.value}` was asked for, but of {what} only `wrong` can be told",
                "`--fail-on wrong`",
            )


DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="N|all", help="CUDA device to measure, numbered from 0"),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Answer from the model of this device"),
]
ReplayOption = Annotated[
    Path | None, typer.Option("--replay", metavar="FILE", help="Answer from a recorded store")
]
PartitionOption = Annotated[
    str,
    typer.Option(
        "--partition",
        metavar="sms=N",
        help="Run inside a green context of N SMs [,groups-of=2|8|16] [,flags=0|1|2]",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to show it")]
JsonOption = Annotated[bool, typer.Option("--json", help="Same as --format json")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to stdout")
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", metavar="FILE", help="Keep every record there as it arrives (JSONL)"),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option("--resume", metavar="FILE", help="Go on with a store whose run was cut short"),
]
NoProgressOption = Annotated[bool, typer.Option("--no-progress", help="No progress on stderr")]
FailOnOption = Annotated[
    list[FailOn] | None,
    typer.Option("--fail-on", help="Exit 1 on a refused size, a wrong result or a change"),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="Store to compare with, for --fail-on changed"),
]
DeadlineOption = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", min=0.5, help="Longest wait for a launch")
]
CompiledOption = Annotated[
    bool,
    typer.Option("--compiled-dims", help="Use kernels compiled with __cluster_dims__ of each size"),
]
