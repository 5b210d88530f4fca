# SPDX-License-Identifier: Apache-2.0
"""The plan of ``model-topk --engine vllm``: which engines start, and what each is asked.

A suite is data: engines in waves, each with its cases. Without one, the options make one engine
with one case.
"""

from collections.abc import Iterable
from random import Random
from typing import Annotated, Any, Literal

import msgspec

from thorprobe.driver import partition as partitions
from thorprobe.errors import UsageError
from thorprobe.plan.datafile import Folder
from thorprobe.record import Record

Graphs = Literal["eager", "full-and-piecewise", "full-decode-only"]
DropIn = Literal["", "fallback", "always", "check", "report"]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

GRAPHS: tuple[str, ...] = ("eager", "full-and-piecewise", "full-decode-only")
DROP_INS: tuple[str, ...] = ("fallback", "always", "check", "report")
DEFAULT_POLICY = "0.33.0"

WHOLE = 2_560
"""Prompts up to here have every query's selection compared with the reference's."""

QUERIES = 256
"""Queries that are compared of a longer prompt, evenly over it."""

CHUNK = 2_048
"""Tokens that the reference is fed in one call."""

_BASE: dict[str, Any] = {
    "vocab_size": 4_096,
    "hidden_size": 1_024,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "max_position_embeddings": 32_768,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000.0,
        "partial_rotary_factor": 0.25,
    },
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
    "num_experts_per_tok": 4,
    "num_experts": 8,
    "hc_count": 4,
    "hc_lowrank": 64,
    "ple_layer_ids": [],
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2_048,
    "indexer_compress_ratio": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "initializer_range": 0.02,
    "attention_bias": False,
    "linear_conv_kernel_dim": 4,
    "norm_topk_prob": True,
    "output_gate_type": "silu",
    "mamba_ssm_dtype": "float32",
}
_SENTENCE = (
    "a reduced Qwen4Exp ({layers}), hidden 1,024, heads of 256, indexer 4 x 128, budget 2,048, "
    "ratio 4, 8 experts, no n-gram layers, random weights doubled so that tokens vary"
)


