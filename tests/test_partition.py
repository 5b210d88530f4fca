# SPDX-License-Identifier: Apache-2.0
"""A partition and its spellings: by flags of the split, or by the groups that they give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thorprobe.driver.partition import FLAGS_OF_GROUPS, Partition, parse, same
from thorprobe.errors import UsageError
from thorprobe.model.profile import load
from thorprobe.plan import arms
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.record import Verdict
from thorprobe.run.model import ModelAnswerer

PARTITIONS = st.builds(
    lambda sms, spelt: Partition(sms=sms, **spelt),
    st.integers(1, 9_999),
    st.one_of(
        st.sampled_from(sorted(FLAGS_OF_GROUPS)).map(
            lambda groups: {"groups_of": groups, "flags": FLAGS_OF_GROUPS[groups]}
        ),
        st.sampled_from((0, 1, 2)).map(lambda flags: {"flags": flags}),
    ),
)


@given(PARTITIONS)
def test_every_partition_reads_back_as_it_was_spelt(partition):
    """Text, equality and hash agree, and the spelling is kept."""
    again = parse(str(partition))
    assert (again, hash(again), str(again)) == (partition, hash(partition), str(partition))
    assert again.groups_of == partition.groups_of


@given(PARTITIONS, PARTITIONS)
def test_two_spellings_of_one_split_are_one_partition(one, other):
    """SMs and flags count, not the words."""
    assert same(str(one), str(other)) == ((one.sms, one.flags) == (other.sms, other.flags))
    assert not same(str(one), "")


@pytest.mark.parametrize(
    "text",
    [
        "sms=8,groups-of=4",
        "sms=8,groups-of=0",
        "sms=8,groups-of=",
        "sms=8,groups-of=2,flags=1",
        "sms=0,groups-of=2",
        "sms=8,flags=3",
        "groups-of=2",
        "sms=٨",
        "sms=8,groups-of=-2",
        "half",
    ],
)
def test_other_texts_are_no_partition(text):
    """One sentence that quotes them, and a hint."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert text in caught.value.sentence
    assert caught.value.hint


def test_groups_of_2_are_those_that_the_driver_answers_for_flag_1():
    """The profile knows the partition by either spelling, and answers in the one asked."""
    h200 = load("h200")
    assert h200.device("sms=8,groups-of=2").partition == "sms=8,groups-of=2"
    assert h200.device("sms=8,flags=1").partition == "sms=8,flags=1"
    assert h200.admissible(partition="sms=8,flags=1").known == (2, 2, 2, 2)
    assert h200.admissible(partition="sms=16,groups-of=16").known == (16,)
    assert h200.admissible(partition="sms=8,groups-of=8").known == (8,)


@pytest.mark.parametrize("groups", [2, 8, 16])
def test_a_group_hosts_clusters_up_to_its_size(groups):
    """Sizes that launch are those of the table of the driver's answers: at most the group."""
    text = f"sms={max(groups, 8)},groups-of={groups}"
    model = ModelAnswerer("h200", text)
    found = {}
    options = ArmsOptions(
        capability=(10, 0), partition=text, policies=("0.33.0",), lengths=(1_024,)
    )
    for outcome in model.ask(arms.specs(arms.plan(options))):
        if outcome.spec.cluster_attribute:
            found[outcome.spec.cluster_size] = outcome.observed.launch_code
        assert outcome.spec.partition == text
        assert outcome.verdict is Verdict.NOT_PROBED
    assert found == {size: 0 if size <= groups else 912 for size in (2, 4, 8, 16)}
