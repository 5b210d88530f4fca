# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show of vLLM's operators: who watches a call, and the calls themselves."""

import os
from pathlib import Path

import pytest

from thorprobe.cli.measure import measure
from thorprobe.cli.operator_option import VllmOperators
from thorprobe.cli.study import ArmsStudy
from thorprobe.driver.context import Context
from thorprobe.errors import ThorprobeError
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.record import Status, Verdict
from thorprobe.run.gpu import GpuAnswerer
from thorprobe.run.operator_seat import GpuSeat

pytestmark = pytest.mark.gpu
LIBRARY = os.environ.get("THORPROBE_TEST_VLLM", "")
"""A wheel or library of vLLM, where someone put one; it is not ours to ship."""


@pytest.fixture(params=["", "sms=8", "sms=8,groups-of=2"])
def seat(request):
    """Take a seat on the device, or in a partition of it."""
    context = Context(0, request.param)
    return GpuSeat(0, int(context.stream))


def test_a_seat_watches_what_torch_launches(seat):
    """A capture and the profiler name the kernels of a call, and a graph of it is timed."""
    import torch

    with seat.current():
        scores = torch.rand(4, 4096, device=seat.device)

        def call():
            torch.topk(scores, 16)

        call()
        captured = seat.captured(call)
        assert captured
        assert all(kernel.name for kernel in captured)
        assert all(kernel.block[0] > 0 for kernel in captured)
        assert seat.ran(call)
        assert seat.time(call, 5, 7).us > 0
        assert (seat.settle(), seat.pending(), seat.touch()) == (0, 0, "")


@pytest.fixture(scope="module")
def operators():
    """Find vLLM's operators: the named library, else those of the vLLM installed here."""
    try:
        return VllmOperators(f"vllm:{LIBRARY}" if LIBRARY else "vllm")
    except ThorprobeError as error:
        pytest.skip(f"no vLLM here: {error.sentence} (THORPROBE_TEST_VLLM names a wheel)")


@pytest.mark.parametrize("partition", ["", "sms=24", "sms=8", "sms=8,groups-of=2"])
def test_vllms_operators_are_right_wherever_they_launch(operators, partition):
    """Persistent arms launch everywhere; a refusal is 912, leaves an error, and it is cleared."""
    answerer = GpuAnswerer(0, partition)
    try:
        operators.attach(answerer)
        options = ArmsOptions(
            capability=answerer.device.capability,
            partition=partition,
            policies=operators.policies,
            library=operators.library,
            columns=16_384,
            repeats=5,
        )
        document = measure(ArmsStudy(options), answerer)
    finally:
        answerer.close()
    for outcome in document.results:
        call = outcome.observed.operator
        assert outcome.status is Status.PASS, outcome.note
        if outcome.verdict is Verdict.REFUSED:
            assert outcome.observed.launch_code == call.pending_code == 912
            assert "cluster misconfiguration" in call.raised
            assert call.pending
            assert call.cleared
        else:
            assert outcome.verdict is Verdict.LAUNCHES
            assert call.ran
        assert "the host code launched" not in outcome.note
    persistent = [arm for arm in document.summary.arms if arm.path == "persistent"]
    assert {arm.verdict for arm in persistent} == {Verdict.LAUNCHES}
    refused = {o.spec.cluster_size for o in document.results if o.verdict is Verdict.REFUSED}
    if not partition and document.device.sms > 100:
        assert refused == set()
    assert Path(LIBRARY).name in (*document.inputs, "") or not LIBRARY
