# SPDX-License-Identifier: Apache-2.0
"""What ``thorprobe.topk.kernel`` tells a driver that is played: parameters, streams, contexts."""

import ctypes
from collections import Counter

import pytest
from cuda.bindings import driver

from thorprobe.topk import kernel
from thorprobe.topk.variant import Variant

OK, REFUSED = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE


class _Driver:
    """Streams of a green context, and one current context of device 0."""

    def __init__(self):
        self.calls = Counter()
        self.green, self.capturing = 5, False
        self.device, self.context = 0, 100
        self.code = OK
        self.launched = []

    def install(self, monkeypatch):
        for name in ("cuStreamIsCapturing", "cuStreamGetGreenCtx"):
            monkeypatch.setattr(driver, name, self._counted(name))
        for name in ("cuCtxGetDevice", "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain"):
            monkeypatch.setattr(driver, name, self._counted(name))
        monkeypatch.setattr(driver, "cuCtxSetCurrent", self._counted("cuCtxSetCurrent"))
        monkeypatch.setattr(driver, "cuLaunchKernelEx", self._counted("cuLaunchKernelEx"))
        kernel._greens.cache_clear()

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
        return OK, driver.CUcontext(100 + device)

    def cuCtxSetCurrent(self, context):  # noqa: N802
        self.context = int(context)
        self.device = self.context - 100
        return (OK,)

    def cuLaunchKernelEx(self, config, function, parameters, extra):  # noqa: N802
        table = (ctypes.c_void_p * 14).from_address(parameters)
        wide = [ctypes.c_uint64.from_address(table[place]).value for place in range(7)]
        narrow = [ctypes.c_uint32.from_address(table[place]).value for place in range(7, 14)]
        self.launched.append((int(config.hStream), wide, narrow))
        return (self.code,)


@pytest.fixture
def played(monkeypatch):
    """Put the played driver in the place of the bindings' functions."""
    made = _Driver()
    made.install(monkeypatch)
    yield made
    kernel._greens.cache_clear()


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
