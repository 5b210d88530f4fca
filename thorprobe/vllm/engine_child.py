# SPDX-License-Identifier: Apache-2.0
"""An engine's process: imports vLLM, starts it, runs cases, and may die of them.

Started by ``engine_process`` as ``python -m thorprobe.vllm.engine_child``. It speaks JSON lines on
its standard streams; whatever libraries print goes to standard error.
"""

import os
import sys
from typing import IO, Any

from thorprobe.errors import ThorprobeError
from thorprobe.vllm import engine_wire as wire
from thorprobe.vllm.engine_death import death
from thorprobe.vllm.engine_words import EngineRun, Moment


class _Line:
    """The way back to the parent; what others print goes to standard error."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def send(self, message: wire.FromEngine) -> None:
        left = memoryview(wire.encode(message) + b"\n")
        while left:
            left = left[self._file.write(left) or 0 :]


def serve(line: Any, messages: IO[bytes]) -> None:
    """Answer messages until the last. An error of vLLM is an answer, and the last one."""
    from thorprobe.driver import context as contexts
    from thorprobe.vllm import engine_start as starts
    from thorprobe.vllm.engine_case import Runner

    setup = wire.to_engine(messages.readline())
    if not isinstance(setup, wire.Setup):
        return
    engine = setup.engine
    vllm, known = starts.import_vllm(engine)
    watch = starts.open_watch(engine.partition)
    whole = contexts.Context(0)
    version = contexts.driver_version()
    line.send(wire.Ready(versions=known, device=whole.device(None, version)))
    runner: Runner | None = None
    watch.install()
    for text in messages:
        message = wire.to_engine(text)
        if isinstance(message, wire.Quit):
            return
        moment: Moment = "start-up"
        case = ""
        try:
            if isinstance(message, wire.Build):
                llm, run = starts.start(vllm, engine, message, watch, known)
                runner = Runner(vllm, llm, watch, engine.model, message.seed)
                line.send(wire.Started(run=run))
            elif isinstance(message, wire.Go) and runner is not None:
                moment, case = "prompt", message.case.name
                line.send(runner.run(message))
        except Exception as error:  # noqa: BLE001  an engine's death is what is asked about
            run = EngineRun(
                engine=engine.name,
                model=engine.model,
                graphs=engine.graphs,
                drop_in=engine.drop_in,
                partition=engine.partition,
                versions=known,
                start_ops=tuple(watch.runs) if moment == "start-up" else (),
            )
            found = death(error, moment, case, watch.last, starts.roots())
            line.send(wire.Died(death=found, run=run))
            return


def _write_log() -> None:
    """Let the drop-in write its log: an interpreter that vLLM was in does not always end."""
    from thorprobe.vllm import dropin_start

    active = dropin_start.active()
    if active is not None:
        active.write()


def main() -> None:
    """Serve the parent, and end without tearing the device down."""
    line = _Line()
    try:
        serve(line, sys.stdin.buffer)
    except ThorprobeError as error:
        line.send(wire.Failed(sentence=error.sentence, hint=error.hint))
    except Exception as error:  # noqa: BLE001  the parent must hear of it, whatever it is
        text = f"the engine's process failed: {type(error).__name__}: {error}"
        line.send(wire.Failed(sentence=text[:400], hint="`thorprobe doctor` says what is missing"))
    finally:
        try:
            _write_log()
        finally:
            sys.stderr.flush()
            os._exit(0)


if __name__ == "__main__":
    main()
