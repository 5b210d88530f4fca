# SPDX-License-Identifier: Apache-2.0
"""What is kept of each selection: of transformers' loop, and of the ladder in its place.

Watching costs time, which is told apart from the model's own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from thorprobe.qwen4exp.records import Fallen
from thorprobe.record import Check
from thorprobe.topk import qsa_blocks
from thorprobe.topk.qwen4exp import Batched, Select

ORACLE = "definition: no unselected score exceeds a selected one"
Row = tuple[int, int]
"""Request and query."""


@dataclass
class Visited:
    """One layer's loop: scores and blocks of each query with a block, and the time it took.

    ``queries`` counts all that it visited, those without a whole block too.
    """

    layer: int
    queries: int = 0
    rows: dict[Row, tuple[Any, Any]] = field(default_factory=dict)
    us: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Taken:
    """One layer's call of the ladder, and what was kept of its rows.

    ``ladder_us`` is the time of all that replaces the loop, up to its last work on the device;
    ``select_us`` that of selecting once more from the same scores, with nothing else around it.
    """

    layer: int
    rows: int
    columns: int
    lengths: tuple[int, int]
    rung: str
    falls: tuple[Fallen, ...]
    ties_at_cut: int
    check: Check
    kept: dict[Row, tuple[Any, Any]]
    ladder_us: float
    select_us: float


class ReferenceWatch:
    """Watches transformers' loop. ``wanted`` are the queries it visits, None for all of them.

    Queries that are left out get what the ladder selects for them, outside the measured time.
    """

    def __init__(self, settle: Callable[[], None], filler: Batched) -> None:
        """Take what waits for issued work, and what selects for queries that are not visited."""
        self._settle = settle
        self._filler = filler
        self._began = 0.0
        self.wanted: range | None = None
        self.layers: list[Visited] = []
        self.watching_s = 0.0

    def begin(self, reads: qsa_blocks.Reads) -> None:
        """Fill in what is not visited, then start the clock."""
        self._settle()
        entered = perf_counter()
        self.layers.append(Visited(reads.indexer.layer_idx))
        if self.wanted is not None:
            self._filler.replace(reads)
            for query in self.wanted:
                reads.out[:, query] = -1
        self._settle()
        self._began = perf_counter()
        self.watching_s += self._began - entered

    def queries(self, _request: int, count: int) -> Sequence[int]:
        """Return the queries to visit."""
        chosen = range(count) if self.wanted is None else self.wanted
        self.layers[-1].queries += len(chosen)
        return chosen

    def seen(self, request: int, query: int, scores: Any, blocks: Any) -> None:
        """Keep scores and blocks where they are: copying would count as the loop's time."""
        self.layers[-1].rows[request, query] = (scores, blocks)

    def end(self) -> None:
        """Stop the clock, then bring home what was kept."""
        self._settle()
        ended = perf_counter()
        visited = self.layers[-1]
        visited.us = (ended - self._began) * 1e6
        visited.rows = {
            row: (scores.cpu().numpy(), blocks.cpu().numpy())
            for row, (scores, blocks) in visited.rows.items()
        }
        self.watching_s += perf_counter() - ended


