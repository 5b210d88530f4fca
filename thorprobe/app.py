# SPDX-License-Identifier: Apache-2.0
"""The application: commands, the exit codes, and what becomes of an error."""

import errno
import os
import sys
from typing import Annotated, Any, NoReturn, TextIO

import typer

from thorprobe.audit import command as audit
from thorprobe.bench import command as bench
from thorprobe.commands import arms, claims, doctor, listing, model_topk, report, scenarios, sweep
from thorprobe.errors import EXIT_CODE_HELP, ExitCode, ThorprobeError
from thorprobe.explain import command as explain
from thorprobe.inspect import command as inspect
from thorprobe.oracle import command as oracle

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
app.command("audit")(audit.audit)
app.command("bench")(bench.bench)
app.command("claims")(claims.claims)
app.command("explain")(explain.explain)
app.command("inspect")(inspect.inspect)
app.command("model-topk")(model_topk.model_topk)
app.command("oracle")(oracle.oracle)
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


_Rejected: type[Exception] = typer.BadParameter.__mro__[2]
# The base of every error that Typer has about the arguments; it has no public name of its own.

_INTERRUPTED = 130
# 128 + SIGINT, as shells have it.

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the command line; every error ends in one sentence, a hint and an exit code."""
    # A stream that the caller closed is None, and whoever prints to it would fail.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    try:
        code = _call()
    except _Rejected as error:
        _reject(error)
    except Exception as error:
        if os.environ.get("THORPROBE_DEBUG"):
            raise
        _fail(error)
    if code == _INTERRUPTED:
        _end(code, "interrupted", "records that were stored are kept; `--resume FILE` goes on")
    sys.exit(code)


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def _call() -> int:
    """Run the command and return its exit code."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        return int(code or ExitCode.DONE)
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        pass
    except SystemExit as error:
        # Typer makes an exit of its own of a pipe whose reader (head, say) has seen enough.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
    _drop_output()
    return int(ExitCode.DONE)


def _fail(error: Exception) -> NoReturn:
    """Say what ended the command."""
    if isinstance(error, ThorprobeError):
        _end(error.exit_code, error.sentence, error.hint)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        _drop_output()
        _end(
            ExitCode.USAGE,
            f"standard output cannot be written: {os.strerror(error.errno).lower()}",
            "make room, or name another place with `--output FILE`",
        )
    _end(
        ExitCode.INTERNAL,
        f"internal error: {type(error).__name__}: {error}",
        "run `thorprobe --debug COMMAND` for the traceback",
    )


def _reject(error: Any) -> NoReturn:
    """Say in thorprobe's form what Typer found wrong with the arguments."""
    message = error.format_message().strip()
    if type(error).__name__ == "NoArgsIsHelpError":  # The message is the help itself.
        print(message, end="")
        sys.exit(int(ExitCode.USAGE))
    sentence = " ".join(message.split()).removesuffix(".")
    path = error.ctx.command_path if getattr(error, "ctx", None) else "thorprobe"
    _end(ExitCode.USAGE, sentence, f"`{path} --help` lists what it takes")


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python would complain of it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _end(code: int, sentence: str, hint: str) -> NoReturn:
    _say(sentence, hint)
    sys.exit(int(code))


def _say(sentence: str, hint: str) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
