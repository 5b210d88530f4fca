# SPDX-License-Identifier: Apache-2.0
"""Dispatch policies: the data of each version, the dispatch, the gate and the ranges."""

from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thorprobe.errors import UsageError
from thorprobe.plan.footprint import TOPK_SMEM, TOPK_THREADS
from thorprobe.plan.policy import Policy, dispatch, gate, load, names, reached, row_ranges

POLICIES = {name: load(name) for name in names()}
MAJORS = st.sampled_from([8, 9, 10, 11, 12])


def shipped(name: str) -> str:
    """Text of a shipped policy file."""
    return files("thorprobe").joinpath("plan", "policies", f"{name}.toml").read_text()


def test_names_hold_every_version_that_was_read() -> None:
    """Four upstream versions are shipped, each under its own name."""
    assert names() == ("0.24.0", "0.29.0", "0.33.0", "e126687a9a")
    assert all(policy.name == name for name, policy in POLICIES.items())


@pytest.mark.parametrize(
    ("name", "major", "expected"),
    [
        ("e126687a9a", 11, {1: 16, 4: 16, 5: 8, 8: 8, 9: 4, 32: 4, 33: 1, 1000: 1}),
        ("e126687a9a", 9, {1: 8, 4: 8, 8: 8, 9: 4, 32: 4, 33: 1}),
        ("0.24.0", 10, {4: 16, 5: 8, 32: 4, 33: 1}),
        ("0.29.0", 12, {4: 16, 8: 8, 33: 4, 34: 2, 64: 2, 65: 1}),
        ("0.33.0", 11, {0: 16, 1: 16, 4: 16, 5: 8, 8: 8, 9: 4, 33: 4, 34: 2, 64: 2, 65: 1}),
        ("0.33.0", 9, {1: 8, 8: 8, 9: 4, 33: 4, 34: 2, 64: 2, 65: 1}),
    ],
)
def test_dispatch_follows_the_host_code(name: str, major: int, expected: dict[int, int]) -> None:
    """Rows and major capability pick the cluster size that the host code of the version picks."""
    for rows, cluster in expected.items():
        path = "cooperative" if cluster > 1 else "persistent"
        assert dispatch(POLICIES[name], rows, major) == (cluster, path)


@pytest.mark.parametrize("rows", [-1, True, 2.0, "4"])
def test_dispatch_rejects_what_is_no_row_count(rows: int) -> None:
    """A negative, boolean, fractional or text row count is a usage error with a hint."""
    with pytest.raises(UsageError) as error:
        dispatch(POLICIES["0.33.0"], rows, 11)
    assert repr(rows) in error.value.sentence
    assert error.value.hint


@pytest.mark.parametrize("name", names())
def test_footprints_equal_the_sweep_footprints(name: str) -> None:
    """Bytes, stage and threads of every arm are those of the standard footprints."""
    policy = POLICIES[name]
    assert policy.kernel.threads == TOPK_THREADS
    for cluster in policy.clusters:
        assert policy.footprint(cluster).dynamic_smem == TOPK_SMEM[cluster]
        stage = policy.footprint(cluster).stage_elements
        assert stage == (49_152 if cluster < 8 else 32_768)


def test_gate_of_0_33_0_names_each_condition_that_shuts_it() -> None:
    """Rows, stride, capability and family each shut the gate of 0.33.0, and Thor passes it."""
    policy = POLICIES["0.33.0"]
    assert gate(policy, 64, 65_536, (11, 0))[0]
    assert gate(policy, 64, 65_536, (9, 0))[0]
    for rows, stride, capability, word in [
        (65, 65_536, (11, 0), "rows 65 > 64"),
        (4, 65_537, (11, 0), "stride 65,537"),
        (4, 65_536, (8, 9), "cc 8.9 < 9.0"),
        (4, 65_536, (12, 1), "family 120"),
    ]:
        is_open, reason = gate(policy, rows, stride, capability)
        assert not is_open
        assert reason.startswith(word) or word in reason
    both = gate(policy, 65, 65_537, (12, 0))[1]
    assert "rows 65" in both
    assert "stride" in both
    assert "family 120" in both


def test_gate_of_the_report_applies_no_condition_that_is_not_established() -> None:
    """At e126687a9a only rows are known to shut the gate; the rest is named, not applied."""
    policy = POLICIES["e126687a9a"]
    is_open, reason = gate(policy, 32, 65_536, (12, 1))
    assert is_open
    assert "not established here: stride multiple, least capability, excluded family" in reason
    assert not gate(policy, 33, 65_536, (9, 0))[0]


