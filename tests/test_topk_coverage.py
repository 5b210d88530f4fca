# SPDX-License-Identifier: Apache-2.0
"""Every score of a row is read exactly once by every kernel that the host may choose for it.

What a kernel reads is written down here anew, from kernels/select.cu and not from the host's code:
which index each score in each load of each thread of each CTA has, in the 32-bit arithmetic of the
device. The host's choice is asked through ``explain``, of arrays that start anywhere in 16 bytes,
with rows any distance apart. What short kernels read when they cut every row at 16-byte boundaries
stands beside it, to show that the rows whose ends they dropped are found.
"""

import itertools
import re
import runpy
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe import topk
from thorprobe.topk import contract, ladder
from thorprobe.topk.plans import plans
from thorprobe.topk.request import columns_class
from thorprobe.topk.variant import VARIANTS, Variant

_PLAYED = runpy.run_path(str(Path(__file__).parent / "topk_played.py"))

LOAD = {"float32": 4, "float16": 8, "bfloat16": 8}
# Scores in 16 bytes.
NEAR = range(-9, 10)
K = 8


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


def _shapes(choice, dtype):
    """Return a kernel's scores in a load, threads, and loads in a batch."""
    vec = LOAD[dtype]
    return vec, choice.variant.threads, choice.variant.scores // vec


@cache
def short_holds(variant: Variant, dtype, row: Row):
    """Say whether a ``short`` kernel takes every score of a row."""
    one = ladder.Choice(rung="one-cta", variant=variant, ctas=1)
    return whole(short_row(*_shapes(one, dtype), row), row.length)


@cache
def held_before(variant: Variant, dtype, row: Row):
    """Say whether a ``short`` kernel took every score of a row before."""
    one = ladder.Choice(rung="one-cta", variant=variant, ctas=1)
    return whole(short_row_before(*_shapes(one, dtype), row), row.length)


def long_holds(choice, dtype, row):
    """Say whether the first look of a ``long`` or ``part`` kernel takes every score of a row."""
    shape = (*_shapes(choice, dtype), choice.ctas)
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


@pytest.fixture
def board(monkeypatch):
    """Play a device that takes every kernel, and price all of them alike."""
    monkeypatch.setattr("thorprobe.topk.plan.predict", lambda choice, **_: 1.0)
    return _PLAYED["install"](monkeypatch)


MEMORY = {dtype: torch.empty(2**18, dtype=getattr(torch, dtype)) for dtype in LOAD}


def offered(dtype, rows, columns, *, offset=0, row_stride=0, column_stride=1):
    """Return the ``short`` kernels that the host offers for an array, by name."""
    logits = MEMORY[dtype].as_strided((rows, columns), (row_stride, column_stride), offset)
    lengths = torch.zeros(rows, dtype=torch.int32)
    told = topk.explain(logits, lengths, K)
    return {name for line in told.offers for name in re.findall(r"\((short-[^/]*)/1\)", line)}


def short_variants(dtype):
    """Return the ``short`` kernels that a type has."""
    return [v for v in VARIANTS if v.function == "short" and v.scores >= LOAD[dtype]]


CAPACITIES = sorted({variant.capacity for variant in VARIANTS if variant.function == "short"})


def misfits(dtype, capacity, held):
    """Return where a host that offers a short kernel, and a kernel that holds the rows, differ.

    For every start and distance of rows, and columns around a capacity. ``held(variant, dtype,
    row)`` says what the kernel does. Each is (kernel, rows, columns, offset, row stride). Five rows
    of fp32 and nine of the others begin at all places that a stride leads to.
    """
    vec = LOAD[dtype]
    assert MEMORY[dtype].data_ptr() % 16 == 0
    found = []
    for columns, offset, apart, rows in itertools.product(
        (capacity + step for step in NEAR), range(vec), range(vec), (1, vec + 1)
    ):
        stride = columns + apart
        here = offered(dtype, rows, columns, offset=offset, row_stride=stride)
        skews = {(offset + row * stride) % vec for row in range(rows)}
        for variant in short_variants(dtype):
            fits = all(held(variant, dtype, Row(columns, columns, at)) for at in skews)
            assert not (fits and columns > variant.capacity)
            if (variant.name in here) != fits:
                found.append((variant.name, rows, columns, offset, stride))
    return found


