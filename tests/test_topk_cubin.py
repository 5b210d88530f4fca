# SPDX-License-Identifier: Apache-2.0
"""The kernels of the ladder as they are compiled for GPUs that need not be here.

All of them for one target are twelve compilations of seconds each, so that the matrix below has
every target in fp32, and for three of them every type and stride with either size of CTA. The
tests on a GPU look at all twelve of its own.
"""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from thorprobe.binary import cubin
from thorprobe.driver.compile import TARGETS, compile_cubin
from thorprobe.topk import kernel
from thorprobe.topk.contract import DTYPES, MAX_K
from thorprobe.topk.variant import MERGE
from thorprobe.topk.variant import variants as kernels_of

SMALLEST_OPT_IN = 101_376
# Shared memory that a block may ask for on cc 12.x, in bytes; all others with clusters have more
# (CUDA C++ programming guide, technical specifications per compute capability).
REGISTERS = 65_536
# Of an SM with clusters, and of one block (same table).
NARROW, WIDE = 512, 1_024

THOROUGH = ("sm_90", "sm_100", "sm_110")
MATRIX = tuple(
    dict.fromkeys(
        [
            *((target, "float32", WIDE, False) for target in TARGETS),
            *((target, "float32", NARROW, False) for target in TARGETS if target[-1] != "f"),
            *(
                (target, dtype, NARROW if alternate ^ strided else WIDE, strided)
                for target in THOROUGH
                for alternate, dtype in zip((1, 0, 1), DTYPES, strict=True)
                for strided in (False, True)
            ),
        ]
    )
)


def _used(dtype, threads):
    """Return the functions of one compilation that the ladder launches."""
    variants = (*kernels_of(dtype), MERGE)
    return sorted({f"{v.function}_{v.scores}" for v in variants if v.threads == threads})


@pytest.fixture(scope="module")
def compiled():
    """Compile the whole matrix on all cores, and return what comes of each compilation."""

    def start(target, dtype, threads, strided):
        return compile_cubin(
            kernel.KERNEL, target, 0, kernel.defines(dtype, threads, strided=strided)
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {case: pool.submit(start, *case) for case in MATRIX}
        yield lambda case: found[case].result()
        pool.shutdown(cancel_futures=True)


def test_the_matrix_covers_what_the_ladder_compiles():
    """Every target, and every type and stride, is in the matrix; both sizes of CTA are used."""
    assert {target for target, *_ in MATRIX} == set(TARGETS)
    for target in THOROUGH:
        assert {case[1::2] for case in MATRIX if case[0] == target} == set(
            itertools.product(DTYPES, (False, True))
        )
    for dtype in DTYPES:
        assert {variant.threads for variant in kernels_of(dtype)} == {NARROW, WIDE}
    assert MERGE.threads == NARROW


@pytest.mark.parametrize(
    "case", MATRIX, ids=lambda c: "-".join((*map(str, c[:3]), "strided" if c[3] else "dense"))
)
def test_a_compilation_keeps_its_bounds(compiled, case):
    """No kernel spills, and registers, threads and parameters are what a launch takes for granted.

    Parameters: seven of 64 bits and seven of 32.
    """
    target, dtype, threads, _ = case
    found, every = cubin.contents(compiled(case))
    assert found == target
    by_name = {facts.function: facts for facts in every}
    assert set(_used(dtype, threads)) <= set(by_name)
    for name in _used(dtype, threads):
        facts = by_name[name]
        assert facts.local_bytes == 0, name
        assert 0 < facts.registers <= REGISTERS // threads, name
        assert facts.max_threads == threads, name
        assert facts.required_cluster is None, name
        assert facts.parameter_bytes == 7 * 8 + 7 * 4, name
        for k in (1, 7, 512, 1_024, MAX_K):
            assert facts.static_smem + kernel.shared_bytes(k) <= SMALLEST_OPT_IN, (name, k)


@pytest.mark.parametrize(
    ("k", "dynamic"),
    [(1, 45_064), (512, 49_152), (1_024, 53_248), (1_025, 86_024), (MAX_K, 94_208)],
)
def test_dynamic_shared_memory_follows_from_k(k, dynamic):
    """8 KiB of bins, k + 512 sorted entries of 8 B, and 4,096 candidates or, beyond k 1,024, 8,192.

    The kernel's 2,048 bins are of 4 B.
    """
    assert kernel.shared_bytes(k) == dynamic


def test_only_what_is_used_is_in_a_cubin(compiled):
    """A launch finds no kernel in its module that the ladder would never take."""
    for case in MATRIX[:1] + MATRIX[-1:]:
        _, every = cubin.contents(compiled(case))
        assert sorted(facts.function for facts in every) == _used(case[1], case[2])
