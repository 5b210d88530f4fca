# SPDX-License-Identifier: Apache-2.0
"""The right selection by a stable sort of whole rows; nothing of the ladder is used.

A score becomes a whole number of the same order: its bits where it is positive, their negative
where it is not, so that both zeros are 0; NaN lies above or below them all, and what is beyond a
row's length lowest. A stable sort, best first, leaves equal scores in order of their indices.
"""

from dataclasses import dataclass
from typing import Any

_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000
_NAN = _INFINITY + 1
_NOT_VALID = -_INFINITY - 2


@dataclass(frozen=True)
class Reference:
    """What is right of one input.

    ``indices`` int32 [rows, k] with -1 where a row has no more scores; ``keys`` int32 [rows,
    columns], the order of the scores.
    """

    torch: Any
    indices: Any
    keys: Any

    def loosely_wrong(self, found: Any) -> Any:
        """Say of each of ``found`` int32 [calls, rows, k] whether it is no selection at all.

        Where ties go anywhere, the scores in order are right if they are those of ``indices``, no
        index comes twice, and the rest is -1. bool [calls].
        """
        torch, (rows, columns) = self.torch, self.keys.shape
        if not rows or not columns:
            return (found != self.indices).flatten(1).any(dim=1)
        outside = (found < -1) | (found >= columns)

        def scores(indices: Any) -> Any:
            at = indices.long().clamp(0, columns - 1)
            keys = self.keys.expand(*at.shape[:-2], rows, columns).gather(-1, at)
            return torch.where(indices < 0, _NOT_VALID - 1, keys)

        other = scores(found) != scores(self.indices)
        order = found.sort(dim=-1).values
        twice = (order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)
        return (outside | other).flatten(1).any(dim=1) | twice.flatten(1).any(dim=1)


def reference(
    torch: Any, scores: Any, lengths: Any, k: int, *, nan: str, ordered: bool
) -> Reference:
    """Sort ``scores`` [rows, columns] of any strides; ``lengths`` int32 [rows]."""
    rows, columns = scores.shape
    device = scores.device
    bits = scores.to(torch.float32).contiguous().view(torch.int32)
    size = bits & _MAGNITUDE
    keys = torch.where(bits < 0, -size, size)
    keys = torch.where(size > _INFINITY, _NAN if nan == "largest" else -_NAN, keys)
    length = lengths.clamp(0, columns)[:, None]
    index = torch.arange(columns, dtype=torch.int32, device=device)
    keys = torch.where(index < length, keys, _NOT_VALID)
    count = min(k, columns)
    best = torch.sort(keys, dim=1, descending=True, stable=True).indices[:, :count]
    place = torch.arange(count, dtype=torch.int32, device=device)
    chosen = best.to(torch.int32)
    if not ordered:
        # A row that is selected whole keeps the order of its indices.
        chosen = torch.where(length <= k, place, chosen)
    indices = torch.full((rows, k), -1, dtype=torch.int32, device=device)
    indices[:, :count] = torch.where(place < length, chosen, -1)
    return Reference(torch, indices, keys)
