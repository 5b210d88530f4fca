# SPDX-License-Identifier: Apache-2.0
"""A GPU for generated calls: its partitions and streams, single kernels, captured graphs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from cuda.bindings import driver

from thorprobe.bench.verify_bed import (
    PARTITIONS,
    Bed,
    Forced,
    Lane,
    buffers,
    cpu_bed,
    gpu,
)
from thorprobe.bench.verify_case import MAX_ROWS, WHOLE, Case
from thorprobe.bench.verify_draw import SIDES
from thorprobe.driver.compile import compile_cubin, nvrtc_version, source
from thorprobe.driver.context import Context, answer, describe
from thorprobe.driver.torch_device import TorchDevice
from thorprobe.errors import CouldNotProbeError, ThorprobeError, UsageError
from thorprobe.topk import kernel, prepare, select, workspace_bytes
from thorprobe.topk.contract import DTYPES, MAX_K, select_options
from thorprobe.topk.ladder import Config, choices
from thorprobe.topk.plan import Shape, step


def compile_all(ordinal: int) -> None:
    """Compile every source for a device on all cores, into the cache that all processes share."""
    import os

    code, _ = answer(driver.cuInit(0))
    if code:
        raise CouldNotProbeError(f"cuInit answered {code} {' '.join(describe(code))}")
    target = kernel.target(ordinal)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = [
            pool.submit(
                compile_cubin,
                kernel.KERNEL,
                target,
                0,
                kernel.defines(dtype, threads, strided=strided),
            )
            for dtype in DTYPES
            for threads in (512, 1_024)
            for strided in (False, True)
        ]
    for one in made:
        one.result()


def gpu_bed(torch: Any, ordinal: int, place: TorchDevice) -> Bed:
    """Return the bed of a device whose stream is torch's current one."""
    where = place.torch_device
    main = torch.cuda.current_stream(where)
    begun = torch.cuda.Event()
    most = workspace_bytes(MAX_ROWS, MAX_K)
    notes: list[str] = []

    def lane(partition: str, stream: Any) -> Lane:
        done = torch.cuda.Event()

        def follow() -> None:
            begun.record(main)
            stream.wait_event(begun)

        def lead() -> None:
            done.record(stream)
            main.wait_event(done)

        memory = torch.empty(most, dtype=torch.uint8, device=where)
        return Lane(partition, stream, memory, follow, lead, lambda: torch.cuda.stream(stream))

    lanes = {WHOLE: lane(WHOLE, torch.cuda.Stream(where))}
    for partition in PARTITIONS:
        try:
            context = Context(ordinal, partition)
        except (CouldNotProbeError, UsageError) as error:
            notes.append(f"{partition} is left out: {error.sentence}")
            continue
        stream = torch.cuda.ExternalStream(int(context.stream), device=where)
        lanes[partition] = lane(partition, stream)
        _KEPT.append(context)
    return Bed(
        torch=torch,
        device=where,
        select=select,
        prepare=prepare,
        **buffers(torch, where, pinned=True),
        lanes=lanes,
        sides=tuple(lane(WHOLE, torch.cuda.Stream(where)) for _ in range(SIDES)),
        force=lambda name, on, case: force(ordinal, name, on, case),
        capture=capture,
        facts=place.device,
        software=place.software | {"nvrtc": nvrtc_version()},
        notes=notes,
        kernel=source(kernel.KERNEL).sha256,
        nvrtc=nvrtc_version(),
    )


_KEPT: list[Context] = []
# A green context lives as long as its stream is used.