class Model(Record, frozen=True, kw_only=True):
    """A config of transformers' ``Qwen4ExpTextConfig`` that both engines build."""

    name: str
    sentence: str
    config: dict[str, Any]

    @property
    def indexers(self) -> tuple[int, ...]:
        """Layers with an indexer."""
        kinds = self.config["layer_types"]
        return tuple(i for i, kind in enumerate(kinds) if kind == "qwen_sparse_attention")

    @property
    def k(self) -> int:
        """Blocks that a query selects."""
        return int(self.config["indexer_budget"] // self.config["indexer_compress_ratio"])


def _model(name: str, layers: str, kinds: tuple[str, ...]) -> Model:
    return Model(
        name=name,
        sentence=_SENTENCE.format(layers=layers),
        config=_BASE | {"num_hidden_layers": len(kinds), "layer_types": list(kinds)},
    )


MODELS = {
    model.name: model
    for model in (
        _model("qsa", "2 QSA layers", ("qwen_sparse_attention",) * 2),
        _model(
            "hybrid",
            "2 GDN and 2 QSA layers in turn",
            ("linear_attention", "qwen_sparse_attention") * 2,
        ),
    )
}


class Case(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one engine is asked: ``requests`` prompts of about ``prompt`` tokens, ``tokens`` each.

    ``forced`` compares the first prompt with transformers, token by token; ``repeat`` > 0 runs the
    same prompts so often; ``timed`` runs alone on the device, and measures times instead.
    """

    name: Name
    requests: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 1
    prompt: Annotated[int, msgspec.Meta(ge=1, le=32_000)] = 2_300
    tokens: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 8
    forced: bool = False
    repeat: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    timed: bool = False


class Engine(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One start of the engine, in a process of its own. Engines of a ``wave`` start together."""

    name: Name
    model: Literal["qsa", "hybrid"] = "qsa"
    graphs: Graphs = "eager"
    drop_in: DropIn = ""
    partition: str = ""
    wave: int = 1
    cases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject a partition that cannot be read."""
        try:
            partitions.parse(self.partition)
        except UsageError as error:
            raise ValueError(error.sentence) from error


class Suite(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Engines and the cases that they name; ``case`` and ``engine`` are the file's tables."""

    name: Name
    description: str = ""
    seed: int = 0
    scale: float = 2.0
    cases: tuple[Case, ...] = msgspec.field(name="case")
    engines: Annotated[tuple[Engine, ...], msgspec.Meta(min_length=1, max_length=64)] = (
        msgspec.field(name="engine")
    )

    def __post_init__(self) -> None:
        """Reject names that occur twice, and cases that are not there."""
        _once("case", (case.name for case in self.cases))
        _once("engine", (engine.name for engine in self.engines))
        known = {case.name for case in self.cases}
        for engine in self.engines:
            _once(f"a case of engine {engine.name}", engine.cases)
            for case in engine.cases:
                if case not in known:
                    raise ValueError(f"engine {engine.name} names case {case}, which is not there")

    def of(self, engine: Engine) -> tuple[Case, ...]:
        """Return the cases of an engine, in its order."""
        named = {case.name: case for case in self.cases}
        return tuple(named[name] for name in engine.cases)

    def waves(self) -> tuple[tuple[Engine, ...], ...]:
        """Return the engines that start together, wave by wave."""
        numbers = sorted({engine.wave for engine in self.engines})
        return tuple(tuple(e for e in self.engines if e.wave == number) for number in numbers)

    def forced(self, model: str) -> tuple[Case, ...]:
        """Return the cases of a model that are compared with transformers, one a prompt length."""
        found: dict[tuple[int, int], Case] = {}
        for engine in self.engines:
            if engine.model == model:
                for case in self.of(engine):
                    if case.forced:
                        found.setdefault((case.prompt, case.tokens), case)
        return tuple(found.values())


_FOLDER = Folder("engine suite", "vllm", "suites")


def names() -> tuple[str, ...]:
    """Names of the shipped suites, sorted."""
    return _FOLDER.names()


def load(name: str) -> Suite:
    """Shipped suite of that name, or the file at that path (ending in ``.toml``).

    Raises UsageError: unknown name, unreadable or oversized file, or one outside the schema.
    """
    return _FOLDER.load(name, Suite)


def one(
    *,
    requests: int,
    context: int,
    tokens: int,
    graphs: str,
    drop_in: str,
    partition: str,
    repeat: int,
    hybrid: bool,
    seed: int,
) -> Suite:
    """Return the suite of one engine that the options of the command line make.

    Raises UsageError for a value that no engine can have.
    """
    for option, word, known in (
        ("--graphs", graphs, GRAPHS),
        ("--drop-in", drop_in, ("", *DROP_INS)),
    ):
        if word not in known:
            raise UsageError(
                f"`{option} {word}` was asked for, but it is one of "
                f"{', '.join(filter(None, known))}",
                f"leave out `{option}` for the default",
            )
    longest = MODELS["qsa"].config["max_position_embeddings"] - 768
    for option, value, least, most in (
        ("--requests", requests, 1, 1_024),
        ("--context", context, 1, longest),
        ("--decode-tokens", tokens, 1, 512),
        ("--repeat", repeat, 0, 10_000),
        ("--seed", seed, 0, 2**31),
    ):
        if not least <= value <= most:
            raise UsageError(
                f"`{option} {value}` was asked for, but with an engine it is {least} to {most:,}",
                f"try {max(least, min(value, most))}",
            )
    partitions.parse(partition)
    shape: dict[str, Any] = {"requests": requests, "prompt": context, "tokens": tokens}
    cases = (
        msgspec.convert({"name": "asked", "forced": True, "repeat": repeat, **shape}, Case),
        msgspec.convert({"name": "timed", "timed": True, **shape}, Case),
    )
    engine = {
        "name": "engine",
        "model": "hybrid" if hybrid else "qsa",
        "graphs": graphs,
        "drop_in": drop_in,
        "partition": partition,
        "cases": ("asked", "timed"),
    }
    return Suite(name="options", seed=seed, cases=cases, engines=(msgspec.convert(engine, Engine),))


def prompts(seed: int, case: Case) -> tuple[tuple[int, ...], ...]:
    """Token ids of each request: the i-th has i tokens fewer, and is the same in every batch."""
    size = int(_BASE["vocab_size"])
    made = []
    for index in range(case.requests):
        source = Random(seed * 1_000_003 + index)  # noqa: S311  tokens of a random model
        length = max(1, case.prompt - index)
        made.append(tuple(source.randrange(3, size) for _ in range(length)))
    return tuple(made)


def wanted(prompt: int, first: int, tokens: int) -> range:
    """Return the queries of a step of ``tokens`` from ``first`` on whose selection is compared.

    All of a short prompt; of a long one about QUERIES, evenly, and the last.
    """
    step = 1 if prompt <= WHOLE else max(1, prompt // QUERIES)
    return range((prompt - 1 - first) % step, tokens, step)


def _once(what: str, found: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise ValueError(f"{what} {name} occurs twice")
        seen.add(name)
