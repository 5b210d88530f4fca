# SPDX-License-Identifier: Apache-2.0
"""Every score of a row is read exactly once by every kernel that the host may choose for it.

What a kernel reads is written down in topk_reading.py, from its source. The host's choice is asked
through ``explain``, of arrays that start anywhere in 16 bytes, with rows any distance apart. With
what short kernels read before, the rows whose ends they dropped are found.
"""

import itertools
import re
import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe import topk
from thorprobe.topk import contract, ladder
from thorprobe.topk.plans import plans
from thorprobe.topk.request import columns_class
from thorprobe.topk.variant import VARIANTS

_PLAYED = runpy.run_path(str(Path(__file__).parent / "topk_played.py"))
_READING = runpy.run_path(str(Path(__file__).parent / "topk_reading.py"))
LOAD, Row, shape_of = (_READING[name] for name in ("LOAD", "Row", "shape_of"))
short_holds, held_before = _READING["short_holds"], _READING["held_before"]
short_before = _READING["short_row_before"]
long_holds, exact_holds = _READING["long_holds"], _READING["exact_holds"]

NEAR = range(-9, 10)
K = 8


@pytest.fixture
def board(monkeypatch):
    """Play a device that takes every kernel, and price all of them alike."""
    monkeypatch.setattr("thorprobe.topk.plan.predict", lambda choice, **_: 1.0)
    return _PLAYED["install"](monkeypatch)


MEMORY = {dtype: torch.empty(2**21, dtype=getattr(torch, dtype)) for dtype in LOAD}


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
        # Of the very length too: ``explain`` asks of the longest in its class.
        told = [c.variant for c in ladder.choices(columns, dtype) if c.variant == variant]
        assert told == [variant] * fits
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
    vec, threads, loads = shape_of(choice, dtype)
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
    assert exact_holds(shape_of(choice, dtype), choice.ctas, row)
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


@pytest.mark.parametrize(
    ("dtype", "shape", "missing"),
    [
        ("float32", (64, 4_095, 0), {1: {4_093, 4_094}, 2: {4_094}}),
        ("float32", (3, 8_191, 0), {1: {8_189, 8_190}, 2: {8_190}}),
        ("float32", (9, 4_094, 1), {1: {4_093}}),
        ("float32", (9, 4_096, 1), {0: {4_095}, 8: {4_095}}),
        ("float32", (9, 8_190, 1), {1: {8_189}}),
        ("float32", (9, 8_191, 1), {3: {8_190}, 2: {8_189, 8_190}}),
        ("bfloat16", (130, 8_192, 1), {0: {8_191}, 129: {8_191}}),
        ("bfloat16", (130, 8_192, 2), {0: {8_190, 8_191}}),
        ("bfloat16", (130, 8_192, 3), {0: {8_189, 8_190, 8_191}}),
    ],
)
def test_the_columns_that_were_seen_missing_were_not_read_and_are_now(board, dtype, shape, missing):
    """Contiguous rows that begin ``offset`` scores off lost what lay beyond the capacity."""
    rows, columns, offset = shape
    capacity = next(size for size in CAPACITIES if columns <= size)
    here = offered(dtype, rows, columns, offset=offset, row_stride=columns)
    vec = LOAD[dtype]
    for variant in (v for v in short_variants(dtype) if v.capacity == capacity):
        assert variant.name in here
        lost = {}
        for number in range(rows):
            row = Row(columns, columns, (offset + number * columns) % vec)
            seen = short_before(vec, variant.threads, variant.scores // vec, row)
            lost[number] = set(range(columns)) - set(seen.index[seen.taken].tolist())
            assert bool(lost[number]) == (columns + row.skew > capacity)
            assert short_holds(variant, dtype, row)
        assert missing.items() <= lost.items()


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
