# SPDX-License-Identifier: Apache-2.0
"""What each kernel of the ladder reads of a row, written down from kernels/select.cu.

Which index each score in each load of each thread of each CTA has, in the 32-bit arithmetic of the
device. Nothing here is the host's code. What short kernels read when they cut every row at 16-byte
boundaries stands beside what they read now.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from thorprobe.topk.ladder import Config
from thorprobe.topk.variant import Variant

LOAD = {"float32": 4, "float16": 8, "bfloat16": 8}
# Scores in 16 bytes.


class Reading(NamedTuple):
    """What all CTAs of a row do, each axis (CTA, warp, batch, load, lane, score).

    ``index`` of each slot, whether it is ``read`` and ``taken`` for a candidate; ``first``: the
    index of its load; ``holds``: whether the load is one of the warp's.
    """

    index: np.ndarray
    first: np.ndarray
    holds: np.ndarray
    read: np.ndarray
    taken: np.ndarray
    batches: int


class Row(NamedTuple):
    """A row of the input: ``skew`` scores off a 16-byte boundary, or with gaps between columns."""

    columns: int
    length: int
    skew: int = 0
    strided: bool = False


def _axes(ctas, warps, batches, loads, vec):
    """Return the six numbers of every slot, to be broadcast, as the device's 32-bit words."""
    sizes = (ctas, warps, batches, loads, 32, vec)
    return (
        np.arange(size, dtype=np.uint32).reshape([-1 if at == place else 1 for at in range(6)])
        for place, size in enumerate(sizes)
    )


def _fetch(first, score, holds, *, extent, skew, vec, strided, signed=True):
    """Return which slots are filled: by loads that lie whole inside the row, or one by one.

    ``skew``: of the boundary that loads are cut by. ``signed``: a load that begins behind the row
    is passed over, and one that begins before it is not, though its index is 2^32 - 1 or so.
    """
    index = first + score
    if strided:
        return index, holds & (index < extent)
    inside = np.uint32(0 if extent < vec else extent - vec + 1)
    full = holds & (first < inside)
    # The device reads 16 bytes there: they are the row's, and begin at a boundary.
    assert not ((first + np.uint32(skew)) % vec)[full].any()
    edge = holds & (first >= inside) & (skew != 0 or extent % vec != 0)
    if signed:
        edge &= first.view(np.int32) < extent
    return index, full | edge & (index < extent)


