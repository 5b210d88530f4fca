# SPDX-License-Identifier: Apache-2.0
"""The shared and global memory that the host gives is what kernels/select.cu asks for.

The numbers are read from its source: the host has its own, and neither knows of the other's.
"""

import re

import pytest

from thorprobe.driver.compile import source
from thorprobe.topk import kernel
from thorprobe.topk.contract import MAX_K

TEXT = source(kernel.KERNEL).text
KS = range(1, MAX_K + 1)
ENTRY = 8
# Bytes of a candidate, a key and an index.
PART = 16
# Bytes of struct Part: its limits, its count and 4 B unused.


def constant(name):
    """Return a constant of the source."""
    (value,) = re.findall(rf"^constexpr u32 (?:.*, )?{name} = (\d+)[,;]", TEXT, re.MULTILINE)
    return int(value)


def told(pattern):
    """Return the one number that the source has at a place."""
    (value,) = re.findall(pattern, TEXT)
    return int(value)


BINS, CROWDED, MAX_CLUSTER = (constant(name) for name in ("BINS", "CROWDED", "MAX_CLUSTER"))
SPARE = told(r"room >= k \+ CROWDED \+ (\d+) entries")


def test_the_contract_asks_for_what_is_read_behind_the_last_bin():
    """``finish`` puts as many empty entries behind it as it keeps free, and reads up to those."""
    assert told(r"end <= room - (\d+) &&") == SPARE
    assert told(r"threadIdx\.x < (\d+)\) sorted\[end \+ threadIdx\.x\] = 0;") == SPARE
    assert told(r"from < to; from \+= (\d+)\)") == SPARE
    assert told(r"\? bins\[b - 1\] & ~(\d+)u") == SPARE - 1


@pytest.mark.parametrize("k", [1, 255, 256, 512, 1_024, 1_025, MAX_K])
def test_a_last_bin_that_is_not_crowded_has_room(k):
    """However many lie before it, up to k - 1, it is ranked; with less room it is repeated."""
    for before in range(k):
        ends = range(max(k, before + 1), before + CROWDED + 1)
        assert all(end <= kernel.room(k) - SPARE for end in ends)


def test_the_room_is_what_the_contract_asks_for():
    """Of every k: sorted entries, candidates, and what a repeated row keeps in their place."""
    for k in KS:
        room, cap = kernel.room(k), kernel.cap(k)
        assert room >= k + CROWDED + SPARE
        assert cap >= 2 * k
        assert cap & (cap - 1) == 0
        # Counts of all bins, 4 B each, and an entry to begin on 16 bytes.
        assert (room & 1) + BINS * 4 // ENTRY <= cap
        assert kernel.shared_bytes(k) == 4 * BINS + ENTRY * (room + cap)


def test_parts_have_their_limits_and_candidates():
    """For each row what every part may leave at the most."""
    assert told(r"rows x \((\d+) \+ 8 \* cap\) bytes") == MAX_CLUSTER * PART
    for k in KS[::97]:
        for rows in (1, 3, 65):
            held = MAX_CLUSTER * PART + ENTRY * kernel.cap(k)
            assert kernel.parts_bytes(rows, k) == rows * held
