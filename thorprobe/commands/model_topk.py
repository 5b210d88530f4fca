# SPDX-License-Identifier: Apache-2.0
"""``thorprobe model-topk``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o
from thorprobe.errors import ExitCode, UsageError
from thorprobe.vllm import engine_options as e

_MODEL = "The model"
_CALLS = "What it is asked"


def model_topk(
    context_of_command: typer.Context,
    *,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Small widths, for tests", rich_help_panel=_MODEL)
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", metavar="DIR", help="A real one, as safetensors", rich_help_panel=_MODEL
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="bf16, fp16 or fp32", rich_help_panel=_MODEL)
    ] = "bf16",
    seed: Annotated[
        int, typer.Option("--seed", help="Of weights and prompt", rich_help_panel=_MODEL)
    ] = 0,
    context: Annotated[
        int, typer.Option("--context", help="Prompt tokens a request", rich_help_panel=_CALLS)
    ] = 2_300,
    requests: Annotated[
        int, typer.Option("--requests", help="Concurrent requests", rich_help_panel=_CALLS)
    ] = 1,
    speculative_tokens: Annotated[
        int,
        typer.Option(
            "--speculative-tokens", help="Drafts a request and step", rich_help_panel=_CALLS
        ),
    ] = 0,
    decode_tokens: Annotated[
        int,
        typer.Option(
            "--decode-tokens", help="Tokens fed a request after it", rich_help_panel=_CALLS
        ),
    ] = 8,
    prefill_chunk: Annotated[
        int,
        typer.Option("--prefill-chunk", help="Prompt tokens a request and call"),
    ] = 2_048,
    reference_queries: Annotated[
        int | None,
        typer.Option(
            "--reference-queries",
            help="Most prefill queries a request that the reference visits; 0: all",
        ),
    ] = None,
    rung: Annotated[str, typer.Option("--rung", help="Rung of the ladder, or auto")] = "auto",
    policy: Annotated[
        str, typer.Option("--policy", metavar="VERSION", help="Dispatch policy that names the arms")
    ] = "0.33.0",
    as_capability: Annotated[
        str,
        typer.Option(
            "--as-capability", metavar="X.Y", help="Arms of this one; default: own, and 11.0"
        ),
    ] = "",
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="N|cpu", help="CUDA device, or cpu; default: a GPU if any"
        ),
    ] = None,
    partition: o.PartitionOption = "",
    engine: e.EngineOption = "",
    suite: e.SuiteOption = "",
    graphs: e.GraphsOption = "eager",
    drop_in: e.DropInOption = "",
    repeat: e.RepeatOption = 0,
    hybrid: e.HybridOption = False,
    store: e.StoreOption = None,
    resume: e.ResumeOption = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    no_progress: o.NoProgressOption = False,
    fail_on: o.FailOnOption = None,
) -> None:
    """Drive the Qwen4Exp model's own selection through the ladder, against transformers.

    The same weights and tokens go through transformers' selection and through the ladder; selected
    sets, logits and greedy tokens are compared. Below 2,048 tokens of context nothing can show.
    With ``--engine vllm`` vLLM's own engine runs a reduced model, and is compared in the same way.
    """
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import progress, public
    from thorprobe.driver import partition as partitions
    from thorprobe.plan.drive import parse_capability
    from thorprobe.plan.qwen4exp import REDUCED, TINY
    from thorprobe.qwen4exp.answer import inquire
    from thorprobe.qwen4exp.plan import ModelOptions

    if tiny and checkpoint is not None:
        raise UsageError(
            "`--tiny` and `--checkpoint` were both given, but there is one model to run",
            "leave out one of them",
        )
    o.only_wrong(fail_on, "a model")
    from thorprobe.vllm import engine_command

    if engine:
        asked = engine_command.Asked(
            engine=engine,
            suite=suite,
            graphs=graphs,
            drop_in=drop_in,
            repeat=repeat,
            hybrid=hybrid,
            requests=requests,
            context=context,
            decode_tokens=decode_tokens,
            seed=seed,
            partition=partition,
            store=store,
            resume=resume,
        )
        engine_command.answer(
            context_of_command,
            asked,
            device,
            o.Format.JSON if json else form,
            output,
            progress=not no_progress,
            fails=bool(fail_on),
        )
        return
    engine_command.without_engine(context_of_command)
    parsed = partitions.parse(partition)
    options = ModelOptions(
        size=TINY.name if tiny else REDUCED.name,
        checkpoint=str(checkpoint) if checkpoint is not None else "",
        context=context,
        requests=requests,
        speculative_tokens=speculative_tokens,
        decode_tokens=decode_tokens,
        prefill_chunk=prefill_chunk,
        reference_queries=reference_queries,
        rung=rung,
        policy=policy,
        capability=parse_capability(as_capability) if as_capability else None,
        dtype=dtype,
        seed=seed,
        partition=str(parsed) if parsed else "",
    )
    with progress("model-topk", shown=not no_progress) as advance:
        answer = inquire(options, device, argv=public(sys.argv[1:]), progress=advance)
    show_evidence([answer], o.Format.JSON if json else form, output)
    found = answer.summary
    if fail_on and not (found.sets_equal and found.tokens_equal and not found.wrong_rows):
        print(f"failed: {found.finding}", file=sys.stderr)
        raise typer.Exit(int(ExitCode.EXPECTATION_FAILED))
