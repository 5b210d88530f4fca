# SPDX-License-Identifier: Apache-2.0
"""Exactness of every kernel of the ladder on a GPU, against the library's sort over all scores.

Each kernel is tried by itself: the ladder is given that one choice, and the call must be answered
by its rung without a fall. The sort is held against the host's, which test_topk_cpu.py holds
against Python's.
"""

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch

from thorprobe import topk
from thorprobe.driver.compile import compile_cubin
from thorprobe.topk import kernel, ladder
from thorprobe.topk.contract import DTYPES
from thorprobe.topk.variant import MERGE
from thorprobe.topk.variant import variants as kernels_of

pytestmark = pytest.mark.gpu

_MADE = runpy.run_path(str(Path(__file__).parent / "topk_cases.py"))
DEVICE = "cuda"
KS = (1, 7, 512, 1_024, 2_048)
ROWS = (0, 1, 4, 5, 8, 9, 33, 34, 64, 65, 1_000)
MILLION = 1_000_003
# Short kernels at their capacity, an odd row length (no two rows are aligned alike), an even one.
COLUMNS = (70, 4_096, 8_192, 16_384, 40_001, 262_200, MILLION)
POWERS = tuple(2_048 << step for step in range(8))
# What one CTA, or a cluster of 2 to 16, holds in registers at once: 2,048 to 262,144.

CASES = [(dtype, choice) for dtype in DTYPES for choice in ladder.choices(1, dtype)]
EVERY_KERNEL = pytest.mark.parametrize(
    ("dtype", "choice"), CASES, ids=[f"{dtype}-{choice.name}" for dtype, choice in CASES]
)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile all sources for this GPU on all cores, which a first call would do one by one."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    target = kernel.target(0)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for dtype in DTYPES:
            for threads in (512, 1_024):
                for strided in (False, True):
                    macros = kernel.defines(dtype, threads, strided=strided)
                    pool.submit(compile_cubin, kernel.KERNEL, target, 0, macros)
    yield
    for cached in (_batch, _sorted):
        cached.cache_clear()
    torch.cuda.empty_cache()


@pytest.fixture
def only(monkeypatch):
    """Leave one kernel in the ladder, and select with it."""
    plans = sys.modules["thorprobe.topk.select"]._plans

    def leave(choice):
        monkeypatch.setattr("thorprobe.topk.plan.choices", lambda columns, dtype: [choice])
        plans.by_key.clear()

        def run(logits, lengths, k, **options):
            with topk.record() as log:
                found = topk.select(logits, lengths, k, rung=choice.rung, **options)
            for call in log.calls:
                assert (call.rung, call.falls) == (choice.rung, ())
            return found

        return run

    yield leave
    plans.by_key.clear()


def _fits(choice, columns):
    return choice.variant.function != "short" or columns <= choice.variant.capacity


def _lengths_for(columns):
    """Return the lengths to try in rows of so many columns: every boundary, and its neighbours."""
    if columns == MILLION:
        near = {MILLION, MILLION - 1, 999_999, 524_289, 262_145, 16_385, 513, 0}
    else:
        near = {-3, 0, 1, 2, 33, columns - 1, columns, columns + 5}
        near |= {edge + step for edge in (*KS, *POWERS) for step in (-1, 0, 1)}
    return sorted(length for length in near if length <= columns + 5)


@cache
def _batch(dtype, columns):
    """Make rows of every distribution in every length; what lies beyond would be chosen first."""
    lengths = _lengths_for(columns)
    shape = (len(lengths), columns)
    logits = torch.cat(
        [
            _MADE["scores"](name, shape, getattr(torch, dtype), DEVICE, seed)
            for seed, name in enumerate(_MADE["DISTRIBUTIONS"])
        ]
    )
    many = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    many = many.repeat(len(_MADE["DISTRIBUTIONS"]))
    beyond = torch.arange(columns, device=DEVICE) >= many[:, None]
    logits[::2].masked_fill_(beyond[::2], torch.inf)
    logits[1::2].masked_fill_(beyond[1::2], torch.nan)
    return logits, many


