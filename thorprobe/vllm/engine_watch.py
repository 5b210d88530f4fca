# SPDX-License-Identifier: Apache-2.0
"""Watches the two operators where vLLM looks them up: which rows ran, and whether they are right.

The model calls ``torch.ops._C.NAME`` anew each time, so that an object in its place sees every call
that Python makes: eager ones, and those that are captured into a CUDA graph (not their replays).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from thorprobe.record import Check
from thorprobe.vllm.engine_words import OpRun

if TYPE_CHECKING:
    from torch import Tensor

OPERATORS = ("cooperative_topk", "persistent_topk")
ORACLE = "torch.topk: equal values, valid and unique indices, -1 behind them"
_MOST = 256
# Runs of calls that are listed a case; what comes after is counted.
_SLAB = 2_048
# Rows checked at once, to bound memory.

Row = tuple[int, int]
"""Layer, by its place among those with an indexer, and position."""


class Watch:
    """Counts, checks and keeps; also puts the operators' calls onto a partition's stream."""

    def __init__(self, namespace: Any, stream: Any = None) -> None:
        """Take the namespace that holds the operators, and the stream of a partition or None."""
        self._namespace = namespace
        self._stream = stream
        self._before: dict[str, Any] = {}
        self.quiet = False
        self.checking = False
        self.keeping: Keeper | None = None
        self.runs: list[OpRun] = []
        self.more = 0
        # The call that is being made; it stays where the call raises.
        self.last: OpRun | None = None
        self.checks: dict[str, Check] = {}

    def install(self) -> None:
        """Take the operators' places."""
        for name in OPERATORS:
            before = getattr(self._namespace, name)
            self._before[name] = before
            setattr(self._namespace, name, Watched(name, before, self))

    def remove(self) -> None:
        """Put back what was there."""
        for name, before in self._before.items():
            setattr(self._namespace, name, before)
        self._before.clear()

    def begin(self, *, check: bool = False, keep: "Keeper | None" = None) -> None:
        """Forget what was counted, and say what to do from now on."""
        self.quiet = False
        self.checking, self.keeping = check, keep
        self.runs, self.more, self.checks, self.last = [], 0, {}, None

    def call(self, name: str, inner: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Make one call of an operator, and look at it."""
        if self.quiet:
            try:
                return self._inside(inner, arguments)
            except Exception:
                self.last = shape(name, arguments)
                raise
        self.last = run = shape(name, arguments)
        self._note(run)
        answer = self._inside(inner, arguments)
        self.last = None
        if run.captured:
            return answer
        logits, lengths, output, _, k = arguments[:5]
        if self.checking:
            found = check(logits, lengths, output, k)
            self.checks[name] = added(self.checks.get(name), found)
        if self.keeping is not None:
            self.keeping.take(logits, lengths, output)
        return answer

    def _note(self, run: OpRun) -> None:
        if self.more:
            self.more += 1
        elif self.runs and msgspec.structs.replace(self.runs[-1], calls=1) == run:
            self.runs[-1] = msgspec.structs.replace(self.runs[-1], calls=self.runs[-1].calls + 1)
        elif len(self.runs) < _MOST:
            self.runs.append(run)
        else:
            self.more = 1

    def _inside(self, inner: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        if self._stream is None:
            return inner(*arguments)
        import torch

        outside = torch.cuda.current_stream()
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            answer = inner(*arguments)
        outside.wait_stream(self._stream)
        return answer


def shape(name: str, arguments: Sequence[Any]) -> OpRun:
    """Return the shape of one call, and whether it goes into a graph."""
    import torch

    logits, k = arguments[0], arguments[4]
    rows, columns = logits.shape
    captured = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return OpRun(op=name, rows=rows, columns=columns, k=k, captured=captured)


class Watched:
    """Stands where an operator was; everything but a call is the operator's own."""

    def __init__(self, name: str, inner: Any, watch: Watch) -> None:
        """Take the operator and who watches."""
        self._name, self._inner, self._watch = name, inner, watch

    def __call__(self, *arguments: Any) -> Any:
        """Call the operator."""
        return self._watch.call(self._name, self._inner, arguments)

    def __getattr__(self, name: str) -> Any:
        """Return what the operator has."""
        return getattr(self._inner, name)


class Keeper:
    """Keeps scores and chosen blocks of one request's wanted positions, layer by layer.

    The layers with an indexer call in turn. ``wanted`` says which queries of a step of so many
    tokens from a position on are kept.
    """

    def __init__(self, layers: int, wanted: Callable[[int, int], range]) -> None:
        """Take the number of layers with an indexer, and what is wanted."""
        self._wanted = wanted
        self._first = [0] * layers
        self._turn = 0
        self.rows: dict[Row, tuple[Any, Any]] = {}

    def take(self, logits: "Tensor", lengths: "Tensor", output: "Tensor") -> None:
        """Keep the wanted rows of one call: scores within the length, and blocks without -1."""
        layer, self._turn = self._turn, (self._turn + 1) % len(self._first)
        first = self._first[layer]
        self._first[layer] += logits.shape[0]
        chosen = list(self._wanted(first, logits.shape[0]))
        if not chosen:
            return
        ends = lengths.reshape(-1)[chosen].tolist()
        scores, blocks = logits[chosen].float().cpu().numpy(), output[chosen].cpu().numpy()
        for i, query in enumerate(chosen):
            end = min(max(ends[i], 0), scores.shape[1])
            self.rows[layer, first + query] = scores[i, :end], blocks[i][blocks[i] >= 0]


@contextmanager
def muted(watch: Watch) -> Iterator[None]:
    """Let the operators be called with nothing done beside, while this lasts."""
    watch.quiet = True
    watch.last = None
    try:
        yield
    finally:
        watch.quiet = False


def check(logits: "Tensor", lengths: "Tensor", output: "Tensor", k: int) -> Check:
    """Hold every row against torch.topk of its valid scores.

    logits fp32 [rows, columns], lengths int32 [rows], output int32 [rows, k].
    """
    import torch

    rows, columns = logits.shape
    ends = lengths.reshape(-1).clamp(0, columns).long()
    places = torch.arange(columns, device=logits.device)
    slots = torch.arange(k, device=logits.device)
    right = []
    for first in range(0, rows, _SLAB):
        part = slice(first, first + _SLAB)
        scores, end, chosen = logits[part].float(), ends[part, None], output[part].long()
        valid = scores.masked_fill(places >= end, -torch.inf)
        best = valid.topk(min(k, columns), dim=1).values
        filled = slots < end
        inside = (chosen >= 0) & (chosen < end)
        values = scores.gather(1, chosen.clamp(0, columns - 1))
        values = values.masked_fill(~filled, -torch.inf).sort(dim=1, descending=True).values
        values = values[:, : best.shape[1]]
        same = (values == best) | (values.isnan() & best.isnan())
        # Unfilled slots differ from every index and from each other.
        ordered = torch.where(filled, chosen, columns + slots).sort(dim=1).values
        unique = (ordered[:, 1:] > ordered[:, :-1]).all(1)
        tail = torch.where(filled, inside, chosen == -1).all(1)
        right.append(same.all(1) & unique & tail)
    good = torch.cat(right) if right else torch.ones(0, dtype=torch.bool)
    wrong = rows - int(good.sum())
    detail = ""
    if wrong:
        row = int((~good).nonzero()[0])
        detail = f"row {row} of {rows:,}, length {int(ends[row]):,} of {columns:,} columns"
    return Check(oracle=ORACLE, rows=rows, wrong_rows=wrong, detail=detail)


def added(one: Check | None, other: Check) -> Check:
    """Return the sum of two checks, with the first detail."""
    if one is None:
        return other
    return Check(
        oracle=other.oracle,
        rows=one.rows + other.rows,
        wrong_rows=one.wrong_rows + other.wrong_rows,
        detail=one.detail or other.detail,
    )
