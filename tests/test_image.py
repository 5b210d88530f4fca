# SPDX-License-Identifier: Apache-2.0
"""Which image a device loads follows from targets and compute capability by the stated rules."""

import pytest

from thorprobe.binary.image import choose, meaning, parse

X86 = ("sm_90a", "sm_100f", "sm_120f")
ARM = (*X86, "sm_110f")


@pytest.mark.parametrize(
    ("targets", "device", "loaded"),
    [
        (X86, (8, 9), ""),
        (X86, (9, 0), "sm_90a"),
        (X86, (10, 0), "sm_100f"),
        (X86, (10, 3), "sm_100f"),
        (X86, (11, 0), ""),
        (X86, (12, 0), "sm_120f"),
        (X86, (12, 1), "sm_120f"),
        (ARM, (11, 0), "sm_110f"),
        (("sm_90a",), (9, 1), ""),
        (("sm_100a",), (10, 3), ""),
        (("sm_100",), (10, 3), "sm_100"),
        (("sm_103f",), (10, 0), ""),
        (("sm_100f",), (11, 0), ""),
        (("sm_101",), (11, 0), ""),
        (("sm_80", "sm_86"), (8, 6), "sm_86"),
        (("sm_80", "sm_86"), (8, 9), "sm_86"),
        (("sm_80",), (9, 0), ""),
        (("sm_86",), (8, 7), ""),
        (("sm_87",), (8, 9), ""),
        (("sm_87",), (8, 7), "sm_87"),
        (("sm_90", "sm_90a"), (9, 0), "sm_90a"),
        (("sm_80", "compute_80"), (9, 0), "compute_80"),
        (("sm_80", "compute_80"), (8, 6), "sm_80"),
        (("compute_90",), (8, 9), ""),
        (("compute_90a",), (10, 0), ""),
        (("compute_90a",), (9, 0), "compute_90a"),
        (("compute_100f",), (10, 3), "compute_100f"),
        (("compute_100f",), (11, 0), ""),
        (("compute_80", "compute_90"), (11, 0), "compute_90"),
        ((), (9, 0), ""),
        (("garbage",), (9, 0), ""),
    ],
)
def test_the_image_that_a_device_loads(targets, device, loaded):
    """Exact for a, family for f, later minors for plain code, any later device for PTX."""
    assert choose(targets, device).target == loaded


def test_no_image_names_what_there_is():
    """The reason says which capability lacks an image, and what the file holds instead."""
    reason = choose(X86, (11, 0)).reason
    assert reason == "no kernel image for cc 11.0: only sm_90a, sm_100f, sm_120f, and no PTX"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("sm_90a", "cc 9.0 alone"),
        ("sm_110f", "cc 11.0 and its family"),
        ("sm_100", "later minors of 10"),
        ("sm_87", "integrated"),
        ("compute_90", "PTX, compiled by the driver: cc 9.0 and any later"),
        ("sm_1", "does not know"),
    ],
)
def test_a_target_says_where_it_runs(target, told):
    """Each kind of target is explained in words."""
    assert told in meaning(target)


def test_a_target_is_taken_apart():
    """Number, suffix and kind of a target are told apart; a word that is none is None."""
    found = parse("compute_110f")
    assert (found.ptx, found.capability, found.suffix) == (True, (11, 0), "f")
    assert parse("sm_90b") is None
