# SPDX-License-Identifier: Apache-2.0
"""The QSA indexer's scores of all queries at once, and tokens of the blocks that were selected.

The same mathematics as transformers' loop, query by query: keys are averaged over ``ratio`` tokens,
normalised and rotated, and a block's score is the sum over heads of relu(query x key). A block does
not depend on the query that sees it, so blocks are made once a request instead of once a query.
"""

import math
from dataclasses import dataclass
from typing import Any

from thorprobe.errors import CouldNotProbeError

_SLAB_BYTES = 1 << 30
# Largest product of queries and blocks per head that is held at once.

_ALIGNED = 4
# Scores start each row at 16 bytes, as vLLM's call site demands of its stride.


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What transformers' loop reads, and the tensor that it fills.

    ``queries`` [requests, queries, heads, head_dim], ``raw_keys`` [requests, tokens, head_dim],
    ``cos`` and ``sin`` [requests, tokens, rotary_dim], ``mask`` bool [requests, 1, queries, tokens]
    (true: visible), ``out`` int32 [requests, queries, budget + ratio - 1] of tokens, -1 unfilled.
    """

    indexer: Any
    queries: Any
    raw_keys: Any
    cos: Any
    sin: Any
    mask: Any
    out: Any


@dataclass(frozen=True, kw_only=True)
class Visible:
    """What each query sees: ``counts`` tokens [requests, queries] from ``starts`` [requests] on."""

    starts: Any
    counts: Any

    def lengths(self, ratio: int) -> Any:
        """Complete blocks of each query, int32 [requests x queries]: the rows' valid prefix."""
        import torch

        return (self.counts // ratio).to(torch.int32).flatten()


def visible(mask: Any) -> Visible:
    """Read a bool mask [requests, 1, queries, tokens].

    Raises CouldNotProbeError unless every query of a request sees one run of tokens, and all of
    them from the same first token on (causal, padded on the left or not at all): otherwise a block
    would not be the same to every query.
    """
    import torch

    seen = mask[:, 0]
    tokens = seen.shape[-1]
    counts = seen.sum(-1)
    as_bytes = seen.contiguous().view(torch.uint8)
    first = as_bytes.argmax(-1)
    last = tokens - 1 - as_bytes.flip(-1).argmax(-1)
    some = counts > 0
    starts = torch.where(some, first, tokens).amin(-1)
    plain = ((last - first + 1 == counts) & (first == starts[:, None])) | ~some
    if not bool(plain.all()):
        raise CouldNotProbeError(
            "the attention mask hides tokens between visible ones, or starts queries of one "
            "request at different tokens, so its blocks cannot be scored together",
            "a causal mask, with padding on the left only, is what the batched selection takes",
        )
    return Visible(starts=starts.clamp(max=tokens - 1), counts=counts)


def block_keys(reads: Reads, rotate: Any, seen: Visible, blocks: int) -> Any:
    """Keys of the first ``blocks`` blocks of each request, [requests, blocks, head_dim].

    ``rotate`` is transformers' own ``apply_rotary_pos_emb``.
    """
    import torch

    raw_keys = reads.raw_keys
    requests, tokens, width = raw_keys.shape
    ratio = reads.indexer.compress_ratio
    places = seen.starts[:, None] + torch.arange(blocks * ratio, device=raw_keys.device)
    # A request that is padded has fewer blocks; those beyond its own are never in a row's length.
    places = places.clamp_(max=tokens - 1)
    pooled = _rows(raw_keys, places).view(requests, blocks, ratio, width).float().mean(2)
    heads = places[:, ::ratio]
    rotated = rotate(
        reads.indexer.k_layernorm(pooled.to(raw_keys.dtype))[:, :, None],
        cos=_rows(reads.cos, heads),
        sin=_rows(reads.sin, heads),
        unsqueeze_dim=2,
    )
    return rotated[:, :, 0]


def _rows(values: Any, places: Any) -> Any:
    """Return ``values`` [requests, tokens, width] at ``places`` [requests, n]."""
    import torch

    requests, tokens, width = values.shape
    # One flat index copies whole rows; gather would look up every element.
    first = torch.arange(0, requests * tokens, tokens, device=places.device)
    flat = values.reshape(-1, width).index_select(0, (places + first[:, None]).flatten())
    return flat.view(requests, -1, width)


def scores(queries: Any, keys: Any) -> Any:
    """Scores of every block for every query, fp32 [requests x queries, blocks].

    ``queries`` [requests, queries, heads, head_dim], ``keys`` [requests, blocks, head_dim]. The
    row pitch is a multiple of 4 elements. Values beyond a row's length are of blocks that the query
    does not see.
    """
    import torch

    requests, count, heads, width = queries.shape
    blocks = keys.shape[1]
    pitch = -(-blocks // _ALIGNED) * _ALIGNED
    made = torch.empty(requests, count, pitch, dtype=torch.float32, device=queries.device)
    columns = keys.float().transpose(1, 2)
    slab = max(1, _SLAB_BYTES // max(1, 4 * requests * heads * blocks))
    for first in range(0, count, slab):
        part = queries[:, first : first + slab].float()
        products = torch.matmul(part.flatten(1, 2), columns).view(*part.shape[:3], blocks)
        summed = products.relu_().sum(2)
        made[:, first : first + slab, :blocks] = summed.div_(math.sqrt(width))
    return made.view(requests * count, pitch)[:, :blocks]


def fill_tokens(out: Any, chosen: Any, seen: Visible, ratio: int) -> None:
    """Write tokens of the chosen blocks, and those after the last complete block, into ``out``.

    ``chosen`` int32 [requests x queries, k], -1 where there is none; ``out`` int32
    [requests, queries, at least k x ratio + ratio - 1], -1 where nothing is written.
    """
    import torch

    requests, queries = seen.counts.shape
    k = chosen.shape[-1]
    within = torch.arange(ratio, dtype=torch.int32, device=out.device)
    starts = seen.starts[:, None].to(torch.int32)
    blocks = chosen.view(requests, queries, k, 1)
    tokens = starts[..., None, None] + blocks * ratio + within
    out[..., : k * ratio] = torch.where(blocks >= 0, tokens, -1).flatten(2)
    counts = seen.counts.to(torch.int32)
    whole = counts // ratio * ratio
    tail = torch.arange(ratio - 1, dtype=torch.int32, device=out.device)
    rest = torch.where(tail < (counts - whole)[..., None], (starts + whole)[..., None] + tail, -1)
    out[..., k * ratio : k * ratio + ratio - 1] = rest
