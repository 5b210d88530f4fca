# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show of shipped kernels: loaded, queried, launched and checked as shipped."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from thorprobe.judge.cause import judge
from thorprobe.plan.shipped import spec
from thorprobe.plan.sweep import SweepOptions, plan
from thorprobe.record import Verdict, Workload
from thorprobe.run.gpu import GpuAnswerer
from thorprobe.run.shipped import open_for
from thorprobe.run.shipped_module import QUERIED

pytestmark = pytest.mark.gpu
BINARIES = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "binaries.py")))
REAL = Path(__file__).parents[1] / ".carry" / "cooperative_topk_sm90a.cubin"
"""The sm_90a image of the vLLM 0.33.0 wheel, where someone put it; it is not ours to ship."""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Share a cache among these tests, apart from the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "gpu-shipped"))


@pytest.fixture(scope="module")
def whole():
    """Open an answerer on the whole device."""
    answerer = GpuAnswerer()
    yield answerer
    answerer.close()


@pytest.fixture(scope="module")
def eight():
    """Open an answerer on a green context of 8 SMs."""
    answerer = GpuAnswerer(partition="sms=8")
    yield answerer
    answerer.close()


@pytest.fixture(scope="module")
def cubin(whole):
    """Compile the stand-ins of shipped kernels for this device."""
    return BINARIES.shipped_cubin("sm_{}{}".format(*whole.device.capability))


@pytest.fixture(scope="module")
def vllm(cubin, tmp_path_factory):
    """Write a wheel that calls itself vLLM 0.33.0 and holds the stand-ins."""
    path = tmp_path_factory.mktemp("wheel") / "vllm-0.33.0-made.whl"
    return BINARIES.wheel(path, {"vllm/made.cubin": cubin}, "vllm", "0.33.0")


def ask(answerer, *specs):
    """Return the judged outcome of each launch."""
    return [judge(outcome, answerer.device) for outcome in answerer.ask(specs)]


def swept(answerer, path, **options):
    """Attach the kernels of a file and ask all of them with the opt-in."""
    held = open_for(path, "", answerer.device.capability)
    answerer.attach(held)
    partition = answerer.device.partition
    specs = plan(SweepOptions(shipped=held.kernels, partition=partition, **options))
    return ask(answerer, *(s for s in specs if s.non_portable))


def test_stand_ins_of_shipped_kernels_launch_and_are_right(whole, vllm):
    """Every size launches through the layout's parameter block, and the result is the oracle's."""
    for outcome in swept(whole, vllm):
        assert outcome.verdict is Verdict.LAUNCHES, outcome
        assert outcome.observed.verified is True
        assert outcome.observed.check.wrong_rows == 0


def test_sixteen_of_a_shipped_kernel_is_refused_in_eight_sms(eight, vllm):
    """In 8 SMs 16 CTAs give 912, and the kernel's own occupancy says 0; the rest is right."""
    seen = {(o.spec.workload.k, o.spec.cluster_size): o for o in swept(eight, vllm)}
    for (_, size), outcome in seen.items():
        if size == 16:
            assert (outcome.observed.launch_code, outcome.observed.max_active) == (912, 0)
            assert outcome.cause == "larger-than-any-gpc"
        else:
            assert outcome.verdict is Verdict.LAUNCHES, outcome


def test_a_kernel_of_no_known_version_is_queried_and_never_launched(whole, cubin, tmp_path):
    """Without a layout the queries are answered, and no launch call is made."""
    path = tmp_path / "unnamed.cubin"
    path.write_bytes(cubin + b"\0")  # Other bytes, so that no label is shared with the wheel.
    for outcome in swept(whole, path):
        assert (outcome.verdict, outcome.cause) == (Verdict.NOT_PROBED, None)
        assert outcome.note == QUERIED
        assert outcome.observed.launch_code is None
        assert outcome.observed.max_active >= 1
        assert not [call for call in outcome.calls if call.call.startswith("cuLaunch")]


def test_an_image_of_another_device_is_no_kernel_image(whole, vllm, tmp_path):
    """A cubin of another family is refused at module load with 209, and the next launch is well."""
    other = "sm_120" if whole.device.capability[0] != 12 else "sm_90"
    path = tmp_path / "other.cubin"
    path.write_bytes(BINARIES.shipped_cubin(other))
    capability = (12, 0) if other == "sm_120" else (9, 0)
    held = open_for(path, "", capability)
    whole.attach(held)
    kernel = held.kernels[0]
    after = open_for(vllm, "", whole.device.capability)
    whole.attach(after)
    refused, well = ask(
        whole,
        spec(kernel, kernel.functions[0]),
        plan(SweepOptions(shipped=after.kernels, sizes=(8,)))[0],
    )
    assert (refused.verdict, refused.cause) == (Verdict.REFUSED, "no-kernel-image")
    assert refused.calls[0].code == 209
    assert well.verdict is Verdict.LAUNCHES


def test_inspect_asks_the_device_and_launches_nothing(main, vllm, monkeypatch):
    """`inspect --device 0` has measured occupancy and not one launch."""
    monkeypatch.setattr("thorprobe.run.gpu.driver_present", lambda: True)
    ran = main("inspect", vllm, "--device", "0", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["origin"] == "measured"
    assert document["results"]
    for result in document["results"]:
        assert result["observed"]["max_active"] is not None
        assert not [c for c in result["calls"] if c["call"].startswith("cuLaunch")]
    (device,) = document["summary"]["devices"]
    for row in device["kernels"]:
        room = row["max_active"] >= 1
        assert row["verdict"] == ("not probed" if room else "refused")
        assert row["cause"] == (None if room else "larger-than-any-gpc")
    assert "by the occupancy query" in device["finding"]


@pytest.mark.parametrize("k", [512, 1024, 2048])
@pytest.mark.parametrize("rows", [1, 4, 5, 8, 9, 33, 34, 64])
def test_vllms_own_kernels_are_right_at_every_size(whole, rows, k):
    """The shipped sm_90a kernels give the oracle's values at every size, on every path."""
    if not REAL.is_file():
        pytest.skip("waived: no shipped cubin in .carry")
    if whole.device.capability != (9, 0):
        pytest.skip("waived: the shipped cubin is of sm_90a")
    held = open_for(REAL, "", whole.device.capability)
    assert {kernel.layout for kernel in held.kernels} == {"vllm-0.33.0"}
    whole.attach(held)
    kernel = next(one for one in held.kernels if one.k == k)
    work = Workload(rows=rows, columns=65_536, stride=65_536, length=65_536, k=k)
    lengths = (0, k // 2, 16_384, 65_536)
    specs = [
        spec(kernel, function, workload=msgspec.structs.replace(work, length=length))
        for function in kernel.functions
        for length in lengths
    ]
    for outcome in ask(whole, *specs):
        assert outcome.verdict is Verdict.LAUNCHES, outcome
        assert outcome.observed.check.wrong_rows == 0
