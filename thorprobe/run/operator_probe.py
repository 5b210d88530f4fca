# SPDX-License-Identifier: Apache-2.0
"""Calls one of vLLM's operators as its call site does, and records all that the call leaves behind.

A refused launch raises, and leaves an error that the next call of torch raises once more: the
second frame of a log may be innocent. So the error is read, met and cleared before anything else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from thorprobe.errors import ThorprobeError
from thorprobe.plan.operator import COOPERATIVE, NAMESPACE, operator_of
from thorprobe.record import (
    Check,
    DriverCall,
    KernelSeen,
    LaunchSpec,
    Observed,
    OperatorCall,
    Origin,
    Outcome,
    Status,
    Workload,
)
from thorprobe.run import workload as inputs
from thorprobe.run.operator_library import Library
from thorprobe.run.operator_seat import Seat

WORKSPACE_BYTES = 1_048_576
"""What vLLM hands over: `_TOPK_WORKSPACE_BYTES` of the QSA call site in 0.29 to 0.33."""

UNWRITTEN = -7
"""Fills the output, so that what an operator does not write shows."""

SENTENCES = {
    912: "a kernel launch error has occurred due to cluster misconfiguration",
    209: "no kernel image is available for execution on the device",
    700: "an illegal memory access was encountered",
    701: "too many resources requested for launch",
    720: "too many blocks in cooperative launch",
    1: "invalid argument",
}
"""What the runtime says for a code; its codes are the driver's (CUDA runtime API reference)."""

_MAX_TEXT = 4_000
_REPLAYS = 7
_CALL_ROUNDS = 5
_JUNK = 0xA5

Occupancy = Callable[[LaunchSpec], tuple[Observed, tuple[DriverCall, ...]]]
Log = Callable[[], tuple[str, ...] | None]


@dataclass(frozen=True)
class _Asked:
    """A call that is about to be made: what fits, and the tensor that it writes."""

    spec: LaunchSpec
    work: Workload
    seen: Observed
    calls: tuple[DriverCall, ...]
    make: Callable[[], None]
    output: Any


