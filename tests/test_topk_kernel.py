# SPDX-License-Identifier: Apache-2.0
"""What ``thorprobe.topk.kernel`` tells a driver that is played: parameters, streams, contexts."""

import ctypes
from collections import Counter

import pytest
from cuda.bindings import driver

from thorprobe.errors import CouldNotProbeError
from thorprobe.topk import kernel
from thorprobe.topk.variant import Variant

OK, REFUSED = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE


_CACHED = (kernel._greens, kernel._primary, kernel.function)
# What is remembered of a driver; a real one may follow.


CLUSTER = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
EARLY = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def _shape(config):
    """Return grid, block, shared memory and attributes of a launch as they are now."""
    attributes = {}
    for one in config.attrs[: config.numAttrs]:
        dim = one.value.clusterDim
        attributes[one.id] = (
            (dim.x, dim.y, dim.z)
            if one.id == CLUSTER
            else one.value.programmaticStreamSerializationAllowed
        )
    grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
    block = (config.blockDimX, config.blockDimY, config.blockDimZ)
    return grid, block, config.sharedMemBytes, attributes


class _Driver:
    """Streams of a green context, and one current context of device 0."""

    def __init__(self):
        self.calls = Counter()
        self.green, self.capturing = 5, False
        self.device, self.context = 0, 100
        self.code = self.occupancy = self.non_portable = self.retained = OK
        self.active = 3
        self.launched = []
        self.launched_with, self.asked_with = [], []

    def install(self, monkeypatch):
        for name in ("cuStreamIsCapturing", "cuStreamGetGreenCtx"):
            monkeypatch.setattr(driver, name, self._counted(name))
        for name in ("cuCtxGetDevice", "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain"):
            monkeypatch.setattr(driver, name, self._counted(name))
        for name in ("cuCtxSetCurrent", "cuLaunchKernelEx", "cuOccupancyMaxActiveClusters"):
            monkeypatch.setattr(driver, name, self._counted(name))
        for name in ("cuFuncSetAttribute", "cuModuleGetFunction"):
            monkeypatch.setattr(driver, name, self._counted(name))
        monkeypatch.setattr(kernel, "_module", lambda *_: None)
        monkeypatch.setattr(kernel, "describe", lambda code: (f"NAME_{code}", "a sentence"))
        for cached in _CACHED:
            cached.cache_clear()
        monkeypatch.setattr(kernel, "_PORTABLE_ALONE", {})

    def _counted(self, name):
        def call(*arguments):
            self.calls[name] += 1
            return getattr(self, name)(*arguments)

        return call

    def cuStreamIsCapturing(self, stream):  # noqa: N802
        status = driver.CUstreamCaptureStatus
        active, none = "CU_STREAM_CAPTURE_STATUS_ACTIVE", "CU_STREAM_CAPTURE_STATUS_NONE"
        return OK, getattr(status, active if self.capturing else none)

    def cuStreamGetGreenCtx(self, stream):  # noqa: N802
        if self.green is None:
            raise RuntimeError("Function cuStreamGetGreenCtx is not found")
        return OK, driver.CUgreenCtx(self.green)

    def cuCtxGetDevice(self):  # noqa: N802
        if not self.context:
            return driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, None
        return OK, self.device

    def cuCtxGetCurrent(self):  # noqa: N802
        return OK, driver.CUcontext(self.context)

    def cuDevicePrimaryCtxRetain(self, device):  # noqa: N802
        return self.retained, driver.CUcontext(100 + device)

    def cuCtxSetCurrent(self, context):  # noqa: N802
        self.context = int(context)
        self.device = self.context - 100
        return (OK,)

    def cuLaunchKernelEx(self, config, function, parameters, extra):  # noqa: N802
        table = (ctypes.c_void_p * 14).from_address(parameters)
        wide = [ctypes.c_uint64.from_address(table[place]).value for place in range(7)]
        narrow = [ctypes.c_uint32.from_address(table[place]).value for place in range(7, 14)]
        self.launched.append((int(config.hStream), wide, narrow))
        self.launched_with.append(_shape(config))
        return (self.code,)

    def cuOccupancyMaxActiveClusters(self, function, config):  # noqa: N802
        self.asked_with.append((int(config.hStream), _shape(config)))
        return self.occupancy, self.active

    def cuModuleGetFunction(self, module, name):  # noqa: N802
        return OK, driver.CUfunction(9)

    def cuFuncSetAttribute(self, function, which, value):  # noqa: N802
        portable = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        return (self.non_portable if which == portable else OK,)


