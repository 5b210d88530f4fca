# SPDX-License-Identifier: Apache-2.0
"""The right selection of whole rows, by torch's stable sort, and comparisons with it.

A stable sort, best first, leaves equal scores in the order of their indices: that is the ladder's
contract with ``ties="lowest"``. The sort is torch's and shares nothing with the ladder's kernels.
"""

from dataclasses import dataclass
from typing import Any

UNWRITTEN = -7
"""Fills a result before it is written: no index of a score, nor the -1 that stands for none."""


@dataclass(frozen=True)
class Expected:
    """What is right of one input, on its device.

    ``count`` is min(k, columns). ``scores`` float32 [rows, columns] with one NaN and one zero,
    ``indices`` int32 [rows, k] with -1 from ``count`` on, ``values`` float32 [rows, count], best
    first.
    """

    torch: Any
    scores: Any
    indices: Any
    values: Any
    count: int

    def first(self, rows: int) -> "Expected":
        """Return what is right of the first rows."""
        return Expected(
            self.torch, self.scores[:rows], self.indices[:rows], self.values[:rows], self.count
        )

    def other_rows(self, chosen: Any) -> int:
        """Count the rows of ``chosen`` int32 [rows, k] whose indices are not these, in order."""
        return int((chosen != self.indices).any(dim=1).sum())

    def wrong_rows(self, chosen: Any) -> int:
        """Count the rows of ``chosen`` that are no selection at all.

        A row is right when its first ``count`` indices are unique, lie in the row and select the
        expected values as a multiset, and the rest is -1.
        """
        head, tail = chosen[:, : self.count].long(), chosen[:, self.count :]
        inside = ((head >= 0) & (head < self.scores.shape[1])).all(dim=1)
        unique = (head.sort(dim=1).values.diff(dim=1) > 0).all(dim=1)
        found = self.scores.gather(1, head.clamp(0, self.scores.shape[1] - 1))
        found = found.sort(dim=1, descending=True).values
        same = ((found == self.values) | (found.isnan() & self.values.isnan())).all(dim=1)
        right = inside & unique & same & (tail == -1).all(dim=1)
        return int((~right).sum())


def expected(torch: Any, scores: Any, k: int) -> Expected:
    """Select the k best of each row of ``scores`` [rows, columns], all of them valid."""
    rows, columns = scores.shape
    wide = scores.float() + 0.0  # -0 becomes +0.
    wide = torch.where(wide.isnan(), torch.full_like(wide, float("nan")), wide)
    ordered = torch.sort(wide, dim=1, descending=True, stable=True)
    count = min(k, columns)
    indices = torch.full((rows, k), -1, dtype=torch.int32, device=scores.device)
    # A row that is selected whole keeps the order of its indices.
    whole = torch.arange(columns, device=scores.device).expand(rows, columns)
    indices[:, :count] = (whole if columns <= k else ordered.indices)[:, :count].to(torch.int32)
    # A copy, so that the whole sorted rows do not stay in memory.
    return Expected(torch, wide, indices, ordered.values[:, :count].clone(), count)
