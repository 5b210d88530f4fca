# SPDX-License-Identifier: Apache-2.0
"""``thorprobe topk-arms``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from thorprobe.cli import options as o
from thorprobe.cli.output import write
from thorprobe.cli.session import Session, progress
from thorprobe.cli.shipped import PREFIX, ShippedFile, of_option
from thorprobe.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thorprobe.cli.operator_option import VllmOperators
    from thorprobe.plan.arm_probe import ArmsOptions
    from thorprobe.plan.shipped_kernel import ShippedKernel

_VLLM = "From vLLM's settings"


def topk_arms(
    context: typer.Context,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="VERSION", help="Dispatch policy; repeat for several"),
    ] = None,
    rows: Annotated[
        str, typer.Option("--rows", metavar="LIST", help="num_rows, `1-8,33`; default: every arm")
    ] = "",
    lengths: Annotated[
        str, typer.Option("--lengths", metavar="LIST", help="Row lengths; default: every path")
    ] = "",
    columns: Annotated[int, typer.Option("--columns", help="Columns of the score matrix")] = 65_536,
    stride: Annotated[int, typer.Option("--stride", help="Row pitch; 0: the columns")] = 0,
    k: Annotated[list[int] | None, typer.Option("--k", help="512, 1024 or 2048; repeat")] = None,
    distribution: Annotated[
        str, typer.Option("--distribution", help="normal, uniform, ten-values, all-equal, relu-sum")
    ] = "normal",
    as_capability: Annotated[
        str,
        typer.Option(
            "--as-capability",
            metavar="X.Y",
            help="Dispatch as for this compute capability (11.0 makes any GPU take Thor's arms)",
        ),
    ] = "",
    repeats: Annotated[int, typer.Option("--repeats", help="Launches timed; 0: no times")] = 20,
    oracle: Annotated[
        str, typer.Option("--oracle", help="Checks results: torch, numpy, or auto")
    ] = "auto",
    compiled_dims: o.CompiledOption = False,
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            metavar="shipped:FILE|vllm[:FILE]",
            help="Launch the kernels of a wheel, library or cubin, not thorprobe's own; with vllm "
            "call vLLM's own operators, of the vLLM installed here or of a wheel or library",
        ),
    ] = "",
    requests: Annotated[
        int | None,
        typer.Option("--requests", help="Concurrent decode requests", rich_help_panel=_VLLM),
    ] = None,
    speculative_tokens: Annotated[
        int,
        typer.Option(
            "--speculative-tokens", help="num_speculative_tokens of MTP", rich_help_panel=_VLLM
        ),
    ] = 0,
    prefill_tokens: Annotated[
        int | None,
        typer.Option("--prefill-tokens", help="Prefill tokens in a step", rich_help_panel=_VLLM),
    ] = None,
    max_logits_mb: Annotated[
        int | None,
        typer.Option(
            "--max-logits-mb",
            help="VLLM_SPARSE_INDEXER_MAX_LOGITS_MB of a prefill; default: the version's own",
            rich_help_panel=_VLLM,
        ),
    ] = None,
    max_model_len: Annotated[
        int, typer.Option("--max-model-len", help="max_model_len", rich_help_panel=_VLLM)
    ] = 262_144,
    capture_sizes: Annotated[
        str,
        typer.Option(
            "--capture-sizes",
            metavar="LIST",
            help="CUDA-graph capture sizes that pad the rows",
            rich_help_panel=_VLLM,
        ),
    ] = "",
    reach: Annotated[
        int | None,
        typer.Option(
            "--reach",
            metavar="CTAS",
            help="Print the settings that reach the arm of this cluster size, and stop",
            rich_help_panel=_VLLM,
        ),
    ] = None,
    through_model: Annotated[
        bool,
        typer.Option(
            "--through-model",
            help="Reach every arm through calls of a small Qwen4Exp; also on `--device cpu`",
        ),
    ] = False,
    device: o.DeviceOption = None,
    profile: o.ProfileOption = None,
    replay: o.ReplayOption = None,
    partition: o.PartitionOption = "",
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    store: o.StoreOption = None,
    resume: o.ResumeOption = None,
    no_progress: o.NoProgressOption = False,
    fail_on: o.FailOnOption = None,
    baseline: o.BaselineOption = None,
    deadline: o.DeadlineOption = 10.0,
) -> None:
    """Drive every arm of cooperative_topk through num_rows, and check each result.

    One row per arm: rows, cluster, bytes, gate, verdict, cause, results checked, time, and the
    cluster size that was fastest at these rows.
    """
    import msgspec

    from thorprobe.cli.study import ArmsStudy
    from thorprobe.driver import partition as partitions
    from thorprobe.plan import arms as plans
    from thorprobe.plan.arm_probe import DEFAULT_POLICIES, ArmsOptions
    from thorprobe.plan.drive import Settings, from_settings, parse_capability, parse_lengths

    parsed = partitions.parse(partition)
    capability = parse_capability(as_capability) if as_capability else None
    wanted = ArmsOptions(
        policies=tuple(dict.fromkeys(policy or DEFAULT_POLICIES)),
        capability=capability or (0, 0),
        rows=plans.parse_rows(rows) if rows else (),
        lengths=parse_lengths(lengths) if lengths else (),
        columns=columns,
        stride=stride,
        k=tuple(dict.fromkeys(k or (512,))),
        distribution=distribution,
        repeats=repeats,
        partition=str(parsed) if parsed else "",
        compiled=compiled_dims,
    )
    if through_model:
        from thorprobe.qwen4exp.through_command import answer

        shown = o.Format.JSON if json else form
        answer(context, wanted, capability, shown, output, progress=not no_progress)
        raise typer.Exit
    settings = Settings(
        requests=requests,
        speculative_tokens=speculative_tokens,
        prefill_tokens=prefill_tokens,
        max_logits_mb=max_logits_mb,
        max_model_len=max_model_len,
        capture_sizes=capture_sizes,
    )

    operators = _operators(kernel, policy or (), as_capability)
    shipped = operators or _shipped(kernel, shown=not no_progress)
    if operators is not None:
        held = operators.policies if policy is None else wanted.policies
        wanted = msgspec.structs.replace(wanted, policies=held, library=operators.library)

    def dispatched(found: tuple[int, int], **held: Any) -> ArmsOptions:
        asked = msgspec.structs.replace(wanted, capability=capability or found, **held)
        return from_settings(asked, settings)

    plans.plan(dispatched((9, 0)))  # Bad values end it here, before a device is touched.
    session = Session(
        device=device,
        profile=profile,
        replay=replay,
        partition=wanted.partition,
        form=o.Format.JSON if json else form,
        output=output,
        store=store,
        resume=resume,
        progress=not no_progress,
        fail_on=fail_on or (),
        baseline=baseline,
        deadline_s=deadline,
        oracle=_oracle(oracle),
        shipped=shipped,
    )
    if reach is not None:
        if session.form is not o.Format.TEXT:
            raise UsageError(
                f"`--reach {reach}` was asked for as {session.form.value}, but it answers in text",
                "leave out `--json` and `--format`",
            )
        write("\n".join(_reached(session, wanted, capability, reach, max_model_len)), output)
        raise typer.Exit

    def question(found: Any) -> ArmsStudy:
        held: dict[str, Any] = {}
        if isinstance(shipped, ShippedFile):
            held = _as_shipped(shipped.kernels(found), wanted.k, policy)
        return ArmsStudy(dispatched(found.capability, **held))

    raise typer.Exit(int(session.run(question, wanted.partition)))


def _operators(name: str, wanted: "Sequence[str]", as_capability: str) -> "VllmOperators | None":
    """Return vLLM's operators where ``--kernel`` asks for them, None where not."""
    from thorprobe.cli.operator_option import VllmOperators, is_option

    if not is_option(name):
        return None
    if as_capability:
        raise UsageError(
            f"`--as-capability {as_capability}` was asked for, but vLLM's operators dispatch by "
            "the device itself",
            "leave it out; `--kernel shipped:FILE` launches the kernels of any arm",
        )
    return VllmOperators(name, wanted)


