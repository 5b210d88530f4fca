# SPDX-License-Identifier: Apache-2.0
"""Selections to put in the ladder's place: a right one, and wrong ones that look like it."""

import torch


def exact(scores, lengths, k):
    """Select the k largest valid scores of each row, ties to the lower index, -1 beyond."""
    columns = scores.shape[1]
    valid = torch.arange(columns) < lengths[:, None]
    ranked = torch.where(valid, scores, -torch.inf)
    order = ranked.sort(dim=1, descending=True, stable=True).indices[:, :k]
    chosen = torch.full((scores.shape[0], k), -1, dtype=torch.int32)
    chosen[:, : order.shape[1]] = torch.where(
        torch.arange(order.shape[1]) < lengths[:, None], order, -1
    )
    return chosen


def smallest(scores, lengths, k):
    """Select the k smallest: all of a row that has no more, the wrong ones of a longer row."""
    return exact(-scores, lengths, k)


def one_off(scores, lengths, k):
    """Select all but the best, and the best that was left out: one block of a row is wrong."""
    more = exact(scores, lengths, k + 1)
    chosen = more[:, :k].clone()
    longer = lengths > k
    chosen[longer, 0] = more[longer, k]
    return chosen