class _Kernel:
    """One choice of the ladder with its launches, for one shape and lane."""

    def __init__(self, choice: Config, shape: Shape, device: int, stream: int, stride: int) -> None:
        self.rung = choice.rung
        self.choice = choice
        self._stream = stream
        self._step = step(choice, shape, device, stream, stride)
        self._launches = self._step.launches

    def hosted(self) -> bool:
        """Say whether the device, or the partition, has room for one row."""
        return bool(self.choice.rows_at_once(self._launches[0].slots()))

    def __call__(self, scores: Any, lengths: Any, out: Any, workspace: Any) -> None:
        """Launch it, as ``select`` does."""
        parts = workspace.data_ptr() if self._step.parts_bytes else 0
        pointers = (
            *(scores.data_ptr(), lengths.data_ptr(), out.data_ptr(), 0),
            *(parts, scores.stride(0), out.stride(0)),
        )
        for one in self._launches:
            one.aim(self._stream, scores.shape[1])
            code = one(pointers)
            if code:
                raise ThorprobeError(
                    f"the launch of {self.choice.name} answered {code} {' '.join(describe(code))}"
                )


def force(ordinal: int, name: str, lane: Lane, case: Case) -> Forced | None:
    """Prepare one kernel by its name; None where the device or the partition refuses it.

    A case that the kernel cannot hold is refused too: the ladder would never ask it. Raises
    ThorprobeError where the kernel does not load.
    """
    fitting = {choice.name: choice for choice in choices(case.columns, case.dtype)}
    if name not in fitting or not case.rows or not case.columns:
        return None
    strided = case.columns > 1 and case.column_stride != 1
    shape = Shape(
        rows=case.rows,
        columns=case.columns,
        dtype=case.dtype,
        strided=strided,
        wish=select_options(case.k, case.ties, case.nan, ordered=case.ordered),
        rung=fitting[name].rung,
    )
    stride = case.column_stride if strided else 1
    made = _Kernel(fitting[name], shape, ordinal, int(lane.stream.cuda_stream), stride)
    return made if made.hosted() else None


def capture(lane: Lane, calls: Callable[[], None]) -> Callable[[], None]:
    """Capture calls on a lane's stream and return what replays them there.

    Raises ThorprobeError where they cannot be captured or instantiated.
    """
    stream = driver.CUstream(int(lane.stream.cuda_stream))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _need("cuStreamBeginCapture", driver.cuStreamBeginCapture(stream, mode))
    try:
        calls()
    except BaseException:
        # The stream must leave the capture, whatever became of it.
        with suppress(ThorprobeError):
            driver.cuGraphDestroy(_need("", driver.cuStreamEndCapture(stream)))
        raise
    graph = _need("cuStreamEndCapture", driver.cuStreamEndCapture(stream))
    try:
        ready = _need("cuGraphInstantiate", driver.cuGraphInstantiate(graph, 0))
    finally:
        driver.cuGraphDestroy(graph)
    return _Replay(stream, ready)


class _Replay:
    """A graph that runs when it is called, and is destroyed with its last user."""

    def __init__(self, stream: Any, graph: Any) -> None:
        self._stream, self._graph = stream, graph

    def __call__(self) -> None:
        """Put the graph into the stream."""
        _need("cuGraphLaunch", driver.cuGraphLaunch(self._graph, self._stream))

    def __del__(self) -> None:
        """Free the graph; one that still runs is freed after it."""
        driver.cuGraphExecDestroy(self._graph)


def _need(call: str, result: tuple[Any, ...]) -> Any:
    code, value = answer(result)
    if code:
        name, sentence = describe(code)
        raise ThorprobeError(f"{call} answered {code} {name}: {sentence}")
    return value


@contextmanager
def open_bed(device: str | None) -> Iterator[Bed]:
    """Open the device, its partitions and several streams; ``cpu`` is the library's sort.

    A partition that cannot be made is left out with a note. Raises CouldNotProbeError where there
    is no such device, UsageError for another name.
    """
    if device == "cpu":
        yield cpu_bed()
        return
    torch, ordinal = gpu(device)
    from thorprobe.driver import torch_device

    with torch_device.open_device(str(ordinal)) as place:
        yield gpu_bed(torch, ordinal, place)
