# SPDX-License-Identifier: Apache-2.0
"""The sizes in which Qwen4Exp is built here: its published config, reduced in depth and count.

The numbers are those of Qwen3.8-Flash-Next's config as agreeing third-party copies give it; what
the reduction changes is said in each size's sentence. The selection is whole in every size: 512
blocks of 4 tokens, a budget of 2,048.
"""

from typing import Any

from thorprobe.errors import UsageError
from thorprobe.record import Record

BUDGET = 2_048
"""indexer_budget: tokens that a query attends to; below it every block is selected."""

RATIO = 4
"""indexer_compress_ratio: tokens a block."""

MAX_POSITIONS = 262_144
"""max_position_embeddings."""

EOS = 0
"""End of sequence. The n-gram hash needs one; prompts are drawn from the tokens above it."""

_INDEXER = {"indexer_budget": BUDGET, "indexer_compress_ratio": RATIO, "indexer_kv_heads": 1}


class Size(Record, frozen=True, kw_only=True):
    """A config of transformers' ``Qwen4ExpTextConfig``, with a sentence on what it is."""

    name: str
    sentence: str
    config: dict[str, Any]


_ROPE = {
    # theta is transformers' default; weights are random, so that no value is the right one.
    "rope_type": "default",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.25,
}

REDUCED = Size(
    name="reduced",
    sentence=(
        "the published config with 4 of 48 layers (the last has the indexer), 8 of 512 experts and "
        "n-gram vocabularies of 20,000 instead of 20,000,000, widths untouched, random weights"
    ),
    config={
        "vocab_size": 248_320,
        "hidden_size": 2_560,
        "num_hidden_layers": 4,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "num_experts": 8,
        # 10 of 512 are routed to; 8 are left.
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 640,
        "shared_expert_intermediate_size": 640,
        "hc_count": 4,
        "hc_lowrank": 320,
        "ple_layer_ids": [2],
        "ngram_size": 3,
        "ngram_vocab_size_base": 20_000,
        "split_ngram_parts": 128,
        "indexer_n_heads": 4,
        "indexer_head_dim": 128,
        "max_position_embeddings": MAX_POSITIONS,
        "eos_token_id": EOS,
        "rope_parameters": _ROPE | {"mrope_section": [11, 11, 10]},
        **_INDEXER,
    },
)

TINY = Size(
    name="tiny",
    sentence=(
        "the published config's layers 1 to 4 with small widths and random weights: for tests, and "
        "for the shapes of calls"
    ),
    config={
        "vocab_size": 512,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "hc_count": 2,
        "hc_lowrank": 16,
        "ple_layer_ids": [2],
        "ngram_size": 3,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 500,
        "split_ngram_parts": 4,
        "indexer_n_heads": 4,
        "indexer_head_dim": 32,
        "max_position_embeddings": MAX_POSITIONS,
        "eos_token_id": EOS,
        "rope_parameters": _ROPE | {"mrope_section": [2, 1, 1]},
        **_INDEXER,
    },
)

SIZES = {size.name: size for size in (REDUCED, TINY)}


def size_of(name: str) -> Size:
    """Return a size by its name. Raises UsageError for another."""
    if name not in SIZES:
        raise UsageError(
            f"a {name!r} model was asked for, but the sizes are {', '.join(SIZES)}",
            "a real one is named with `--checkpoint DIR`",
        )
    return SIZES[name]
