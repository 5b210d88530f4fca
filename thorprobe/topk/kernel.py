# SPDX-License-Identifier: Apache-2.0
"""The kernels of the ladder on one device: compiled, loaded, asked, launched.

``run.launch`` records every driver call of a probe; a model's selection is launched here instead,
with nothing recorded but a refusal, because it must cost microseconds.
"""

import ctypes
import struct
import threading
from functools import lru_cache
from typing import Any

from cuda.bindings import driver

from thorprobe.driver.compile import TARGETS, compile_cubin
from thorprobe.driver.context import answer, describe, require
from thorprobe.errors import CouldNotProbeError, ThorprobeError
from thorprobe.topk.contract import DTYPES
from thorprobe.topk.variant import Variant

KERNEL = "select"
_BINS_BYTES = 8_192
_PART_WORDS = 32
# 16 parts of 16 B before the candidates of a row (struct Part of the kernel), in 8-byte words.
_POINTERS, _WORDS = 7, 7
_PACK = struct.Struct("=5Q2q").pack_into
# Addresses and strides: the rows of ``out`` may go downwards. Setting a slice costs half as much
# again (0.46 against 0.32 us, 2026-11-30).


def defines(dtype: str, threads: int, *, strided: bool) -> tuple[str, ...]:
    """Return the macros of a compilation."""
    return (f"-DTHREADS={threads}", f"-DSCORE={DTYPES.index(dtype)}", f"-DSTRIDED={int(strided)}")


def room(k: int) -> int:
    """Return the sorted entries that shared memory holds: k and what may tie with the last."""
    return k + 512


def cap(k: int) -> int:
    """Return the candidates that a row may have before it is repeated exactly."""
    return 4_096 if k <= 1_024 else 8_192


def shared_bytes(k: int) -> int:
    """Return the dynamic shared memory of a launch, in bytes."""
    return _BINS_BYTES + 8 * (room(k) + cap(k))


def parts_bytes(rows: int, k: int) -> int:
    """Return the bytes of global memory that ``part`` and ``merge`` share."""
    return 8 * rows * (_PART_WORDS + cap(k))


