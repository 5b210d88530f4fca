# SPDX-License-Identifier: Apache-2.0
"""The plan of topk-arms: probes, specs, row lists and bisection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thorprobe.errors import UsageError
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.arms import (
    MAX_ROWS,
    STAND_IN_NOTE,
    default_lengths,
    default_rows,
    next_rows,
    parse_rows,
    plan,
    specs,
)
from thorprobe.plan.policy import dispatch, load
from thorprobe.record import Verdict

THOR = (11, 0)
LAUNCHES, REFUSED = Verdict.LAUNCHES, Verdict.REFUSED


def options(**changes: object) -> ArmsOptions:
    """Options for Thor with some fields changed."""
    return ArmsOptions(**{"capability": THOR, **changes})  # type: ignore[arg-type]


def test_default_rows_are_the_ends_of_every_range() -> None:
    """Both policies' first and last rows and their first persistent row are probed."""
    policies = [load("e126687a9a"), load("0.33.0")]
    assert default_rows(policies, 11) == (1, 4, 5, 8, 9, 32, 33, 34, 64, 65)
    assert default_rows(policies, 9) == (1, 8, 9, 32, 33, 34, 64, 65)


def test_default_lengths_reach_every_path_within_the_columns() -> None:
    """Nothing, k // 2, the one-CTA bound and all columns are asked, never more than columns."""
    policy = load("0.33.0")
    assert default_lengths(policy, 512, 65_536) == (0, 256, 16_384, 65_536)
    assert default_lengths(policy, 2048, 65_536) == (0, 1024, 16_384, 65_536)
    assert default_lengths(policy, 512, 4_096) == (0, 256, 4_096)
    assert default_lengths(policy, 512, 100) == (0, 100)


def test_every_arm_probe_follows_the_dispatch_and_the_launch_geometry() -> None:
    """A cooperative spec has upstream's grid, cluster, threads, bytes and opt-in."""
    bytes_at = {16: 156_416, 8: 156_416, 4: 221_952, 2: 221_952}
    for probe in plan(options(partition="sms=8")):
        if probe.path != "cooperative":
            continue
        if probe.role == "arm":
            assert probe.cluster == dispatch(load(probe.policy), probe.rows, 11)[0]
        spec, size = probe.spec, probe.cluster
        assert (spec.kernel, spec.grid, spec.cluster) == (
            "topk",
            (probe.rows, size, 1),
            (1, size, 1),
        )
        assert spec.block == (1024, 1, 1)
        assert spec.dynamic_smem == bytes_at[size]
        assert spec.non_portable == (size > 8)
        assert spec.partition == "sms=8"
        assert spec.compiled_cluster == 0
        assert spec.workload is not None
        assert (spec.workload.rows, spec.workload.length) == (probe.rows, probe.length)
        assert spec.workload.stride == 65_536


def test_the_capability_dispatched_for_decides_the_arm() -> None:
    """The same rows take 8 CTAs on Hopper and 16 on Thor."""
    for capability, cluster in [((9, 0), 8), ((11, 0), 16)]:
        probes = plan(options(capability=capability, rows=(4,), alternatives=False))
        assert {probe.cluster for probe in probes} == {cluster}


def test_the_persistent_path_is_a_named_stand_in_without_a_cluster() -> None:
    """Rows beyond the arms launch one CTA per row without the attribute, and say so."""
    probes = plan(options(policies=("0.33.0",), rows=(65,)))
    assert len(probes) == 4
    for probe in probes:
        assert (probe.path, probe.note, probe.role) == ("persistent", STAND_IN_NOTE, "arm")
        assert not probe.spec.cluster_attribute
        assert probe.spec.grid == (65, 1, 1)
        assert probe.spec.cluster == (1, 1, 1)
        assert probe.spec.dynamic_smem <= 101_376  # what cc 12.x allows a block
        assert not probe.gate
        assert "rows 65 > 64" in probe.gate_reason


def test_alternatives_are_every_other_size_at_the_longest_row_only() -> None:
    """Each arm is asked beside every other size of its kernel, timed at the greatest length."""
    probes = plan(options(policies=("0.33.0",), rows=(8,), repeats=20))
    others = [probe for probe in probes if probe.role == "alternative"]
    assert {probe.cluster for probe in others} == {2, 4, 16}
    assert {probe.length for probe in others} == {65_536}
    assert {p.length for p in probes if p.spec.repeats} == {65_536}
    assert {p.spec.repeats for p in probes if p.length == 65_536} == {20}
    assert not [p for p in plan(options(alternatives=False)) if p.role == "alternative"]


