# SPDX-License-Identifier: Apache-2.0
"""What is on this machine that a measurement needs, and the line that mends what is missing."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from thorprobe.record import Record
from thorprobe.run.gpu import driver_present

_NEEDED = ("cuda-bindings", "cupy-cuda13x", "nvidia-cuda-nvrtc", "numpy")
_OPTIONAL = ("torch", "transformers")
_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MODULE_LOADING",
    "CUDA_LOG_FILE",
    "NVIDIA_VISIBLE_DEVICES",
    "THORPROBE_VLLM",
    "THORPROBE_VLLM_LOG",
    "VLLM_PLUGINS",
    "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB",
)
# An allow-list: other variables can hold secrets.


class Fact(Record, frozen=True, kw_only=True):
    """One thing that was looked for. ``mend`` is the line to run when it is missing."""

    topic: str
    name: str
    value: str
    found: bool = True
    mend: str = ""


def survey() -> tuple[Fact, ...]:
    """Look at everything; nothing here raises, and nothing is launched."""
    return (*_machine(), *_packages(), *_compiler(), *_devices(), *_environment())


def _machine() -> Iterator[Fact]:
    yield Fact(topic="machine", name="python", value=platform.python_version())
    yield Fact(topic="machine", name="architecture", value=platform.machine())
    release = Path("/etc/nv_tegra_release")
    if release.is_file():
        line = release.read_text(errors="replace").splitlines()[:1]
        yield Fact(topic="machine", name="L4T release", value=line[0] if line else "unreadable")
    elif platform.release().endswith("-tegra"):
        yield Fact(topic="machine", name="L4T release", value=platform.release())
    present = driver_present()
    yield Fact(
        topic="machine",
        name="CUDA driver",
        value="libcuda loads" if present else "no libcuda on this machine",
        found=present,
        mend="" if present else "install NVIDIA's driver; without one, use `--profile thor`",
    )


def _packages() -> Iterator[Fact]:
    for package in (*_NEEDED, *_OPTIONAL):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            extra = package in _OPTIONAL
            line = "pip install 'thorprobe[torch]'" if extra else f"pip install {package}"
            yield Fact(
                topic="packages", name=package, value="not installed", found=extra, mend=line
            )
        else:
            yield Fact(topic="packages", name=package, value=version)


def _compiler() -> Iterator[Fact]:
    from thorprobe.driver import compile as kernels
    from thorprobe.errors import ThorprobeError

    try:
        version = kernels.nvrtc_version()
    except ThorprobeError as error:
        yield Fact(
            topic="compiler", name="NVRTC", value=error.sentence, found=False, mend=error.hint
        )
    else:
        yield Fact(topic="compiler", name="NVRTC", value=version)


def _devices() -> Iterator[Fact]:
    if not driver_present():
        yield Fact(
            topic="devices",
            name="GPU",
            value="none: nothing can be measured here",
            found=False,
            mend="thorprobe cluster-sweep --profile thor",
        )
        return
    try:
        from cuda.bindings import driver

        from thorprobe.driver.context import Context, answer, driver_version, other_processes
        from thorprobe.errors import ThorprobeError
    except ImportError as error:
        yield Fact(
            topic="devices",
            name="GPU",
            value=f"cannot be asked: {error}",
            found=False,
            mend="pip install cuda-python",
        )
        return
    code = answer(driver.cuInit(0))[0]
    count = 0 if code else answer(driver.cuDeviceGetCount())[1]
    if code or not count:
        yield Fact(
            topic="devices",
            name="GPU",
            value=f"cuInit answered {code}" if code else "the driver sees no device",
            found=False,
            mend="nvidia-smi",
        )
        return
    for ordinal in range(count):
        try:
            context = Context(ordinal)
            device = context.device(other_processes(ordinal), driver_version())
        except ThorprobeError as error:
            yield Fact(
                topic="devices",
                name=f"GPU {ordinal}",
                value=error.sentence,
                found=False,
                mend="nvidia-smi",
            )
            continue
        major, minor = device.capability
        yield Fact(
            topic="devices",
            name=f"GPU {ordinal}",
            value=f"{device.name}, cc {major}.{minor}, {device.sms} SMs, driver {device.driver}",
        )
        yield Fact(
            topic="devices",
            name=f"GPU {ordinal} cluster launch",
            value="supported" if device.limits.cluster_launch else "not supported (below cc 9.0)",
            found=device.limits.cluster_launch,
        )
        yield Fact(
            topic="devices",
            name=f"GPU {ordinal} shared memory",
            value=f"{device.limits.max_smem_per_block_optin:,} B a block with opt-in, "
            f"{device.limits.max_smem_per_sm:,} B an SM",
        )
        others = device.other_processes
        yield Fact(
            topic="devices",
            name=f"GPU {ordinal} other processes",
            value="NVML cannot tell" if others is None else str(others),
        )
        yield from _partitions(ordinal, context)


def _partitions(ordinal: int, context: Any) -> Iterator[Fact]:
    from cuda.bindings import driver

    from thorprobe.driver.context import answer

    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    try:
        code, whole = answer(driver.cuDeviceGetDevResource(context.handle, kind))
        code, split = (
            (code, None) if code else answer(driver.cuDevSmResourceSplitByCount(1, whole, 0, 1))
        )
    except RuntimeError as error:  # The bindings raise it for a function the driver lacks.
        code, split = -1, None
        value = f"not offered by this driver: {error}"
    else:
        value = f"cuDevSmResourceSplitByCount answered {code}" if code else ""
    if split is not None:
        value = f"offered, `--partition sms=N` with N from {split[0][0].sm.smCount}"
    yield Fact(
        topic="partitions",
        name=f"GPU {ordinal} green contexts",
        value=value,
        found=split is not None,
        mend="" if split is not None else "green contexts need CUDA 12.4 or later",
    )
    yield Fact(topic="partitions", name=f"GPU {ordinal} MIG", value=_mig(ordinal))
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # noqa: S108
    # NVIDIA's default place of the pipe (MPS documentation); only looked at.
    running = (pipe / "control").exists()
    yield Fact(topic="partitions", name="MPS", value="control pipe present" if running else "off")


def _mig(ordinal: int) -> str:
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        current, _pending = nvml.device_get_mig_mode(nvml.device_get_handle_by_index_v2(ordinal))
    except Exception:  # noqa: BLE001  NVML is optional and partly missing on Thor
        return "NVML cannot tell"
    return "on" if current else "off"


def _environment() -> Iterator[Fact]:
    for name in _ENVIRONMENT:
        if name in os.environ:
            yield Fact(topic="environment", name=name, value=os.environ[name])
    if os.environ.get("VIRTUAL_ENV") or sys.prefix != sys.base_prefix:
        yield Fact(topic="environment", name="virtual environment", value="yes")
