# SPDX-License-Identifier: Apache-2.0
"""Makes a wrong case as small as it can be: every step is simpler, and still wrong."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from thorprobe.bench.verify_case import WHOLE, Case, check, usual_stride
from thorprobe.bench.verify_scores import DISTRIBUTIONS
from thorprobe.errors import UsageError

_USUAL = {
    "mode": "stream",
    "partition": WHOLE,
    "out_left": 0,
    "out_gap": 0,
    "workspace": "given",
    "ties": "lowest",
    "nan": "largest",
    "ordered": False,
    "beyond": "plain",
    "lengths": "full",
    "dtype": "float32",
}
# What a case has where nothing is special, tried first.
_ROWS = 16
# Rows that are tried one by one.
_SEEDS = (0, 1, 2)


def shrink(case: Case, wrong: Callable[[Case], bool], most: int = 600) -> tuple[Case, int]:
    """Return the smallest case found, and how many were tried; the same for the same answers.

    ``wrong`` says whether a case is wrong; ``case`` is. At most ``most`` are tried.
    """
    tried: set[Case] = {case}
    found = True
    while found:
        found = False
        for candidate in simpler(case):
            if candidate in tried or not _possible(candidate):
                continue
            if len(tried) > most:
                return case, len(tried) - 1
            tried.add(candidate)
            if wrong(candidate):
                case, found = candidate, True
                break
    return case, len(tried) - 1


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases that are simpler in one respect, those that save the most first."""
    usual = {name: value for name, value in _USUAL.items() if getattr(case, name) != value}
    if len(usual) > 1:
        yield replace(case, **usual)
    yield from _one_row(case)
    for name, value in usual.items():
        yield replace(case, **{name: value})
    yield from _dense(case)
    for rows in _less(case.rows):
        yield replace(case, rows=rows)
    for name in list(DISTRIBUTIONS)[: list(DISTRIBUTIONS).index(case.distribution)]:
        yield replace(case, distribution=name)
    yield from _shorter(case)
    for k in _less(case.k):
        yield replace(case, k=k)
    for offset in range(case.offset):
        yield replace(case, offset=offset)
    for seed in _SEEDS:
        if seed < case.seed:
            yield replace(case, seed=seed)


def _shorter(case: Case) -> Iterator[Case]:
    """Yield the case with fewer columns: a gap between rows stays, or where the next row begins."""
    gap = case.row_stride - usual_stride(case)
    for columns in _less(case.columns, case.k):
        if case.column_stride == 1 and gap >= 0:
            yield replace(case, columns=columns, row_stride=columns + gap)
        yield replace(case, columns=columns)


def _one_row(case: Case) -> Iterator[Case]:
    """Yield each of the first rows alone, where it lies in its 16 bytes."""
    if case.rows < 2:
        return
    stride = case.row_stride if case.column_stride == 1 else 0
    for row in range(min(case.rows, _ROWS)):
        offset = (case.offset + row * stride) % case.vector
        alone = replace(case, rows=1, offset=offset)
        alone = replace(alone, row_stride=usual_stride(alone))
        yield replace(alone, distribution="ascending")
        yield alone


def _dense(case: Case) -> Iterator[Case]:
    """Yield the case without gaps between columns, and without gaps between rows."""
    if case.column_stride != 1:
        yield replace(case, column_stride=1, row_stride=case.columns)
    if case.row_stride != usual_stride(case):
        yield replace(case, row_stride=usual_stride(case))


def _less(number: int, first: int = 1) -> Iterator[int]:
    """Yield smaller numbers: one that is named, halves, and ever smaller steps down to one less."""
    if 0 < first < number:
        yield first
    step = number // 2
    while step:
        yield number - step
        step //= 2


def _possible(case: Case) -> bool:
    try:
        check(case)
    except UsageError:
        return False
    return True
