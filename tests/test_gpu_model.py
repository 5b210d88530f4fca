# SPDX-License-Identifier: Apache-2.0
"""The model's selection on a GPU: the ladder's kernels against transformers' loop."""

import msgspec
import pytest

from thorprobe.qwen4exp import through_answer as arms_inquiry
from thorprobe.qwen4exp.answer import inquire
from thorprobe.qwen4exp.plan import ModelOptions

pytestmark = pytest.mark.gpu
TINY = ModelOptions(size="tiny", context=2_300, decode_tokens=6)


def _agree(found):
    assert found.agreement.past_budget > 0
    assert found.agreement.wrong == 0
    assert found.wrong_rows == 0
    assert found.checked_rows > 0
    assert "torch" not in found.rungs


@pytest.mark.parametrize(("requests", "drafts"), [(1, 0), (3, 2)])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_kernels_select_what_the_loop_selects(requests, drafts, dtype):
    """No query selects other scores than the reference, and every row is a top-k of its own."""
    options = msgspec.structs.replace(
        TINY, requests=requests, speculative_tokens=drafts, dtype=dtype
    )
    answer = inquire(options, "0")
    _agree(answer.summary)
    assert answer.summary.tokens_equal
    assert answer.device is not None
    assert answer.device.sms > 0


def test_a_long_context_is_prefilled_in_chunks_and_decoded():
    """More than 16,384 blocks, beyond what one CTA holds at once; a sample is compared."""
    options = msgspec.structs.replace(TINY, context=66_000, reference_queries=64)
    answer = inquire(options, "0")
    _agree(answer.summary)
    assert answer.summary.agreement.compared == 64 + 6
    assert answer.results[-1].selections[0].columns > 16_384


@pytest.mark.parametrize("rung", ["cluster-8", "cluster-2", "one-cta", "many-ctas"])
def test_every_rung_is_right_inside_the_model(rung):
    """Asked for by name, each answers itself and selects what the reference selects."""
    found = inquire(msgspec.structs.replace(TINY, rung=rung), "0").summary
    _agree(found)
    assert set(found.rungs) == {rung}
    assert found.falls == 0


def test_a_partition_refuses_16_and_the_ladder_falls():
    """In 24 SMs, three groups of 8, each call falls from 16 CTAs to the next rung, and is right."""
    options = msgspec.structs.replace(TINY, partition="sms=24", rung="cluster-16")
    answer = inquire(options, "0")
    _agree(answer.summary)
    assert answer.device.partition_sms == 24
    assert set(answer.summary.rungs) == {"cluster-8"}
    calls = sum(len(step.selections) for step in answer.results)
    assert answer.summary.falls == calls
    assert {fall.rung for fall in answer.summary.fallen} == {"cluster-16"}
    assert sum(fall.calls for fall in answer.summary.fallen) == calls


@pytest.mark.parametrize("partition", ["", "sms=24"])
def test_each_arm_is_launched_at_its_rows_through_the_model(partition):
    """An arm's own cluster size answers the model's call, or is refused and the next one right."""
    answer = arms_inquiry.inquire(["0.33.0"], (11, 0), "0", partition)
    assert answer.summary.missed == 0
    for call in answer.results:
        assert call.check.wrong_rows == 0
        if call.path == "cooperative":
            assert call.rung == call.asked_rung or call.falls
    by_cluster = {arm.cluster: arm for arm in answer.summary.arms}
    for cluster in (8, 4, 2):
        assert by_cluster[cluster].falls == 0
        assert set(by_cluster[cluster].rungs) == {f"cluster-{cluster}"}
    if partition:
        assert by_cluster[16].falls == by_cluster[16].calls