@pytest.mark.parametrize("dtype", contract.DTYPES)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_short_kernel_is_offered_just_where_it_reads_whole_rows(board, dtype, capacity):
    """That is up to its capacity, wherever a row begins: no more, no less."""
    assert not misfits(dtype, capacity, short_holds)
    for variant, step in itertools.product(short_variants(dtype), NEAR):
        columns = capacity + step
        fits = columns <= variant.capacity
        assert (variant.name in offered(dtype, 1, columns, row_stride=columns)) == fits
        for skew in range(LOAD[dtype]):
            assert short_holds(variant, dtype, Row(columns, columns, skew)) == fits


def test_where_a_row_begins_makes_no_plan(board):
    """Addresses and distances of rows find one plan: no more are made than classes of shapes."""
    for offset, apart in itertools.product(range(16), range(16)):
        offered("float32", 9, 4_095, offset=offset, row_stride=4_095 + apart)
    assert len(plans.by_key) == 1


@pytest.mark.parametrize("dtype", contract.DTYPES)
def test_expanded_rows_and_gaps_between_columns_are_held_alike(board, dtype):
    """An expanded row has one start; columns with gaps are read one by one from anywhere."""
    for capacity, step in itertools.product(CAPACITIES, (-1, 0, 1)):
        columns = capacity + step
        for offset in range(LOAD[dtype]):
            for strides in ({"row_stride": 0}, {"row_stride": 3, "column_stride": 7}):
                here = offered(dtype, 9, columns, offset=offset, **strides)
                strided = "column_stride" in strides
                for variant in short_variants(dtype):
                    fits = short_holds(variant, dtype, Row(columns, columns, offset, strided))
                    # Those of 1,024 threads have no registers left for gaps.
                    spared = not strided or variant.threads == 512
                    assert (variant.name in here) == (fits and spared), (columns, offset, strides)


@pytest.mark.parametrize("dtype", contract.DTYPES)
def test_a_short_kernel_takes_no_more_than_the_length(dtype):
    """Columns at and beyond the length are read and not taken, wherever the row begins."""
    for variant in short_variants(dtype):
        for columns in (variant.capacity - 1, variant.capacity):
            near = {0, 1, K - 1, K, K + 1, *(columns + step for step in range(-9, 1))}
            for length, skew in itertools.product(near, range(LOAD[dtype])):
                assert short_holds(variant, dtype, Row(columns, length, skew)), (length, skew)


EVERY_LONG = [
    (dtype, choice) for dtype in ("float32", "float16") for choice in ladder.choices(2**20, dtype)
]


@pytest.mark.parametrize(("dtype", "choice"), EVERY_LONG, ids=lambda one: getattr(one, "name", one))
def test_a_long_kernel_takes_every_score_once(dtype, choice):
    """Around a load, a unit, and one and two batches: for every start of a row, and its exact path.

    The two half types are loaded alike.
    """
    vec, threads, loads = _shapes(choice, dtype)
    held = choice.variant.capacity * choice.ctas
    unit = 32 * vec
    for edge in (vec, unit, unit * choice.ctas, threads * vec * choice.ctas, held, 2 * held):
        near = NEAR if held <= 2**14 or edge < held else (-9, 1 - vec, -1, 0, 1)
        starts = range(vec) if held <= 2**14 else (0, 1, vec - 1)
        for step, skew in itertools.product(near, starts):
            columns = max(edge + step, 1)
            for length in {columns, max(columns - 5, 1)}:
                row = Row(columns, length, skew)
                assert long_holds(choice, dtype, row), row
    for edge, skew in itertools.product((1, unit, held), (0, 1, vec - 1)):
        for step in (-1, 0, 1):
            length = max(edge + step, 1)
            row = Row(length, length, skew)
            assert exact_holds((vec, threads, loads), choice.ctas, row), row