@cache
def _sorted(dtype, columns, nan):
    """Return the 2,048 best of each row of a batch, all in order."""
    return topk.select(*_batch(dtype, columns), KS[-1], rung="torch", ordered=True, nan=nan)


def _wanted(dtype, columns, k, *, nan="largest", ordered=False):
    """Return the contract's result: a prefix of the sorted one, and short rows by index."""
    best = _sorted(dtype, columns, nan)[:, :k]
    if ordered:
        return best
    _, lengths = _batch(dtype, columns)
    length = lengths.clamp(0, columns)[:, None]
    place = torch.arange(k, dtype=torch.int32, device=DEVICE)
    return torch.where(length <= k, torch.where(place < length, place, -1), best)


def _same(found, wanted):
    """Compare two results, and name the rows that differ."""
    if not torch.equal(found, wanted):
        rows = (found != wanted).any(dim=1).nonzero().flatten().tolist()
        pytest.fail(f"{len(rows)} of {len(found)} rows differ, first {rows[:8]}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nan", ["largest", "last"])
def test_the_sort_on_a_gpu_is_that_of_the_host(dtype, nan):
    """The rung ``torch`` gives the same indices on both, for every length and distribution."""
    logits, lengths = _batch(dtype, 4_096)
    for ordered in (False, True):
        host = topk.select(logits.cpu(), lengths.cpu(), 512, nan=nan, ordered=ordered)
        _same(_wanted(dtype, 4_096, 512, nan=nan, ordered=ordered).cpu(), host)


@EVERY_KERNEL
def test_every_length_and_distribution(only, dtype, choice):
    """For every k, all rows have the indices of a full sort."""
    run = only(choice)
    for columns in COLUMNS:
        if _fits(choice, columns):
            for k in KS:
                _same(run(*_batch(dtype, columns), k), _wanted(dtype, columns, k))


@EVERY_KERNEL
def test_every_option(only, dtype, choice):
    """NaN last, sorted short rows and both are exact; free ties leave the scores as they are."""
    run = only(choice)
    for columns in (4_096, 40_001):
        if not _fits(choice, columns):
            continue
        logits, lengths = _batch(dtype, columns)
        for options in ({"nan": "last"}, {"ordered": True}, {"nan": "last", "ordered": True}):
            _same(run(logits, lengths, 512, **options), _wanted(dtype, columns, 512, **options))
        found = run(logits, lengths, 512, ties="any")
        wanted = _wanted(dtype, columns, 512)
        _same(_values(logits, found), _values(logits, wanted))
        places = found.sort(dim=1).values
        assert not ((places[:, 1:] == places[:, :-1]) & (places[:, 1:] >= 0)).any()
        assert (found < lengths.clamp(0, columns)[:, None]).all()


def _values(logits, chosen):
    """Return the chosen scores, NaN and places without one as numbers of their own."""
    values = logits.float().gather(1, chosen.long().clamp(min=0))
    return values.nan_to_num(nan=2e38).masked_fill(chosen < 0, -2e38)


@EVERY_KERNEL
def test_every_number_of_rows(only, dtype, choice):
    """From no row to many times what the device holds at once, each row is its own."""
    run = only(choice)
    columns = 4_096 if choice.variant.function == "short" else 8_192
    some, lengths = _batch(dtype, columns)
    wanted = _wanted(dtype, columns, 512)
    order = torch.randint(len(some), (max(ROWS),), device=DEVICE)
    logits, lengths, wanted = some[order], lengths[order], wanted[order]
    for rows in ROWS:
        _same(run(logits[:rows], lengths[:rows], 512), wanted[:rows])


@pytest.mark.parametrize("choice", ladder.choices(1, "float32"), ids=lambda c: c.name)
def test_more_rows_than_a_grid_has_in_its_second_dimension(only, choice):
    """70,000 rows are selected in one call."""
    logits = torch.randint(50, (70_000, 600), device=DEVICE).float()
    lengths = torch.randint(601, (70_000,), device=DEVICE).int()
    _same(only(choice)(logits, lengths, 7), topk.select(logits, lengths, 7, rung="torch"))


