# SPDX-License-Identifier: Apache-2.0
"""A group on a device: the places of its results, and who makes which call on which lane."""

from collections.abc import Callable
from typing import Any

from thorprobe.bench.verify_bed import Bed, Forced, Lane
from thorprobe.bench.verify_draw import SIDES, Group
from thorprobe.bench.verify_reference import Reference
from thorprobe.topk.log import record

POISON = -7
"""Fills a result and what is around it: no index of a score, nor the -1 that stands for none."""

Replay = Callable[[], None]
"""Puts a captured graph into its stream again."""


class Seat:
    """The calls of one group, made anew for each input in the same places."""

    def __init__(self, group: Group, bed: Bed) -> None:
        self.bed, self.shape = bed, group.inputs[0]
        shape, count = self.shape, len(group.calls)
        width = shape.out_left + shape.k + shape.out_gap
        size = count * (shape.rows + 1) * width
        # A row more than the result has: what is written beyond its end is seen.
        self.results = bed.outs[:size].view(count, shape.rows + 1, width)
        left, right = shape.out_left, shape.out_left + shape.k
        self.outs = [self.results[n, : shape.rows, left:right] for n in range(count)]
        self.wanted = bed.torch.full(
            (shape.rows + 1, width), POISON, dtype=bed.torch.int32, device=bed.device
        )
        self.ran = [name for name, _ in group.calls]
        self.lanes: list[tuple[Lane, list[int]]] = []
        numbers = range(count)
        if shape.mode in ("streams", "threads"):
            parts = ((lane, list(numbers[n::SIDES])) for n, lane in enumerate(bed.sides))
        else:
            parts = (
                (lane, [n for n in numbers if group.calls[n][1] == place])
                for place, lane in bed.lanes.items()
            )
        self.lanes = [(lane, held) for lane, held in parts if held]
        self.forced: dict[int, Forced] = {}
        self.prepared: dict[int, Callable[[], Any]] = {}
        self.names = [name for name, _ in group.calls]

    def prepare(self) -> list[int]:
        """Prepare the kernels that are named, and return the calls that the device refuses.

        A partition that is not here refuses all of its calls.
        """
        placed = {number for _, numbers in self.lanes for number in numbers}
        refused = [number for number in range(len(self.names)) if number not in placed]
        for lane, numbers in self.lanes:
            for number in numbers:
                if "/" in self.names[number]:
                    made = self.bed.force(self.names[number], lane, self.shape)
                    if made is None:
                        refused.append(number)
                    else:
                        self.forced[number] = made
            numbers[:] = [number for number in numbers if number not in refused]
        return refused

    def issue(self, lane: Lane, numbers: list[int], scores: Any, many: Any) -> None:
        """Make calls on one lane, whose stream is the current one, and note the rungs that ran."""
        shape, asked = self.shape, []
        prepare = self.bed.prepare if shape.mode == "prepared" else None
        select: Callable[..., Any] = prepare or self.bed.select
        with record() as log:
            for number in numbers:
                forced = self.forced.get(number)
                if forced is not None:
                    forced(scores, many, self.outs[number], lane.workspace)
                    self.ran[number] = forced.rung
                    continue
                asked.append(number)
                if number in self.prepared:
                    self.prepared[number]()
                    continue
                made = select(
                    scores,
                    many,
                    shape.k,
                    out=self.outs[number],
                    workspace=lane.workspace if shape.workspace == "given" else None,
                    rung=self.names[number],
                    ties=shape.ties,
                    nan=shape.nan,
                    ordered=shape.ordered,
                )
                if prepare is not None:
                    self.prepared[number] = made
                    made()
        if len(log.calls) == len(asked):
            for number, call in zip(asked, log.calls, strict=True):
                self.ran[number] = call.rung

    def within(self, lane: Lane, numbers: list[int], scores: Any, many: Any) -> None:
        """Make calls on a lane from any thread."""
        with lane.within():
            self.issue(lane, numbers, scores, many)

    def run(self, scores: Any, many: Any) -> None:
        """Make every call of an input, on all lanes at once; what follows waits for them."""
        for lane, _ in self.lanes:
            lane.follow()
        if self.shape.mode == "threads":
            asked = [
                self.bed.threads.submit(self.within, lane, numbers, scores, many)
                for lane, numbers in self.lanes
            ]
            for one in asked:
                one.result()
        else:
            for lane, numbers in self.lanes:
                self.within(lane, numbers, scores, many)
        self.join()

    def captured(self, scores: Any, many: Any) -> list[Replay]:
        """Capture the calls of each lane, and return their replays."""
        made = []
        for lane, numbers in self.lanes:
            with lane.within():
                calls = lambda lane=lane, numbers=numbers: self.issue(  # noqa: E731
                    lane, numbers, scores, many
                )
                made.append(self.bed.capture(lane, calls))  # type: ignore[misc]
        return made

    def replay(self, graphs: list[Replay]) -> None:
        """Replay the graphs of all lanes at once; what follows waits for them."""
        for (lane, _), graph in zip(self.lanes, graphs, strict=True):
            lane.follow()
            graph()
        self.join()

    def join(self) -> None:
        """Let what follows on the bed's own stream wait for all lanes."""
        for lane, _ in self.lanes:
            lane.lead()

    def wrong(self, right: Reference) -> Any:
        """Say of each call whether it is wrong: bool [calls]. What is around a result counts."""
        shape = self.shape
        left, right_end = shape.out_left, shape.out_left + shape.k
        self.wanted[: shape.rows, left:right_end] = right.indices
        if shape.ties == "lowest":
            return (self.results != self.wanted).flatten(1).any(dim=1)
        inside = self.results[:, : shape.rows, left:right_end]
        loose = right.loosely_wrong(inside)
        around = self.results.clone()
        around[:, : shape.rows, left:right_end] = right.indices
        return loose | (around != self.wanted).flatten(1).any(dim=1)
