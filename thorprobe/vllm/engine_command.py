# SPDX-License-Identifier: Apache-2.0
"""``thorprobe model-topk --engine vllm``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from thorprobe.cli.options import Format
from thorprobe.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from thorprobe.vllm.engine import Answer
    from thorprobe.vllm.engine_plan import Suite

_TAKEN = (
    {"engine", "suite", "graphs", "drop_in", "repeat", "hybrid", "store", "resume"}
    | {"context", "requests", "decode_tokens", "seed", "device", "partition"}
    | {"form", "json", "output", "no_progress", "fail_on"}
)
_OF_ONE = (
    *("graphs", "drop_in", "repeat", "hybrid"),
    *("context", "requests", "decode_tokens", "seed", "partition"),
)
_ENGINES = ("suite", "graphs", "drop_in", "repeat", "hybrid", "store", "resume")


def given(context: Any) -> dict[str, str]:
    """Return what stands on the command line: parameter and option, such as ``--graphs``."""
    return {
        p.name: p.opts[0]
        for p in context.command.params
        if context.get_parameter_source(p.name).name == "COMMANDLINE"
    }


def without_engine(context: Any) -> None:
    """Raise UsageError for an option that only an engine has, where none was asked for."""
    for name, option in given(context).items():
        if name in _ENGINES:
            raise UsageError(
                f"`{option}` was given without `--engine`, and is of vLLM's engine alone",
                "add `--engine vllm`",
            )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line says of the engine."""

    engine: str
    suite: str
    graphs: str
    drop_in: str
    repeat: int
    hybrid: bool
    requests: int
    context: int
    decode_tokens: int
    seed: int
    partition: str
    store: Path | None
    resume: Path | None


def answer(
    context: Any,
    asked: Asked,
    device: str | None,
    form: Format,
    output: Path | None,
    *,
    progress: bool,
    fails: bool,
) -> None:
    """Start the engines that were asked for, and show what became of them.

    ``context`` is Typer's, of ``model-topk``. Raises UsageError for options that exclude each
    other, and what ``thorprobe.vllm.engine.ask`` raises.
    """
    if asked.engine != "vllm":
        raise UsageError(
            f"`--engine {asked.engine}` was asked for, and the only engine is vllm",
            "without `--engine` transformers runs the model",
        )
    words = given(context)
    for name, option in words.items():
        if name not in _TAKEN:
            raise UsageError(
                f"`{option}` was given together with `--engine`, which has no such choice",
                f"leave out `{option}`",
            )
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import progress as bar
    from thorprobe.cli.session import public
    from thorprobe.vllm.engine import ask

    suite, before = _wanted(asked, words)
    place = asked.resume or asked.store
    with bar("model-topk", shown=progress) as advance:
        found = ask(
            suite,
            device,
            argv=public(sys.argv[1:]),
            before=before,
            keep=lambda told: _keep(told, place),
            progress=advance,
        )
    show_evidence([found], form, output)
    checks = (c for run in found.results for case in run.cases for c in case.checks.values())
    if fails and any(check.wrong_rows for check in checks):
        print(f"failed: {found.summary.finding}", file=sys.stderr)
        raise typer.Exit(int(ExitCode.EXPECTATION_FAILED))


def _wanted(asked: Asked, words: dict[str, str]) -> "tuple[Suite, Answer | None]":
    """Return the suite, and the answer to go on with or None."""
    from thorprobe.vllm import engine_plan as plans

    store = asked.store
    if store is not None and asked.resume is not None:
        raise UsageError(
            "`--store` and `--resume` were both given, but a resumed run goes on in its file",
            "leave out `--store`",
        )
    if store is not None and store.exists() and store.stat().st_size:
        raise UsageError(
            f"`--store {store}` was asked for, but that file exists already",
            f"`--resume {store}` goes on with it; or choose another name",
        )
    others = [option for name, option in words.items() if name in _OF_ONE]
    if asked.resume is not None:
        others += ["--suite"] if asked.suite else []
        _alone("--resume", "goes on with what its file asked", others)
        return _resumed(asked.resume)
    if asked.suite:
        _alone("--suite", "says what each engine is asked", others)
        return plans.load(asked.suite), None
    made = plans.one(
        requests=asked.requests,
        context=asked.context,
        tokens=asked.decode_tokens,
        graphs=asked.graphs,
        drop_in=asked.drop_in,
        partition=asked.partition,
        repeat=asked.repeat,
        hybrid=asked.hybrid,
        seed=asked.seed,
    )
    return made, None


def _alone(option: str, does: str, others: list[str]) -> None:
    if others:
        raise UsageError(
            f"`{option}` {does}, and `{others[0]}` was given too", f"leave out `{others[0]}`"
        )


def _resumed(path: Path) -> "tuple[Suite, Answer]":
    from thorprobe.answer import read
    from thorprobe.vllm.engine import COMMAND_NAME
    from thorprobe.vllm.engine_plan import Suite

    before = read(path)
    if before.command != COMMAND_NAME:
        raise UsageError(
            f"`--resume {path}` was asked for, but that is an answer of `{before.command}`",
            "name a file that `model-topk --engine vllm --store FILE` wrote",
        )
    try:
        return msgspec.convert(before.options.get("suite"), Suite), before
    except msgspec.ValidationError as error:
        raise UsageError(
            f"`--resume {path}` was asked for, but it does not say what it asked: {error}",
            "run the suite anew",
        ) from error


def _keep(told: "Answer", place: Path | None) -> None:
    """Write the answer as it stands, whole or not at all."""
    if place is None:
        return
    from thorprobe.cli.output import write
    from thorprobe.render.sheet import render_json

    write(render_json(told), place)
