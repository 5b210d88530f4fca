# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a verification, and gathers what they tell; a process may die or hang."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, Timer

import msgspec

from thorprobe.bench.verify_record import Failure, Report, Tally
from thorprobe.bench.verify_worker import Ended, Task, Word
from thorprobe.binary import child
from thorprobe.errors import CouldNotProbeError, ExitCode, ThorprobeError, UsageError
from thorprobe.record import Status

_WORKER = "thorprobe.bench.verify_worker"
_START_S = 180.0
# Longest from the start of a process to its end, beside the seconds that it was given: start-up,
# the last group, and making failures smaller.

Heard = Callable[[], None]


def verify(tasks: list[Task], heard: Heard = lambda: None) -> list[Report]:
    """Run a process for each task, all at once, and return what each tells.

    A process that dies or hangs in a group is a failure of that group. ``heard`` is called at each
    group. Raises the error of a process that could not begin.
    """
    lock = Lock()

    def once() -> None:
        with lock:
            heard()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(lambda task: _one(task, once), tasks))


def _one(task: Task, heard: Heard) -> Report:
    process = child.start(
        child.python(_WORKER),
        env=child.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
    )
    patience = _START_S + task.seconds
    killed: list[bool] = []

    def kill() -> None:
        killed.append(True)
        process.kill()

    timer = Timer(patience, kill)
    timer.start()
    group, ended = "", None
    try:
        if process.stdin is None or process.stdout is None:
            raise ThorprobeError("a process of the verification has no pipes")
        with process.stdin as given:
            given.write(msgspec.json.encode(task))
        for told in process.stdout:
            word = msgspec.json.decode(told, type=Word)
            if isinstance(word, Ended):
                ended = word
            else:
                group = word.line
                heard()
        process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if ended is not None and ended.report is not None:
        return ended.report
    if ended is not None:
        raise _error(ended)
    reason = f"did not end within {patience:.0f} s" if killed else f"ended ({process.returncode})"
    if not group and not task.line:
        raise CouldNotProbeError(
            f"a process of the verification {reason} before it held a call",
            "`thorprobe doctor` says whether the device answers",
        )
    lost = Failure(
        status=Status.TIMEOUT if killed else Status.ERROR,
        line=group or task.line,
        detail=f"the process {reason} in the group that begins with this case",
    )
    return Report(tally=Tally(wrong=1, failures=(lost,)))


def _error(ended: Ended) -> ThorprobeError:
    """Return the error that a process ended with, of its own kind."""
    kinds = {
        ExitCode.USAGE: UsageError,
        ExitCode.COULD_NOT_PROBE: CouldNotProbeError,
    }
    kind = kinds.get(ExitCode(ended.code), ThorprobeError)
    return kind(ended.sentence, ended.hint)