@settings(max_examples=150, deadline=None)
@given(
    case=st.sampled_from(EVERY_LONG),
    columns=st.integers(1, 300_000),
    part=st.floats(0, 1),
    skew=st.integers(0, 7),
    strided=st.booleans(),
)
def test_any_row_is_taken_whole(case, columns, part, skew, strided):
    """Rows of any length and start, in ``long`` and ``part`` kernels and on the exact path."""
    dtype, choice = case
    length, at = int(columns * part), 0 if strided else skew % LOAD[dtype]
    assert long_holds(choice, dtype, Row(columns, length, at, strided))
    row = Row(columns, max(length, 1), at, strided)
    assert exact_holds(_shapes(choice, dtype), choice.ctas, row)
    if choice.variant.function == "part":
        # A merge repeats the row by one CTA, 8 scores a thread.
        assert exact_holds((LOAD[dtype], 512, 8 // LOAD[dtype]), 1, row)


@pytest.mark.parametrize("dtype", contract.DTYPES)
@pytest.mark.parametrize("scores", [8, 16])
def test_the_exact_path_of_a_short_kernel_takes_rows_of_any_span(dtype, scores):
    """Where a short kernel repeats a row, it cuts it anew: a row that it cannot hold is whole."""
    vec = LOAD[dtype]
    for threads, skew in itertools.product((512, 1_024), range(vec)):
        for length in (1, vec, threads * scores, threads * scores + 9):
            assert exact_holds((vec, threads, scores // vec), 1, Row(length, length, skew))


@pytest.mark.parametrize("dtype", contract.DTYPES)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_rows_whose_ends_were_dropped_are_found(board, dtype, capacity):
    """With the kernels of before: those that start off a boundary and reach beyond the capacity."""
    variants = [v for v in short_variants(dtype) if v.capacity == capacity]
    found = misfits(dtype, capacity, held_before)
    if capacity == 4_096 and dtype == "float32":
        assert ("short-1024x4", 5, 4_095, 0, 4_095) in found
    for variant in variants:
        assert variant.name in {name for name, *_ in found}
        for step, skew in itertools.product(NEAR, range(LOAD[dtype])):
            columns = capacity + step
            fits = columns + skew <= capacity
            assert held_before(variant, dtype, Row(columns, columns, skew)) == fits
    assert bool(found) == bool(variants)


def test_64_rows_of_4095_scores_lost_the_last_of_every_other_one():
    """Rows one behind the other begin 0, 3, 2 and 1 scores off: the latter's ends lay outside."""
    (variant,) = (v for v in VARIANTS if v.name == "short-1024x4")
    rows = [Row(4_095, 4_095, row * 4_095 % 4) for row in range(64)]
    lost = [row.skew for row in rows if not held_before(variant, "float32", row)]
    assert sorted(lost) == [2] * 16 + [3] * 16
    (one,) = (short_row_before(4, 1_024, 1, row) for row in rows[1:2])
    missing = set(range(4_095)) - set(one.index[one.taken].tolist())
    assert missing == {4_093, 4_094}
    assert all(short_holds(variant, "float32", row) for row in rows)


@given(columns=st.integers(0, contract.MAX_COLUMNS), more=st.integers(0, 2**20))
@settings(max_examples=500)
def test_a_class_is_never_shorter_than_its_rows(columns, more):
    """A class ends where its longest rows do, classes are in order, and a row is no class off."""
    end = columns_class(columns)
    assert columns <= end < columns * 9 / 8 + 8
    assert columns_class(end) == end
    assert columns_class(columns + more) >= end


def test_what_a_kernel_holds_ends_a_class():
    """So no row that does not fit shares a plan with one that does, nor the other way round."""
    for variant, ctas in itertools.product(VARIANTS, (1, *ladder.CLUSTERS)):
        held = variant.capacity * ctas
        assert columns_class(held) == held
        assert columns_class(held + 1) > held