class OperatorProber:
    """Answers the calls of one library's operators in one seat.

    ``dead`` is True once a sticky error has finished the context, ``untried`` where it was finished
    before the last call, which was therefore not made.
    """

    def __init__(
        self,
        library: Library,
        seat: Seat,
        oracle: Callable[[], inputs.Oracle],
        stage: Callable[[str], None],
    ) -> None:
        """Take a loaded library; ``stage`` is told what is being done, for the heartbeat."""
        self._library = library
        self._seat = seat
        self._oracle = oracle
        self._stage = stage
        self._made: tuple[Workload, Any, Any, Any] | None = None
        self.dead = False
        self.untried = False

    def answer(self, spec: LaunchSpec, occupancy: Occupancy, log: Log) -> Outcome:
        """Make one call and say all that was seen of it; a refusal is an answer.

        ``occupancy`` answers what fits, for a kernel of the same threads, bytes and cluster;
        ``log`` returns the driver's sentences since it was last called. Raises ThorprobeError for a
        spec without a workload.
        """
        if spec.workload is None:
            message = "a call of an operator needs a workload"
            raise ThorprobeError(message)
        if code := self._seat.settle():
            self.dead = self.untried = True
            prior = (_driver_call("cuCtxSynchronize", code, "before the probe"),)
            note = "the context was already dead before this probe"
            return _outcome(spec, Status.ERROR, Observed(), prior, note)
        seen, calls = occupancy(spec) if spec.cluster_attribute else (Observed(), ())
        calls = tuple(msgspec.structs.replace(c, detail=_of_ours(c.detail)) for c in calls)
        with self._seat.current():
            make, output = self._prepared(spec.workload, operator_of(spec.kernel))
            asked = _Asked(spec, spec.workload, seen, calls, make, output)
            log()
            outcome = self._called(asked, log)
            log()  # What capture, profiler and timing made the driver say is not about the call.
            return outcome

    def _called(self, asked: _Asked, log: Log) -> Outcome:
        operator = operator_of(asked.spec.kernel)
        self._stage("launch")
        raised = _raised(asked.make)
        said = log()
        told = OperatorCall(operator=operator, raised=raised)
        code: int | None = 0
        if raised:
            told = self._left(told)
            code = told.pending_code or code_of(raised)
        self._stage("sync")
        sync = self._seat.settle()
        self.dead = bool(sync)
        seen = msgspec.structs.replace(asked.seen, launch_code=code, sync_code=sync)
        status, note = Status.PASS, ""
        if self.dead:
            status, note = Status.ERROR, "an error stays with the context: the worker is replaced"
        elif code is None:
            seen = msgspec.structs.replace(seen, sync_code=None)
            status, note = Status.ERROR, f"the host code refused: {raised.splitlines()[0]}"
        elif not raised:
            self._stage("check")
            check = self._check(asked)
            seen = msgspec.structs.replace(seen, verified=not check.wrong_rows, check=check)
            status, note = Status.FAIL if check.wrong_rows else Status.PASS, check.detail
        if not self.dead and code is not None:
            told, seen = self._watched(told, seen, asked)
            note = "; ".join(filter(None, (note, _apart(asked.spec, told))))
            status = Status.ERROR if self.dead else status
        made = _driver_call(f"{NAMESPACE}::{operator}", code or 0, raised)
        seen = msgspec.structs.replace(seen, operator=told)
        outcome = _outcome(asked.spec, status, seen, (*asked.calls, made), note)
        return msgspec.structs.replace(outcome, driver_log=said)

    def _left(self, told: OperatorCall) -> OperatorCall:
        """Read the error that a refusal left, let the next call of torch meet it, and look again.

        What the next call raises is the same again: that call did nothing wrong.
        """
        pending = self._seat.pending()
        met = self._seat.touch()
        again = self._seat.touch() if met else ""
        left = self._seat.pending()
        self._seat.clear()
        return msgspec.structs.replace(
            told, pending_code=pending, pending=met[:_MAX_TEXT], cleared=not again and not left
        )

    def _watched(
        self, told: OperatorCall, seen: Observed, asked: _Asked
    ) -> tuple[OperatorCall, Observed]:
        """Add the kernels of a call, and its times where it launches and is right."""
        call, spec, launches = asked.make, asked.spec, not told.raised
        remarks: list[str] = []
        self._stage("capture")
        captured: tuple[KernelSeen, ...] = ()
        try:
            captured = self._seat.captured(call)
        except Exception as error:  # noqa: BLE001  the call itself was answered: this is beside it
            remarks.append(f"the call's capture could not be read: {_short(error)}")
        ran: tuple[str, ...] = ()
        call_us: list[float] = []
        if launches and spec.repeats and seen.verified:
            self._stage("time")
            try:
                timing = self._seat.time(call, spec.repeats, _REPLAYS)
                seen = msgspec.structs.replace(
                    seen, time_us=timing.us, time_spread_us=timing.spread_us
                )
                call_us = self._host_times(call, spec.repeats)
            except Exception as error:  # noqa: BLE001
                remarks.append(f"it launched, and could not be timed: {_short(error)}")
        if launches:
            self._stage("profile")
            try:
                ran = self._seat.ran(call)
            except Exception as error:  # noqa: BLE001
                remarks.append(f"torch's profiler did not tell: {_short(error)}")
        if late := self._seat.settle():
            self.dead, seen = True, msgspec.structs.replace(seen, sync_code=late)
            remarks.append("the call itself was right; the calls that time it ended in an error")
        told = msgspec.structs.replace(
            told,
            captured=captured,
            ran=ran,
            call_us=round(median(call_us), 3) if call_us else None,
            call_spread_us=round(max(call_us) - min(call_us), 3) if call_us else None,
            remarks=tuple(remarks),
        )
        return told, seen

    def _host_times(self, call: Callable[[], None], calls: int) -> list[float]:
        """Return the microseconds a call, one after another and synchronised at the end."""
        times = []
        for _ in range(_CALL_ROUNDS):
            self._seat.settle()
            began = perf_counter()
            for _ in range(calls):
                call()
            self._seat.settle()
            times.append((perf_counter() - began) / calls * 1e6)
        return times

    def _prepared(self, work: Workload, operator: str) -> tuple[Callable[[], None], Any]:
        """Return a call as the call site makes it, and the tensor that it writes."""
        import torch

        self._stage("input")
        where = self._seat.device
        if self._made is None or self._made[0] != work:
            self._made = None
            made = inputs.scores(work)
            scores = torch.from_numpy(made).to(where)
            lengths = torch.full((work.rows,), work.length, dtype=torch.int32, device=where)
            self._made = (work, made, scores, lengths)
        _, _, scores, lengths = self._made
        logits = scores[:, : work.columns]
        output = torch.full((work.rows, work.k), UNWRITTEN, dtype=torch.int32, device=where)
        # Its contents need not be prepared, so they are made as unlike zeros as can be.
        workspace = torch.full((WORKSPACE_BYTES,), _JUNK, dtype=torch.uint8, device=where)
        entry = (
            self._library.cooperative_topk
            if operator == COOPERATIVE
            else self._library.persistent_topk
        )

        def call() -> None:
            entry(logits, lengths, output, workspace, work.k, work.columns)

        self._seat.settle()
        return call, output

    def _check(self, asked: _Asked) -> Check:
        made = self._made[1] if self._made else inputs.scores(asked.work)
        chosen = np.ascontiguousarray(asked.output.cpu().numpy())
        return inputs.check(asked.work, made, chosen, self._oracle())


