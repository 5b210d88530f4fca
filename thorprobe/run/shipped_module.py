# SPDX-License-Identifier: Apache-2.0
"""Shipped kernels inside a worker: their module, their functions, their parameter block."""

import ctypes
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from thorprobe.driver.context import answer, describe
from thorprobe.driver.launch import Parameters
from thorprobe.errors import ThorprobeError
from thorprobe.plan.layout import FIELD_BYTES
from thorprobe.plan.shipped_kernel import ShippedKernel
from thorprobe.record import DriverCall, LaunchSpec

QUERIED = "queried, not launched: it was handed over without its parameter block"
"""Note of a shipped kernel whose layout is not known, or that was only to be queried."""


class ModuleRefusedError(ThorprobeError):
    """The driver does not load the image; ``call`` is what it answered."""

    def __init__(self, call: DriverCall) -> None:
        """Keep the call."""
        super().__init__(f"{call.call} answered {call.code} {call.name}")
        self.call = call


class ShippedModules:
    """The images that a worker was told of, loaded when they are first asked about."""

    def __init__(self) -> None:
        """Start with none."""
        self._kernels: dict[str, ShippedKernel] = {}
        self._images: dict[str, str] = {}
        self._modules: dict[str, Any] = {}

    def adopt(self, kernels: tuple[ShippedKernel, ...], images: Mapping[str, str]) -> None:
        """Know these kernels; ``images`` maps the SHA-256 of a cubin to its file."""
        self._kernels |= {kernel.label: kernel for kernel in kernels}
        self._images |= images

    def kernel(self, label: str) -> ShippedKernel:
        """Return the kernel of a label. Raises ThorprobeError for one nobody told of."""
        if label not in self._kernels:
            raise ThorprobeError(f"shipped kernel `{label}` was asked about, but is not loaded")
        return self._kernels[label]

    def function(self, spec: LaunchSpec) -> Any:
        """Load the entry point of a launch.

        Raises ModuleRefusedError where the driver does not load the image, ThorprobeError where the
        file is not the one that was inspected or lacks the entry point.
        """
        kernel = self.kernel(spec.kernel)
        entry = kernel.function(spec.cluster_size)
        if entry is None:
            raise ThorprobeError(
                f"shipped kernel `{kernel.label}` has no entry point for {spec.cluster_size} CTAs"
            )
        if kernel.image not in self._modules:
            self._modules[kernel.image] = self._loaded(kernel.image)
        code, function = answer(
            driver.cuModuleGetFunction(self._modules[kernel.image], entry.symbol.encode())
        )
        if code:
            raise ModuleRefusedError(_call("cuModuleGetFunction", code, entry.name))
        return function

    def _loaded(self, image: str) -> Any:
        data = Path(self._images[image]).read_bytes()
        if hashlib.sha256(data).hexdigest() != image:
            raise ThorprobeError("the cubin in the cache is not the one that was inspected")
        code, module = answer(driver.cuModuleLoadData(data))
        if code:
            raise ModuleRefusedError(_call("cuModuleLoadData", code, f"cubin {image[:12]}"))
        return module


def parameters(kernel: ShippedKernel, values: Mapping[str, int]) -> Parameters:
    """Build the parameter block, one structure by value: pointers in 8 bytes, numbers in 4.

    ``values`` has an address or number for every field of the kernel's layout.
    """
    kinds = {8: ctypes.c_uint64, 4: ctypes.c_uint32}
    fields = [(name, kinds[FIELD_BYTES[name]]) for name in kernel.parameters]
    block = type("Block", (ctypes.Structure,), {"_fields_": fields})()
    for name in kernel.parameters:
        setattr(block, name, values[name])
    return (block,), (None,)


def _call(name: str, code: int, detail: str) -> DriverCall:
    driver_name, sentence = describe(code)
    return DriverCall(call=name, code=code, name=driver_name, sentence=sentence, detail=detail)
