# SPDX-License-Identifier: Apache-2.0
"""The options of ``thorprobe bench --verify``, and what they ask."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from thorprobe.errors import UsageError

if TYPE_CHECKING:
    from thorprobe.bench.verify_answer import Answer

_PANEL = "Exactness"

VerifyOption = Annotated[
    float | None,
    typer.Option(
        "--verify",
        metavar="SECONDS",
        help="Time nothing: hold generated calls of every rung against a stable sort for so long",
        rich_help_panel=_PANEL,
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", help="Seed of the generated calls. Default: 0", rich_help_panel=_PANEL),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        help="Processes that hold calls at once, each with a seed of its own. Default: 1",
        rich_help_panel=_PANEL,
    ),
]
VerifyCaseOption = Annotated[
    str,
    typer.Option(
        "--verify-case",
        metavar="LINE",
        help="Repeat one call: a line that --verify printed",
        rich_help_panel=_PANEL,
    ),
]


def asked(
    seconds: float | None,
    case: str,
    seed: int | None,
    processes: int | None,
    given: tuple[str, ...],
) -> bool:
    """Say whether calls are to be verified; ``given`` are options that say what to time.

    Raises UsageError for options that exclude each other.
    """
    if seconds is None and not case:
        for name, value in (("--seed", seed), ("--processes", processes)):
            if value is not None:
                raise UsageError(f"`{name}` was given without `--verify`", "add `--verify 60`")
        return False
    if given:
        raise UsageError(
            f"{', '.join(f'`{name}`' for name in given)} was given with "
            f"`{'--verify-case' if case else '--verify'}`, which times nothing",
            "leave it out: `--verify` draws its shapes, types and partitions itself",
        )
    if case and (seconds is not None or seed is not None or processes is not None):
        raise UsageError(
            "`--verify-case` was given with `--verify`, `--seed` or `--processes`, but a case is "
            "one call with a seed of its own",
            "leave out all but `--verify-case`",
        )
    return True


def answer(
    seconds: float | None,
    case: str,
    seed: int | None,
    processes: int | None,
    device: str | None,
    *,
    shown: bool,
) -> "Answer":
    """Hold calls against the sort and return what it came to; ``shown`` shows the progress.

    Raises what ``thorprobe.bench.verify_answer.inquire`` raises.
    """
    from thorprobe.bench.verify_answer import inquire
    from thorprobe.cli.session import progress, public

    with progress("verify", shown=shown) as advance:
        return inquire(
            seconds or 0.0,
            device,
            seed=seed or 0,
            processes=1 if processes is None else processes,
            case=case,
            argv=public(sys.argv[1:]),
            progress=advance,
        )
