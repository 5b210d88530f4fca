# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM's engine in this process, and says what of it runs here."""

import dataclasses
import importlib.util
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from thorprobe.driver import context as contexts
from thorprobe.errors import CouldNotProbeError
from thorprobe.vllm.engine_plan import MODELS, Engine
from thorprobe.vllm.engine_watch import Watch
from thorprobe.vllm.engine_wire import Build
from thorprobe.vllm.engine_words import EngineRun

INSTALL = "`pip install vllm` into this environment; its version decides what is measured"
_PACKAGES = ("torch", "triton", "transformers", "flashinfer-python", "cuda-bindings")
_CACHE_BYTES = 4 * 2**30
# Keys and values of 65 requests of 2,300 tokens take an eighth of it; a fixed size keeps several
# engines on one device apart.
_MEMORY_SHARE = 0.2
# Of the device that must be free at the start; more than an engine of a reduced model takes.
_STEP_TOKENS = 8_192
_CAPTURES = (1, 2, 4, 8, 16, 32, 64, 72, 128, 256)


def without_flashinfer() -> bool:
    """Say whether FlashInfer is missing, so that vLLM's own paths are to be named."""
    return importlib.util.find_spec("flashinfer") is None


def import_vllm(engine: Engine) -> tuple[Any, dict[str, str]]:
    """Import vLLM and its library, let the drop-in register, and return the module and versions.

    Raises CouldNotProbeError where torch sees no GPU, or vLLM is missing or cannot be imported.
    """
    try:
        import torch
    except ImportError as error:
        raise CouldNotProbeError(
            f"vLLM's engine needs torch, which cannot be imported: {error}", INSTALL
        ) from error
    if not torch.cuda.is_available():
        raise CouldNotProbeError(
            f"vLLM's engine needs a GPU, and this torch ({torch.__version__}) sees none",
            "`thorprobe doctor` says what is missing",
        )
    if without_flashinfer():
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    try:
        vllm = importlib.import_module("vllm")
        importlib.import_module("vllm._C_stable_libtorch")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise CouldNotProbeError(
                f"vLLM is here and cannot be imported: {error}", INSTALL
            ) from error
        raise CouldNotProbeError(
            "`--engine vllm` was asked for, and no vLLM is installed here", INSTALL
        ) from error
    except (ImportError, OSError) as error:
        raise CouldNotProbeError(
            f"vLLM is here and cannot be imported: {error}", INSTALL
        ) from error
    if engine.drop_in:
        from thorprobe.vllm import dropin

        dropin.register()
    return vllm, {"vllm": str(vllm.__version__), **versions()}


def versions() -> dict[str, str]:
    """Return the versions of what an engine's answer depends on."""
    found = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def open_watch(partition: str) -> Watch:
    """Return the watch over the operators, which puts their calls into the partition.

    Raises CouldNotProbeError where there is no such partition.
    """
    import torch

    torch.zeros(1, device="cuda")
    stream = None
    if partition:
        context = contexts.Context(torch.cuda.current_device(), partition)
        _OPEN.append(context)
        stream = torch.cuda.ExternalStream(int(context.stream))
    return Watch(torch.ops._C, stream)  # noqa: SLF001  the namespace of vLLM's operators


_UNFUSED = (
    "no CuTe DSL here: the hyper-connection's projection takes vLLM's own unfused path "
    "(MAX_FUSED_M 0)"
)
_OPEN: list[Any] = []
# A green context lives as long as its process.


def start(
    vllm: Any, engine: Engine, build: Build, watch: Watch, known: dict[str, str]
) -> tuple[Any, EngineRun]:
    """Start the engine; return it with what it is. Whatever vLLM raises comes through."""
    began = perf_counter()
    workarounds = _work_around()
    watch.begin()
    llm = vllm.LLM(**_arguments(engine, build, workarounds))
    run = EngineRun(
        engine=engine.name,
        model=engine.model,
        graphs=engine.graphs,
        drop_in=engine.drop_in,
        partition=engine.partition,
        versions=known,
        workarounds=tuple(workarounds),
        start_s=round(perf_counter() - began, 1),
        start_ops=tuple(watch.runs),
    )
    return llm, msgspec.structs.replace(run, **_facts(llm))


