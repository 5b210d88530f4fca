# SPDX-License-Identifier: Apache-2.0
"""The one place that sets attributes, asks occupancy, launches and synchronises.

Every driver call that concerns a launch goes through here and leaves a DriverCall behind, setters
included: a dropped answer of a setter is how a shared-memory problem comes to look like a launch
problem.
"""

import ctypes
import statistics
from collections.abc import Callable
from typing import Any

import msgspec
from cuda.bindings import driver

from thorprobe.driver.context import answer, describe
from thorprobe.record import DriverCall, LaunchSpec, Observed

_FUNCTION = driver.CUfunction_attribute
_LAUNCH = driver.CUlaunchAttributeID
_REPLAYS, _WARM_UPS = 7, 2

Parameters = tuple[tuple[Any, ...], tuple[Any, ...]]
Stage = Callable[[str], None]


class Launch:
    """One launch of one function, with everything the driver answered about it."""

    def __init__(
        self, spec: LaunchSpec, function: Any, stream: Any, stage: Stage, default_smem: int
    ) -> None:
        """Remember what to launch.

        ``stage`` is told what is being done, for the heartbeat. ``default_smem`` is the function's
        own limit of dynamic shared memory in bytes, as it was when it was loaded.
        """
        self._default_smem = default_smem
        self._spec = spec
        self._function = function
        self._stream = stream
        self.parameters: Parameters = ((), ())
        self._stage = stage
        self.calls: list[DriverCall] = []

    def _note(self, call: str, result: tuple[Any, ...], detail: str = "") -> tuple[int, Any]:
        code, value = answer(result)
        name, sentence = _described(code)
        self.calls.append(
            DriverCall(call=call, code=code, name=name, sentence=sentence, detail=detail)
        )
        return code, value

    def prior_error(self) -> int:
        """Return the code of a synchronisation before anything is done: 0 for a healthy context."""
        code, _ = self._note("cuCtxSynchronize", driver.cuCtxSynchronize(), "before the probe")
        return code

    def _config(self) -> Any:
        spec = self._spec
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = spec.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = spec.block
        config.sharedMemBytes = spec.dynamic_smem
        config.hStream = self._stream
        attributes = []
        if spec.cluster_attribute:
            cluster = driver.CUlaunchAttribute()
            cluster.id = _LAUNCH.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dim = cluster.value.clusterDim
            dim.x, dim.y, dim.z = spec.cluster
            attributes.append(cluster)
        if spec.cooperative:
            cooperative = driver.CUlaunchAttribute()
            cooperative.id = _LAUNCH.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            cooperative.value.cooperative = 1
            attributes.append(cooperative)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        return config

    def _set_attributes(self) -> None:
        spec = self._spec
        # A function keeps its attributes from the probe before, so both are always set.
        wanted = {
            "MAX_DYNAMIC_SHARED_SIZE_BYTES": (
                spec.dynamic_smem if spec.smem_opt_in else self._default_smem
            ),
            "NON_PORTABLE_CLUSTER_SIZE_ALLOWED": int(spec.non_portable),
        }
        for name, value in wanted.items():
            which = getattr(_FUNCTION, f"CU_FUNC_ATTRIBUTE_{name}")
            result = driver.cuFuncSetAttribute(self._function, which, value)
            self._note("cuFuncSetAttribute", result, f"{name} = {value}")

    def query(self) -> Observed:
        """Set attributes and ask both occupancy questions; nothing is launched."""
        self._stage("attributes")
        self._set_attributes()
        config = self._config()
        self._stage("occupancy")
        potential_code, potential = self._note(
            "cuOccupancyMaxPotentialClusterSize",
            driver.cuOccupancyMaxPotentialClusterSize(self._function, config),
        )
        active_code, active = self._note(
            "cuOccupancyMaxActiveClusters",
            driver.cuOccupancyMaxActiveClusters(self._function, config),
        )
        return Observed(
            max_potential=None if potential_code else int(potential),
            max_potential_code=potential_code,
            max_active=None if active_code else int(active),
            max_active_code=active_code,
        )

    def ask(self) -> Observed:
        """Ask both occupancy questions, launch once and synchronise."""
        seen = self.query()
        config = self._config()
        self._stage("launch")
        launch_code = self._launch_captured(config) if self._spec.captured else self._launch(config)
        self._stage("sync")
        sync_code, _ = self._note("cuCtxSynchronize", driver.cuCtxSynchronize(), "after the launch")
        return msgspec.structs.replace(seen, launch_code=launch_code, sync_code=sync_code)

    def _launch(self, config: Any) -> int:
        result = driver.cuLaunchKernelEx(config, self._function, self.parameters, 0)
        code, _ = self._note("cuLaunchKernelEx", result)
        return code

    def _capture(self, config: Any, launches: int) -> tuple[int, Any]:
        """Capture launches into an executable graph; the first non-zero code, and the graph."""
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        code, _ = self._note(
            "cuStreamBeginCapture", driver.cuStreamBeginCapture(self._stream, mode)
        )
        if code:
            return code, None
        for _ in range(launches):
            result = driver.cuLaunchKernelEx(config, self._function, self.parameters, 0)
            code = code or answer(result)[0]
        name, sentence = _described(code)
        self.calls.append(
            DriverCall(
                call="cuLaunchKernelEx", code=code, name=name, sentence=sentence, detail="captured"
            )
        )
        end_code, graph = self._note("cuStreamEndCapture", driver.cuStreamEndCapture(self._stream))
        if code or end_code:
            if not end_code:
                driver.cuGraphDestroy(graph)
            return code or end_code, None
        code, executable = self._note("cuGraphInstantiate", driver.cuGraphInstantiate(graph, 0))
        driver.cuGraphDestroy(graph)
        return code, None if code else executable

    def _launch_captured(self, config: Any) -> int:
        code, executable = self._capture(config, 1)
        if code:
            return code
        code, _ = self._note("cuGraphLaunch", driver.cuGraphLaunch(executable, self._stream))
        answer(driver.cuStreamSynchronize(self._stream))
        driver.cuGraphExecDestroy(executable)
        return code

    def time(self) -> tuple[float, float] | None:
        """Time ``repeats`` launches in one graph by device events.

        Returns the median over seven replays in microseconds a launch and the spread (largest less
        least), or None where the graph does not run.
        """
        self._stage("time")
        config = self._config()
        code, executable = self._capture(config, self._spec.repeats)
        if code:
            return None
        events = [answer(driver.cuEventCreate(0))[1] for _ in range(2)]
        try:
            times = [self._replay(executable, *events) for _ in range(_WARM_UPS + _REPLAYS)]
        finally:
            for event in events:
                driver.cuEventDestroy(event)
            driver.cuGraphExecDestroy(executable)
        measured = [t for t in times[_WARM_UPS:] if t is not None]
        if len(measured) < _REPLAYS:
            return None
        return statistics.median(measured), max(measured) - min(measured)

    def _replay(self, executable: Any, first: Any, last: Any) -> float | None:
        """Return the microseconds a launch took in one replay, None where it failed."""
        driver.cuEventRecord(first, self._stream)
        driver.cuGraphLaunch(executable, self._stream)
        driver.cuEventRecord(last, self._stream)
        failed, _ = answer(driver.cuEventSynchronize(last))
        code, milliseconds = answer(driver.cuEventElapsedTime(first, last))
        return None if failed or code else milliseconds * 1e3 / self._spec.repeats


_CACHE: dict[int, tuple[str, str]] = {}


def _described(code: int) -> tuple[str, str]:
    if code not in _CACHE:
        _CACHE[code] = describe(code)
    return _CACHE[code]


def pointers_and_words(pointers: tuple[int, ...], words: tuple[int, ...]) -> Parameters:
    """Build a parameter block of device pointers followed by 32-bit words."""
    kinds = (ctypes.c_void_p,) * len(pointers) + (ctypes.c_uint32,) * len(words)
    return pointers + words, kinds