def test_an_open_gate_still_tells_of_a_stride_that_the_kernel_refuses() -> None:
    """Where the gate ignores the stride, the kernel's own check is named."""
    is_open, reason = gate(POLICIES["e126687a9a"], 4, 65_537, (11, 0))
    assert is_open
    assert "own check then refuses stride 65,537" in reason


def test_a_shut_gate_sends_rows_to_the_persistent_kernel() -> None:
    """0.29.0 dispatches 33 to 64 rows to a cluster, but its gate never lets them there."""
    policy = POLICIES["0.29.0"]
    assert dispatch(policy, 40, 11) == (2, "cooperative")
    arm = reached(policy, 40, 65_536, (11, 0))
    assert (arm.cluster, arm.path, arm.gate_open) == (1, "persistent", False)
    assert reached(policy, 4, 65_536, (11, 0)).cluster == 16


def test_row_ranges_split_where_dispatch_or_gate_changes() -> None:
    """Ranges are those of constant dispatch, merged on Hopper and split at a narrower gate."""

    def texts(name: str, major: int) -> list[str]:
        return [item.text for item in row_ranges(POLICIES[name], major)]

    assert texts("e126687a9a", 11) == ["1-4", "5-8", "9-32", "33+"]
    assert texts("0.33.0", 11) == ["1-4", "5-8", "9-33", "34-64", "65+"]
    assert texts("0.33.0", 9) == ["1-8", "9-33", "34-64", "65+"]
    assert texts("0.29.0", 11) == ["1-4", "5-8", "9-32", "33", "34-64", "65+"]
    limited = row_ranges(POLICIES["0.33.0"], 11, limit=40)
    assert [item.text for item in limited] == ["1-4", "5-8", "9-33", "34-40"]
    with pytest.raises(UsageError):
        row_ranges(POLICIES["0.33.0"], 11, limit=0)


@given(st.sampled_from(sorted(POLICIES)), MAJORS, st.none() | st.integers(1, 200))
def test_row_ranges_cover_every_row_once_and_agree_with_dispatch(
    name: str, major: int, limit: int | None
) -> None:
    """Ranges are gapless from row 1, and every row of one dispatches as the range says."""
    policy = POLICIES[name]
    ranges = row_ranges(policy, major, limit)
    assert ranges[0].first == 1
    assert ranges[-1].last == limit
    for item, following in pairwise(ranges):
        assert item.last is not None
        assert following.first == item.last + 1
    for item in ranges:
        for rows in range(item.first, min(item.last or 300, 300) + 1):
            assert dispatch(policy, rows, major) == (item.cluster, item.path)
            assert (rows <= policy.gate.rows) == item.gate_open or item.path == "persistent"


def test_an_unknown_policy_lists_the_known_ones() -> None:
    """A name that is not shipped is a usage error whose hint lists what is."""
    with pytest.raises(UsageError, match=r"unknown Policy `0\.99`") as error:
        load("0.99")
    assert "e126687a9a" in error.value.hint


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("source = ", "# source = ", "source"),
        ("row_limit = 64", "row_limit = 0", "row_limit"),
        ("last_row = 33", "last_row = 3", "ascend"),
        ("last_row = 64\n", "", "last_row"),
        ("clusters = [2, 4]", "clusters = [4]", "cluster of 2"),
        ("[gate]", "[gate]\nsurprise = 1", "surprise"),
        ("[gate]", "[gate", "Expected"),
    ],
)
def test_a_policy_file_outside_the_schema_is_named(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    """A missing source, a wrong value, arms out of order or an unknown key are usage errors."""
    text = shipped("0.33.0")
    assert old in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match="does not fit the schema") as error:
        load(str(path))
    assert complaint in error.value.sentence


def test_a_policy_file_of_ones_own_is_read_by_path(tmp_path: Path) -> None:
    """A path ending in .toml is a policy too, and one that is not there is a usage error."""
    path = tmp_path / "own.toml"
    path.write_text(shipped("0.33.0").replace('name = "0.33.0"', 'name = "own"'))
    assert isinstance(load(str(path)), Policy)
    assert load(str(path)).name == "own"
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
    path.write_text("#" * 70_000)
    with pytest.raises(UsageError, match="bytes"):
        load(str(path))
