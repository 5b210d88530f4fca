# SPDX-License-Identifier: Apache-2.0
"""The batched selection inside transformers' indexer, against its loop."""

import runpy
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from thorprobe.errors import CouldNotProbeError
from thorprobe.plan.qwen4exp import TINY
from thorprobe.topk import qsa_blocks
from thorprobe.topk.qwen4exp import Batched, through_ladder

_EXACT = runpy.run_path(str(Path(__file__).parent / "selections.py"))["exact"]
MODULE = import_module("transformers.models.qwen4_exp.modeling_qwen4_exp")
BUDGET = 16
TOKENS = 61


@pytest.fixture
def indexer():
    """Return an indexer that selects 4 blocks of 4 tokens, and what it is called with."""
    torch.manual_seed(1)
    config = transformers.Qwen4ExpTextConfig(**TINY.config | {"indexer_budget": BUDGET})
    made = MODULE.Qwen4ExpTextQSAIndexer(config, 3).eval()
    rotary = MODULE.Qwen4ExpTextRotaryEmbedding(config)

    def call(mask, dtype=torch.float32):
        requests, _, queries, tokens = mask.shape
        hidden = torch.randn(requests, tokens, config.hidden_size)
        places = rotary(hidden, torch.arange(tokens).expand(3, requests, tokens))
        given = mask if dtype is torch.bool else mask.float().log()
        assert queries == tokens
        # Gradients are on, as where a model is trained around its selection.
        return made(hidden, places, given, None)

    return call


def _causal(requests=1, padding=(0,)):
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    whole = mask.expand(requests, 1, TOKENS, TOKENS).clone()
    for request, first in enumerate(padding):
        whole[request, :, :, :first] = False
    return whole


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=["bool", "additive"])
@pytest.mark.parametrize("padding", [(0,), (0, 0), (0, 7, 58)], ids=str)
def test_the_mask_is_that_of_the_loop(indexer, padding, dtype):
    """Past the budget and below it, padded on the left or not: the same tokens are selected.

    Where scores tie at the cut the loop's choice is torch.topk's own; none does here.
    """
    mask = _causal(len(padding), padding)
    torch.manual_seed(2)
    expected = indexer(mask, dtype)
    torch.manual_seed(2)
    with through_ladder(Batched(_EXACT)):
        found = indexer(mask, dtype)
    same = (expected == found).flatten(3).all(-1).flatten()
    ties = _tied_rows(expected, found)
    assert bool((same | ties).all())
    assert int(same.sum()) >= same.numel() - 12


def _tied_rows(expected, found):
    """Rows that select as many tokens, of which fewer than half are others: ties of zeros."""
    apart = (expected != found).sum(-1).flatten()
    equal = (expected.sum(-1) == found.sum(-1)).flatten()
    return equal & (apart <= BUDGET)


def test_a_wrong_selection_changes_the_mask(indexer):
    """The comparison above can fail: the smallest scores give another mask."""
    mask = _causal()
    torch.manual_seed(2)
    expected = indexer(mask)
    torch.manual_seed(2)
    with through_ladder(Batched(lambda s, n, k: _EXACT(-s, n, k))):
        found = indexer(mask)
    assert int((expected != found).any(-1).sum()) > 30


@pytest.mark.parametrize("hidden", [slice(3, 5), slice(1)], ids=["a gap", "another start"])
def test_a_mask_whose_blocks_differ_by_query_is_refused(hidden):
    """Blocks are scored together only where every query of a request sees the same ones."""
    mask = _causal()
    qsa_blocks.visible(mask, 4)
    mask[0, 0, 20, hidden] = False
    with pytest.raises(CouldNotProbeError, match="hides tokens between visible ones"):
        qsa_blocks.visible(mask, 4)


def test_scores_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    """Scored in slabs of queries, the result is the same; columns are rounded up."""
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 9, 4, 8), torch.randn(2, 7, 8)
    whole = qsa_blocks.scores(queries, keys)
    monkeypatch.setattr(qsa_blocks, "_SLAB_BYTES", 1)
    parts = qsa_blocks.scores(queries, keys)
    torch.testing.assert_close(whole[:, :7], parts[:, :7], rtol=1e-6, atol=1e-6)
    assert whole.shape == (18, 64)
    assert whole.stride() == (64, 1)
    by_hand = (queries[1, 3] @ keys[1, 5]).relu().sum() / 8**0.5
    torch.testing.assert_close(whole[9 + 3, 5], by_hand)


@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["on the device", "on the host"])
def test_what_is_visible_is_read_the_same_on_host_and_device(monkeypatch, limit):
    """Counts, whole blocks, first tokens, the largest count and whether anything is padded."""
    monkeypatch.setattr(qsa_blocks, "_HOST_BYTES", limit)
    seen = qsa_blocks.visible(_causal(3, (0, 7, 58)), 4)
    assert (seen.requests, seen.queries, seen.most) == (3, 61, 61)
    assert seen.starts.tolist() == [0, 7, 58]
    counts = seen.counts.view(3, 61)
    assert counts[:, -1].tolist() == [61, 54, 3]
    assert counts[2, :58].tolist() == [0] * 58
    assert torch.equal(seen.lengths, seen.counts // 4)
    assert seen.lengths.dtype == torch.int32
    assert qsa_blocks.visible(_causal(), 4).starts is None


def test_tokens_of_blocks_and_the_rest_are_filled_in():
    """Blocks become their tokens, -1 stays, and tokens after the last whole block are added."""
    counts, lengths = torch.tensor([[11, 2], [2, 0]], dtype=torch.int32)
    chosen = torch.tensor([[1, -1], [-1, -1]], dtype=torch.int32)
    for start in (0, 3):
        seen = qsa_blocks.Visible(
            requests=1,
            queries=2,
            counts=counts,
            lengths=lengths,
            starts=np.array([start]) if start else None,
            most=11,
        )
        out = torch.full((1, 2, 11), -7, dtype=torch.int32)
        qsa_blocks.fill_tokens(out, chosen, seen, 4)
        whole, rest = range(4 + start, 8 + start), range(8 + start, 11 + start)
        assert out[0, 0].tolist() == [*whole, -1, -1, -1, -1, *rest]
        assert out[0, 1].tolist() == [-1] * 8 + [start, start + 1, -1]


def test_a_context_without_a_whole_block_selects_its_tokens(indexer):
    """Three tokens make no block; the ladder is not asked, and all are attended to."""

    def never(*_):
        raise AssertionError

    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool).tril()
    with through_ladder(Batched(never)):
        assert torch.equal(indexer(mask, torch.bool), mask)
