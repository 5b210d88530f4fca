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
    """Streams with numbers and green contexts, and one current context of device 0."""

    def __init__(self):
        self.calls = Counter()
        self.number, self.green, self.capturing = 11, 5, False
        self.device, self.context = 0, 100
        self.code = OK
        self.launched = []

    def install(self, monkeypatch):
        for name in ("cuStreamIsCapturing", "cuStreamGetId", "cuStreamGetGreenCtx"):
            monkeypatch.setattr(driver, name, self._counted(name))
        for name in ("cuCtxGetDevice", "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain"):
            monkeypatch.setattr(driver, name, self._counted(name))
        monkeypatch.setattr(driver, "cuCtxSetCurrent", self._counted("cuCtxSetCurrent"))
        monkeypatch.setattr(driver, "cuLaunchKernelEx", self._counted("cuLaunchKernelEx"))
        monkeypatch.setattr(kernel, "_STREAMS", {})

    def _counted(self, name):
        def call(*arguments):
            self.calls[name] += 1
            return getattr(self, name)(*arguments)

        return call

    def cuStreamIsCapturing(self, stream):  # noqa: N802
        status = driver.CUstreamCaptureStatus
        active, none = "CU_STREAM_CAPTURE_STATUS_ACTIVE", "CU_STREAM_CAPTURE_STATUS_NONE"
        return OK, getattr(status, active if self.capturing else none)

    def cuStreamGetId(self, stream):  # noqa: N802
        assert not self.capturing
        return (OK, self.number) if self.number else (REFUSED, None)

    def cuStreamGetGreenCtx(self, stream):  # noqa: N802
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
    return made


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


def test_a_stream_is_asked_once_for_its_partition(played):
    """As long as its number stays, the green context that it belongs to is remembered."""
    assert [kernel.partition(4) for _ in range(5)] == [5] * 5
    assert played.calls["cuStreamGetGreenCtx"] == 1


def test_a_handle_that_another_stream_got_is_asked_again(played):
    """The number differs although the handle does not, and the partition is the new stream's."""
    assert kernel.partition(4) == 5
    played.number, played.green = 12, 0
    assert [kernel.partition(4) for _ in range(3)] == [0] * 3
    assert played.calls["cuStreamGetGreenCtx"] == 2


def test_a_stream_without_a_number_is_asked_every_time(played):
    """Where the driver has no number, nothing is taken for granted."""
    played.number = None
    assert kernel.partition(4) == 5
    played.green = 6
    assert kernel.partition(4) == 6


def test_a_captured_stream_is_never_asked_its_number(played):
    """A known stream keeps its partition inside a capture; an unknown one is not remembered."""
    assert kernel.partition(4) == 5
    played.capturing, played.green = True, 6
    assert (kernel.partition(4), kernel.partition(8)) == (5, 6)
    assert played.calls["cuStreamGetId"] == 1
    played.capturing, played.number, played.green = False, 21, 7
    assert (kernel.partition(8), kernel.partition(4)) == (7, 7)


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
