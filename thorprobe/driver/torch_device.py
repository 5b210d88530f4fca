# SPDX-License-Identifier: Apache-2.0
"""Where torch works: the CPU, a GPU, or a green context of one."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.record import Device

CPU = "cpu"
_PACKAGES = ("torch", "transformers", "numpy", "cupy-cuda13x", "cuda-bindings")


@dataclass(frozen=True, kw_only=True)
class TorchDevice:
    """A torch device, and what is known of it; ``device`` is None for the CPU.

    ``settle`` waits for the work that was issued; ``free_bytes`` is None where it is not known;
    ``peak_bytes`` is the most that this process held so far, of a GPU what torch allocated.
    """

    torch_device: Any
    settle: Callable[[], None]
    free_bytes: Callable[[], int | None]
    peak_bytes: Callable[[], int]
    device: Device | None = None
    software: dict[str, str] = field(default_factory=dict)


def torch() -> Any:
    """Import torch. Raises CouldNotProbeError where it is missing."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise CouldNotProbeError(
            f"the model needs torch, which cannot be imported: {error}",
            "`pip install torch 'transformers>=5.16'`",
        ) from error


@contextmanager
def open_device(device: str | None, partition: str = "") -> Iterator[TorchDevice]:
    """Open the place named ``cpu``, by a device's number, or not at all: a GPU if there is one.

    Raises UsageError for another name, and for a partition of the CPU; CouldNotProbeError where
    torch, the device or the partition is not there.
    """
    library = torch()
    name = device if device is not None else ("0" if library.cuda.is_available() else CPU)
    if name == CPU:
        if partition:
            raise UsageError(
                f"`--partition {partition}` was asked for, but a CPU has no partitions",
                "name a GPU with `--device 0`",
            )
        yield _cpu(library)
        return
    if not (name.isascii() and name.isdigit()):
        raise UsageError(
            f"`--device {name}` was asked for, but a device is a number or `{CPU}`",
            "`thorprobe doctor` lists the devices",
        )
    if not library.cuda.is_available():
        raise CouldNotProbeError(
            f"`--device {name}` was asked for, but this torch ({library.__version__}) sees no GPU",
            "`--device cpu` runs the model there; `thorprobe doctor` says what is missing",
        )
    with _gpu(library, int(name), partition) as opened:
        yield opened


def _cpu(library: Any) -> TorchDevice:
    threads = library.get_num_threads()
    return TorchDevice(
        torch_device=library.device(CPU),
        settle=lambda: None,
        free_bytes=_free_memory,
        # Linux counts ru_maxrss in KiB.
        peak_bytes=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        # Other work on the same cores makes times say little, so it is told.
        software=_software() | {"threads": str(threads), "load": f"{os.getloadavg()[0]:.1f}"},
    )


@contextmanager
def _gpu(library: Any, ordinal: int, partition: str) -> Iterator[TorchDevice]:
    from thorprobe.driver import context as contexts

    context = contexts.Context(ordinal, partition)
    where = library.device("cuda", ordinal)
    version = contexts.driver_version()
    with library.cuda.device(where):
        stream = library.cuda.ExternalStream(int(context.stream), device=where)
        with library.cuda.stream(stream):
            yield TorchDevice(
                torch_device=where,
                settle=stream.synchronize,
                free_bytes=lambda: int(library.cuda.mem_get_info(where)[0]),
                peak_bytes=lambda: int(library.cuda.max_memory_allocated(where)),
                device=context.device(contexts.other_processes(ordinal), version),
                software=_software() | {"driver": version},
            )
            stream.synchronize()


def _software() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _free_memory() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (told,) = (line for line in lines if line.startswith("MemAvailable:"))
        return int(told.split()[1]) * 1024
    with suppress(OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
