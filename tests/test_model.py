# SPDX-License-Identifier: Apache-2.0
"""The model against every recorded answer, and what it says of devices nobody here has."""

import json
from pathlib import Path

import msgspec
import pytest

from thorprobe.binary.cubin import KernelFacts
from thorprobe.errors import UsageError
from thorprobe.judge.cause import judge
from thorprobe.model.predict import CODES, calls, predict
from thorprobe.model.profile import load
from thorprobe.record import LaunchSpec, Observed, Origin, Outcome, Status, Verdict
from thorprobe.run.model import ModelAnswerer

DATA = json.loads((Path(__file__).parent / "data" / "h200_clusters.json").read_text())
RECORDED_KERNEL = KernelFacts(function="probe", registers=12)
H200 = load("h200")
TOPK_SMEM = (156_416, 221_952)


def launch(size: int, **fields: object) -> LaunchSpec:
    """One top-k sized launch of the trivial kernel, opted in where the size needs it."""
    plain = LaunchSpec(
        kernel="trivial",
        grid=(1, size, 1),
        block=(1024, 1, 1),
        cluster=(1, size, 1),
        dynamic_smem=TOPK_SMEM[0],
        non_portable=size > 8,
    )
    return msgspec.structs.replace(plain, **fields)


def on_h200(spec: LaunchSpec, partition: str = "", facts: KernelFacts | None = None) -> Observed:
    """Answer for the H200 with the recorded kernel, without compiling anything."""
    return predict(
        spec,
        facts or RECORDED_KERNEL,
        H200.device(partition).limits,
        H200.admissible(partition=partition),
        H200.max_cluster_ctas,
    )


def answers(answerer: ModelAnswerer, spec: LaunchSpec) -> dict[str, Outcome]:
    """Judged outcomes of one launch by the claim they assume, ``""`` for the layout alone."""
    found = [judge(outcome, answerer.device) for outcome in answerer.ask([spec])]
    return {"".join(outcome.assumes): outcome for outcome in found}


def test_every_recorded_point_is_reproduced() -> None:
    """All 2,210 recorded answers (potential, active, launch code) equal the model's."""
    equal, different = 0, []
    for part, threads, smem, opted, size, potential, active, code in DATA["points"]:
        partition = "" if part == "full" else part
        spec = launch(
            size,
            block=(threads, 1, 1),
            dynamic_smem=smem,
            non_portable=bool(opted),
            partition=partition,
        )
        seen = on_h200(spec, partition)
        found = (
            seen.max_potential if not seen.max_potential_code else -seen.max_potential_code,
            seen.max_active if not seen.max_active_code else -seen.max_active_code,
            seen.launch_code,
        )
        if found == (potential, active, code):
            equal += 1
        else:
            different.append((spec.id, found, (potential, active, code)))
    print(f"{equal} of {len(DATA['points'])} recorded points equal")
    assert not different
    assert equal == 2_210


REQUIRED_8 = msgspec.structs.replace(RECORDED_KERNEL, required_cluster=(1, 8, 1))


@pytest.mark.parametrize(
    ("spec", "facts", "code", "query_code"),
    [
        (launch(16, non_portable=False), RECORDED_KERNEL, 912, 912),
        (launch(4, grid=(1, 6, 1)), RECORDED_KERNEL, 912, 912),
        (launch(4, grid=(1, 8, 1)), REQUIRED_8, 912, 912),
        (launch(8, cluster_attribute=False), REQUIRED_8, 0, 0),
        (launch(8, cluster_attribute=False, grid=(1, 12, 1)), REQUIRED_8, 912, 912),
        (launch(8, dynamic_smem=232_449), RECORDED_KERNEL, 1, None),
        (launch(32, dynamic_smem=232_449), RECORDED_KERNEL, 1, None),
        (launch(8, dynamic_smem=49_153, smem_opt_in=False), RECORDED_KERNEL, 1, None),
        (launch(8, dynamic_smem=49_152, smem_opt_in=False), RECORDED_KERNEL, 0, 0),
        (launch(8, block=(2048, 1, 1)), RECORDED_KERNEL, 1, None),
        (launch(32, block=(2048, 1, 1)), RECORDED_KERNEL, 1, None),
        (launch(8, grid=(0, 8, 1)), RECORDED_KERNEL, 1, None),
        (launch(8, cooperative=True), RECORDED_KERNEL, 0, 0),
        (launch(8, cooperative=True, grid=(15, 8, 1)), RECORDED_KERNEL, 0, 0),
        (launch(8, cooperative=True, grid=(16, 8, 1)), RECORDED_KERNEL, 720, 0),
        (launch(8, cluster_attribute=False), RECORDED_KERNEL, 0, 0),
        (launch(32), RECORDED_KERNEL, 912, 0),
    ],
)
def test_misconfigurations_answer_as_measured(
    spec: LaunchSpec, facts: KernelFacts, code: int, query_code: int | None
) -> None:
    """Each misconfigured launch gets the code an H200 gave, in the driver's order of judgement."""
    seen = on_h200(spec, facts=facts)
    assert (seen.launch_code, seen.max_active_code) == (code, query_code)


