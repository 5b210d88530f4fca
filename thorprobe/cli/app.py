# SPDX-License-Identifier: Apache-2.0
"""The application: commands, the exit codes, and what becomes of an error."""

import os
import sys
from typing import Annotated

import typer

from thorprobe.cli import arms, doctor, listing, report, scenarios, sweep
from thorprobe.errors import EXIT_CODE_HELP, ExitCode, ThorprobeError

app = typer.Typer(
    name="thorprobe",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODE_HELP,
)
app.command("doctor")(doctor.doctor)
app.command("cluster-sweep")(sweep.cluster_sweep)
app.command("topk-arms")(arms.topk_arms)
app.command("run")(scenarios.run)
app.command("report")(report.report)
app.command("list")(listing.list_)


def _version(value: bool) -> None:
    if value:
        from thorprobe import __version__

        typer.echo(f"thorprobe {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """Measure which thread-block-cluster sizes a GPU launches, and say what a refusal means.

    With no GPU, cluster-sweep and topk-arms answer from a model of NVIDIA Thor and say so.
    """
    del version
    if debug:
        os.environ["THORPROBE_DEBUG"] = "1"


def main() -> None:
    """Run the command line; every error ends in one sentence, a hint and an exit code."""
    try:
        app()
    except ThorprobeError as error:
        if os.environ.get("THORPROBE_DEBUG"):
            raise
        _say(error.sentence, error.hint)
        sys.exit(int(error.exit_code))
    except BrokenPipeError:
        # The reader of a pipe (head, say) has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(int(ExitCode.DONE))
    except KeyboardInterrupt:
        _say("interrupted", "records that were stored are kept; `--resume FILE` goes on")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("THORPROBE_DEBUG"):
            raise
        _say(
            f"internal error: {type(error).__name__}: {error}",
            "run `thorprobe --debug COMMAND` for the traceback",
        )
        sys.exit(int(ExitCode.INTERNAL))


def _say(sentence: str, hint: str) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