def _layouts(rows, columns, dtype, *, strided):
    """Yield an empty array of each layout, in memory of its own; ``strided`` with gaps too."""

    def memory(size):
        return torch.empty(size, dtype=getattr(torch, dtype), device=DEVICE)

    for offset in range(1, 8):
        # Row strides of all remainders: each row begins elsewhere in its 16 bytes.
        stride = columns + offset
        yield memory(rows * stride + offset).as_strided((rows, columns), (stride, 1), offset)
    if not strided:
        return
    for gap in (2, 3):
        yield memory((rows, columns * gap + 1))[:, 1 : columns * gap + 1 : gap]
    yield memory((columns, rows)).T
    yield memory((rows, columns, 5))[:, :, 2]


@EVERY_KERNEL
def test_every_layout(only, dtype, choice):
    """Any alignment, gaps between rows and columns, a transposed array: the same indices.

    The result is written between guards that stay as they were. The plan gives columns with gaps to
    kernels of 512 threads alone, which every rung has.
    """
    run = only(choice)
    columns = min(9_001, choice.variant.capacity) if choice.variant.function == "short" else 9_001
    lengths = torch.tensor([0, *range(columns - 22, columns + 1)], device=DEVICE).int()[1:]
    rows = len(lengths)
    scores = torch.cat(
        [
            _MADE["scores"](name, (1, columns), getattr(torch, dtype), DEVICE, row)
            for row, name in zip(range(rows), _MADE["DISTRIBUTIONS"] * 2, strict=False)
        ]
    )
    wanted = topk.select(scores, lengths, 512, rung="torch")
    for logits in _layouts(rows, columns, dtype, strided=choice.variant.threads == 512):
        logits.copy_(scores)
        wide = torch.full((rows, 519), 77, dtype=torch.int32, device=DEVICE)
        assert run(logits, lengths, 512, out=wide[:, 3:515]).data_ptr() == wide.data_ptr() + 12
        _same(wide[:, 3:515], wanted)
        assert (wide[:, :3] == 77).all()
        assert (wide[:, 515:] == 77).all()


@pytest.mark.parametrize("rung", ["auto", *topk.RUNGS])
def test_random_shapes(rung):
    """Rows, columns, k, types and lengths by chance: each rung that is asked for is exact."""
    draw = torch.Generator().manual_seed(11)

    def upto(end):
        return int(torch.randint(1, end + 1, (1,), generator=draw))

    for number in range(40):
        rows, columns = upto(70), upto(1 << upto(17))
        name = _MADE["DISTRIBUTIONS"][number % len(_MADE["DISTRIBUTIONS"])]
        dtype = getattr(torch, DTYPES[number % 3])
        logits = _MADE["scores"](name, (rows, columns), dtype, DEVICE, number)
        lengths = torch.randint(-2, columns + 3, (rows,), device=DEVICE).int()
        k = min(upto(2_048), 2 * columns)
        wanted = topk.select(logits, lengths, k, rung="torch")
        _same(topk.select(logits, lengths, k, rung=rung), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_kernel_spills_on_this_gpu(dtype):
    """This GPU's compiler keeps every kernel in registers, with or without a column stride."""
    from cuda.bindings import driver

    which = driver.CUfunction_attribute
    for variant in (*kernels_of(dtype), MERGE):
        for strided in (False, True):
            made = kernel.function(0, dtype, variant, strided)
            told = {
                name: int(kernel.answer(driver.cuFuncGetAttribute(attribute, made))[1])
                for name, attribute in (
                    ("local", which.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
                    ("registers", which.CU_FUNC_ATTRIBUTE_NUM_REGS),
                    ("threads", which.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                )
            }
            assert told["local"] == 0, variant.name
            assert told["registers"] <= 65_536 // variant.threads, variant.name
            assert told["threads"] == variant.threads, variant.name
