# SPDX-License-Identifier: Apache-2.0
"""Runs every kernel of the ladder on small shapes in this process, for compute-sanitizer to watch.

``python tests/sanitize_select.py`` once, which fills the cache of cubins, then the same under
``compute-sanitizer --tool memcheck`` and ``--tool racecheck``. No torch, and no kernel but the
ladder's: CuPy only holds memory, each array in an allocation of its own size, so that an access
beyond its end is seen. bf16 is passed as 16-bit words. Prints one line a kernel and layout, and
exits 1 where a result or a path is wrong, or where nothing was run. Words choose the cases whose
line has them all: ``sanitize_select.py float32 cluster-2 dense``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cupy
import numpy as np
from msgspec.structs import replace

from thorprobe import topk
from thorprobe.topk import array, ladder
from thorprobe.topk.contract import DTYPES

COLUMNS, K = 5_003, 300
TRIVIAL, DIRECT, CANDIDATES, EXACT = 1, 2, 3, 4
# What ``status`` says of a row.


def numbers(dtype):
    """Return scores [5, COLUMNS] of the host as fp32, and their bits in the type that is tested.

    Rows: normal, all equal, ten values with NaN and both infinities, normal, ascending.
    """
    make = np.random.default_rng(7)
    wide = make.standard_normal((5, COLUMNS)).astype(np.float32)
    wide[4].sort()
    wide[1] = 1.5
    wide[2] = make.integers(10, size=COLUMNS)
    wide[2, ::97], wide[2, 5::97], wide[2, 9::97] = np.nan, np.inf, -np.inf
    if dtype == "float32":
        return wide, wide
    if dtype == "float16":
        narrow = wide.astype(np.float16)
        return narrow.astype(np.float32), narrow
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    return (bits.astype(np.uint32) << 16).view(np.float32), bits


def placed(host, layout):
    """Copy scores to the GPU: ``dense``, ``misaligned`` by one score, or ``strided`` columns."""
    rows, columns = host.shape
    if layout == "strided":
        whole = np.zeros((rows, 2 * columns - 1), host.dtype)
        whole[:, ::2] = host
        return cupy.asarray(whole)[:, ::2]
    # The last score is the last of its allocation.
    shift = int(layout == "misaligned")
    whole = np.zeros(rows * columns + shift, host.dtype)
    whole[shift:] = host.ravel()
    return cupy.asarray(whole)[shift:].reshape(rows, columns)


def cases():
    """Yield type, kernel and layout: every kernel dense, and one of a kind in each other way."""
    for dtype in DTYPES:
        for choice in ladder.choices(1, dtype):
            variant = choice.variant
            widest = variant.scores == max(
                v.variant.scores for v in ladder.choices(1, dtype) if v.ctas == choice.ctas
            )
            if dtype == "float32" or choice.ctas in (1, 4):
                yield dtype, choice, "dense"
            if choice.ctas in (1, 4) and widest:
                yield dtype, choice, "misaligned"
                yield dtype, choice, "strided"


def lengths_of(columns):
    """Return five lengths, twice: whole or about so, one too long, and a fourth that is trivial."""
    return (
        (columns, columns, columns - 3, K, columns),
        (columns + 1, 1_025, columns - 1, 0, columns - 2),
    )


def check(dtype, choice, layout):
    """Run one kernel on both sets of lengths; return whether all is right, and the paths taken."""
    wide, narrow = numbers(dtype)
    short = choice.variant.function == "short"
    columns = min(COLUMNS, choice.variant.capacity) if short else COLUMNS
    wide, logits = wide[:, :columns], placed(narrow[:, :columns], layout)
    good, paths = True, set()
    for lengths in lengths_of(columns):
        many = np.array(lengths, dtype=np.int32)
        status = cupy.zeros(len(many), np.int32)
        for options in ({}, {"nan": "last", "ordered": True}):
            with topk.record() as log:
                found = topk.select(
                    logits, cupy.asarray(many), K, rung=choice.rung, status=status, **options
                )
            good &= (log.rungs, log.falls) == ({choice.rung: 1}, 0)
            good &= np.array_equal(cupy.asnumpy(found), topk.select(wide, many, K, **options))
            paths |= {int(path) & 15 for path in cupy.asnumpy(status)}
    usual = DIRECT if short else CANDIDATES
    return good and paths == {TRIVIAL, usual, EXACT}, paths


def play(choice):
    """Leave one kernel in the ladder, and let 16-bit words count as bf16."""
    sys.modules["thorprobe.topk.plan"].choices = lambda columns, dtype: [choice]
    sys.modules["thorprobe.topk.select"]._plans.by_key.clear()


def main() -> int:
    """Run them all."""
    import thorprobe.topk.plan  # noqa: F401  Its choices are replaced.

    cupy.cuda.set_allocator(None)
    look = array.view

    def view(given):
        found = look(given)
        return replace(found, dtype="bfloat16") if found.dtype == "uint16" else found

    array.view = view
    wrong = count = 0
    for dtype, choice, layout in list(cases()):
        if not set(sys.argv[1:]) <= {dtype, choice.rung, choice.name, layout}:
            continue
        play(choice)
        good, paths = check(dtype, choice, layout)
        wrong += not good
        count += 1
        print("ok   " if good else "WRONG", dtype, choice.name, layout, sorted(paths), flush=True)
    print(f"{count} cases, {wrong} wrong")
    return int(wrong > 0 or count == 0)


if __name__ == "__main__":
    sys.exit(main())
