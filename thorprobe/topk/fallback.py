# SPDX-License-Identifier: Apache-2.0
"""The last rung: the library's own sort over (score, index), the same result on any device.

A score and its index become one 64-bit number whose order is the contract's, so that no two are
equal and the library's order among equals does not matter.
"""

from contextlib import nullcontext
from importlib import import_module
from typing import Any

from thorprobe.topk.array import CUPY, TORCH, library_of
from thorprobe.topk.contract import SelectOptions

_CHUNK = 2**24
# Scores sorted at once: 128 MiB of 64-bit numbers.
_TOP = 0x7FFFFFFF
_NONE = -(2**31)
# Sorts below every score: NaN that ranks last is one above.


def select(logits: Any, lengths: Any, wish: SelectOptions, out: Any) -> Any:
    """Fill ``out`` int32 [rows, k] by the contract and return it."""
    rows, columns = logits.shape
    if columns == 0:
        out[...] = -1
        return out
    step = max(1, _CHUNK // columns)
    library = library_of(logits)
    pick = _torch if library == TORCH else _numpy
    # CuPy works on the current device, whichever an array is on.
    with logits.device if library == CUPY else nullcontext():
        for begin in range(0, rows, step):
            part = slice(begin, begin + step)
            pick(logits[part], lengths[part], wish, out[part])
    return out


def _torch(logits: Any, lengths: Any, wish: SelectOptions, out: Any) -> None:
    import torch

    columns = logits.shape[1]
    index = torch.arange(columns, dtype=torch.int64, device=logits.device)
    length = lengths.to(torch.int64).clamp(0, columns)[:, None]
    wide = logits.to(torch.float32) + 0.0
    bits = wide.view(torch.int32)
    key = (bits ^ ((bits >> 31) & _TOP)).to(torch.int64)
    key = torch.where(wide.isnan(), _TOP if wish.nan == "largest" else _NONE + 1, key)
    key = torch.where(index < length, key, _NONE)
    count = min(wish.k, columns)
    best = torch.topk((key << 32) | (columns - 1 - index), count, dim=1).values
    found = columns - 1 - (best & 0xFFFFFFFF)
    place = torch.arange(count, device=logits.device)
    if not wish.ordered:
        found = torch.where(length <= wish.k, place, found)
    out[:, :count] = torch.where(place < length, found, -1).to(torch.int32)
    out[:, count:] = -1


def _numpy(logits: Any, lengths: Any, wish: SelectOptions, out: Any) -> None:
    xp: Any = import_module(library_of(logits))
    columns = logits.shape[1]
    index = xp.arange(columns, dtype=xp.int64)
    length = lengths.astype(xp.int64).clip(0, columns)[:, None]
    wide = logits.astype(xp.float32) + xp.float32(0)
    bits = xp.ascontiguousarray(wide).view(xp.int32)
    key = (bits ^ ((bits >> 31) & _TOP)).astype(xp.int64)
    key = xp.where(xp.isnan(wide), _TOP if wish.nan == "largest" else _NONE + 1, key)
    key = xp.where(index < length, key, _NONE)
    count = min(wish.k, columns)
    whole = (key << 32) | (columns - 1 - index)
    best = xp.partition(whole, columns - count, axis=1)[:, columns - count :]
    best = xp.sort(best, axis=1)[:, ::-1]
    found = columns - 1 - (best & 0xFFFFFFFF)
    place = xp.arange(count)
    if not wish.ordered:
        found = xp.where(length <= wish.k, place, found)
    out[:, :count] = xp.where(place < length, found, -1)
    out[:, count:] = -1