def short_row(vec, threads, loads, row):
    """Return what a ``short`` kernel reads of all columns, in one batch, and takes by the length.

    WHOLE: thread after thread has 16 bytes. LOOSE, of a row off a 16-byte boundary: a score.
    """
    _, warp, _, load, lane, score = _axes(1, threads // 32, 1, loads, vec)
    thread = warp * 32 + lane
    if row.skew and not row.strided:
        index = thread + (load * vec + score) * np.uint32(threads)
        first, read = index, index < row.columns
    else:
        first = thread * vec + load * np.uint32(threads * vec)
        shape = {"extent": row.columns, "skew": 0, "vec": vec, "strided": row.strided}
        index, read = _fetch(first, score, np.True_, **shape)
    return Reading(index, first, np.True_, read, read & (index < row.length), 1)


def short_row_before(vec, threads, loads, row):
    """Return what a ``short`` kernel read before: every row cut at the 16-byte boundary below."""
    _, warp, _, load, lane, score = _axes(1, threads // 32, 1, loads, vec)
    first = (warp * 32 + lane) * vec - np.uint32(row.skew) + load * np.uint32(threads * vec)
    shape = {"extent": row.columns, "skew": row.skew, "vec": vec, "strided": row.strided}
    index, read = _fetch(first, score, np.True_, signed=False, **shape)
    return Reading(index, first, np.True_, read, read & (index < row.length), 1)


def dealt(
    vec, threads, loads, ctas, *, extent, skew, strided, spread, in_order=False, side_by_side=False
):
    """Return what CTAs read that share a row by units of 32 loads.

    ``spread``: a warp's units lie side by side. ``in_order``: so do a CTA's. ``side_by_side``: so
    do the loads of a batch, which else are spread over all batches.
    """
    unit_size, warps, log_peers = 32 * vec, threads // 32, ctas.bit_length() - 1
    units = (extent + skew + unit_size - 1) // unit_size
    per_warp = (units + (warps << log_peers) - 1) >> (log_peers + warps.bit_length() - 1)
    batches = -(-per_warp // loads)
    batch_step, load_step = (loads, 1) if side_by_side else (1, batches)
    unit_step, warp_step = (1, per_warp) if spread else (warps, 1)
    rank, warp, batch, load, lane, score = _axes(ctas, warps, batches, loads, vec)
    if in_order:
        rank, log_peers = rank * np.uint32(warps * per_warp), 0
    unit = batch * np.uint32(batch_step * unit_step) + warp * np.uint32(warp_step)
    begin = ((unit << np.uint32(log_peers)) + rank) * np.uint32(unit_size) + lane * vec
    step = np.uint32((load_step * unit_step << log_peers) * unit_size)
    first = begin - np.uint32(skew) + load * step
    holds = load * np.uint32(load_step) + batch * np.uint32(batch_step) < per_warp
    index, read = _fetch(first, score, holds, extent=extent, skew=skew, vec=vec, strided=strided)
    return Reading(index, first, holds, read, holds & (index < extent), batches)


def whole(reading, length):
    """Say whether each score before ``length`` is in one slot, and nothing else in any."""
    index, read, taken = np.broadcast_arrays(reading.index, reading.read, reading.taken)
    if (taken & ~read).any():
        return False  # A place that was never filled would count as a score.
    held = index[taken]
    return len(held) == length and bool((np.bincount(held, minlength=length) == 1).all())


def shape_of(choice, dtype):
    """Return a kernel's scores in a load, threads, and loads in a batch."""
    vec = LOAD[dtype]
    return vec, choice.variant.threads, choice.variant.scores // vec


@cache
def short_holds(variant: Variant, dtype, row: Row):
    """Say whether a ``short`` kernel takes every score of a row."""
    one = Config(rung="one-cta", variant=variant, ctas=1)
    return whole(short_row(*shape_of(one, dtype), row), row.length)


@cache
def held_before(variant: Variant, dtype, row: Row):
    """Say whether a ``short`` kernel took every score of a row before."""
    one = Config(rung="one-cta", variant=variant, ctas=1)
    return whole(short_row_before(*shape_of(one, dtype), row), row.length)


def long_holds(choice, dtype, row):
    """Say whether the first look of a ``long`` or ``part`` kernel takes every score of a row."""
    shape = (*shape_of(choice, dtype), choice.ctas)
    place = {"skew": row.skew, "strided": row.strided}
    ahead = dealt(*shape, extent=row.columns, spread=False, **place)
    if ahead.batches == 1:
        # Loaded before the length is known.
        short = ahead._replace(taken=ahead.taken & (ahead.index < row.length))
        return whole(short, row.length)
    return whole(dealt(*shape, extent=row.length, spread=True, **place), row.length)


def exact_holds(shape, ctas, row):
    """Say whether the exact path takes every score, each warp in order and all warps in a row.

    ``shape``: scores in a load, threads, loads in a batch.
    """
    length = row.length
    place = {"extent": length, "skew": row.skew, "strided": row.strided, "spread": True}
    many = dealt(*shape, ctas, in_order=True, **place)
    ties = dealt(*shape, ctas, in_order=True, side_by_side=True, **place)
    held = np.broadcast_to(ties.index, ties.taken.shape)[ties.taken]
    by_warp = [one.taken.sum(axis=(2, 3, 4, 5)) for one in (many, ties)]
    return (
        whole(many, length)
        and _full_batches_are(many, shape, length)
        and whole(ties, length)
        # What ties is taken by the order of CTAs, warps, loads and lanes: that of the indices.
        and bool((np.diff(held.astype(np.int64)) > 0).all())
        and np.array_equal(*by_warp)
    )


def _full_batches_are(reading, shape, length):
    """Say whether all is taken where the exact path does not look: it looks at a warp's ends."""
    vec, _, loads = shape
    begin, last = reading.first[:, :, :, :1], reading.first[:, :, :, loads - 1 :]
    ends = reading.holds[:, :, :, loads - 1 :] & (begin.view(np.int32) >= 0)
    full = (ends & (last + np.uint32(vec) <= length)).all(axis=(3, 4, 5), keepdims=True)
    return not (full & ~reading.taken).any()
