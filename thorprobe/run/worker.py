# SPDX-License-Identifier: Apache-2.0
"""The worker process: owns the CUDA context, answers launches, and may die of them.

Started by thorprobe.run.gpu as thorprobe.binary.child tells. It speaks JSON lines on its
standard streams; whatever libraries print goes to standard error.
"""

import contextlib
import os
import sys
import threading
import time
from importlib import metadata
from typing import Any

from thorprobe.errors import ThorprobeError
from thorprobe.run import worker_protocol

BEAT_S = 0.25
_PACKAGES = ("cuda-bindings", "cupy-cuda13x", "nvidia-cuda-nvrtc", "numpy", "torch")


class _Line:
    """The way back to the parent, shared by the work and the heartbeat."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._stage = "start"

    def send(self, message: worker_protocol.FromWorker) -> None:
        with self._lock:
            self._file.write(worker_protocol.encode(message) + b"\n")

    def stage(self, name: str) -> None:
        self._stage = name
        self.send(worker_protocol.Beat(stage=name))

    def beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            # A parent that is gone closed the pipe: nobody wants the answers any more.
            try:
                self.send(worker_protocol.Beat(stage=self._stage))
            except OSError:
                os._exit(1)


def _software(driver_version: str) -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3])), "driver": driver_version}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _work(line: _Line, messages: Any) -> None:
    setup = worker_protocol.to_worker(next(messages))
    if not isinstance(setup, worker_protocol.Setup):
        return
    from thorprobe.driver import context as contexts
    from thorprobe.run.probe import Prober

    context = contexts.Context(setup.ordinal, setup.partition)
    log = contexts.DriverLog()
    version = contexts.driver_version()
    others = contexts.other_processes(setup.ordinal)
    software = _software(version)
    line.send(worker_protocol.Hello(device=context.device(others, version), software=software))
    prober = Prober(context, log, setup.oracle, line.stage)
    for text in messages:
        message = worker_protocol.to_worker(text)
        if isinstance(message, worker_protocol.Load):
            prober.adopt(message)
        if isinstance(message, worker_protocol.Operators):
            prober.load(message)
            line.send(worker_protocol.Ready())
        if not isinstance(message, worker_protocol.Ask):
            continue
        outcome = prober.answer(message.spec)
        line.send(
            worker_protocol.Answer(
                outcome=outcome,
                poisoned=prober.dead,
                untried=prober.untried,
                compiler=prober.compiler,
            )
        )
        line.stage("idle")
        if prober.dead:
            return


def main() -> None:
    """Answer until the parent closes the pipe, or a sticky error ends the context."""
    line = _Line()
    threading.Thread(target=line.beat, daemon=True).start()
    try:
        _work(line, iter(sys.stdin.buffer))
    except ThorprobeError as error:
        line.send(worker_protocol.Failed(sentence=error.sentence, hint=error.hint))
    except ImportError as error:
        line.send(
            worker_protocol.Failed(
                sentence=f"measuring needs a package that is not installed: {error}",
                hint="`pip install cuda-python cupy-cuda13x nvidia-cuda-nvrtc numpy`",
            )
        )
    except Exception as error:  # noqa: BLE001  the parent must hear of it, whatever it is
        text = f"the worker failed to start: {type(error).__name__}: {error}"
        line.send(
            worker_protocol.Failed(
                sentence=text[:400], hint="`thorprobe doctor` says what is missing"
            )
        )
    finally:
        # Destructors of a poisoned context can block; nothing here needs them.
        os._exit(0)
