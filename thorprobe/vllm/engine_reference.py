# SPDX-License-Identifier: Apache-2.0
"""The reference: a reduced model made and saved once by transformers, and its own greedy answer."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thorprobe.driver.torch_device import TorchDevice
from thorprobe.qwen4exp.model import Model, wrapped
from thorprobe.qwen4exp.watch import ReferenceWatch
from thorprobe.topk.qwen4exp import Batched, modeling, watched
from thorprobe.vllm.engine_plan import CHUNK, MODELS, Case, prompts, wanted
from thorprobe.vllm.engine_words import EngineModel

Rows = dict[tuple[int, int], tuple[NDArray[Any], NDArray[Any]]]
"""Scores and blocks by layer (its place among those with an indexer) and position."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """transformers' answer to one prompt.

    ``tokens`` are greedy; ``logprobs`` [tokens, vocabulary] are those of each token's position.
    """

    tokens: tuple[int, ...]
    logprobs: NDArray[np.float64]
    rows: Rows = field(default_factory=dict)


def make(name: str, folder: Path, place: TorchDevice, seed: int, scale: float) -> tuple[Model, str]:
    """Build a model with random weights times ``scale``, save it, and return it with its digest.

    Raises CouldNotProbeError where transformers is missing or too old.
    """
    if "transformers" not in sys.modules:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    modeling()
    import torch

    library = import_module("transformers")
    library.logging.set_verbosity_error()
    told = MODELS[name]
    config = library.Qwen4ExpTextConfig(**told.config)
    torch.manual_seed(seed)
    with place.torch_device:
        network = library.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    network.save_pretrained(folder)
    digest = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return wrapped(network, place, f"Qwen4Exp, {told.sentence}"), digest.hexdigest()


def told(name: str, model: Model, digest: str, answers: dict[str, Reference]) -> EngineModel:
    """Return what a page says of a model."""
    return EngineModel(
        model=name,
        sentence=MODELS[name].sentence,
        parameters=model.parameters,
        layers=model.layers,
        k=model.k,
        budget=model.k * model.ratio,
        weights=digest,
        tokens={case: answer.tokens for case, answer in answers.items()},
    )


def answer(model: Model, case: Case, seed: int) -> Reference:
    """Feed the case's first prompt, decode greedily, and keep what the wanted queries selected."""
    import torch

    prompt = prompts(seed, case)[0]
    watch = ReferenceWatch(model.place.settle, Batched())
    cache = model.new_cache()
    rows: Rows = {}
    tokens: list[int] = []
    lines: list[NDArray[np.float64]] = []
    with torch.no_grad(), watched(watch):
        for first, fed in _steps(prompt, case.tokens, tokens):
            inside = first < len(prompt)
            chosen = wanted(len(prompt), first, len(fed)) if inside else range(1)
            watch.wanted = None if len(chosen) == len(fed) else chosen
            watch.layers = []
            given = torch.tensor([fed], device=model.place.torch_device)
            logits = model(given, cache, 1)[0, -1].double().log_softmax(-1)
            for layer, visited in enumerate(watch.layers):
                for (_, query), pair in visited.rows.items():
                    rows[layer, first + query] = pair
            if first + len(fed) >= len(prompt):
                tokens.append(int(logits.argmax()))
                lines.append(logits.cpu().numpy())
    return Reference(tokens=tuple(tokens), logprobs=np.stack(lines), rows=rows)


def _steps(
    prompt: Sequence[int], count: int, tokens: Sequence[int]
) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each call's first position and tokens: the prompt in chunks, then what was decoded."""
    for first in range(0, len(prompt), CHUNK):
        yield first, prompt[first : first + CHUNK]
    for index in range(count - 1):
        yield len(prompt) + index, tokens[index : index + 1]