def _work_around() -> list[str]:
    """Turn off what needs a package that is missing here, and say so."""
    told = []
    if importlib.util.find_spec("cutlass") is None or importlib.util.find_spec("quack") is None:
        places = ("hyperconnection", "ops.cute_dsl.hc_down_silu")
        for place in places:
            with suppress(ModuleNotFoundError):
                module: Any = importlib.import_module(f"vllm.models.qwen4_exp.nvidia.{place}")
                if hasattr(module, "MAX_FUSED_M"):
                    module.MAX_FUSED_M = 0
                    told = [_UNFUSED]
    if without_flashinfer():
        told.append("no FlashInfer here: vLLM's own sampler (VLLM_USE_FLASHINFER_SAMPLER=0)")
    return told


def _arguments(engine: Engine, build: Build, workarounds: list[str]) -> dict[str, Any]:
    length = min(
        int(MODELS[engine.model].config["max_position_embeddings"]),
        -(-build.max_tokens // 8_192) * 8_192,
    )
    wanted: dict[str, Any] = {
        "model": build.folder,
        "load_format": "auto",
        "skip_tokenizer_init": True,
        "max_model_len": length,
        "max_num_seqs": max(8, -(-build.max_requests // 8) * 8),
        "max_num_batched_tokens": _STEP_TOKENS,
        "gpu_memory_utilization": _MEMORY_SHARE,
        "kv_cache_memory_bytes": _CACHE_BYTES,
        "enforce_eager": engine.graphs == "eager",
        "enable_prefix_caching": False,
        "enable_trace_replay": True,
        "seed": build.seed,
        "disable_log_stats": True,
    }
    if engine.model == "hybrid" and without_flashinfer():
        wanted["gdn_prefill_backend"] = "triton"
        workarounds.append("no FlashInfer here: GDN layers prefill by vLLM's Triton kernels")
    if engine.graphs != "eager":
        most = wanted["max_num_seqs"]
        wanted["compilation_config"] = {
            "cudagraph_capture_sizes": [size for size in _CAPTURES if size <= most],
            "cudagraph_mode": engine.graphs.replace("-", "_").upper(),
        }
    known = _known_arguments()
    return {name: value for name, value in wanted.items() if not known or name in known}


def _known_arguments() -> set[str]:
    """Names that this vLLM's engine takes; empty where that cannot be told."""
    with suppress(ImportError, AttributeError, TypeError):
        arguments: Any = importlib.import_module("vllm.engine.arg_utils").EngineArgs
        return {field.name for field in dataclasses.fields(arguments)}
    return set()


def can_force(llm: Any) -> bool:
    """Say whether this engine emits given tokens (trace replay), with its own log-probabilities."""
    config = _asked(lambda: llm.llm_engine.vllm_config.model_config)
    return bool(getattr(config, "enable_trace_replay", False))


def _facts(llm: Any) -> dict[str, Any]:
    """Return what the engine says of itself; what a version does not tell is left out."""
    config = _asked(lambda: llm.llm_engine.vllm_config)
    compilation = getattr(config, "compilation_config", None)
    second = getattr(config, "use_v2_model_runner", None)
    mode = getattr(compilation, "cudagraph_mode", None)
    backends = {}
    for name, layer in (getattr(compilation, "static_forward_context", None) or {}).items():
        with suppress(Exception):
            backends[str(name)] = str(layer.get_attn_backend().get_name())
    scheduler = getattr(config, "scheduler_config", None)
    kernel = getattr(config, "kernel_config", None)
    asked = {
        "max_model_len": getattr(getattr(config, "model_config", None), "max_model_len", None),
        "max_num_seqs": getattr(scheduler, "max_num_seqs", None),
        "max_num_batched_tokens": getattr(scheduler, "max_num_batched_tokens", None),
        "async_scheduling": getattr(scheduler, "async_scheduling", None),
        "enable_jit_warmup": getattr(kernel, "enable_jit_warmup", None),
        "breakable_cudagraph": os.environ.get("VLLM_USE_BREAKABLE_CUDAGRAPH"),
    }
    return {
        "runner": "" if second is None else "V2" if second else "V1",
        "graph_mode": getattr(mode, "name", str(mode)) if mode is not None else "",
        "capture_sizes": tuple(getattr(compilation, "cudagraph_capture_sizes", None) or ()),
        "backends": backends,
        "settings": {name: str(value) for name, value in asked.items() if value is not None},
    }


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except AttributeError:
        return None


def roots() -> tuple[Path, ...]:
    """Folders that hold vLLM and torch, so that a frame can be named without them."""
    found = []
    for name in ("vllm", "torch"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parents[1])
    return tuple(dict.fromkeys(found))
