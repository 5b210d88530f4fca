# SPDX-License-Identifier: Apache-2.0
"""Times what goes to one stream: a CUDA graph of many launches, replayed between device events."""

import statistics
from collections.abc import Callable
from typing import Any, Protocol

from cuda.bindings import driver

from thorprobe.driver.context import answer, describe
from thorprobe.errors import ThorprobeError
from thorprobe.record import Record

_WARM_UPS = 2
_REPLAY_US = 4_000
_FEWEST = 3
# A replay of 4 ms is long enough: a slow contender gets fewer launches, at least 3.


class NotTimedError(ThorprobeError):
    """What was to be timed cannot be captured, or does not run."""


class Timing(Record, frozen=True, kw_only=True):
    """Median over the replays in microseconds a launch, largest less least, launches a replay."""

    us: float
    spread_us: float
    launches: int


class Watch(Protocol):
    """Who times: a stopwatch, or what a test puts in its place."""

    def time(self, launch: Callable[[], Any], launches: int, replays: int) -> Timing:
        """Return how long one call of ``launch`` takes on the device.

        Raises NotTimedError where it cannot be captured or does not run.
        """
        ...


class Stopwatch:
    """Times work that is put into one stream, which must not be the default stream."""

    def __init__(self, stream: int) -> None:
        """Take the handle of the stream; its context is current."""
        self._stream = driver.CUstream(stream)

    def time(self, launch: Callable[[], Any], launches: int, replays: int) -> Timing:
        """Capture calls of ``launch`` into a graph and time its replays.

        ``launch`` has run before on this stream, so that nothing is compiled or loaded in between.
        Raises NotTimedError where a call cannot be captured, or the graph does not run.
        """
        events = [_need("cuEventCreate", driver.cuEventCreate(0)) for _ in range(2)]
        try:
            once = self._between(events, launch)
            count = max(min(launches, _FEWEST), min(launches, int(_REPLAY_US / max(once, 1e-3))))
            graph = self._captured(launch, count)
            try:
                times = [
                    self._between(events, lambda: self._replay(graph)) / count
                    for _ in range(_WARM_UPS + replays)
                ][_WARM_UPS:]
            finally:
                driver.cuGraphExecDestroy(graph)
        finally:
            for event in events:
                driver.cuEventDestroy(event)
        return Timing(
            us=round(statistics.median(times), 3),
            spread_us=round(max(times) - min(times), 3),
            launches=count,
        )

    def _between(self, events: list[Any], work: Callable[[], Any]) -> float:
        """Return the microseconds between two events around what ``work`` puts into the stream."""
        first, last = events
        _need("cuEventRecord", driver.cuEventRecord(first, self._stream))
        work()
        _need("cuEventRecord", driver.cuEventRecord(last, self._stream))
        _need("cuEventSynchronize", driver.cuEventSynchronize(last))
        return float(_need("cuEventElapsedTime", driver.cuEventElapsedTime(first, last))) * 1e3

    def _replay(self, graph: Any) -> None:
        _need("cuGraphLaunch", driver.cuGraphLaunch(graph, self._stream))

    def _captured(self, launch: Callable[[], Any], count: int) -> Any:
        # Relaxed: a library may allocate or query while its work is captured.
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _need("cuStreamBeginCapture", driver.cuStreamBeginCapture(self._stream, mode))
        try:
            for _ in range(count):
                launch()
        except BaseException:
            # The stream must leave the capture, whatever became of it.
            code, graph = answer(driver.cuStreamEndCapture(self._stream))
            if not code:
                driver.cuGraphDestroy(graph)
            raise
        graph = _need("cuStreamEndCapture", driver.cuStreamEndCapture(self._stream))
        try:
            return _need("cuGraphInstantiate", driver.cuGraphInstantiate(graph, 0))
        finally:
            driver.cuGraphDestroy(graph)


def _need(call: str, result: tuple[Any, ...]) -> Any:
    code, value = answer(result)
    if code:
        name, sentence = describe(code)
        raise NotTimedError(f"{call} answered {code} {name}: {sentence}")
    return value
