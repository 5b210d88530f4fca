# SPDX-License-Identifier: Apache-2.0
"""Where an operator is called: torch on a stream, a partition's too, and what watches the call."""

import ctypes
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from thorprobe.driver.stopwatch import Timing
from thorprobe.record import KernelSeen

NO_PROFILER = "THORPROBE_NO_PROFILER"
"""Environment variable that keeps torch's profiler out, for a machine where it cannot start."""

_TOPK = re.compile(r"topk|top_k", re.IGNORECASE)


class Seat(Protocol):
    """A device on which operators are called, or what a test puts in its place."""

    @property
    def device(self) -> Any:
        """The torch device."""
        ...

    def current(self) -> AbstractContextManager[Any]:
        """Make the stream torch's current one."""
        ...

    def settle(self) -> int:
        """Wait for all work, and return the driver's code."""
        ...

    def pending(self) -> int | None:
        """Return the runtime's last error of this thread without clearing it; None: not known."""
        ...

    def clear(self) -> None:
        """Clear the runtime's last error, whatever it is."""
        ...

    def touch(self) -> str:
        """Let torch launch something harmless, and return the text of what it raised."""
        ...

    def captured(self, call: Callable[[], None]) -> tuple[KernelSeen, ...]:
        """Return the kernels of a call from a capture that is never launched."""
        ...

    def ran(self, call: Callable[[], None]) -> tuple[str, ...]:
        """Make a call under torch's profiler, and name the selecting kernels that ran."""
        ...

    def time(self, call: Callable[[], None], launches: int, replays: int) -> Timing:
        """Return how long a call takes on the device, in a graph of many."""
        ...


class GpuSeat:
    """A GPU whose primary context is current, and a stream of it or of a partition of it."""

    def __init__(self, ordinal: int, stream: int) -> None:
        """Bring torch up on the device; ``stream`` is the handle of the stream that is used."""
        import torch

        from thorprobe.driver.stopwatch import Stopwatch

        self._torch = torch
        self.device = torch.device("cuda", ordinal)
        torch.cuda.set_device(ordinal)
        self._stream = torch.cuda.ExternalStream(stream, device=self.device)
        self._handle = stream
        self._watch = Stopwatch(stream)
        self._runtime = _runtime(torch.version.cuda or "")
        with self.current():
            self._scratch = torch.zeros(1, device=self.device)
        self._stream.synchronize()

    def current(self) -> AbstractContextManager[Any]:
        """Make the stream torch's current one."""
        stream: AbstractContextManager[Any] = self._torch.cuda.stream(self._stream)
        return stream

    def settle(self) -> int:
        """Wait for all work of the context, and return the driver's code."""
        from cuda.bindings import driver

        return int(driver.cuCtxSynchronize()[0])

    def pending(self) -> int | None:
        """Return cudaPeekAtLastError of the runtime that torch and vLLM share."""
        return None if self._runtime is None else int(self._runtime.cudaPeekAtLastError())

    def clear(self) -> None:
        """Ask cudaGetLastError, which clears it; without the runtime let torch's check do so."""
        if self._runtime is not None:
            self._runtime.cudaGetLastError()
        else:
            self.touch()

    def touch(self) -> str:
        """Let torch fill one number: its launch check asks for the last error."""
        try:
            self._scratch.fill_(1)
        except RuntimeError as error:
            return str(error)
        return ""

    def captured(self, call: Callable[[], None]) -> tuple[KernelSeen, ...]:
        """Capture one call, read its kernel nodes, and throw the graph away.

        A cluster that the device cannot host is captured as well: only the graph's instantiation
        would refuse it. Raises ThorprobeError where the driver does not answer.
        """
        from cuda.bindings import driver

        from thorprobe.driver.context import answer, require

        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        stream = driver.CUstream(self._handle)
        require("cuStreamBeginCapture", driver.cuStreamBeginCapture(stream, mode))
        made = False
        try:
            call()
            made = True
        finally:
            # The stream must leave the capture, whatever became of the call.
            code, graph = answer(driver.cuStreamEndCapture(stream))
            self.clear()  # What the capture left is not the call's.
            if not made and not code:
                driver.cuGraphDestroy(graph)
        require("cuStreamEndCapture", (code, graph))
        try:
            _, _, count = driver.cuGraphGetNodes(graph)
            nodes = driver.cuGraphGetNodes(graph, count)[1]
            found = (_kernel(driver, node, self._torch) for node in nodes)
            return tuple(kernel for kernel in found if kernel is not None)
        finally:
            driver.cuGraphDestroy(graph)

    def ran(self, call: Callable[[], None]) -> tuple[str, ...]:
        """Profile one call by torch's profiler (CUPTI); () where it is kept out."""
        if os.environ.get(NO_PROFILER):
            return ()
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as watched:
            call()
            self._stream.synchronize()
        names = (event.key for event in watched.key_averages())
        return tuple(dict.fromkeys(short(name) for name in names if _TOPK.search(name)))

    def time(self, call: Callable[[], None], launches: int, replays: int) -> Timing:
        """Return the median over replays of a graph of ``launches`` calls, by device events."""
        return self._watch.time(call, launches, replays)


def short(name: str) -> str:
    """Return a demangled kernel name without return type, namespaces, parameters and suffixes."""
    text = name.replace("(anonymous namespace)::", "").replace("(unsigned int)", "")
    text = re.sub(r"(?<=[0-9])[uUlL]+(?=[,>])", "", text.removeprefix("void "))
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth == 0:
            text = text[:at]
            break
    head, angle, rest = text.partition("<")
    return head.strip().rpartition("::")[2] + angle + rest


def _runtime(cuda: str) -> Any:
    """Return the CUDA runtime library that is loaded already, None where it is not to be had."""
    try:
        library = ctypes.CDLL(f"libcudart.so.{cuda.partition('.')[0]}", mode=os.RTLD_NOLOAD)
    except OSError:
        return None
    return library


def _kernel(driver: Any, node: Any, torch: Any) -> KernelSeen | None:
    """Return what a kernel node launches, None for another kind of node."""
    from thorprobe.driver.context import answer, require

    kind = require("cuGraphNodeGetType", driver.cuGraphNodeGetType(node))
    if kind != driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        return None
    given = require("cuGraphKernelNodeGetParams", driver.cuGraphKernelNodeGetParams(node))
    code, name = (
        answer(driver.cuFuncGetName(given.func))
        if int(given.func)
        else answer(driver.cuKernelGetName(given.kern))
    )
    which = driver.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    wrong, value = answer(driver.cuGraphKernelNodeGetAttribute(node, which))
    cluster = None
    if not wrong:
        dim = value.clusterDim
        cluster = (int(dim.x), int(dim.y), int(dim.z))
    symbol = "" if code else (name.decode(errors="replace") if isinstance(name, bytes) else name)
    return KernelSeen(
        name=short(getattr(torch._C, "_demangle", str)(symbol)),  # noqa: SLF001
        grid=(int(given.gridDimX), int(given.gridDimY), int(given.gridDimZ)),
        block=(int(given.blockDimX), int(given.blockDimY), int(given.blockDimZ)),
        dynamic_smem=int(given.sharedMemBytes),
        cluster=cluster if cluster and all(cluster) else None,
    )
