# SPDX-License-Identifier: Apache-2.0
"""A call of ``select`` bound to its arrays: checked once, and then little more than a launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

from thorprobe.errors import CouldNotProbeError
from thorprobe.topk import array, fallback
from thorprobe.topk.array import TORCH, stream_reader
from thorprobe.topk.contract import ArgumentError, whole
from thorprobe.topk.log import Call, Fallback, active
from thorprobe.topk.plans import kernels, plan_for
from thorprobe.topk.request import Request, request
from thorprobe.topk.select import Addresses, check_places, missing, parts, refusal, status_of

if TYPE_CHECKING:
    from thorprobe.topk.kernel import Launch
    from thorprobe.topk.plan import Step


@dataclass
class _Way:
    """What runs in one partition: the rungs that are left, and the launches of the first."""

    part: int
    steps: list[Step]
    launches: tuple[Launch, ...]
    told: Call


class Prepared:
    """A call of ``select`` with the same arrays each time: ``prepared()`` returns ``out``.

    What the arrays hold may change from call to call; what they are may not. They are kept alive,
    and neither their shapes nor their places are looked at again: an array that was resized or
    given other memory needs another ``prepare``. The work goes to the caller's current stream, of
    any partition, and can be captured at once. One call at a time: it belongs to the thread that
    prepared it, and calls share ``out`` and the workspace. Keep it until its work is done, as the
    arrays of any launch.
    """

    def __init__(
        self, call: Request, addresses: Addresses, arrays: tuple[Any, Any, Any, Any, Any]
    ) -> None:
        """Decide for the current stream; ``arrays``: scores, lengths, out, workspace, status.

        Raises ArgumentError as ``select`` does.
        """
        self._call, self._addresses, self._arrays = call, addresses, arrays
        self._thread = get_ident()
        self._workspace = arrays[3]
        self._ways: dict[int, _Way] = {}
        self._stream = 0
        self._way = _Way(0, [], (), self._tell(TORCH, ()))
        self._device = call.device
        if self._device is None:
            return
        check_places(*addresses[1:])
        if addresses[0] % call.score_bytes:
            call.misplaced(addresses[0])
        try:
            self._kernel = kernels()
            self._current = stream_reader(call.logits.library)
            with self._kernel.Current(self._device):
                self._turn(self._current(self._device))
        except (CouldNotProbeError, ImportError) as error:
            self._device = None
            self._way.told = self._tell(TORCH, (missing(error),))

    @property
    def out(self) -> Any:
        """The array that each call fills."""
        return self._arrays[2]

    @property
    def rung(self) -> str:
        """The rung that answered the last call, or would answer the first."""
        return self._way.told.rung

    def __call__(self) -> Any:
        """Select into ``out`` on the current stream and return it.

        Raises ArgumentError in another thread than that of ``prepare``, and where a partition is
        met for the first time inside a capture.
        """
        if get_ident() != self._thread:
            raise ArgumentError(
                "a prepared call was made from another thread",
                "each thread needs a `prepare` of its own: a launch is written in place",
            )
        device = self._device
        if device is None:
            self._by_library()
        else:
            before = self._kernel.enter(device)
            try:
                stream = self._current(device)
                if stream != self._stream:
                    self._turn(stream)
                for launch in self._way.launches:
                    code = launch.again()
                    if code:
                        self._fall(code)
                        break
                else:
                    if not self._way.launches:
                        self._by_library()
            finally:
                if before is not None:
                    self._kernel.leave(before)
        for log in active():
            log.calls.append(self._way.told)
        return self._arrays[2]

    def _turn(self, stream: int) -> None:
        """Let the next launches go to a stream; a partition that is new gets a way of its own."""
        part = self._kernel.partition(stream)
        way = self._ways.get(part)
        if way is None:
            plan = plan_for(self._call.shape_class, self._call.asked, stream)
            way = _Way(
                part, [replace(one, stream=stream) for one in plan.steps], (), self._way.told
            )
            way.told = self._tell(TORCH, plan.falls)
            self._next(way)
            self._ways[part] = way
        for launch in way.launches:
            launch.aim(stream, self._call.columns)
        self._way, self._stream = way, stream

    def _next(self, way: _Way) -> None:
        """Take the first rung that was not refused, and leave out those before it."""
        falls = way.told.falls
        while way.steps and way.steps[0].refused:
            falls += (refusal(way.steps.pop(0)),)
        if not way.steps:
            way.launches, way.told = (), self._tell(TORCH, falls)
            return
        step, call = way.steps[0], self._call
        memory = 0
        if step.parts_bytes:
            self._workspace, memory = parts(
                step.parts_bytes, call, self._arrays[0], self._workspace
            )
        scores, lengths, out, status = self._addresses
        for launch in step.launches:
            launch.aim(step.stream, call.columns)
            launch.place((scores, lengths, out, status, memory, call.row_stride, call.out_stride))
        way.launches, way.told = step.launches, self._tell(step.choice.rung, falls)

    def _fall(self, code: int) -> None:
        """Take what comes after a launch that was refused, down to one that is not."""
        while code:
            way, stream = self._way, self._stream
            if self._kernel.partition(stream) != way.part:
                # The handle is another stream's now.
                self._turn(stream)
            else:
                way.steps[0].refused = code
                self._next(way)
                for launch in way.launches:
                    launch.aim(stream, self._call.columns)
            code = 0
            for launch in self._way.launches:
                code = code or launch.again()
        if not self._way.launches:
            self._by_library()

    def _by_library(self) -> None:
        logits, lengths, out, *_ = self._arrays
        if self._call.rows:
            fallback.select(logits, lengths, self._call.asked, out)

    def _tell(self, rung: str, falls: tuple[Fallback, ...]) -> Call:
        call = self._call
        return Call(
            rung=rung,
            num_rows=call.rows,
            columns=call.columns,
            k=call.asked.k,
            device=array.where(call.logits),
            falls=falls,
        )


def prepare(
    logits: Any,
    lengths: Any,
    k: int,
    *,
    out: Any = None,
    workspace: Any = None,
    rung: str = "auto",
    ties: str = "lowest",
    nan: str = "largest",
    ordered: bool = False,
    status: Any = None,
) -> Prepared:
    """Check a call of ``select`` and decide what it launches; nothing is selected yet.

    The arguments are those of ``select``; what is not given is allocated here, once. Raises
    ArgumentError as ``select`` does.
    """
    (seen, scores), (many, counts) = array.read(logits), array.read(lengths)
    written = None if out is None else array.read(out)[0]
    call = request.__wrapped__(seen, many, written, whole(k), rung, ties, nan, bool(ordered))
    if out is None:
        out = array.empty(logits, (call.rows, call.asked.k), "int32")
    paths = 0 if status is None else status_of(status, call)
    addresses = scores, counts, array.read(out)[1], paths
    return Prepared(call, addresses, (logits, lengths, out, workspace, status))
