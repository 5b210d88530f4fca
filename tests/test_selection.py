# SPDX-License-Identifier: Apache-2.0
"""The comparison of two selections, query by query, and a row's own check."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from thorprobe.qwen4exp.records import Agreement
from thorprobe.qwen4exp.selection import Pair, compare, together
from thorprobe.qwen4exp.watch import verified

_MADE = runpy.run_path(str(Path(__file__).parent / "selections.py"))


def _pair(scores, chosen, other, shift=0.0):
    scores = np.asarray(scores, dtype=np.float32)
    return Pair(
        reference_scores=scores,
        reference_blocks=np.asarray(chosen),
        ladder_scores=scores + np.float32(shift),
        ladder_blocks=np.asarray(other),
    )


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        (_pair([3, 2, 1], [0, 1], [1, 0]), "identical"),
        (_pair([3, 1, 1], [0, 1], [2, 0]), "tied"),
        (_pair([3, 2, 1], [0, 1], [0, 2]), "wrong"),
        (_pair([3, 2, 1.9], [0, 1], [0, 2], shift=0.1), "unresolved"),
        (_pair([3, 2, 1.7], [0, 1], [0, 2], shift=0.1), "wrong"),
        (_pair([3, 1, 1], [0, 1], [0, 0]), "wrong"),
        (_pair([3, 1, 1], [0, 1], [0]), "wrong"),
        (_pair([3, 1, 1], [0, 1], [0, 7]), "wrong"),
        (_pair([np.nan, 1, 1], [0, 1], [0, 2]), "tied"),
        (_pair([np.inf, 1, 1], [0, 1], [2, 0]), "tied"),
        (_pair([], [], []), "identical"),
    ],
)
def test_a_pair_of_sets_is_named(pair, kind):
    """Equal sets, equal values, values that the score difference explains, and all the rest."""
    found = compare([pair], k=2)
    assert getattr(found, kind) == found.compared == 1
    assert found.past_budget == (len(pair.reference_scores) > 2)


def test_the_largest_score_difference_is_kept_and_sums_are_sums():
    """Agreements add up; where nothing was compared there is no difference."""
    parts = [compare([_pair([1.0], [0], [0], shift)], k=1) for shift in (0.0, 0.5)]
    assert together(parts) == Agreement(compared=2, identical=2, max_score_difference=0.5)
    assert together([]).max_score_difference is None


@pytest.mark.parametrize(("select", "wrong"), [("exact", 0), ("smallest", 2), ("one_off", 2)])
def test_every_row_is_held_against_the_definition(select, wrong):
    """Rows longer than k show a wrong selection, shorter ones cannot; ties at the cut count."""
    scores = torch.tensor([[4.0, 3, 2, 1], [1, 2, 3, 4], [9, 9, 9, 9], [5, 0, 0, 9]])
    lengths = torch.tensor([4, 4, 4, 1], dtype=torch.int32)
    ties, found = verified(scores, lengths, _MADE[select](scores, lengths, 2))
    assert found == wrong
    assert ties == 1


@pytest.mark.parametrize("chosen", [[0, 0], [0, -1], [0, 3], [0, 9], [-1, -1]])
def test_indices_that_no_selection_has_are_wrong(chosen):
    """Twice the same, too few, beyond the length and beyond the columns."""
    scores = torch.tensor([[3.0, 2, 1, 9]])
    lengths = torch.tensor([3], dtype=torch.int32)
    assert verified(scores, lengths, torch.tensor([chosen], dtype=torch.int32))[1] == 1


def test_nan_ranks_above_everything():
    """A row with NaN is right if NaN is selected, as torch.topk does."""
    scores = torch.tensor([[torch.nan, 1.0, torch.inf]])
    lengths = torch.tensor([3], dtype=torch.int32)
    for chosen, wrong in (([0, 2], 0), ([0, 1], 1)):
        assert verified(scores, lengths, torch.tensor([chosen], dtype=torch.int32))[1] == wrong