@pytest.fixture
def played(monkeypatch):
    """Put the played driver in the place of the bindings' functions."""
    made = _Driver()
    made.install(monkeypatch)
    yield made
    for cached in _CACHED:
        cached.cache_clear()


def test_a_launch_hands_over_what_was_set_last(played, monkeypatch):
    """Seven 64-bit words, strides of either sign among them, and seven of 32 bits, in place."""
    monkeypatch.setattr(kernel, "function", lambda *_: driver.CUfunction(9))
    monkeypatch.setattr(kernel, "_allow", lambda *_: None)
    variant = Variant(function="long", threads=512, scores=8)
    shape = {"strided": True, "rows": 3, "ctas": 8, "clustered": True, "stream": 4, "k": 512}
    made = kernel.Launch(0, variant, "float32", **shape)
    made.set_shape(100, 2, 512, 5)
    top = 2**63 - 1
    assert made((top, 2, 3, 0, 5, 2**40, -512)) == 0
    made.aim(7, 2**31 - 2**20)
    played.code = REFUSED
    assert made((1, 2, 3, 4, 5, 6, 7)) == 912
    words = [kernel.room(512), kernel.cap(512), 3]
    assert played.launched == [
        (4, [top, 2, 3, 0, 5, 2**40, 2**64 - 512], [100, 2, 512, 5, *words]),
        (7, [1, 2, 3, 4, 5, 6, 7], [2**31 - 2**20, 2, 512, 5, *words]),
    ]


@pytest.mark.parametrize("capturing", [False, True])
def test_a_partition_is_that_of_the_stream_that_has_the_handle_now(played, capturing):
    """A handle may come again for another stream, so each call asks, and asks nothing else."""
    played.capturing = capturing
    assert kernel.partition(4) == 5
    played.green = 0
    assert kernel.partition(4) == 0
    assert set(played.calls) == {"cuStreamGetGreenCtx"}


def test_a_driver_without_green_contexts_has_no_partitions(played):
    """The bindings raise for a function that the driver lacks: it is asked once."""
    played.green = None
    assert [kernel.partition(4) for _ in range(3)] == [0] * 3
    assert played.calls["cuStreamGetGreenCtx"] == 1


def test_the_right_context_is_left_alone(played):
    """One question, and nothing is set."""
    with kernel.Current(0):
        assert played.context == 100
    assert played.calls == {"cuCtxGetDevice": 1}


@pytest.mark.parametrize(("before", "after"), [(101, 101), (0, 100)])
def test_another_context_is_current_again_afterwards(played, before, after):
    """Inside, the device's own is current; without one before, it stays."""
    played.context, played.device = before, before - 100
    with kernel.Current(0):
        assert played.context == 100
    assert played.context == after


def test_a_primary_context_is_retained_once(played):
    """However often another device's context is current: the driver counts every retaining."""
    for _ in range(3):
        played.context, played.device = 101, 1
        with kernel.Current(0):
            assert played.context == 100
        assert played.context == 101
    assert played.calls["cuDevicePrimaryCtxRetain"] == 1