def test_a_cluster_of_32_is_counted_as_the_driver_does() -> None:
    """With the opt-in a cluster of 32 has max_potential 16 and max_active 0."""
    seen = on_h200(launch(32))
    assert (seen.max_potential, seen.max_active) == (16, 0)


def test_the_setter_answers_before_the_launch() -> None:
    """Shared memory over the opt-in limit is refused by the attribute's setter first."""
    spec = launch(8, dynamic_smem=232_449)
    limits = H200.device().limits
    listed = calls(spec, RECORDED_KERNEL, limits, on_h200(spec))
    failed = [(call.call, call.code, call.name) for call in listed if call.code]
    assert failed == [
        ("cuFuncSetAttribute", 1, "CUDA_ERROR_INVALID_VALUE"),
        ("cuLaunchKernelEx", 1, "CUDA_ERROR_INVALID_VALUE"),
    ]


def test_a_captured_cluster_is_refused_at_instantiation() -> None:
    """In an 8-SM partition capture accepts 16 CTAs, and the graph's instantiation answers 912."""
    spec = launch(16, captured=True, partition="sms=8")
    listed = calls(spec, RECORDED_KERNEL, H200.device().limits, on_h200(spec, "sms=8"))
    assert [(call.call, call.code) for call in listed[-2:]] == [
        ("cuLaunchKernelEx", 0),
        ("cuGraphInstantiate", 912),
    ]
    assert listed[-1].sentence == CODES[912][1]


@pytest.mark.parametrize("kernel", ["trivial", "topk"])
@pytest.mark.parametrize("smem", TOPK_SMEM)
def test_thor_by_its_layout_and_by_the_claim(kernel: str, smem: int) -> None:
    """Thor refuses 16 on every map; 8 and 4 are open by layout and launch under the claim."""
    thor = ModelAnswerer("thor")
    assert thor.admissible() == {"": 23, "largest-cluster-8": 9}
    for size in (16, 8, 4, 2):
        found = answers(thor, launch(size, kernel=kernel, dynamic_smem=smem))
        layout, claimed = found[""], found["largest-cluster-8"]
        assert layout.origin is Origin.PREDICTED
        if size == 16:
            for outcome in (layout, claimed):
                assert (outcome.verdict, outcome.cause) == (Verdict.REFUSED, "larger-than-any-gpc")
                assert (outcome.observed.launch_code, outcome.observed.max_active) == (912, 0)
            continue
        assert claimed.verdict is Verdict.LAUNCHES
        assert claimed.id == f"{layout.id} under largest-cluster-8"
        if size > 2:
            assert (layout.verdict, layout.cause) == (Verdict.UNDETERMINED, "undetermined")
            assert layout.observed.launch_code is None
            assert f"at least {size} SMs" in layout.note
            assert "23 admissible GPC maps" in layout.note
        else:
            assert layout.verdict is Verdict.LAUNCHES


def test_thor_hosts_one_or_two_clusters_of_8_under_the_claim() -> None:
    """At one CTA per SM a Thor whose largest cluster is 8 runs one or two of them at once."""
    found = answers(ModelAnswerer("thor"), launch(8))
    seen = found["largest-cluster-8"].observed
    assert (seen.max_potential, seen.max_active, seen.max_active_range) == (8, None, (1, 2))