def _shipped(name: str, *, shown: bool) -> ShippedFile | None:
    if name and not name.startswith(PREFIX):
        raise UsageError(
            f"`--kernel {name}` was asked for, but the arms are driven with thorprobe's own kernel "
            "or with a shipped one",
            "write `--kernel shipped:FILE`: a wheel, a library, a cubin or a fatbin, or "
            "`--kernel vllm` for vLLM's own operators",
        )
    return of_option([name] if name else [], lambda: progress("inspect", shown=shown))


def _as_shipped(
    kernels: "tuple[ShippedKernel, ...]", k: tuple[int, ...], policy: list[str] | None
) -> dict[str, Any]:
    """Return the options of shipped kernels: their own policy, those of the wanted k."""
    known = [kernel for kernel in kernels if kernel.policy]
    if not known:
        raise UsageError(
            "the file's kernels belong to no version whose arms are known, so no num_rows leads to "
            "them",
            "`thorprobe cluster-sweep --kernel shipped:FILE` asks about their clusters",
        )
    return {
        "shipped": tuple(kernel for kernel in known if kernel.k in k) or tuple(known),
        "policies": tuple(policy or {kernel.policy: None for kernel in known}),
    }


def _oracle(name: str) -> str:
    if name not in ("auto", "torch", "numpy"):
        raise UsageError(
            f"`--oracle {name}` was asked for, but the oracles are auto, torch and numpy",
            "auto takes torch.topk where torch is installed",
        )
    return name


def _reached(
    session: Session,
    wanted: "ArmsOptions",
    capability: tuple[int, int] | None,
    cluster: int,
    max_model_len: int,
) -> list[str]:
    """Return which settings of vLLM reach an arm; for Thor where nothing else was named."""
    from thorprobe.model.profile import load
    from thorprobe.plan.drive import reach_lines

    if capability is None:
        profile = load(session.profile or "thor")
        capability = profile.device().capability
    return list(reach_lines(wanted.policies, capability, cluster, max_model_len))