def test_equal_launches_of_two_policies_are_asked_once() -> None:
    """Specs are unique, and hold every probe's launch."""
    probes = plan(options(repeats=20))
    asked = specs(probes)
    assert len({spec.id for spec in asked}) == len(asked) < len(probes)
    assert {probe.spec for probe in probes} == set(asked)
    both = plan(options(rows=(4,)))
    assert {p.policy for p in both} == {"e126687a9a", "0.33.0"}


def test_compiled_dimensions_are_asked_for_clusters_only() -> None:
    """With compiled dims each cooperative spec names its size; the stand-in has none."""
    for probe in plan(options(compiled=True)):
        assert probe.spec.compiled_cluster == (probe.cluster if probe.path == "cooperative" else 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"policies": ()},
        {"policies": ("nope",)},
        {"rows": (0,)},
        {"rows": (-1,)},
        {"rows": (MAX_ROWS + 1,)},
        {"rows": (40_000,), "columns": 120_000},
        {"lengths": (-1,)},
        {"lengths": (65_537,)},
        {"columns": 0},
        {"columns": 64, "stride": 63},
        {"k": (500,)},
        {"dtype": "fp16"},
        {"repeats": -1},
    ],
)
def test_what_no_launch_can_have_is_a_usage_error(changes: dict[str, object]) -> None:
    """Bad rows, lengths, k, dtype or policies give one sentence and a hint."""
    with pytest.raises(UsageError) as error:
        plan(options(**changes))
    assert error.value.hint


def test_parse_rows_reads_lists_and_ranges() -> None:
    """A list of rows and ranges comes out sorted and without repeats."""
    assert parse_rows("1-8,33,64") == (*range(1, 9), 33, 64)
    assert parse_rows(" 5, 1-2 ,5") == (1, 2, 5)
    assert parse_rows(str(MAX_ROWS)) == (MAX_ROWS,)


@pytest.mark.parametrize(
    "text", ["-1", "0", "0-3", "8-1", "x", "", "1,", "1-", "1--2", "65536", "²"]
)
def test_parse_rows_rejects_what_is_no_row_list(text: str) -> None:
    """0, negatives, backwards ranges, text and more than 65,535 rows are usage errors."""
    with pytest.raises(UsageError) as error:
        parse_rows(text)
    assert error.value.hint
    assert not error.value.sentence.endswith(".")


@given(st.text(max_size=12))
def test_parse_rows_gives_rows_or_a_usage_error(text: str) -> None:
    """Any text is either a list of valid rows or a usage error."""
    try:
        rows = parse_rows(text)
    except UsageError:
        return
    assert rows
    assert all(0 < row <= MAX_ROWS for row in rows)


def test_next_rows_halves_each_gap_with_different_verdicts() -> None:
    """Only gaps whose ends differ are opened, and adjacent rows end it."""
    assert next_rows({1: REFUSED, 9: LAUNCHES, 20: LAUNCHES, 30: REFUSED}) == (5, 25)
    assert next_rows({4: REFUSED, 5: LAUNCHES}) == ()
    assert next_rows({}) == ()
    assert next_rows({1: Verdict.NOT_PROBED, 9: LAUNCHES}) == ()


@given(
    st.lists(st.integers(2, 2_000), min_size=1, max_size=5, unique=True).map(sorted),
    st.permutations([v for v in Verdict if v is not Verdict.NOT_PROBED]),
)
def test_bisection_finds_every_boundary_and_ends(
    boundaries: list[int], levels: list[Verdict]
) -> None:
    """Of any step function between two probed rows every step is found, in few rounds."""

    def answer(row: int) -> Verdict:
        return levels[sum(row >= boundary for boundary in boundaries)]

    verdicts = {row: answer(row) for row in (1, 2_000)}
    rounds = 0
    while asked := next_rows(verdicts):
        assert not set(asked) & set(verdicts)
        verdicts |= {row: answer(row) for row in asked}
        rounds += 1
        assert rounds <= 11
    for boundary in boundaries:
        assert {boundary - 1, boundary} <= set(verdicts)
    assert len(verdicts) <= 2 + 11 * len(boundaries)


def test_a_row_that_stays_unprobed_does_not_keep_bisection_going() -> None:
    """A waived row bounds its gaps, so that asking ends."""
    verdicts = {1: REFUSED, 100: LAUNCHES}
    for _ in range(5):
        verdicts |= dict.fromkeys(next_rows(verdicts), Verdict.NOT_PROBED)
    assert next_rows(verdicts) == ()
