# SPDX-License-Identifier: Apache-2.0
"""How one shape of calls is answered: decided at its first call, then only counted."""

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from thorprobe.plan.operator import COOPERATIVE, PERSISTENT
from thorprobe.vllm.dropin_hosting import Place
from thorprobe.vllm.dropin_ladder import Fit
from thorprobe.vllm.dropin_log import SHAPES, Answered, Calls

if TYPE_CHECKING:
    from torch import Tensor

REPLACED = {
    "fallback": (COOPERATIVE,),
    "always": (COOPERATIVE, PERSISTENT),
    "check": (COOPERATIVE, PERSISTENT),
    "report": (COOPERATIVE, PERSISTENT),
}
"""The operators that each mode stands before."""


@dataclass(slots=True)
class Route:
    """The answer to calls of one shape in one thread, and how many there were.

    ``unhosted`` is the driver's answer where vLLM's operator would be refused. ``fall`` is why the
    answer is not the one that the mode wants. ``settled`` says that a first call went through.
    """

    operator: str
    place: Place
    num_rows: int
    columns: int
    k: int
    arm: str
    hosted: bool | None
    unhosted: str
    answered: Answered
    fit: Fit
    fall: str = ""
    rung: str = ""
    settled: bool = False
    workspace: "Tensor | None" = None
    calls: int = 0
    captured: int = 0

    def counted(self) -> Calls:
        """Return what was counted so far."""
        return Calls(
            operator=self.operator,
            num_rows=self.num_rows,
            columns=self.columns,
            k=self.k,
            arm=self.arm,
            hosted=self.hosted,
            answered=self.answered,
            rung=self.rung,
            reason=self.fall,
            calls=self.calls,
            captured=self.captured,
            rows=self.calls * self.num_rows,
        )


_ROUTES = 2_048
# Of a thread at once: every length of a prompt is a shape of its own.

_Sums = dict[Calls, list[int]]
# Calls without their counts, and these: calls, captured, rows.


def _add(sums: _Sums, one: Calls) -> None:
    bare = msgspec.structs.replace(one, calls=0, captured=0, rows=0)
    if bare not in sums and len(sums) >= SHAPES:
        bare = msgspec.structs.replace(bare, num_rows=0, columns=0)
    held = sums.setdefault(bare, [0, 0, 0])
    for place, count in enumerate((one.calls, one.captured, one.rows)):
        held[place] += count


def _counted(sums: _Sums) -> list[Calls]:
    return [
        msgspec.structs.replace(bare, calls=calls, captured=captured, rows=rows)
        for bare, (calls, captured, rows) in list(sums.items())
    ]


@dataclass
class _Mine:
    """The routes of one thread, and what those counted that were forgotten."""

    by_key: dict[Any, Route] = field(default_factory=dict)
    folded: _Sums = field(default_factory=dict)


class Routes:
    """The routes of every thread; each writes only its own."""

    def __init__(self) -> None:
        """Start with none."""
        self.forget()

    def forget(self) -> None:
        """Drop every count, as a child does that was forked."""
        self._lock = threading.Lock()
        self._threads: list[_Mine] = []
        self._local = threading.local()

    def here(self) -> dict[Any, Route]:
        """Return this thread's routes by key."""
        mine: _Mine | None = getattr(self._local, "mine", None)
        if mine is None:
            mine = self._local.mine = _Mine()
            with self._lock:
                self._threads.append(mine)
        if len(mine.by_key) >= _ROUTES:
            for route in mine.by_key.values():
                _add(mine.folded, route.counted())
            mine.by_key.clear()
        return mine.by_key

    def fell(self, route: Route, answered: Answered, reason: str, *, captured: bool) -> None:
        """Count the call under way, which ``route`` counts already, with another answer instead."""
        self.here()
        route.calls -= 1
        route.captured -= captured
        one = msgspec.structs.replace(
            route.counted(),
            answered=answered,
            reason=reason,
            calls=1,
            captured=int(captured),
            rows=route.num_rows,
        )
        _add(self._local.mine.folded, one)

    def counted(self) -> list[Calls]:
        """Return what all threads counted, a line for each shape and answer, most calls first."""
        sums: _Sums = {}
        with self._lock:
            threads = list(self._threads)
        for mine in threads:
            for one in (*_counted(mine.folded), *(r.counted() for r in list(mine.by_key.values()))):
                if one.calls:
                    _add(sums, one)
        return sorted(
            _counted(sums), key=lambda one: (-one.calls, one.operator, one.num_rows, one.columns)
        )
