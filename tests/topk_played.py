# SPDX-License-Identifier: Apache-2.0
"""A device that is played: what it answers to each kernel of the ladder is set by a test.

NumPy arrays count as arrays on GPU 0, and a launch only writes down that it happened, so that
the order of the ladder, its falls and its memory are tested where there is no GPU.
"""

import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec.structs import replace

from thorprobe.errors import ThorprobeError
from thorprobe.topk import array, kernel
from thorprobe.topk.ladder import Cost, Costs

SLOTS = 64
# What every kernel has room for unless a test says otherwise.


@dataclass
class Board:
    """What the device answers, by the name of a kernel (``long-512x8/16``), and what was asked.

    ``slots``: rows or CTAs at once, 0 refuses; ``codes``: what a launch answers; ``broken``: the
    sentence of a kernel that does not load; ``refusals``: of one whose occupancy is an error.
    ``launched`` holds name, pointers and words, ``asked``
    the names of those that were asked how many rows fit, ``made`` of those that were prepared.
    """

    slots: dict[str, int] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    launched: list[tuple[str, tuple[int, ...], dict[str, int]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    stream: int = 7
    partition: int = 0
    capturing: bool = False

    @property
    def names(self):
        """The launches in order, by name."""
        return [name for name, *_ in self.launched]


def costs(**microseconds):
    """Return a calibration in which a choice, ``long_512x8_16``, takes what is given."""
    table = {
        f"{function}-{size}/{ctas}": Cost(launch=cost, wave=0, batch=0, megabyte=0)
        for name, cost in microseconds.items()
        for function, size, ctas in [name.split("_")]
    }
    return Costs(device="played", measured="never", choices=table)


def _patched_readers(monkeypatch, board):
    """Let every array be on device 0, and every current stream be the board's.

    The package's own names ``select``, ``prepare`` and ``warm`` are functions, so the modules are
    taken from the table.
    """
    look = array.view
    monkeypatch.setattr(array, "view", lambda given: replace(look(given), device=0))
    for name in ("select", "prepare", "warm"):
        reading = sys.modules[f"thorprobe.topk.{name}"]
        monkeypatch.setattr(reading, "stream_reader", lambda library: lambda device: board.stream)
    module = sys.modules["thorprobe.topk.select"]
    fresh = lru_cache(module.request.cache_info().maxsize)(module.request.__wrapped__)
    monkeypatch.setattr(module, "request", fresh)
    monkeypatch.setattr(module._plans, "by_key", {})


def install(monkeypatch):
    """Put the played device in the place of a GPU and return its board."""
    board = Board()

    class Launch:
        def __init__(self, device, variant, dtype, *, rows, ctas, clustered, stream, k, strided):
            self.name = f"{variant.name}/{ctas}"
            self.words = {"rows": rows, "k": k, "clustered": clustered, "strided": strided}
            self.words |= {"device": device, "stream": stream, "ctas": ctas}
            board.made.append(self.name)
            if self.name in board.broken:
                raise ThorprobeError(board.broken[self.name])

        def set_words(self, *, k, ctas):
            self.words |= {"k": k, "ctas": ctas}

        def set_shape(self, columns, column_stride, k, flags):
            self.words |= {"columns": columns, "column_stride": column_stride, "flags": flags}
            self.words |= {"k": k}

        def aim(self, stream, columns):
            self.words |= {"stream": stream, "columns": columns}

        def slots(self):
            board.asked.append(self.name)
            self.refusal = board.refusals.get(self.name, "")
            return 0 if self.refusal else board.slots.get(self.name, SLOTS)

        def place(self, pointers):
            self.pointers = pointers

        def again(self):
            board.launched.append((self.name, self.pointers, dict(self.words)))
            return board.codes.get(self.name, 0)

        def __call__(self, pointers):
            self.place(pointers)
            return self.again()

    _patched_readers(monkeypatch, board)
    monkeypatch.setattr(kernel, "Current", lambda device: nullcontext())
    monkeypatch.setattr(kernel, "enter", lambda device: None)
    monkeypatch.setattr(kernel, "partition", lambda stream: board.partition)
    monkeypatch.setattr(kernel, "capturing", lambda stream: board.capturing)
    monkeypatch.setattr("thorprobe.topk.plan._ANSWERS", {})
    monkeypatch.setattr("thorprobe.topk.plan._SMS", {})
    monkeypatch.setattr(kernel, "sms", lambda device, stream: 100)
    monkeypatch.setattr("thorprobe.topk.plan.Launch", Launch)
    monkeypatch.setattr("thorprobe.driver.context.describe", lambda code: ("NAME", "a sentence"))
    return board
