# SPDX-License-Identifier: Apache-2.0
"""Answers launches on a GPU, through a worker process that a launch may cost.

The parent never touches CUDA. It hands all launches of a batch to the worker at once, and watches
what it says: a worker that makes no progress within the deadline, stops its heartbeat, dies or
reports a sticky error costs one record; it is replaced and the batch goes on.
"""

import ctypes
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from thorprobe.binary import child
from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Device, LaunchSpec, Observed, Origin, Outcome, Status
from thorprobe.run import worker_protocol
from thorprobe.run.shipped import Shipped

if TYPE_CHECKING:
    from thorprobe.binary.operator_file import LibraryFile

DEADLINE_S = 10.0
_PATIENCE = {
    "start": 90.0,
    "compile": 180.0,
    "load": 90.0,
    "check": 120.0,
    "input": 120.0,
    "time": 60.0,
    "profile": 60.0,
}
# Seconds for stages that are slow without being stuck: first imports, NVRTC, torch, many launches.
_SILENCE_S = 15.0
_KILL_S = 5.0
_ASLEEP_S = 2.0
# A wait that ends so much later than asked means that this process was stopped, not the worker.
_MAX_LOST_IN_A_ROW = 4
# More is no bad launch but a bad device, and each costs a deadline.


def driver_present() -> bool:
    """Say whether a CUDA driver library can be loaded; cheap, and starts nothing."""
    for name in ("libcuda.so.1", "libcuda.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


class _Worker:
    """One worker process and the thread that listens to it."""

    def __init__(
        self, command: Sequence[str], setup: worker_protocol.Setup, log_file: Path
    ) -> None:
        loud = bool(os.environ.get("THORPROBE_WORKER_STDERR"))
        self.process = child.start(
            command,
            env=child.environment() | {"CUDA_LOG_FILE": str(log_file)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if loud else subprocess.DEVNULL,
        )
        self.messages: queue.SimpleQueue[worker_protocol.FromWorker | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.send([setup])

    def _listen(self) -> None:
        stream = self.process.stdout
        if stream is not None:
            for text in stream:
                try:
                    self.messages.put(worker_protocol.from_worker(text))
                except msgspec.MsgspecError:
                    break
        self.messages.put(None)

    def send(self, messages: Sequence[worker_protocol.ToWorker]) -> None:
        def write() -> None:
            stream = self.process.stdin
            try:
                if stream is not None:
                    stream.write(b"".join(worker_protocol.encode(m) + b"\n" for m in messages))
                    stream.flush()
            except (OSError, ValueError):
                return  # The worker is gone; the listener says so.

        # In a thread, so that a worker that does not read cannot block the deadline.
        threading.Thread(target=write, daemon=True).start()

    def kill(self) -> int:
        """End the process and return its exit status, -9 where it does not end in time.

        A process that sits in the driver can outlive its kill for long; nobody waits for it.
        """
        self.process.kill()
        try:
            return self.process.wait(timeout=_KILL_S)
        except subprocess.TimeoutExpired:
            return -9


class _Reply(NamedTuple):
    """What became of one launch: its record, and whether it cost the worker or was not made."""

    outcome: Outcome
    lost: bool = False
    untried: bool = False


class GpuAnswerer:
    """Measures launches on one device.

    Raises CouldNotProbeError where there is no driver, no such device or no such partition.
    """

    origin = Origin.MEASURED

    def __init__(
        self,
        ordinal: int = 0,
        partition: str = "",
        *,
        oracle: str = "numpy",
        deadline_s: float = DEADLINE_S,
        command: Sequence[str] = (),
    ) -> None:
        """Start a worker and wait until it has said what it found.

        ``command`` starts another program that speaks thorprobe.run.worker_protocol, and needs no
        driver.
        """
        self._command = tuple(command) or child.python("thorprobe.run.worker")
        if not command and not driver_present():
            raise CouldNotProbeError(
                f"device {ordinal} cannot be measured: there is no CUDA driver on this machine",
                "`--profile thor` answers from a model of the device; `thorprobe doctor` says "
                "what is missing",
            )
        self._setup = worker_protocol.Setup(ordinal=ordinal, partition=partition, oracle=oracle)
        self._deadline_s = deadline_s
        self._folder = tempfile.TemporaryDirectory(prefix="thorprobe-")
        self._starts = 0
        self.software: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self._loads: tuple[worker_protocol.Load | worker_protocol.Operators, ...] = ()
        self._worker: _Worker | None = None
        self.device: Device = self._start()

    def _start(self) -> Device:
        self._starts += 1
        log_file = Path(self._folder.name) / f"driver-{self._starts}.log"
        self._worker = worker = _Worker(self._command, self._setup, log_file)
        began = time.monotonic()
        while True:
            remaining = _PATIENCE["start"] - (time.monotonic() - began)
            try:
                message = worker.messages.get(timeout=max(remaining, 0.01))
            except queue.Empty:
                self._stop()
                raise CouldNotProbeError(
                    f"the worker did not start within {_PATIENCE['start']:.0f} s",
                    "`thorprobe doctor` says what is missing",
                ) from None
            if isinstance(message, worker_protocol.Failed):
                self._stop()
                raise CouldNotProbeError(message.sentence, message.hint)
            if isinstance(message, worker_protocol.Hello):
                self.software |= message.software
                return message.device
            if message is None:
                status = self._stop()
                raise CouldNotProbeError(
                    f"the worker ended with status {status} before it was ready",
                    "run again with THORPROBE_WORKER_STDERR=1 to see what it printed"
                    + "".join(f"; it does not get `{e}` of PYTHONPATH" for e in child.left_out()),
                )

    def _stop(self) -> int:
        worker, self._worker = self._worker, None
        return worker.kill() if worker else 0

    def close(self) -> None:
        """End the worker and remove the driver's log file."""
        self._stop()
        self._folder.cleanup()

    def attach_operators(self, file: "LibraryFile") -> None:
        """Let the worker load a library of vLLM, whose operators later launches may name.

        Raises CouldNotProbeError with the worker's own sentence where it cannot.
        """
        asked = worker_protocol.Operators(
            path=str(file.path), version=file.version, sha256=file.sha256
        )
        worker = self._worker
        if worker is None:
            self._start()
            worker = self._worker
        if worker is None:
            return
        worker.send([asked])
        began = time.monotonic()
        while True:
            left = _PATIENCE["start"] - (time.monotonic() - began)
            try:
                message = worker.messages.get(timeout=max(left, 0.01))
            except queue.Empty:
                message = None
            if isinstance(message, worker_protocol.Ready):
                break
            if message is None or isinstance(message, worker_protocol.Failed):
                status = self._stop()
                if isinstance(message, worker_protocol.Failed):
                    raise CouldNotProbeError(message.sentence, message.hint)
                raise CouldNotProbeError(
                    f"the worker ended with status {status} while it loaded `{file.path.name}`",
                    "run again with THORPROBE_WORKER_STDERR=1 to see what it printed",
                )
        self._loads += (asked,)
        self.inputs |= file.inputs

    def attach(self, shipped: Shipped) -> None:
        """Take kernels that later launches may name; every worker is told of them."""
        images = {digest: str(path) for digest, path in shipped.images.items()}
        self._loads += (worker_protocol.Load(kernels=shipped.kernels, images=images),)
        self.inputs |= shipped.inputs

    def ask(self, specs: Sequence[LaunchSpec]) -> Iterator[Outcome]:
        """Measure each launch in order; every spec gets exactly one outcome.

        A launch that met a context which was finished before it is made again, in a new worker.

        Raises CouldNotProbeError where one worker after another is lost.
        """
        waiting = list(specs)
        lost = 0
        again: set[str] = set()
        while waiting:
            if self._worker is None:
                self._start()
            worker = self._worker
            if worker is None:
                return
            worker.send([*self._loads, *(worker_protocol.Ask(spec=spec) for spec in waiting)])
            while waiting and self._worker is not None:
                spec = waiting[0]
                reply = self._next(worker, spec)
                lost = lost + 1 if reply.lost else 0
                if reply.untried and spec.id not in again:
                    again.add(spec.id)
                    continue
                waiting.pop(0)
                yield reply.outcome
                if lost >= _MAX_LOST_IN_A_ROW:
                    raise CouldNotProbeError(
                        f"{lost} workers in a row were lost, the last one: {reply.outcome.note}",
                        "what was measured before is kept; `thorprobe doctor` says whether the "
                        "device still answers",
                    )

    def _next(self, worker: _Worker, spec: LaunchSpec) -> _Reply:
        """Return the worker's answer to the first waiting launch, or what became of the worker."""
        stage = "idle"
        progressed = heard = time.monotonic()
        while True:
            patience = _PATIENCE.get(stage, self._deadline_s)
            now = time.monotonic()
            silence = max(_SILENCE_S, self._deadline_s)
            wait = max(min(progressed + patience, heard + silence) - now, 0.001)
            try:
                message = worker.messages.get(timeout=wait)
            except queue.Empty:
                if time.monotonic() - now > wait + _ASLEEP_S:
                    progressed = heard = time.monotonic()
                    continue
                silent = time.monotonic() - heard >= silence
                self._stop()
                waited = time.monotonic() - progressed
                reason = "its heartbeat stopped" if silent else f"no answer within {waited:.1f} s"
                note = f"{reason} in stage `{stage}`; the worker was killed and replaced"
                return _lost(spec, Status.TIMEOUT, "start" if silent else stage, note)
            heard = time.monotonic()
            if isinstance(message, worker_protocol.Answer):
                if message.compiler:
                    self.software["compiler"] = message.compiler
                if message.poisoned:
                    self._stop()
                return _Reply(message.outcome, untried=message.untried)
            if isinstance(message, worker_protocol.Ready):
                continue
            if isinstance(message, worker_protocol.Beat):
                if message.stage != stage:
                    stage, progressed = message.stage, heard
                continue
            status = self._stop()
            said = f": {message.sentence}" if isinstance(message, worker_protocol.Failed) else ""
            note = (
                f"the worker ended with status {status} in stage `{stage}`{said}; it was replaced"
            )
            return _lost(spec, Status.ERROR, stage, note)


def _lost(spec: LaunchSpec, status: Status, stage: str, note: str) -> _Reply:
    """Return the record of a launch whose worker did not live to answer."""
    outcome = Outcome(
        id=spec.id,
        spec=spec,
        status=status,
        origin=Origin.MEASURED,
        observed=Observed(),
        note=note,
        stage=stage,
    )
    return _Reply(outcome, lost=True)
