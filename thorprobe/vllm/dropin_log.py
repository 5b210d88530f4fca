# SPDX-License-Identifier: Apache-2.0
"""What the drop-in did: said once, and written as a line of JSON when the process ends."""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Literal

from thorprobe.errors import UsageError
from thorprobe.record import Record
from thorprobe.vllm.dropin_check import Compared

LOGGER = "thorprobe.vllm"
_SENTENCES = 100
SHAPES = 1_000
"""Shapes that are listed one by one."""

Answered = Literal["vllm", "ladder", "both", "none"]
"""Who selected: vLLM's operator, the ladder, both, of which vLLM's is kept, or none could."""

VLLM: tuple[Answered, ...] = ("vllm", "both")
LADDER: tuple[Answered, ...] = ("ladder", "both")


class Calls(Record, frozen=True, kw_only=True):
    """Calls of one shape with one answer; without rows and columns, those of all further shapes.

    ``arm`` is what vLLM's operator launches for it; ``hosted`` whether the device hosts that, None
    where that was not asked or there is no cluster. ``rung`` is the ladder's, as at the first such
    call of a thread; in mode ``report`` the one that would have run. ``captured`` of the ``calls``
    were recorded into a graph, whose replays are not seen; ``rows`` are those of all calls.
    """

    operator: str
    num_rows: int
    columns: int
    k: int
    arm: str
    hosted: bool | None
    answered: Answered
    rung: str = ""
    reason: str = ""
    calls: int = 0
    captured: int = 0
    rows: int = 0


class Sum(Record, frozen=True, kw_only=True):
    """Calls and the rows of all of them."""

    name: str
    calls: int = 0
    rows: int = 0


class DropInReport(Record, frozen=True, kw_only=True):
    """One process: what was asked for, what is here, and what was done.

    ``rungs`` sums what the ladder answered, ``vllm`` by arm what vLLM's operators did, ``falls``
    by reason the calls that went another way than the mode wants, ``would`` (mode ``report``) what
    would have been done.
    """

    mode: str
    vllm: str
    policy: str
    torch: str
    thorprobe: str
    pid: int
    replaced: tuple[str, ...]
    said: tuple[str, ...]
    calls: int
    captured: int
    rungs: tuple[Sum, ...]
    vllm_arms: tuple[Sum, ...]
    falls: tuple[Sum, ...]
    would: tuple[Sum, ...]
    shapes: tuple[Calls, ...]
    check: Compared | None = None


def added(shapes: Iterable[Calls], key: Callable[[Calls], str]) -> tuple[Sum, ...]:
    """Sum calls and rows by a name; those whose name is '' are left out."""
    sums: dict[str, list[int]] = {}
    for one in shapes:
        name = key(one)
        if name:
            held = sums.setdefault(name, [0, 0])
            held[0] += one.calls
            held[1] += one.rows
    return tuple(Sum(name=name, calls=c, rows=r) for name, (c, r) in sorted(sums.items()))


class Speaker:
    """The logger ``thorprobe.vllm``: each sentence once a process."""

    def __init__(self) -> None:
        """Take the logger; where nobody listens to it, standard error does."""
        self._logger = logging.getLogger(LOGGER)
        if not self._logger.hasHandlers():
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            self._logger.addHandler(handler)
            self._logger.setLevel(logging.INFO)
            self._logger.propagate = False
        self._lock = threading.Lock()
        self.said: dict[str, None] = {}

    def tell(self, sentence: str, *, warning: bool = False) -> None:
        """Say a sentence unless it was said before."""
        with self._lock:
            if sentence in self.said or len(self.said) >= _SENTENCES:
                return
            self.said[sentence] = None
        self._logger.log(logging.WARNING if warning else logging.INFO, "%s", sentence)


def check_path(path: str) -> None:
    """Raise UsageError where no line can be added to the file."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", "") or str(error)).lower()
        raise UsageError(
            f"THORPROBE_VLLM_LOG={path} cannot be written: {reason}", "name a file in a folder"
        ) from error


def append(path: str, line: bytes) -> None:
    """Add a line to a file in one piece, so that several processes may share it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.rstrip(b"\n") + b"\n")
    finally:
        os.close(handle)


def at_exit(write: Callable[[], None]) -> None:
    """Call ``write`` once when this process ends, or a child that was forked from it.

    A process of multiprocessing leaves without atexit; its own finalizers are run, and forgotten
    when it forks. A process that is killed writes nothing.
    """
    from multiprocessing import util

    done: set[int] = set()

    def once() -> None:
        if os.getpid() not in done:
            done.add(os.getpid())
            write()

    def arrange(_: object) -> None:
        util.Finalize(None, once, exitpriority=-100)

    atexit.register(once)
    arrange(None)
    util.register_after_fork(once, arrange)
