# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802  the driver spells its functions so
"""A worker's side of shipped kernels, on a driver that is played with host memory."""

import ctypes
import hashlib
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from cuda.bindings import driver as real

from thorprobe.driver import launch
from thorprobe.judge.cause import judge
from thorprobe.plan.shipped import spec
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.record import Status, Verdict, Workload
from thorprobe.run import probe, shipped_module, worker_protocol
from thorprobe.run.shipped_module import QUERIED

FIELDS = ("logits", "output", "lengths", "workspace", "rows", "stride")
WORK = Workload(rows=3, columns=64, stride=64, length=40, k=8)


class _PlayedDriver:
    """Keeps device memory on the host, and selects in NumPy where a kernel would."""

    def __init__(self):
        self.held = {}
        self.launches = []
        self.load_code = 0
        self.spoil = False

    def __getattr__(self, name):
        return getattr(real, name)

    def cuMemAlloc(self, size):
        made = ctypes.create_string_buffer(size)
        self.held[ctypes.addressof(made)] = made
        return 0, ctypes.addressof(made)

    def cuMemcpyHtoD(self, target, source, size):
        ctypes.memmove(target, source, size)
        return (0,)

    def cuMemcpyDtoH(self, target, source, size):
        ctypes.memmove(target, source, size)
        return (0,)

    def cuMemsetD32(self, target, value, words):
        (ctypes.c_uint32 * words).from_address(target)[:] = [value] * words
        return (0,)

    def cuModuleLoadData(self, _data):
        return self.load_code, "module"

    def cuModuleGetFunction(self, _module, name):
        return 0, name

    def cuFuncGetAttribute(self, _which, _function):
        return 0, 49_152

    def cuFuncSetAttribute(self, _function, _which, _value):
        return (0,)

    def cuOccupancyMaxPotentialClusterSize(self, _function, _config):
        return 0, 8

    def cuOccupancyMaxActiveClusters(self, _function, _config):
        return 0, 5

    def cuCtxSynchronize(self):
        return (0,)

    def cuLaunchKernelEx(self, config, function, parameters, _extra):
        (block,), (kind,) = parameters
        assert kind is None
        self.launches.append((function, config.gridDimX, config.gridDimY, config.sharedMemBytes))
        shape = (block.rows, block.stride)
        scores = np.ctypeslib.as_array(
            (ctypes.c_float * (block.rows * block.stride)).from_address(block.logits)
        ).reshape(shape)
        lengths = (ctypes.c_int32 * block.rows).from_address(block.lengths)
        chosen = np.ctypeslib.as_array(
            (ctypes.c_int32 * (block.rows * WORK.k)).from_address(block.output)
        ).reshape(block.rows, WORK.k)
        for row in range(block.rows):
            order = np.argsort(-scores[row, : lengths[row]])[: WORK.k]
            chosen[row] = order[::-1]
        if self.spoil:
            chosen[0, 0] = chosen[0, 1]
        ctypes.memset(block.workspace, 0, block.rows * 16)
        return (0,)


@pytest.fixture
def played(monkeypatch):
    """Put the played driver in the place of the real one."""
    driver = _PlayedDriver()
    for module in (probe, launch, shipped_module):
        monkeypatch.setattr(module, "driver", driver)
    for module in (launch, shipped_module):
        monkeypatch.setattr(module, "describe", lambda code: (f"CODE_{code}", f"code {code}"))
    monkeypatch.setattr(launch, "_CACHE", {})
    return driver


@pytest.fixture
def asked(tmp_path, played, fake_device):
    """Return a prober that knows a shipped kernel, and how to ask it."""
    image = tmp_path / "image.cubin"
    image.write_bytes(b"code")
    digest = hashlib.sha256(b"code").hexdigest()
    function = ShippedFunction(
        symbol="entry4", name="entry", cluster=(1, 4, 1), threads=1024, dynamic_smem=1000
    )
    kernel = ShippedKernel(
        label=f"entry@{digest[:12]}",
        image=digest,
        target="sm_90",
        functions=(function,),
        k=WORK.k,
        parameters=FIELDS,
        workspace_bytes=16,
    )
    context = SimpleNamespace(stream=0)
    log = SimpleNamespace(take=lambda: ())
    prober = probe.Prober(context, log, "numpy", lambda _stage: None)

    def ask(work=WORK, **changes):
        given = msgspec.structs.replace(kernel, **changes)
        prober.adopt(worker_protocol.Load(kernels=(given,), images={digest: str(image)}))
        outcome = prober.answer(spec(given, function, workload=work))
        return judge(outcome, fake_device)

    return SimpleNamespace(ask=ask, image=image)


def test_a_shipped_launch_takes_its_block_and_its_result_is_compared(asked, played):
    """Grid, bytes and parameters are the layout's, and a right result makes it launch."""
    outcome = asked.ask()
    assert (outcome.verdict, outcome.observed.check.wrong_rows) == (Verdict.LAUNCHES, 0)
    assert outcome.observed.verified is True
    assert played.launches == [(b"entry4", 3, 4, 1000)]
    calls = [call.call for call in outcome.calls]
    assert calls[-2:] == ["cuLaunchKernelEx", "cuCtxSynchronize"]


def test_a_wrong_result_of_a_shipped_kernel_is_seen(asked, played):
    """A repeated index is a wrong result of that row, whoever's kernel wrote it."""
    played.spoil = True
    outcome = asked.ask()
    assert (outcome.verdict, outcome.cause) == (Verdict.WRONG, "wrong-result")
    assert outcome.observed.check.wrong_rows == 1
    assert "row 0" in outcome.note


def test_without_a_layout_nothing_is_launched(asked, played):
    """The occupancy queries are answered, and no launch call is made."""
    outcome = asked.ask(parameters=())
    assert (outcome.status, outcome.verdict) == (Status.PASS, Verdict.NOT_PROBED)
    assert (outcome.observed.max_active, outcome.observed.launch_code) == (5, None)
    assert outcome.note == QUERIED
    assert played.launches == []


def test_an_image_that_the_driver_refuses_is_judged_by_its_code(asked, played):
    """209 at module load is no kernel image, and costs one record."""
    played.load_code = 209
    outcome = asked.ask()
    assert (outcome.verdict, outcome.cause) == (Verdict.REFUSED, "no-kernel-image")
    assert [call.call for call in outcome.calls] == ["cuModuleLoadData"]


def test_a_changed_cubin_is_not_loaded(asked, played):
    """The bytes in the cache must be those that were inspected."""
    asked.image.write_bytes(b"other code")
    outcome = asked.ask()
    assert outcome.status is Status.ERROR
    assert "is not the one that was inspected" in outcome.note
    assert played.launches == []