def test_a_primary_context_that_cannot_be_had_is_told(played, monkeypatch):
    """The driver's answer is an error of its own, not a context of nothing."""
    monkeypatch.setattr(
        "thorprobe.driver.context.describe", lambda code: (f"NAME_{code}", "a word")
    )
    played.context, played.retained = 0, driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(CouldNotProbeError, match="cuDevicePrimaryCtxRetain answered 2 NAME_2"):
        kernel.enter(0)
    played.retained = OK
    kernel.enter(0)
    assert played.context == 100


def _launch(ctas=16, *, clustered=True):
    variant = Variant(function="long", threads=512, scores=8)
    shape = {"strided": False, "rows": 3, "ctas": ctas, "stream": 4, "k": 512}
    shape["clustered"] = clustered
    return kernel.Launch(0, variant, "float32", **shape)


def test_an_occupancy_that_is_an_error_is_told_with_its_code(played):
    """No room and no answer are two things: only the first is ``max_active_clusters`` 0."""
    made = _launch()
    assert (made.slots(), made.refusal) == (3, "")
    played.active = 0
    assert (made.slots(), made.refusal) == (0, "")
    played.occupancy = REFUSED
    assert made.slots() == 0
    assert made.refusal == "cuOccupancyMaxActiveClusters answered 912 NAME_912 a sentence"


def test_a_setter_that_was_refused_is_told_where_a_cluster_does_not_fit(played):
    """The driver did not allow more than 8 CTAs: no matter to those that fit."""
    played.non_portable = driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
    made = _launch()
    assert (made.slots(), made.refusal) == (3, "")
    told = "cuFuncSetAttribute answered 801 NAME_801 a sentence to clusters of more than 8"
    played.active = 0
    assert (made.slots(), made.refusal) == (0, told)
    played.occupancy = REFUSED
    made.slots()
    assert made.refusal.endswith(f"912 NAME_912 a sentence; {told}")


def test_a_launch_again_has_the_parameters_of_before(played):
    """Set once or at each call, equal or other ones: the driver reads what was set last."""
    made = _launch()
    made.set_shape(100, 1, 512, 0)
    made.place((1, 2, 3, 4, 5, 6, 7))
    assert made.again() == 0
    assert made((1, 2, 3, 4, 5, 6, 7)) == 0
    assert made((1, 2, 3, 4, 5, 6, 8)) == 0
    made.aim(4, 200)
    made.aim(4, 200)
    played.code = REFUSED
    assert made.again() == 912
    made.set_shape(300, 1, 512, 0)
    made.aim(4, 200)
    made.place((7, 6, 5, 4, 3, 2, 1))
    made.again()
    assert [wide for _, wide, _ in played.launched] == [
        [1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 4, 5, 6, 8],
        [1, 2, 3, 4, 5, 6, 8],
        [7, 6, 5, 4, 3, 2, 1],
    ]
    assert [narrow[0] for *_, narrow in played.launched] == [100, 100, 100, 200, 200]


@pytest.mark.parametrize(("ctas", "clustered"), [(1, True), (8, True), (16, True), (8, False)])
def test_a_launch_may_begin_early_and_occupancy_is_asked_of_its_cluster_alone(
    played, ctas, clustered
):
    """Before, between and after launches alike: the question takes nothing from a launch."""
    made = _launch(ctas, clustered=clustered)
    made.set_shape(100, 1, 512, 0)
    made.place((1, 2, 3, 4, 5, 6, 7))
    made.slots()
    made.again()
    made.aim(9, 100)
    made.slots()
    made((1, 2, 3, 4, 5, 6, 8))
    cluster = {CLUSTER: (1, ctas if clustered else 1, 1)}
    shape = ((3, ctas, 1), (512, 1, 1), kernel.shared_bytes(512))
    assert played.asked_with == [(4, (*shape, cluster)), (9, (*shape, cluster))]
    assert played.launched_with == [(*shape, {**cluster, EARLY: 1})] * 2
    assert [stream for stream, *_ in played.launched] == [4, 9]
