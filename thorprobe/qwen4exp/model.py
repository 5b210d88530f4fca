# SPDX-License-Identifier: Apache-2.0
"""Qwen4Exp by transformers: built at a size or loaded from a checkpoint, called step by step."""

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from thorprobe.driver.torch_device import TorchDevice
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.plan import qwen4exp as plans
from thorprobe.qwen4exp.plan import ModelOptions
from thorprobe.record import Record
from thorprobe.topk.indexer_source import CLASS

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_KINDS = ("qwen4_exp", "qwen4_exp_text")
_LARGEST_CONFIG = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model that answers, and the numbers of its config that the plan needs.

    ``layers`` are those with an indexer, from 0; ``k`` is the number of blocks it selects.
    """

    network: Any
    place: TorchDevice
    sentence: str
    parameters: int
    vocabulary: int
    layers: tuple[int, ...]
    last_layer: int
    k: int
    ratio: int

    def new_cache(self) -> Any:
        """Return an empty cache of keys and states."""
        return import_module("transformers").DynamicCache(config=self.network.config)

    def draw(self, source: Any, requests: int, tokens: int) -> Any:
        """Draw token ids [requests, tokens] on the CPU: a seed gives the same ones everywhere."""
        import torch

        drawn = torch.randint(1, self.vocabulary, (requests, tokens), generator=source)
        return drawn.to(self.place.torch_device)

    def __call__(self, tokens: Any, cache: Any, keep: int) -> Any:
        """Feed ``tokens`` [requests, queries] and return logits [requests, keep, vocabulary]."""
        # The argument is `cache` from transformers 5.24 on, and `past_key_values` before.
        names = inspect.signature(self.network.forward).parameters
        held = {"cache" if "cache" in names else "past_key_values": cache}
        return self.network(tokens, use_cache=True, logits_to_keep=keep, **held).logits


def build(options: ModelOptions, place: TorchDevice) -> Model:
    """Build the model with random weights of the seed, or load the checkpoint.

    Raises CouldNotProbeError where transformers is missing or too old, or memory does not suffice;
    UsageError for a folder that holds no Qwen4Exp.
    """
    # The weights are made or named here; nothing is to be fetched.
    if "transformers" not in sys.modules:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from thorprobe.topk.qwen4exp import modeling

    modeling()
    library = import_module("transformers")
    # It says of each kernel package that is not installed that results stay the same.
    library.logging.set_verbosity_error()
    if options.checkpoint:
        return _loaded(options, place, library)
    import torch

    size = plans.size_of(options.size)
    config = library.Qwen4ExpTextConfig(**size.config)
    with torch.device("meta"):
        empty = library.AutoModelForCausalLM.from_config(config)
    parameters = sum(p.numel() for p in empty.parameters())
    dtype = getattr(torch, _DTYPES[options.dtype])
    _need(options, place, parameters * dtype.itemsize)
    torch.manual_seed(options.seed)
    with place.torch_device:
        network = library.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
    return wrapped(network, place, f"Qwen4Exp, {size.sentence}")


def _loaded(options: ModelOptions, place: TorchDevice, library: Any) -> Model:
    import torch

    folder = Path(options.checkpoint)
    kind = _kind(folder)
    if kind not in _KINDS:
        raise UsageError(
            f"`--checkpoint {folder}` holds a {kind or 'model without a type'}, no Qwen4Exp",
            f"its config.json names model_type {' or '.join(_KINDS)}",
        )
    weights = list(folder.glob("*.safetensors"))
    if not weights:
        raise UsageError(
            f"`--checkpoint {folder}` holds no weights as safetensors",
            "weights in other formats are not read: they can carry code",
        )
    _need(options, place, sum(path.stat().st_size for path in weights))
    try:
        network = library.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, _DTYPES[options.dtype]),
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"`--checkpoint {folder}` cannot be loaded: {reason}",
            "the folder is one that transformers' `save_pretrained` or the publisher wrote",
        ) from error
    return wrapped(network.to(place.torch_device), place, f"Qwen4Exp, checkpoint {folder.name}")


class _Config(Record, frozen=True, kw_only=True):
    model_type: str = ""


def _kind(folder: Path) -> str:
    path = folder / "config.json"
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_CONFIG + 1)
    except OSError as error:
        raise UsageError(
            f"`--checkpoint {folder}` cannot be read: {(error.strerror or str(error)).lower()}",
            "name a folder with config.json and safetensors",
        ) from error
    try:
        if len(raw) > _LARGEST_CONFIG:
            raise msgspec.ValidationError(f"more than {_LARGEST_CONFIG:,} B")
        return msgspec.json.decode(raw, type=_Config).model_type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"`{path}` is no config: {error}", "name another folder") from error


def wrapped(network: Any, place: TorchDevice, sentence: str) -> Model:
    """Return a network with the numbers of its config. Raises UsageError without an indexer."""
    config = network.config.get_text_config()
    # Names of layer types changed between versions; the indexer's class is what gets replaced.
    indexers = [m for m in network.modules() if type(m).__name__ == CLASS]
    if not indexers:
        raise UsageError(
            "the model has no layer with a QSA indexer, so there is no selection to replace",
            "its config names the indexer's heads, budget and compress ratio",
        )
    return Model(
        network=network.eval(),
        place=place,
        sentence=sentence,
        parameters=sum(p.numel() for p in network.parameters()),
        vocabulary=config.vocab_size,
        layers=tuple(indexer.layer_idx for indexer in indexers),
        last_layer=config.num_hidden_layers - 1,
        k=indexers[0].block_topk,
        ratio=indexers[0].compress_ratio,
    )


def _need(options: ModelOptions, place: TorchDevice, weights: int) -> None:
    """Raise CouldNotProbeError if the weights and one step's largest tensors cannot fit."""
    free = place.free_bytes()
    tokens = options.context + options.decode_tokens
    rows = options.requests * min(options.prefill_chunk, options.context)
    # Scores in fp32 of 4 heads a block, and three masks of a byte a token: the least of a step.
    step = rows * (4 * 4 * tokens // plans.RATIO + 3 * tokens)
    if free is not None and weights + step > free:
        raise CouldNotProbeError(
            f"the model's weights take {weights / _GIB:.1f} GiB and a step at least "
            f"{step / _GIB:.1f} GiB more, but {free / _GIB:.1f} GiB are free",
            "`--prefill-chunk`, `--requests` and `--context` make a step smaller",
        )


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn torch's running out of memory into CouldNotProbeError."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if "out of memory" not in text and "can't allocate memory" not in text:
            raise
        raise CouldNotProbeError(
            f"memory ran out: {' '.join(text.split())[:200]}",
            "`--prefill-chunk`, `--requests` and `--context` make a step smaller",
        ) from error