class LadderWatch(Batched):
    """Selects through the ladder, times it, checks every row, and keeps those that are wanted."""

    def __init__(self, settle: Callable[[], None], select: Select | None, rung: str) -> None:
        """Take what waits for issued work, and a selection in place of the ladder's own."""
        super().__init__(select)
        self._settle = settle
        self._rung = rung
        self._own = select is None
        self._calls: Sequence[Any] = ()
        self._warm = False
        self.wanted: Sequence[Row] = ()
        self.layers: list[Taken] = []
        self.watching_s = 0.0

    def replace(self, reads: qsa_blocks.Reads) -> None:
        """Score, select, fill in the tokens; then look at what was selected."""
        k, layer = reads.indexer.block_topk, reads.indexer.layer_idx
        self._warm_up(reads, k)
        self._settle()
        began = perf_counter()
        seen, scores, lengths = self.score(reads)
        chosen = self.choose(scores, lengths, k)
        qsa_blocks.fill_tokens(reads.out, chosen, seen, reads.indexer.compress_ratio)
        self._settle()
        ended = perf_counter()
        call = self._calls[-1] if self._calls else None
        # Again by itself: waiting for the device inside would count as time of the whole.
        self.choose(scores, lengths, k)
        self._settle()
        selected = perf_counter()
        ties, wrong = verified(scores, lengths, chosen)
        rows = chosen.shape[0]
        self.layers.append(
            Taken(
                layer=layer,
                rows=call.num_rows if call else rows,
                columns=scores.shape[1],
                lengths=(int(lengths.min()), int(lengths.max())),
                rung=call.rung if call else "none" if self._own else "given",
                falls=_falls(call),
                ties_at_cut=ties,
                check=Check(oracle=ORACLE, rows=rows, wrong_rows=wrong),
                kept=_kept(self.wanted, seen.queries, scores, lengths, chosen),
                ladder_us=(ended - began) * 1e6,
                select_us=(selected - ended) * 1e6,
            )
        )
        self.watching_s += perf_counter() - ended

    def _warm_up(self, reads: qsa_blocks.Reads, k: int) -> None:
        """Do all of it once before it is timed: the first call of a process loads kernels."""
        if self._warm:
            return
        self._warm = True
        began = perf_counter()
        seen, scores, lengths = self.score(reads)
        chosen = self.choose(scores, lengths, k)
        qsa_blocks.fill_tokens(reads.out, chosen, seen, reads.indexer.compress_ratio)
        self._settle()
        self.watching_s += perf_counter() - began

    def choose(self, scores: Any, lengths: Any, k: int) -> Any:
        """Select, and note which rung answered."""
        self._calls = ()
        if not self._own or not scores.shape[1]:
            return super().choose(scores, lengths, k)
        from thorprobe import topk

        with topk.record() as log:
            chosen = topk.select(scores, lengths, k, rung=self._rung)
        self._calls = log.calls
        return chosen


def _falls(call: Any) -> tuple[Fallen, ...]:
    if call is None:
        return ()
    return tuple(Fallen(rung=f.rung, code=int(f.code), reason=f.reason) for f in call.falls)


def _kept(
    wanted: Sequence[Row], queries: int, scores: Any, lengths: Any, chosen: Any
) -> dict[Row, tuple[Any, Any]]:
    """Bring home scores and blocks of the wanted rows."""
    import torch

    if not wanted:
        return {}
    places = [request * queries + query for request, query in wanted]
    index = torch.tensor(places, device=scores.device)
    ends = lengths[index].tolist()
    values, blocks = scores[index].cpu().numpy(), chosen[index].cpu().numpy()
    return {row: (values[i, : ends[i]], blocks[i][blocks[i] >= 0]) for i, row in enumerate(wanted)}


def verified(scores: Any, lengths: Any, chosen: Any) -> tuple[int, int]:
    """Count rows tied at the cut, and rows that are no top-k of their own scores.

    ``scores`` [rows, columns], ``lengths`` [rows], ``chosen`` int32 [rows, k], -1 where none.
    """
    import torch

    rows, columns = scores.shape
    k = chosen.shape[1]
    places = torch.where((chosen >= 0) & (chosen < columns), chosen, columns).long()
    marked = torch.zeros(rows, columns + 1, dtype=torch.bool, device=scores.device)
    marked = marked.scatter_(1, places, value=True)[:, :columns]
    valid = torch.arange(columns, device=scores.device) < lengths[:, None]
    # NaN ranks above everything, as the ladder is told to rank it.
    ranked = torch.nan_to_num(scores, nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    wanted = lengths.clamp(0, k)
    whole = (
        (marked.sum(1) == wanted)
        & ((chosen >= 0).sum(1) == wanted)
        & ~(marked & ~valid).any(1)
        & (chosen < columns).all(1)
    )
    if not columns:
        return 0, int((~whole).sum())
    least = torch.where(marked, ranked, torch.inf).amin(1)
    most = torch.where(valid & ~marked, ranked, -torch.inf).amax(1)
    cut = lengths > k
    right = whole & (~cut | (least >= most))
    return int((cut & (least == most)).sum()), int((~right).sum())
