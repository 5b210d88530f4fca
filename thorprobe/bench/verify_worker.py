# SPDX-License-Identifier: Apache-2.0
"""A process that holds generated calls against the sort; lines of JSON say how far it is.

It reads one ``Task`` from standard input, and writes ``At`` for each group and ``Ended`` last.
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from thorprobe.bench.verify_case import parse
from thorprobe.bench.verify_record import Failure, Report, Tally
from thorprobe.errors import ExitCode, ThorprobeError
from thorprobe.record import Record

if TYPE_CHECKING:
    from thorprobe.bench.verify_bed import Bed


class Task(Record, frozen=True, kw_only=True, tag=True):
    """What a process is to do: hold calls for so many seconds, or repeat the case of a line."""

    device: str | None = None
    seconds: float = 0.0
    seed: str = ""
    line: str = ""


class At(Record, frozen=True, kw_only=True, tag=True):
    """The first case of the group that runs next."""

    line: str


class Ended(Record, frozen=True, kw_only=True, tag=True):
    """What it came to, or the sentence, the hint and the exit code of why it came to nothing."""

    report: Report | None = None
    sentence: str = ""
    hint: str = ""
    code: int = 0


Word: TypeAlias = At | Ended


def main() -> None:
    """Do the task that standard input holds."""
    # What a library prints must not be taken for a line of ours.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(word: Word) -> None:
        answers.write(msgspec.json.encode(word).decode() + "\n")
        answers.flush()

    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    try:
        say(Ended(report=_done(task, lambda line: say(At(line=line)))))
    except ThorprobeError as error:
        say(Ended(sentence=error.sentence, hint=error.hint, code=int(error.exit_code)))
    except Exception as error:  # noqa: BLE001  a CUDA error of any library ends this process
        told = " ".join(str(error).split("\n", 1)[0].split())
        sentence = f"{type(error).__name__}: {told}"
        say(Ended(sentence=sentence, code=int(ExitCode.INTERNAL)))
    # A device that is lost must not keep the process at its clean-up.
    answers.flush()
    os._exit(0)


def _done(task: Task, told: Callable[[str], None]) -> Report:
    from thorprobe.bench.verify_gpu import open_bed
    from thorprobe.bench.verify_session import verify

    with ExitStack() as stack:
        bed = stack.enter_context(open_bed(task.device))
        tally = _again(bed, task.line) if task.line else verify(bed, task.seconds, task.seed, told)
        # Not closed: a device that met an error answers it once more then, and the process ends.
        stack.pop_all()
    return Report(
        tally=tally,
        device=bed.facts,
        software=bed.software,
        notes=tuple(bed.notes),
        kernel=bed.kernel,
        nvrtc=bed.nvrtc,
    )


def _again(bed: "Bed", text: str) -> Tally:
    """Repeat the case of a line. Raises UsageError for another text."""
    from thorprobe.bench.verify_run import count
    from thorprobe.bench.verify_session import repeated

    began = perf_counter()
    held = repeated(bed, parse(text))
    failures = (Failure(line=text, ran=held.ran[0], detail=held.detail),) if held.wrong else ()
    return replace(count(held), failures=failures, seconds=round(perf_counter() - began, 2))


if __name__ == "__main__":
    main()
