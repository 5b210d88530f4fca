# SPDX-License-Identifier: Apache-2.0
"""What a device answered to the occupancy queries alone: no failure, and no launch either."""

import msgspec
import pytest

from devices import H200
from thorprobe.inspect.finding import device_finding
from thorprobe.inspect.page import sheet
from thorprobe.inspect.records import DeviceAnswer, Inspection, InspectSummary, LoadRow
from thorprobe.judge.cause import judge, refusal
from thorprobe.judge.sweep import summarize
from thorprobe.plan.shipped import spec
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.record import (
    DriverCall,
    Observed,
    Origin,
    Outcome,
    Status,
    Verdict,
)
from thorprobe.render.sheet import render_text

SETTER = DriverCall(
    call="cuFuncSetAttribute",
    code=1,
    name="CUDA_ERROR_INVALID_VALUE",
    sentence="invalid argument",
    detail="MAX_DYNAMIC_SHARED_SIZE_BYTES = 300000",
)


def queried(size, *, smem=0, calls=(), **seen):
    """Return the unjudged answer to the queries about an entry point of that many CTAs."""
    function = ShippedFunction(
        symbol="f", name="f", cluster=(1, size, 1), threads=32, dynamic_smem=smem
    )
    kernel = ShippedKernel(
        label="f<512>@0123456789ab", image="0" * 64, target="sm_90", functions=(function,)
    )
    asked = spec(kernel, function)
    return Outcome(
        id=asked.id,
        spec=asked,
        status=Status.PASS,
        origin=Origin.MEASURED,
        observed=Observed(**({"max_potential_code": 0, "max_active_code": 0} | seen)),
        calls=calls,
    )


@pytest.mark.parametrize(
    ("asked", "verdict", "cause", "code"),
    [
        (queried(8, max_potential=16, max_active=15), Verdict.NOT_PROBED, None, None),
        (
            queried(16, max_potential=8, max_active=0),
            Verdict.REFUSED,
            "larger-than-any-gpc",
            None,
        ),
        (queried(4, max_potential=0, max_active=0), Verdict.UNDETERMINED, "undetermined", None),
        (queried(4, max_potential=8, max_active=0), Verdict.UNDETERMINED, "undetermined", None),
        (
            queried(4, smem=300_000, calls=(SETTER,), max_potential=8, max_active=0),
            Verdict.REFUSED,
            "smem-over-optin",
            1,
        ),
        (queried(4, max_active_code=999), Verdict.NOT_PROBED, "could-not-run", None),
    ],
    ids=["room", "no group is as large", "no CTA fits", "no reason", "memory", "no answer"],
)
def test_an_answer_to_the_queries_is_told_for_what_it_is(asked, verdict, cause, code):
    """Room is no failure, no room a refusal where its reason is known; no code is made up."""
    judged = judge(asked, H200)
    assert (judged.verdict, judged.cause) == (verdict, cause)
    if verdict is Verdict.REFUSED:
        assert refusal(judged).code == code


def test_a_sweep_of_queries_says_what_has_room_and_that_nothing_was_launched():
    """The sizes with room and those refused stand in one sentence, and none is called lost."""
    outcomes = [
        queried(2, max_potential=8, max_active=4),
        queried(4, max_potential=8, max_active=2),
        queried(16, max_potential=8, max_active=0),
    ]
    found = summarize([msgspec.structs.replace(o, id=str(n)) for n, o in enumerate(outcomes)], H200)
    assert found.finding == (
        "Shipped f<512>: 2 and 4 have room, by query; 16 is refused: larger than any GPC; "
        "nothing was launched"
    )


def row(size, **known):
    """Return what a device makes of one kernel of a file."""
    return LoadRow(name=f"f{size}", symbol=f"f{size}", file="x", cluster=size, **known)


def test_an_inspection_on_a_device_shows_room_and_no_cause():
    """`room for 15` stands where the device was asked, and the kernel without room is refused."""
    rows = (
        row(8, target="sm_90a", verdict=Verdict.NOT_PROBED, max_active=15),
        row(
            16,
            target="sm_90a",
            verdict=Verdict.REFUSED,
            cause="larger-than-any-gpc",
            max_active=0,
        ),
    )
    told = device_finding("NVIDIA H200", rows, (), ())
    assert told == (
        "NVIDIA H200 loads sm_90a: 16 is refused: larger than any GPC, "
        "8 has room, by the occupancy query"
    )
    device = DeviceAnswer(
        title="NVIDIA H200", capability=(9, 0), origin=Origin.MEASURED, finding=told, kernels=rows
    )
    answer = Inspection(
        command="inspect",
        started="2026-11-30T08:00:00Z",
        origin=Origin.MEASURED,
        summary=InspectSummary(finding=told, devices=(device,)),
    )
    text = render_text(sheet(answer))
    assert "room for 15" in text
    assert "nothing was launched" in text
    assert "could-not-run" not in text
