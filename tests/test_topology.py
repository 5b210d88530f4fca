# SPDX-License-Identifier: Apache-2.0
"""Co-scheduling groups: hosting, solving, joining, and all maps that constraints admit."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe.judge.topology import answers, group_sizes, hosted, solve, union_groups
from thorprobe.model.gpc_maps import MAX_MAPS, Admissible, Constraints, enumerate_maps

DATA = json.loads((Path(__file__).parent / "data" / "h200_clusters.json").read_text())

even_maps = st.lists(st.integers(1, 20).map(lambda n: 2 * n), min_size=1, max_size=14).map(
    lambda sizes: tuple(sorted(sizes, reverse=True))
)
constraints = st.builds(
    Constraints,
    sms_per_tpc=st.sampled_from([1, 2]),
    max_gpcs=st.sampled_from([None, 1, 2, 3, 5]),
    max_sms_per_gpc=st.sampled_from([None, 4, 8, 10]),
    groups_may_split=st.booleans(),
    largest_at_least=st.sampled_from([0, 4, 8]),
    largest_at_most=st.sampled_from([None, 6, 8]),
)


@pytest.mark.parametrize("partition", DATA["maps"])
def test_recorded_maps_are_solved(partition: str) -> None:
    """The answers of each of the 13 measured partitions have exactly its recorded map."""
    asked = [p for p in DATA["points"] if p[:4] == [partition, 1024, 150_000, 1] and p[4] <= 16]
    assert solve([point[6] for point in asked]) == tuple(DATA["maps"][partition]["solved"])


@given(even_maps)
@settings(max_examples=150, deadline=None)
def test_solving_never_invents_a_map(groups: tuple[int, ...]) -> None:
    """The answers of any even map are solved to that map or to none, never to another."""
    assert solve(answers(groups)) in (groups, None)


def test_ambiguous_answers_are_not_solved() -> None:
    """Two maps with the same sixteen answers exist, and neither is chosen."""
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    pair = None
    for groups in enumerate_maps(Constraints(), 56) or ():
        other = seen.setdefault(answers(groups), groups)
        if other != groups:
            pair = (other, groups)
            break
    assert pair is not None
    assert solve(answers(pair[0])) is None


@pytest.mark.parametrize(
    "max_active",
    [(), (8,) * 15, (0,) * 16, (7, 3, *(0,) * 14), (8, 3, *(0,) * 14), (-2, *(0,) * 15)],
)
def test_impossible_answers_are_not_solved(max_active: tuple[int, ...]) -> None:
    """Answers that no map of even groups gives have no map."""
    assert solve(max_active) is None


@pytest.mark.parametrize(
    "groups",
    [(148,), (20,) * 7 + (8,), (10, 10) + (8,) * 13 + (2, 2), (30, 28, 26, 24), (4096, 4096)],
)
def test_solving_takes_a_moment_only(groups: tuple[int, ...]) -> None:
    """Maps of today's largest parts, and absurd ones, are decided within a second."""
    started = time.perf_counter()
    assert solve(answers(groups)) in (groups, None)
    assert time.perf_counter() - started < 1


def test_a_group_hosts_only_clusters_that_fit_its_sms() -> None:
    """More CTAs per SM raise the count but never let 8 SMs host a cluster of 9."""
    assert hosted((8, 8), 8) == 2
    assert hosted((8, 8), 8, ctas_per_sm=8) == 16
    assert hosted((8, 8), 9, ctas_per_sm=8) == 0


def test_sm_ids_are_joined_across_clusters() -> None:
    """SMs seen in one cluster, directly or through a third, form one group; largest first."""
    groups = union_groups([(8, 9), (0, 1), (1, 2), (2, 3), (10, 10)])
    assert groups == ((0, 1, 2, 3), (8, 9), (10,))
    assert group_sizes(groups) == (4, 2, 1)
    assert union_groups([]) == ()


def test_every_map_of_thors_layout_is_listed() -> None:
    """Ten TPCs in at most three GPCs of four have 23 maps, by count of all partitions of ten."""
    maps = enumerate_maps(Constraints(max_gpcs=3, max_sms_per_gpc=8), 20)
    assert maps is not None
    assert len(maps) == len(set(maps)) == 23
    assert all(sum(groups) == 20 and max(groups) <= 8 for groups in maps)
    assert {(8, 8, 4), (8, 6, 6), (6, 6, 6, 2), (2,) * 10} <= set(maps)


def test_too_many_maps_are_not_listed_but_still_answered() -> None:
    """148 SMs without a layout have too many maps to list; the extremes are exact all the same."""
    unknown = Admissible(sms=148)
    assert unknown.count is None
    assert unknown.hosted(16) == (0, 9)
    assert unknown.largest(16) == (2, 16)
    assert len(enumerate_maps(Constraints(), 48) or ()) == 1_575 <= MAX_MAPS


@given(constraints, st.sampled_from([2, 6, 12, 18, 20]), st.integers(1, 17), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_extremes_equal_those_of_the_list(
    limits: Constraints, sms: int, cluster: int, per_sm: int
) -> None:
    """Least and greatest answers without the list equal those over every listed map."""
    maps = enumerate_maps(limits, sms)
    assert maps is not None
    whole = Admissible(sms=sms, constraints=limits)
    assert whole.exists == bool(maps)
    if maps:
        listed = [hosted(groups, cluster, per_sm) for groups in maps]
        assert whole.hosted(cluster, per_sm) == (min(listed), max(listed))
    else:
        with pytest.raises(ValueError, match="admissible"):
            whole.hosted(cluster, per_sm)
