# SPDX-License-Identifier: Apache-2.0
"""``thorprobe bench``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thorprobe.bench import verify_command as v
from thorprobe.cli import options as o
from thorprobe.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from thorprobe.bench.plan import BenchOptions

_SHAPES, _WHO, _HOW, _COSTS = "Shapes", "Who is timed", "How", "Calibration"


def bench(
    *,
    rows: Annotated[
        str,
        typer.Option(
            "--rows", metavar="LIST", help="Default: 1,4,8,16,32,64", rich_help_panel=_SHAPES
        ),
    ] = "",
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            metavar="LIST",
            help="Default: 4096 to 262144; unaligned ones bring their aligned neighbour",
            rich_help_panel=_SHAPES,
        ),
    ] = "",
    k: Annotated[
        str,
        typer.Option(
            "--k",
            metavar="LIST",
            help="Scores selected a row. Default: 512",
            rich_help_panel=_SHAPES,
        ),
    ] = "",
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="LIST",
            help="float32, float16, bfloat16. Default: float32",
            rich_help_panel=_SHAPES,
        ),
    ] = "",
    distribution: Annotated[
        list[str] | None,
        typer.Option(
            "--distribution",
            help="normal, uniform, ascending, descending, all-equal, ten-values, relu-sum, "
            "half-zero, fp16-ties, nan-inf or all; repeat",
            rich_help_panel=_SHAPES,
        ),
    ] = None,
    rung: Annotated[
        list[str] | None,
        typer.Option(
            "--rung", help="Only this rung, or auto; repeat. Default: all", rich_help_panel=_WHO
        ),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            "--peer",
            help="torch, flashinfer, vllm, vllm:FILE, shipped:FILE or none; repeat. Default: torch",
            rich_help_panel=_WHO,
        ),
    ] = None,
    ties: Annotated[
        str,
        typer.Option("--ties", help="lowest, any, or both for auto", rich_help_panel=_WHO),
    ] = "lowest",
    launches: Annotated[
        int, typer.Option("--launches", help="Launches a CUDA graph", rich_help_panel=_HOW)
    ] = 40,
    replays: Annotated[
        int, typer.Option("--replays", help="Replays that are timed", rich_help_panel=_HOW)
    ] = 15,
    host_calls: Annotated[
        int,
        typer.Option(
            "--host-calls", help="Calls that cost the host; 0: none", rich_help_panel=_HOW
        ),
    ] = 2_000,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Time each kernel over a grid, whole device and parts, and fit the costs of auto",
            rich_help_panel=_COSTS,
        ),
    ] = False,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs", metavar="FILE", help="Write its costs there", rich_help_panel=_COSTS
        ),
    ] = None,
    verify: v.VerifyOption = None,
    verify_case: v.VerifyCaseOption = "",
    seed: v.SeedOption = None,
    processes: v.ProcessesOption = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="N", help="CUDA device, numbered from 0")
    ] = None,
    partition: o.PartitionOption = "",
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="FILE", help="Show recorded evidence; nothing is timed"),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw time against columns there")
    ] = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    no_progress: o.NoProgressOption = False,
    fail_on: o.FailOnOption = None,
) -> None:
    """Time the rungs of the top-k ladder against torch.topk, FlashInfer and vLLM's own op.

    Every contender gets the same scores in one run, and its result is checked before it is timed,
    by CUDA graphs and device events. A GPU is needed: nothing is timed on a CPU.
    """
    o.only_wrong(fail_on, "a bench")
    if costs is not None and not calibrate:
        raise UsageError("`--costs` was given without `--calibrate`", "add `--calibrate`")
    from thorprobe.bench.plan import COLUMNS, ROWS, BenchOptions, parse_numbers

    usual = BenchOptions()
    asked = {
        "--rows": rows,
        "--columns": columns,
        "--k": k,
        "--dtype": dtype,
        "--distribution": distribution,
        "--rung": rung,
        "--peer": peer,
        "--ties": ties != usual.ties,
        "--launches": launches != usual.launches,
        "--replays": replays != usual.replays,
        "--host-calls": host_calls != usual.host_calls,
        "--partition": partition,
    }
    given = tuple(name for name, value in asked.items() if value)
    if replay is not None:
        _only_shown((*given, "--device") if device is not None else given)
    others = {"--calibrate": calibrate, "--replay": replay, "--svg": svg}
    timed = (*given, *(name for name, value in others.items() if value))
    if v.asked(verify, verify_case, seed, processes, timed):
        answer = v.answer(verify, verify_case, seed, processes, device, shown=not no_progress)
    elif calibrate:
        others_given = tuple(name for name in given if name != "--k" or replay is not None)
        numbers = parse_numbers("--k", k) if k and replay is None else usual.k
        answer = _calibrated(
            (*others_given, "--svg") if svg else others_given,
            numbers,
            device,
            replay,
            shown=not no_progress,
        )
    elif replay is not None:
        answer = _recorded(replay, "bench")
    else:
        answer = _timed(
            BenchOptions(
                rows=parse_numbers("--rows", rows) if rows else ROWS,
                columns=parse_numbers("--columns", columns) if columns else COLUMNS,
                k=parse_numbers("--k", k) if k else usual.k,
                dtypes=_list(dtype) or usual.dtypes,
                distributions=_distributions(distribution or ["normal"]),
                rungs=tuple(dict.fromkeys(rung or ())),
                peers=_peers(peer),
                ties=ties,
                launches=launches,
                replays=replays,
                host_calls=host_calls,
                partition=partition,
            ),
            device,
            svg.name if svg else "",
            shown=not no_progress,
        )
    _show(answer, o.Format.JSON if json else form, output, svg=svg, costs=costs)
    if fail_on and answer.summary.wrong:
        print(f"failed: {answer.summary.finding}", file=sys.stderr)
        raise typer.Exit(int(ExitCode.EXPECTATION_FAILED))


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.replace(" ", "").split(","))) if text else ()


def _distributions(names: list[str]) -> tuple[str, ...]:
    from thorprobe.bench.plan import DISTRIBUTIONS

    return tuple(DISTRIBUTIONS) if "all" in names else tuple(dict.fromkeys(names))


def _peers(names: list[str] | None) -> tuple[str, ...]:
    """Return the peers; a file is looked for before any device is touched.

    Raises UsageError for a file that is not there, and for `none` beside another.
    """
    from thorprobe.bench.plan import FILE_PREFIXES, TORCH_PEER, VLLM_PREFIX
    from thorprobe.run.shipped import parse

    if names is None:
        return (TORCH_PEER,)
    if "none" in names and len(set(names)) > 1:
        raise UsageError("`--peer none` was given beside another peer", "leave out one of them")
    for name in names:
        if not name.startswith(FILE_PREFIXES):
            continue
        of_vllm = name.startswith(VLLM_PREFIX)
        if (
            name in FILE_PREFIXES
            or not (
                Path(name.removeprefix(VLLM_PREFIX)).expanduser() if of_vllm else parse(name)[0]
            ).exists()
        ):
            what = "wheel or its library" if of_vllm else "wheel, a library, a cubin or a fatbin"
            raise UsageError(
                f"`--peer {name}` was asked for, but there is no such file",
                f"write `--peer {name.partition(':')[0]}:FILE`: a {what}",
            )
    return tuple(name for name in dict.fromkeys(names) if name != "none")


def _timed(options: "BenchOptions", device: str | None, svg: str, *, shown: bool) -> Any:
    from msgspec.structs import replace

    from thorprobe.bench.answer import inquire
    from thorprobe.cli.session import progress, public
    from thorprobe.driver import partition as partitions

    parsed = partitions.parse(options.partition)
    asked = replace(options, partition=str(parsed) if parsed else "")
    with progress("bench", shown=shown) as advance:
        return inquire(asked, device, argv=public(sys.argv[1:]), svg=svg, progress=advance)


def _only_shown(given: tuple[str, ...]) -> None:
    """Raise UsageError for options that a recording cannot follow."""
    if given:
        raise UsageError(
            f"{', '.join(f'`{name}`' for name in given)} was given with `--replay`, which shows "
            "what was recorded",
            "leave it out, or time anew without `--replay`",
        )


def _calibrated(
    given: tuple[str, ...],
    k: tuple[int, ...],
    device: str | None,
    replay: Path | None,
    *,
    shown: bool,
) -> Any:
    from thorprobe.bench.calibration_answer import COMMAND, again, inquire
    from thorprobe.bench.calibration_plan import CalibrationOptions, check, one_k
    from thorprobe.cli.session import progress, public

    check(given)
    if replay is not None:
        return again(_recorded(replay, COMMAND))
    with progress("calibrate", shown=shown) as advance:
        options = CalibrationOptions(k=one_k(k))
        return inquire(options, device, argv=public(sys.argv[1:]), progress=advance)


def _recorded(path: Path, command: str) -> Any:
    from thorprobe import answer as evidence

    answer = evidence.read(path)
    if answer.command != command:
        raise UsageError(
            f"`{command}` was asked for, but `{path.name}` holds an answer of `{answer.command}`",
            "`thorprobe report FILE` shows every kind of answer",
        )
    return answer


def _show(
    answer: Any, form: o.Format, output: Path | None, *, svg: Path | None, costs: Path | None
) -> None:
    from thorprobe.cli.output import show_evidence

    show_evidence([answer], form, output)
    if svg is not None:
        from thorprobe.bench.figure import figure

        _write("--svg", figure(answer), svg)
    if costs is not None:
        from thorprobe.bench.costs import costs_toml

        _write("--costs", costs_toml(answer.summary), costs)


def _write(option: str, text: str, path: Path) -> None:
    from thorprobe.cli.output import write

    try:
        write(text, path)
    except UsageError as error:
        raise UsageError(
            error.sentence.replace("--output", option, 1),
            "choose another place: `--replay` with the evidence writes it again",
        ) from error
