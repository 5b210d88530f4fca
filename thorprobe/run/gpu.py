# SPDX-License-Identifier: Apache-2.0
"""Answers launches on a GPU, through a worker process that a launch may cost.

The parent never touches CUDA. It hands all launches of a batch to the worker at once, and watches
what it says: a worker that makes no progress within the deadline, stops its heartbeat, dies or
reports a sticky error costs one record; it is replaced and the batch goes on.
"""

import ctypes
import ctypes.util
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Device, LaunchSpec, Observed, Origin, Outcome, Status
from thorprobe.run import wire

DEADLINE_S = 10.0
_PATIENCE = {"start": 90.0, "compile": 180.0, "check": 120.0, "input": 120.0}
# Seconds for stages that are slow without being stuck: first imports, NVRTC, torch.
_SILENCE_S = 15.0
_MAX_STARTS_IN_A_ROW = 3


def driver_present() -> bool:
    """Say whether a CUDA driver library can be loaded; cheap, and starts nothing."""
    names = ("libcuda.so.1", "libcuda.so", ctypes.util.find_library("cuda") or "")
    for name in filter(None, names):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


class _Worker:
    """One worker process and the thread that listens to it."""

    def __init__(self, command: Sequence[str], setup: wire.Setup, log_file: Path) -> None:
        log_file.touch()
        environment = os.environ | {
            "CUDA_LOG_FILE": str(log_file),
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
            ),
        }
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("THORPROBE_WORKER_STDERR") else None,
            env=environment,
        )
        self.messages: queue.SimpleQueue[wire.FromWorker | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.send([setup])

    def _listen(self) -> None:
        stream = self.process.stdout
        if stream is not None:
            for text in stream:
                try:
                    self.messages.put(wire.from_worker(text))
                except msgspec.MsgspecError:
                    break
        self.messages.put(None)

    def send(self, messages: Sequence[wire.ToWorker]) -> None:
        def write() -> None:
            stream = self.process.stdin
            try:
                if stream is not None:
                    stream.write(b"".join(wire.encode(m) + b"\n" for m in messages))
                    stream.flush()
            except (OSError, ValueError):
                return  # The worker is gone; the listener says so.

        # In a thread, so that a worker that does not read cannot block the deadline.
        threading.Thread(target=write, daemon=True).start()

    def kill(self) -> int:
        """End the process and return its exit status."""
        self.process.kill()
        return self.process.wait()


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

        ``command`` starts another program that speaks thorprobe.run.wire, and needs no driver.
        """
        self._command = tuple(command) or (sys.executable, "-m", "thorprobe.run.worker")
        if not command and not driver_present():
            raise CouldNotProbeError(
                f"`--device {ordinal}` was asked for, but there is no CUDA driver on this machine",
                "`--profile thor` answers from a model of the device; `thorprobe doctor` says "
                "what is missing",
            )
        self._setup = wire.Setup(ordinal=ordinal, partition=partition, oracle=oracle)
        self._deadline_s = deadline_s
        self._folder = tempfile.TemporaryDirectory(prefix="thorprobe-")
        self._starts = 0
        self.software: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
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
            if isinstance(message, wire.Failed):
                self._stop()
                raise CouldNotProbeError(message.sentence, message.hint)
            if isinstance(message, wire.Hello):
                self.software |= message.software
                return message.device
            if message is None:
                status = self._stop()
                raise CouldNotProbeError(
                    f"the worker ended with status {status} before it was ready",
                    "run again with THORPROBE_WORKER_STDERR=1 to see what it printed",
                )

    def _stop(self) -> int:
        worker, self._worker = self._worker, None
        return worker.kill() if worker else 0

    def close(self) -> None:
        """End the worker and remove the driver's log file."""
        self._stop()
        self._folder.cleanup()

    def ask(self, specs: Sequence[LaunchSpec]) -> Iterator[Outcome]:
        """Measure each launch in order; every spec gets exactly one outcome."""
        self._record_inputs(specs)
        waiting = list(specs)
        barren = 0
        while waiting:
            if self._worker is None:
                barren += 1
                if barren > _MAX_STARTS_IN_A_ROW:
                    raise CouldNotProbeError(
                        f"{_MAX_STARTS_IN_A_ROW} workers in a row ended without an answer",
                        "`thorprobe doctor` says whether the device still answers",
                    )
                self._start()
            worker = self._worker
            if worker is None:
                return
            worker.send([wire.Ask(spec=spec) for spec in waiting])
            while waiting and self._worker is not None:
                outcome = self._next(worker, waiting[0])
                waiting.pop(0)
                barren = 0
                yield outcome

    def _record_inputs(self, specs: Sequence[LaunchSpec]) -> None:
        from thorprobe.run import compile as kernels

        for kernel in sorted({spec.kernel for spec in specs}):
            self.inputs[f"kernels/{kernel}.cu"] = kernels.source(kernel).sha256

    def _next(self, worker: _Worker, spec: LaunchSpec) -> Outcome:
        """Return the worker's answer to the first waiting launch, or what became of the worker."""
        stage = "idle"
        progressed = heard = time.monotonic()
        while True:
            patience = _PATIENCE.get(stage, self._deadline_s)
            now = time.monotonic()
            limit = min(progressed + patience, heard + max(_SILENCE_S, self._deadline_s))
            try:
                message = worker.messages.get(timeout=max(limit - now, 0.001))
            except queue.Empty:
                silent = time.monotonic() - heard >= _SILENCE_S
                self._stop()
                waited = time.monotonic() - progressed
                reason = "its heartbeat stopped" if silent else f"no answer within {waited:.1f} s"
                return _lost(
                    spec,
                    Status.TIMEOUT,
                    f"{reason} in stage `{stage}`; the worker was killed and replaced",
                )
            heard = time.monotonic()
            if isinstance(message, wire.Answer):
                if message.compiler:
                    self.software["compiler"] = message.compiler
                if message.poisoned:
                    self._stop()
                return message.outcome
            if isinstance(message, wire.Beat):
                if message.stage != stage:
                    stage, progressed = message.stage, heard
            else:
                status = self._stop()
                return _lost(
                    spec,
                    Status.ERROR,
                    f"the worker ended with status {status} in stage `{stage}`; it was replaced",
                )


def _lost(spec: LaunchSpec, status: Status, note: str) -> Outcome:
    """Return the record of a launch whose worker did not live to answer."""
    return Outcome(
        id=spec.id, spec=spec, status=status, origin=Origin.MEASURED, observed=Observed(), note=note
    )