def test_without_its_layout_thor_leaves_16_open() -> None:
    """With the layout taken out nothing refuses 16: it is undetermined, not refused."""
    bare = ModelAnswerer(load("thor").without_layout())
    found = answers(bare, launch(16))
    assert found[""].verdict is Verdict.UNDETERMINED
    assert found[""].observed.max_active_range == (0, 1)
    assert found["largest-cluster-8"].verdict is Verdict.REFUSED


@pytest.mark.parametrize(
    ("size", "smem"), [(16, 156_416), (8, 156_416), (4, 221_952), (2, 221_952)]
)
def test_gb10_refuses_every_topk_arm_for_shared_memory(size: int, smem: int) -> None:
    """On an SM12x part every fp32 arm answers 1 for its shared memory, not for its cluster."""
    found = answers(ModelAnswerer("gb10"), launch(size, kernel="topk", dynamic_smem=smem))
    assert set(found) == {"", "clusters-of-8"}
    for outcome in found.values():
        assert outcome.observed.launch_code == 1
        assert (outcome.verdict, outcome.cause) == (Verdict.REFUSED, "smem-over-optin")


def test_gb10_clusters_are_open_until_the_claim() -> None:
    """Small clusters on GB10 are open by layout; the claim of 8 is a lower bound, so 16 stays."""
    gb10 = ModelAnswerer("gb10")
    eight = answers(gb10, launch(8, dynamic_smem=0))
    assert eight[""].verdict is Verdict.UNDETERMINED
    assert eight["clusters-of-8"].verdict is Verdict.LAUNCHES
    sixteen = answers(gb10, launch(16, dynamic_smem=0))
    assert {o.verdict for o in sixteen.values()} == {Verdict.UNDETERMINED}


def test_the_h200_profile_predicts_its_own_partition() -> None:
    """In an 8-SM partition of the H200 profile 8 launches and 16 is refused for want of a group."""
    model = ModelAnswerer("h200", "sms=8")
    assert model.device.available_sms == 8
    assert answers(model, launch(8, partition="sms=8"))[""].verdict is Verdict.LAUNCHES
    refused = answers(model, launch(16, partition="sms=8"))[""]
    assert (refused.observed.max_potential, refused.cause) == (8, "larger-than-any-gpc")


def test_compiled_dimensions_come_from_the_cubin() -> None:
    """A kernel compiled for 8 takes 8 without the attribute and refuses an attribute of 4."""
    model = ModelAnswerer("h200")
    alone = launch(8, compiled_cluster=8, cluster_attribute=False)
    assert answers(model, alone)[""].verdict is Verdict.LAUNCHES
    other = launch(4, compiled_cluster=8, grid=(1, 8, 1))
    assert answers(model, other)[""].cause == "required-cluster-mismatch"


def test_a_prediction_claims_nothing_that_was_not_run() -> None:
    """No time, no check, no cluster seen, no synchronisation; the inputs are hashed."""
    model = ModelAnswerer("thor")
    (outcome, _) = model.ask([launch(16, kernel="topk")])
    seen = outcome.observed
    assert outcome.status is Status.PASS
    assert (seen.cluster_seen, seen.verified, seen.check, seen.time_us, seen.sync_code) == (
        None,
    ) * 5
    assert outcome.driver_log is None
    assert set(model.inputs) == {"profile thor", "kernels/topk.cu"}
    assert set(model.software) == {"nvrtc"}


def test_partitions_without_a_measurement_are_refused() -> None:
    """A partition of Thor is not modelled, nor is a launch in another partition answered."""
    with pytest.raises(UsageError, match="does not model"):
        ModelAnswerer("thor", "sms=8")
    with pytest.raises(UsageError, match="whole device"):
        list(ModelAnswerer("h200").ask([launch(8, partition="sms=8")]))


def test_a_device_without_clusters_is_refused() -> None:
    """A profile below compute capability 9.0 is no device for cluster kernels."""
    with pytest.raises(UsageError, match=r"capability 8\.9"):
        ModelAnswerer(msgspec.structs.replace(load("gb10"), capability=(8, 9)))