def code_of(raised: str) -> int | None:
    """Return the code whose sentence an exception's text has, None for one that names none."""
    return next((code for code, sentence in SENTENCES.items() if sentence in raised), None)


def _raised(call: Callable[[], None]) -> str:
    """Make a call and return the text of what it raised, verbatim; '' for nothing."""
    try:
        call()
    except RuntimeError as error:  # What torch makes of an operator's exception.
        return str(error)[:_MAX_TEXT] or type(error).__name__
    return ""


def _of_ours(detail: str) -> str:
    """Say of a question about what fits whose kernel it was asked for."""
    whose = "thorprobe's cluster_topk of the same threads, bytes and cluster"
    return f"{detail}; {whose}" if detail else whose


def _apart(spec: LaunchSpec, told: OperatorCall) -> str:
    """Say where the call launched another cluster than the arm that was planned, '' where not."""
    sizes = {
        x * y * z
        for kernel in told.captured
        if kernel.cluster is not None and "topk" in kernel.name.lower()
        for x, y, z in (kernel.cluster,)
    }
    planned = spec.cluster_size if spec.cluster_attribute else 1
    others = sorted(sizes - {planned})
    if not others:
        return ""
    found = " and ".join(map(str, others))
    return f"the host code launched clusters of {found} CTAs, not of {planned} as the policy says"


def _driver_call(call: str, code: int, detail: str) -> DriverCall:
    from thorprobe.driver.code import CODE_NAMES

    name = CODE_NAMES.get(code, f"CUresult {code}") if code else "CUDA_SUCCESS"
    sentence = SENTENCES.get(code, "") if code else "no error"
    return DriverCall(call=call, code=code, name=name, sentence=sentence, detail=detail)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


def _outcome(
    spec: LaunchSpec, status: Status, seen: Observed, calls: Sequence[DriverCall], note: str
) -> Outcome:
    return Outcome(
        id=spec.id,
        spec=spec,
        status=status,
        origin=Origin.MEASURED,
        observed=seen,
        calls=tuple(calls),
        note=note,
    )
