# SPDX-License-Identifier: Apache-2.0
"""The CUDA context of a worker: device facts, the partition's stream, the driver's log."""

import os
import re
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from thorprobe.driver import partition as partitions
from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Device, Limits

_LOG_PREFIX = re.compile(r"^(?:\[[^\]]*\]\s*)+")
_LOG_NOISE = re.compile(r"cuGetProcAddress|^cudaVersion argument|^Returning \d+|^\s*$")
# Version look-ups by every CUDA library (two lines each on a 580-series driver, 2026-11-30), and
# the line that only repeats the code of the call.


def answer(result: tuple[Any, ...]) -> tuple[int, Any]:
    """Split a cuda.bindings result into its code and what came with it."""
    code, *rest = result
    return int(code), rest[0] if len(rest) == 1 else tuple(rest)


def describe(code: int) -> tuple[str, str]:
    """Return the driver's name and sentence for a code."""
    try:
        error = driver.CUresult(code)
    except ValueError:
        return f"CUresult {code}", "a code that these bindings do not know"
    texts = []
    for ask in (driver.cuGetErrorName, driver.cuGetErrorString):
        status, text = answer(ask(error))
        texts.append(text.decode() if not status and text else f"CUresult {code}")
    return texts[0], texts[1]


def require(what: str, result: tuple[Any, ...], hint: str = "") -> Any:
    """Return the value of a set-up call, or raise CouldNotProbeError naming the call."""
    code, value = answer(result)
    if code:
        name, sentence = describe(code)
        raise CouldNotProbeError(f"{what} answered {code} {name}: {sentence}", hint)
    return value


class DriverLog:
    """The driver's own sentences, read from the file that CUDA_LOG_FILE names.

    The driver opens that file when it is loaded, so the variable is set before the worker starts.
    Silence is evidence only of a driver that is known to write: one misuse without consequence is
    provoked first, and a driver that does not log it counts as one without a log.
    """

    def __init__(self) -> None:
        """Provoke a sentence, and see whether the driver wrote anything."""
        self._path = Path(os.environ.get("CUDA_LOG_FILE", ""))
        self._offset = 0
        # No driver is of CUDA 99; this look-up is refused and logged (driver 580, 2026-11-30).
        driver.cuGetProcAddress(b"cuInit", 99_000, 0)
        self._writes = self._path.is_file() and self._path.stat().st_size > 0

    def take(self) -> tuple[str, ...] | None:
        """Return the sentences since the last call, noise removed; None without a log."""
        if not self._writes:
            return None
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        self._offset += len(text)
        lines = (_LOG_PREFIX.sub("", line) for line in text.decode(errors="replace").splitlines())
        kept = [line.strip() for line in lines if not _LOG_NOISE.search(line)]
        return tuple(dict.fromkeys(kept))


class Context:
    """The primary context of one device, and the stream of a partition of it."""

    def __init__(self, ordinal: int, partition: str = "") -> None:
        """Initialise the driver and retain the context.

        Raises CouldNotProbeError where there is no such device or no such partition.
        """
        require("cuInit", driver.cuInit(0), "`thorprobe doctor` says what is missing")
        count = require("cuDeviceGetCount", driver.cuDeviceGetCount())
        if ordinal >= count:
            raise CouldNotProbeError(
                f"device {ordinal} cannot be measured: the devices here are "
                f"{', '.join(map(str, range(count))) or 'none'}",
                "`thorprobe doctor` lists them",
            )
        self.ordinal = ordinal
        self.handle = require("cuDeviceGet", driver.cuDeviceGet(ordinal))
        context = require("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(self.handle))
        require("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))
        self._green: Any = None
        self.partition_sms = 0
        self.stream = self._open_stream(partition)
        self.partition = partition

    def _open_stream(self, text: str) -> Any:
        wanted = partitions.parse(text)
        if wanted is None:
            return require("cuStreamCreate", driver.cuStreamCreate(1))
        kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        hint = "a green context needs CUDA 12.4 or later and at least that many SMs"
        whole = require(
            "cuDeviceGetDevResource", driver.cuDeviceGetDevResource(self.handle, kind), hint
        )
        groups = require(
            f"cuDevSmResourceSplitByCount for `--partition {text}`",
            driver.cuDevSmResourceSplitByCount(1, whole, wanted.flags, wanted.sms),
            hint,
        )
        first = groups[0][0]
        self.partition_sms = int(first.sm.smCount)
        description = require(
            "cuDevResourceGenerateDesc", driver.cuDevResourceGenerateDesc([first], 1), hint
        )
        self._green = require(
            "cuGreenCtxCreate", driver.cuGreenCtxCreate(description, self.handle, 1), hint
        )
        return require(
            "cuGreenCtxStreamCreate", driver.cuGreenCtxStreamCreate(self._green, 1, 0), hint
        )

    def attribute(self, name: str) -> int:
        """Return a device attribute by the end of its name."""
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(require(name, driver.cuDeviceGetAttribute(which, self.handle)))

    def device(self, other_processes: int | None, driver_version: str) -> Device:
        """Collect the facts of the device and partition."""
        name = require("cuDeviceGetName", driver.cuDeviceGetName(256, self.handle))
        ask = self.attribute
        return Device(
            name=name.split(b"\0")[0].decode(errors="replace"),
            capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
            sms=ask("MULTIPROCESSOR_COUNT"),
            limits=Limits(
                max_smem_per_block_optin=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
                max_smem_per_sm=ask("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
                reserved_smem_per_block=ask("RESERVED_SHARED_MEMORY_PER_BLOCK"),
                max_threads_per_sm=ask("MAX_THREADS_PER_MULTIPROCESSOR"),
                max_blocks_per_sm=ask("MAX_BLOCKS_PER_MULTIPROCESSOR"),
                registers_per_sm=ask("MAX_REGISTERS_PER_MULTIPROCESSOR"),
                max_threads_per_block=ask("MAX_THREADS_PER_BLOCK"),
                max_smem_per_block=ask("MAX_SHARED_MEMORY_PER_BLOCK"),
                cluster_launch=bool(ask("CLUSTER_LAUNCH")),
            ),
            partition=self.partition,
            partition_sms=self.partition_sms,
            driver=driver_version,
            integrated=bool(ask("INTEGRATED")),
            other_processes=other_processes,
        )


def driver_version() -> str:
    """Return the driver's version: NVML's where it answers, else the CUDA version it supports."""
    code, number = answer(driver.cuDriverGetVersion())
    cuda = f"CUDA {number // 1000}.{number % 1000 // 10}" if not code else "unknown"
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        return f"{nvml.system_get_driver_version()} ({cuda})"
    except Exception:  # noqa: BLE001  NVML is optional and partly missing on Thor
        return cuda


def other_processes(ordinal: int) -> int | None:
    """Count compute processes of others on the device; None where NVML cannot tell."""
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        code, handle = answer(driver.cuDeviceGet(ordinal))
        if code:
            return None
        code, bus = answer(driver.cuDeviceGetPCIBusId(32, handle))
        if code:
            return None
        found = nvml.device_get_handle_by_pci_bus_id_v2(bus.split(b"\0")[0].decode())
        listed = nvml.device_get_compute_running_processes_v3(found)
        return sum(1 for pid in _pids(listed) if pid != os.getpid())
    except Exception:  # noqa: BLE001  NVML is optional and partly missing on Thor
        return None


def _pids(listed: Any) -> list[int]:
    pids = listed.pid
    return [int(pid) for pid in pids] if hasattr(pids, "__len__") else [int(pids)]
