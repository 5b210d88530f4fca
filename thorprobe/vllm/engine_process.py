# SPDX-License-Identifier: Apache-2.0
"""An engine in a process of its own, as its parent sees it: messages, deadlines, what it left."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from thorprobe.binary import child
from thorprobe.errors import CouldNotProbeError
from thorprobe.vllm import engine_wire as wire
from thorprobe.vllm.dropin_log import DropInReport
from thorprobe.vllm.dropin_variable import LOG_VARIABLE, VARIABLE
from thorprobe.vllm.engine_environment import ENVIRONMENT
from thorprobe.vllm.engine_plan import Case, Engine
from thorprobe.vllm.engine_words import Death, EngineRun, Moment

if TYPE_CHECKING:
    from thorprobe.record import Device

Reply = TypeVar("Reply", bound=wire.FromEngine)

PATIENCE_S = {"import": 240.0, "start": 420.0, "case": 300.0, "end": 25.0}
"""Seconds that an engine may take for each; a start compiles and captures."""

_LAST_LINES = 12
_LARGEST_LOG = 1 << 24
COMMAND = child.python("thorprobe.vllm.engine_child")


class EngineProcess:
    """One engine: started, asked case after case, and ended. It dies alone."""

    def __init__(
        self, engine: Engine, device: int, folder: Path, command: Sequence[str] = COMMAND
    ) -> None:
        """Start the process, which begins to import vLLM. ``folder`` takes what it prints."""
        self.engine = engine
        self.device: Device | None = None
        self.run = EngineRun(
            engine=engine.name,
            model=engine.model,
            graphs=engine.graphs,
            drop_in=engine.drop_in,
            partition=engine.partition,
        )
        self.dead = False
        self.failed: CouldNotProbeError | None = None
        self._printed = folder / f"{engine.name}.log"
        self._log = folder / f"{engine.name}.drop-in.jsonl"
        self._messages: queue.SimpleQueue[wire.FromEngine | None] = queue.SimpleQueue()
        with self._printed.open("wb") as printed:
            self._process = child.start(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("THORPROBE_WORKER_STDERR") else printed,
                env=self._environment(device),
            )
        threading.Thread(target=self._listen, daemon=True).start()
        self._send(wire.Setup(engine=engine))

    def _environment(self, device: int) -> dict[str, str]:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        devices = [name for name in visible.split(",") if name]
        made = {**child.environment(), **ENVIRONMENT}
        made["CUDA_VISIBLE_DEVICES"] = devices[device] if device < len(devices) else str(device)
        made.pop(VARIABLE, None)
        made.pop(LOG_VARIABLE, None)
        if self.engine.drop_in:
            made |= {VARIABLE: self.engine.drop_in, LOG_VARIABLE: str(self._log)}
        return made

    def _listen(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            for text in stream:
                try:
                    self._messages.put(wire.from_engine(text))
                except msgspec.MsgspecError:
                    break
        self._messages.put(None)

    def _send(self, message: wire.ToEngine) -> None:
        stream = self._process.stdin
        try:
            if stream is not None:
                stream.write(wire.encode(message) + b"\n")
                stream.flush()
        except (OSError, ValueError):
            return  # It is gone; who waits for its answer says so.

    def imported(self) -> None:
        """Wait until vLLM is imported; ``failed`` says why where it cannot be."""
        reply = self._wait("import", "start-up", "", wire.Ready)
        if reply is not None:
            self.device = reply.device
            self.run = msgspec.structs.replace(self.run, versions=reply.versions)

    def build(self, message: wire.Build) -> None:
        """Tell the process to start its engine; ``started`` waits for it."""
        if not self.dead:
            self._send(message)

    def started(self) -> None:
        """Wait for the engine's start, or its death."""
        if not self.dead:
            reply = self._wait("start", "start-up", "", wire.Started)
            if reply is not None:
                self.run = msgspec.structs.replace(reply.run, cases=self.run.cases)

    def ask(self, case: Case, forced: Sequence[int], keep: Path | None) -> wire.Done | None:
        """Run a case; return its answer, None where it was the engine's death."""
        if self.dead:
            return None
        self._send(wire.Go(case=case, forced=tuple(forced), keep=str(keep) if keep else ""))
        return self._wait("case", "prompt", case.name, wire.Done)

    def close(self) -> None:
        """End the process, and take the drop-in's log."""
        if not self.dead:
            self._send(wire.Quit())
        self._end(PATIENCE_S["end"])
        told = self._told()
        if told is not None:
            self.run = msgspec.structs.replace(self.run, seen=told)

    def _end(self, patience: float) -> int:
        try:
            return self._process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        try:
            return self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return -9  # A process can sit in the driver for long; nobody waits for it.

    def _wait(self, stage: str, moment: Moment, case: str, wanted: type[Reply]) -> Reply | None:
        deadline = time.monotonic() + PATIENCE_S[stage]
        while True:
            try:
                message = self._messages.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                self._process.kill()
                text = f"no answer within {PATIENCE_S[stage]:.0f} s; the process was killed"
                self._died(Death(moment=moment, case=case, kind="hang", text=text))
                return None
            if isinstance(message, wanted):
                return message
            if isinstance(message, wire.Failed):
                self.failed = CouldNotProbeError(message.sentence, message.hint)
                kind = type(self.failed).__name__
                self._died(Death(moment=moment, case=case, kind=kind, text=message.sentence))
                return None
            if isinstance(message, wire.Died):
                if message.run is not None and moment == "start-up":
                    self.run = msgspec.structs.replace(message.run, cases=self.run.cases)
                self._died(message.death)
                return None
            if message is None:
                status = self._end(5.0)
                self._died(
                    Death(
                        moment=moment,
                        case=case,
                        kind="process",
                        text=self._last_words(),
                        exit_status=status,
                    )
                )
                return None

    def _died(self, death: Death) -> None:
        self.dead = True
        self.run = msgspec.structs.replace(self.run, death=death)

    def _last_words(self) -> str:
        """Return the last lines that the process printed, without folders of this machine."""
        try:
            with self._printed.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 16_384))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        told = "\n".join(lines[-_LAST_LINES:])
        for folder in {*sys.path, str(Path(__file__).parents[2]), str(Path.home())}:
            if len(folder) > 1:
                told = told.replace(folder.rstrip("/") + "/", "")
        return told

    def _told(self) -> DropInReport | None:
        """Return the last report of the drop-in in this process, None where it wrote none."""
        try:
            if self._log.stat().st_size > _LARGEST_LOG:
                return None
            lines = self._log.read_bytes().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            try:
                return msgspec.json.decode(line, type=DropInReport)
            except msgspec.MsgspecError:
                continue
        return None