@lru_cache(maxsize=64)
def target(device: int) -> str:
    """Return the compile target of a device. Raises CouldNotProbeError for one without clusters."""
    attribute = driver.CUdevice_attribute
    major, minor = (
        require("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(which, device))
        for which in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    name = f"sm_{major}{minor}"
    if name not in TARGETS:
        raise CouldNotProbeError(f"the kernels are not compiled for {name}", "")
    return name


@lru_cache(maxsize=64)
def _module(device: int, dtype: str, threads: int, strided: bool) -> Any:
    cubin = compile_cubin(KERNEL, target(device), 0, defines(dtype, threads, strided=strided))
    code, module = answer(driver.cuModuleLoadData(cubin))
    if code:
        raise ThorprobeError(f"cuModuleLoadData answered {code} {' '.join(describe(code))}")
    return module


@lru_cache(maxsize=256)
def function(device: int, dtype: str, variant: Variant, strided: bool) -> Any:
    """Return the loaded function. Raises ThorprobeError where it does not load."""
    module = _module(device, dtype, variant.threads, strided)
    name = f"{variant.function}_{variant.scores}".encode()
    code, found = answer(driver.cuModuleGetFunction(module, name))
    if code:
        raise ThorprobeError(f"cuModuleGetFunction answered {code} {' '.join(describe(code))}")
    which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    code, _ = answer(driver.cuFuncSetAttribute(found, which, 1))
    if code:
        # Clusters of up to 8 need no such permission: the answer is told where 16 do not fit.
        _PORTABLE_ALONE[int(found)] = code
    return found


_PORTABLE_ALONE: dict[int, int] = {}
# What the driver answered to the functions that it did not allow clusters of more than 8.


def _cluster_of(ctas: int) -> driver.CUlaunchAttribute:
    """Return the attribute of clusters of ``ctas`` CTAs, along y."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dim = attribute.value.clusterDim
    dim.x, dim.y, dim.z = 1, ctas, 1
    return attribute


def _early() -> driver.CUlaunchAttribute:
    """Return the attribute of a launch that may begin while the one before it drains."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


_EARLY = _early()


class Launch:
    """One launch prepared for a number of rows and a kernel; the rest is set from call to call.

    It may begin while the launch before it on the stream drains (programmatic stream
    serialization), which took 0.25 us off 3 to 4.5 on an H200. The kernels wait for what came
    before (``griddepcontrol.wait``), so that nothing is read or written before that is done. Not
    for two threads at once: parameters are written in place.
    """

    def __init__(
        self,
        device: int,
        variant: Variant,
        dtype: str,
        *,
        strided: bool,
        rows: int,
        ctas: int,
        clustered: bool,
        stream: int,
        k: int,
    ) -> None:
        """Prepare a launch of ``rows`` x ``ctas`` CTAs, as clusters where ``clustered``.

        Raises ThorprobeError where the kernel does not load, or asks more shared memory than there
        is.
        """
        self.function = function(device, dtype, variant, strided)
        self.refusal = ""
        self._grid, self._threads, self._shared = (rows, ctas), variant.threads, shared_bytes(k)
        # A cluster of one CTA too: occupancy answers nothing for a launch without the attribute.
        self._cluster = ctas if clustered else 1
        self._stream = stream
        self._config = self._configured(_cluster_of(self._cluster), _EARLY)
        _allow(self.function, self._shared)
        self._wide = (ctypes.c_uint64 * _POINTERS)()
        self._narrow = (ctypes.c_uint32 * _WORDS)()
        wide, narrow = ctypes.addressof(self._wide), ctypes.addressof(self._narrow)
        self._table = (ctypes.c_void_p * (_POINTERS + _WORDS))(
            *(wide + 8 * i for i in range(_POINTERS)), *(narrow + 4 * i for i in range(_WORDS))
        )
        self._parameters = ctypes.addressof(self._table)
        self._columns = 0
        self._placed: tuple[int, ...] = ()
        self.set_words(k=k, ctas=ctas)

    def _configured(self, *attributes: driver.CUlaunchAttribute) -> driver.CUlaunchConfig:
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *self._grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._threads, 1, 1
        config.sharedMemBytes = self._shared
        config.hStream = self._stream
        config.attrs, config.numAttrs = list(attributes), len(attributes)
        return config

    def set_words(self, *, k: int, ctas: int) -> None:
        """Set what depends on the shape of the launch alone."""
        self._narrow[4], self._narrow[5] = room(k), cap(k)
        self._narrow[6] = ctas.bit_length() - 1

    def set_shape(self, columns: int, column_stride: int, k: int, flags: int) -> None:
        """Set what depends on the call's shape and options."""
        self._narrow[0:4] = [columns, column_stride, k, flags]
        self._columns = columns

    def slots(self) -> int:
        """Return ``max_active_clusters`` of this launch on its stream's device or partition.

        0 where the driver answers with an error, or refused clusters of more than 8 before:
        ``refusal`` then has its words.
        """
        # What is asked about is the cluster alone.
        config = self._configured(_cluster_of(self._cluster))
        code, count = answer(driver.cuOccupancyMaxActiveClusters(self.function, config))
        told = []
        if code:
            told.append(f"cuOccupancyMaxActiveClusters answered {code} {' '.join(describe(code))}")
        before = _PORTABLE_ALONE.get(int(self.function), 0)
        if before and (code or not count):
            told.append(
                f"cuFuncSetAttribute answered {before} {' '.join(describe(before))} to clusters of "
                "more than 8"
            )
        self.refusal = "; ".join(told)
        return 0 if code else int(count)

    def aim(self, stream: int, columns: int) -> None:
        """Set the stream and the length of the rows of the next launch."""
        if stream != self._stream:
            self._config.hStream = self._stream = stream
        if columns != self._columns:
            self._narrow[0] = self._columns = columns

    def place(self, pointers: tuple[int, ...]) -> None:
        """Set the seven 64-bit parameters of the next launch."""
        _PACK(self._wide, 0, *pointers)
        self._placed = pointers

    def again(self) -> int:
        """Launch with what was set last, and return the driver's code."""
        (code,) = driver.cuLaunchKernelEx(self._config, self.function, self._parameters, 0)
        return int(code) if code else 0

    def __call__(self, pointers: tuple[int, ...]) -> int:
        """Launch with the seven 64-bit parameters, and return the driver's code."""
        if pointers != self._placed:
            _PACK(self._wide, 0, *pointers)
            self._placed = pointers
        (code,) = driver.cuLaunchKernelEx(self._config, self.function, self._parameters, 0)
        return int(code) if code else 0


_ALLOWED: dict[int, int] = {}
_LOCK = threading.Lock()


def _allow(found: Any, smem: int) -> None:
    """Raise the function's limit of dynamic shared memory. Raises ThorprobeError if refused."""
    key = int(found)
    with _LOCK:
        if _ALLOWED.get(key, 0) >= smem:
            return
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        code, _ = answer(driver.cuFuncSetAttribute(found, which, smem))
        if code:
            raise ThorprobeError(
                f"cuFuncSetAttribute answered {code} {' '.join(describe(code))} to {smem:,} B of "
                "dynamic shared memory"
            )
        _ALLOWED[key] = smem


def enter(device: int) -> Any:
    """Make a device's primary context current where another device's, or none, is.

    Returns what ``leave`` takes; None where nothing was changed. Raises CouldNotProbeError where
    there is no such context.
    """
    code, current = driver.cuCtxGetDevice()
    if not code and int(current) == device:
        return None
    before = require("cuCtxGetCurrent", driver.cuCtxGetCurrent())
    require("cuCtxSetCurrent", driver.cuCtxSetCurrent(_primary(device)))
    return before


@lru_cache(maxsize=64)
def _primary(device: int) -> Any:
    """Return a device's primary context, retained once a process.

    It is never released: the loaded kernels live in it, and captured graphs launch them, for as
    long as the process does. The driver takes it back with the process.
    """
    return require("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(device))


def leave(before: Any) -> None:
    """Make the context current that was so before ``enter``, unless there was none."""
    if before is not None and int(before):
        answer(driver.cuCtxSetCurrent(before))


class Current:
    """Has ``enter`` and ``leave`` around what is inside ``with``."""

    def __init__(self, device: int) -> None:
        """Take the device's number."""
        self._device = device
        self._before: Any = None

    def __enter__(self) -> None:
        """Change the context if it is another device's."""
        self._before = enter(self._device)

    def __exit__(self, *_: object) -> None:
        """Change it back, unless there was none."""
        leave(self._before)


def partition(stream: int) -> int:
    """Return the handle of the green context that a stream belongs to, 0 for the whole device.

    Asked at every call (0.3 us on a 580 driver, 2026-11-30), because a stream's handle may come
    again for a stream of another context. A stream that is being captured may be asked too.
    """
    if not _greens():
        return 0
    code, green = driver.cuStreamGetGreenCtx(stream)
    return 0 if code or green is None else int(green)


@lru_cache(maxsize=1)
def _greens() -> bool:
    """Say whether the driver knows of green contexts; the bindings find no such function if not."""
    try:
        driver.cuStreamGetGreenCtx(0)
    except RuntimeError:
        return False
    return True


def capturing(stream: int) -> bool:
    """Say whether a stream is being captured."""
    code, state = driver.cuStreamIsCapturing(stream)
    return not code and bool(state)


def sms(device: int, stream: int) -> int:
    """Return the SMs that a stream's work may use: those of its green context, or all."""
    green = partition(stream)
    if green:
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        code, resource = answer(driver.cuGreenCtxGetDevResource(driver.CUgreenCtx(green), kind))
        if not code:
            return int(resource.sm.smCount)
    which = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    return int(require("cuDeviceGetAttribute", driver.cuDeviceGetAttribute(which, device)))
