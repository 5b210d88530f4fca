# SPDX-License-Identifier: Apache-2.0
"""How the driver is asked about an arm of vLLM's operator, with a driver that is played."""

import pytest
from cuda.bindings import driver

from thorprobe.errors import CouldNotProbeError
from thorprobe.vllm import dropin_cuda
from thorprobe.vllm.dropin_hosting import Answers, Arm, Hosted, arms
from thorprobe.vllm.dropin_release import policy

ARM = Arm(cluster=16, threads=1_024, dynamic_smem=156_416)


@pytest.fixture
def played(monkeypatch):
    """Play the two calls; ``codes`` says what each answers, ``seen`` keeps what was asked."""
    codes, seen = {}, []
    which = driver.CUfunction_attribute

    def set_attribute(function, attribute, value):
        name = which(attribute).name
        seen.append((name, value))
        return (codes.get(name, 0),)

    def occupancy(function, config):
        (attribute,) = config.attrs
        dim = attribute.value.clusterDim
        seen.append(
            {
                "grid": (config.gridDimX, config.gridDimY, config.gridDimZ),
                "block": config.blockDimX,
                "smem": config.sharedMemBytes,
                "stream": int(config.hStream),
                "cluster": (dim.x, dim.y, dim.z),
            }
        )
        return codes.get("occupancy", 0), codes.get("active", 3)

    monkeypatch.setattr(driver, "cuFuncSetAttribute", set_attribute)
    monkeypatch.setattr(driver, "cuOccupancyMaxActiveClusters", occupancy)
    monkeypatch.setattr("thorprobe.driver.context.describe", lambda code: (f"CODE_{code}", "so"))
    return codes, seen


def test_an_arm_is_asked_as_vllm_launches_it(played):
    """Cluster, threads, bytes and opt-ins are the arm's; the stream is the caller's."""
    _, seen = played
    assert dropin_cuda._ask("kernel", ARM, 7) == Hosted(max_active=3)
    assert seen == [
        ("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1),
        ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 156_416),
        {"grid": (1, 16, 1), "block": 1_024, "smem": 156_416, "stream": 7, "cluster": (1, 16, 1)},
    ]


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ({"active": 0}, "max_active_clusters is 0"),
        ({"occupancy": 912}, "cuOccupancyMaxActiveClusters answers 912 CODE_912"),
        (
            {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 1},
            "cuFuncSetAttribute MAX_DYNAMIC_SHARED_SIZE_BYTES answers 1 CODE_1",
        ),
        (
            {"CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED": 801},
            "cuFuncSetAttribute NON_PORTABLE_CLUSTER_SIZE_ALLOWED answers 801 CODE_801",
        ),
    ],
)
def test_a_refusal_keeps_the_drivers_answer(played, codes, told):
    """No code is dropped: each says which call answered what."""
    played[0].update(codes)
    found = dropin_cuda._ask("kernel", ARM, 0)
    assert (found.max_active, found.told) == (0, told)


def test_without_the_bindings_it_is_one_sentence(monkeypatch):
    """The device cannot be asked, so nothing is said of it."""
    monkeypatch.setattr(dropin_cuda, "_kernel", _missing)
    host = object.__new__(dropin_cuda.CudaHost)
    with pytest.raises(CouldNotProbeError, match="the device cannot be asked: no cuda"):
        host.hosts((0, 0), ARM)


def _missing():
    raise ImportError("no cuda")


def test_the_arms_of_a_thor_and_of_an_h200():
    """A Thor's rows 1 to 4 take 16 CTAs, an H200's 8; each size with its own bytes."""
    found = policy("0.33.0")
    sizes = {16: 156_416, 8: 156_416, 4: 221_952, 2: 221_952}
    assert {arm.cluster: arm.dynamic_smem for arm in arms(found, 11)} == sizes
    assert [arm.cluster for arm in arms(found, 9)] == [8, 4, 2]


def test_what_could_not_be_asked_is_asked_once():
    """A compiler that is missing is not looked for at every shape."""

    class Host:
        asked = 0

        def capturing(self):
            """Say no."""
            return False

        def device(self, place):
            """Name a Thor."""
            return "Thor", 11

        def hosts(self, place, arm):
            """Fail."""
            self.asked += 1
            raise CouldNotProbeError("no NVRTC")

    host = Host()
    answers = Answers(host, policy("0.33.0"))
    for rows in (1, 2, 3, 20):
        arm = answers.arm((0, 0), rows)
        assert answers.hosted((0, 0), arm).told == "occupancy is not known: no NVRTC"
    assert host.asked == 4
