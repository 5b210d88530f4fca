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

_COLUMN_STEP = 64
# Columns are rounded up, as vLLM rounds those of a prefill: a decode then keeps its shape for 256
# tokens, and with it what the ladder prepared. Rows start at 16 bytes, as its kernels like best.

_HOST_BYTES = 1 << 20
# Masks up to here are read on the host: one copy takes less time than a score of tiny kernels.


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
    """What each query sees: ``counts`` tokens from the first visible one of its request on.

    ``counts`` and ``lengths``, complete blocks of each query, are int32 [requests x queries] on the
    scores' device, the latter the rows' valid prefix. ``starts`` [requests] are the first tokens on
    the host, None where every request starts at 0. ``most`` is the largest count.
    """

    requests: int
    queries: int
    counts: Any
    lengths: Any
    starts: Any
    most: int


def visible(mask: Any, ratio: int) -> Visible:
    """Read a bool mask [requests, 1, queries, tokens], with ``ratio`` tokens a block.

    Raises CouldNotProbeError unless every query of a request sees one run of tokens, and all of
    them from the same first token on (causal, padded on the left or not at all): otherwise a block
    would not be the same to every query.
    """
    import numpy as np
    import torch

    seen = mask[:, 0]
    requests, queries, tokens = seen.shape
    counts, first, behind = _runs(seen)
    some = counts > 0
    starts = np.where(some, first, tokens).min(-1)
    plain = ((tokens - first - behind == counts) & (first == starts[:, None])) | ~some
    if not plain.all():
        raise CouldNotProbeError(
            "the attention mask hides tokens between visible ones, or starts queries of one "
            "request at different tokens, so its blocks cannot be scored together",
            "a causal mask, with padding on the left only, is what the batched selection takes",
        )
    both = torch.from_numpy(np.stack([counts, counts // ratio]).astype(np.int32).reshape(2, -1))
    on_device = both.to(seen.device)
    return Visible(
        requests=requests,
        queries=queries,
        counts=on_device[0],
        lengths=on_device[1],
        starts=starts.clip(max=tokens - 1) if starts.any() else None,
        most=int(counts.max()),
    )


def _runs(seen: Any) -> Any:
    """Return of a mask [requests, queries, tokens] three arrays [requests, queries] on the host.

    How many tokens are visible, how many hidden ones stand before the first and after the last.
    """
    import torch

    if seen.numel() <= _HOST_BYTES:
        host = seen.cpu().numpy()
        return host.sum(-1), host.argmax(-1), host[..., ::-1].argmax(-1)
    as_bytes = seen.contiguous().view(torch.uint8)
    found = seen.sum(-1), as_bytes.argmax(-1), as_bytes.flip(-1).argmax(-1)
    return torch.stack(found).cpu().numpy()


def columns(blocks: int) -> int:
    """Return the columns of the scores of so many blocks."""
    return -(-blocks // _COLUMN_STEP) * _COLUMN_STEP


def block_keys(reads: Reads, rotate: Any, seen: Visible) -> Any:
    """Keys of each request's blocks, [requests, blocks, head_dim].

    There are as many as the query that sees most has; ``rotate`` is transformers' own
    ``apply_rotary_pos_emb``.
    """
    import torch

    raw_keys, cos, sin = reads.raw_keys, reads.cos, reads.sin
    requests, tokens, width = raw_keys.shape
    ratio = reads.indexer.compress_ratio
    blocks = seen.most // ratio
    if seen.starts is None:
        whole = slice(blocks * ratio)
        raw_keys, cos, sin = (
            raw_keys[:, whole],
            cos[:, whole][:, ::ratio],
            sin[:, whole][:, ::ratio],
        )
    else:
        starts = torch.from_numpy(seen.starts).to(raw_keys.device)
        places = starts[:, None] + torch.arange(blocks * ratio, device=raw_keys.device)
        # A padded request has fewer blocks; those beyond its own are in no row's length.
        places = places.clamp_(max=tokens - 1)
        heads = places[:, ::ratio]
        raw_keys, cos, sin = _rows(raw_keys, places), _rows(cos, heads), _rows(sin, heads)
    groups = raw_keys.reshape(requests, blocks, ratio, width)
    pooled = reads.indexer.k_layernorm(groups.float().mean(2).to(raw_keys.dtype))
    return rotate(pooled[:, :, None], cos=cos, sin=sin, unsqueeze_dim=2)[:, :, 0]


def _rows(values: Any, places: Any) -> Any:
    """Return ``values`` [requests, tokens, width] at ``places`` [requests, n]."""
    import torch

    requests, tokens, width = values.shape
    # One flat index copies whole rows; gather would look up every element.
    first = torch.arange(0, requests * tokens, tokens, device=places.device)
    flat = values.reshape(-1, width).index_select(0, (places + first[:, None]).flatten())
    return flat.view(requests, -1, width)


def scores(queries: Any, keys: Any) -> Any:
    """Scores of every block for every query, fp32 [requests x queries, columns(blocks)].

    ``queries`` [requests, queries, heads, head_dim], ``keys`` [requests, blocks, head_dim]. What
    lies beyond a row's length is of blocks that the query does not see, or nothing at all.
    """
    import torch

    requests, count, heads, width = queries.shape
    blocks = keys.shape[1]
    pitch = columns(blocks)
    made = torch.empty(requests, count, pitch, dtype=torch.float32, device=queries.device)
    turned = keys.float().transpose(1, 2)
    slab = max(1, _SLAB_BYTES // max(1, 4 * requests * heads * blocks))
    for first in range(0, count, slab):
        part = queries[:, first : first + slab].float()
        products = torch.matmul(part.flatten(1, 2), turned).view(*part.shape[:3], blocks)
        summed = made[:, first : first + slab, :blocks]
        torch.sum(products.relu_(), 2, out=summed)
        summed.div_(math.sqrt(width))
    return made.view(requests * count, pitch)


def fill_tokens(out: Any, chosen: Any, seen: Visible, ratio: int) -> None:
    """Write tokens of the chosen blocks, and those after the last complete block, into ``out``.

    ``chosen`` int32 [requests x queries, k], -1 where there is none; ``out`` int32
    [requests, queries, k x ratio + ratio - 1], -1 where nothing is written.
    """
    import torch

    counts = seen.counts.view(seen.requests, seen.queries, 1, 1)
    # What follows the last complete block is one more block, of which fewer tokens are visible.
    last = seen.lengths.view(seen.requests, seen.queries, 1, 1)
    blocks = torch.cat([chosen.view(seen.requests, seen.queries, -1, 1), last], 2)
    within = torch.arange(ratio, dtype=torch.int32, device=out.device)
    tokens = torch.add(within, blocks, alpha=ratio)
    # Tokens of no block, -1, are below 0.
    tokens.masked_fill_(tokens >= counts, -1).clamp_(min=-1)
    if seen.starts is not None:
        starts = torch.from_numpy(seen.starts).to(out.device, torch.int32)
        tokens = torch.where(tokens < 0, -1, tokens + starts[:, None, None, None])
    out.copy_(tokens.flatten(2)[..., : out.shape[-1]])
