# SPDX-License-Identifier: Apache-2.0
"""CUDA devices as the drop-in asks them: the place of a stream, and the arms that it hosts."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from thorprobe.errors import CouldNotProbeError
from thorprobe.vllm.dropin_hosting import Arm, Hosted, Place

if TYPE_CHECKING:
    from torch import Tensor

_KERNEL = "trivial"
_OPT_INS = ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", "MAX_DYNAMIC_SHARED_SIZE_BYTES")


class CudaHost:
    """The devices that torch sees. Nothing is imported of CUDA before the first call arrives."""

    def __init__(self) -> None:
        """Find torch's own readers of the current stream; nothing is initialised."""
        import torch

        from thorprobe.topk.array import TORCH, stream_reader

        self._stream = stream_reader(TORCH)
        self._capturing = torch.cuda.is_current_stream_capturing
        self._torch = torch

    def place(self, logits: "Tensor") -> Place:
        """Return the device and the green context of its current stream."""
        device = logits.device.index
        if device is None:
            return -1, 0
        return device, _kernel().partition(self._stream(device))

    def capturing(self) -> bool:
        """Say whether the current stream is being captured."""
        return bool(self._capturing())

    def device(self, place: Place) -> tuple[str, int]:
        """Return the name of a device and the major of its compute capability."""
        found = self._torch.cuda.get_device_properties(place[0])
        return str(found.name), int(found.major)

    def hosts(self, place: Place, arm: Arm) -> Hosted:
        """Ask cuOccupancyMaxActiveClusters on the current stream of a device.

        Raises ThorprobeError where there are no bindings, no compiler or no such target.
        """
        try:
            kernel = _kernel()
        except ImportError as error:
            raise CouldNotProbeError(
                f"the device cannot be asked: {error}", "pip install cuda-python nvidia-cuda-nvrtc"
            ) from error
        with kernel.Current(place[0]):
            return _ask(_function(place[0]), arm, self._stream(place[0]))


@lru_cache(maxsize=1)
def _kernel() -> Any:
    from thorprobe.topk import kernel

    return kernel


@lru_cache(maxsize=64)
def _function(device: int) -> Any:
    from cuda.bindings import driver

    from thorprobe.driver.compile import KERNELS, compile_cubin
    from thorprobe.driver.context import require

    cubin = compile_cubin(_KERNEL, _kernel().target(device))
    module = require("cuModuleLoadData", driver.cuModuleLoadData(cubin))
    name = KERNELS[_KERNEL].function.encode()
    return require("cuModuleGetFunction", driver.cuModuleGetFunction(module, name))


def _ask(function: Any, arm: Arm, stream: int) -> Hosted:
    from cuda.bindings import driver

    from thorprobe.driver.context import answer, describe

    for opt_in, value in zip(_OPT_INS, (1, arm.dynamic_smem), strict=True):
        which = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{opt_in}")
        code, _ = answer(driver.cuFuncSetAttribute(function, which, value))
        if code:
            return Hosted(code=code, call=f"cuFuncSetAttribute {opt_in}", name=describe(code)[0])
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, arm.cluster, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = arm.threads, 1, 1
    config.sharedMemBytes = arm.dynamic_smem
    config.hStream = stream
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dim = attribute.value.clusterDim
    dim.x, dim.y, dim.z = 1, arm.cluster, 1
    config.attrs, config.numAttrs = [attribute], 1
    code, count = answer(driver.cuOccupancyMaxActiveClusters(function, config))
    if code:
        return Hosted(code=code, call="cuOccupancyMaxActiveClusters", name=describe(code)[0])
    return Hosted(max_active=int(count))
