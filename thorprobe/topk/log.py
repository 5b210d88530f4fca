# SPDX-License-Identifier: Apache-2.0
"""What ran: each call of ``select`` inside ``record()``, with every fall to another rung."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from thorprobe.record import Record


class Fallback(Record, frozen=True, kw_only=True):
    """A rung that was not taken although it was asked for, or preferred.

    ``code`` is the driver's answer to the launch, 0 where the device was only asked; ``reason`` is
    one sentence.
    """

    rung: str
    code: int
    reason: str


class Call(Record, frozen=True, kw_only=True):
    """One call of ``select``: the rung that answered, its shape, and the falls on the way."""

    rung: str
    num_rows: int
    columns: int
    k: int
    device: str
    falls: tuple[Fallback, ...] = ()


@dataclass
class Log:
    """The calls inside one ``record()``, in order."""

    calls: list[Call] = field(default_factory=list)

    @property
    def rungs(self) -> dict[str, int]:
        """How many calls each rung answered."""
        return dict(Counter(call.rung for call in self.calls))

    @property
    def falls(self) -> int:
        """How many rungs refused, over all calls."""
        return sum(len(call.falls) for call in self.calls)


_LOGS: ContextVar[tuple[Log, ...]] = ContextVar("thorprobe_topk_logs", default=())


@contextmanager
def record() -> Iterator[Log]:
    """Collect every call of ``select`` made inside the block, in this thread or task."""
    log = Log()
    token = _LOGS.set((*_LOGS.get(), log))
    try:
        yield log
    finally:
        _LOGS.reset(token)


active = _LOGS.get
"""Return the logs that are open here; every call of ``select`` asks, so there is no more to it."""
