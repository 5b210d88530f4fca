# SPDX-License-Identifier: Apache-2.0
"""Runs a group of cases and holds every call against the reference of its input.

A call's result is compared on the device, and the host asks once a group which calls were wrong.
"""

from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from thorprobe.bench.verify_bed import Bed
from thorprobe.bench.verify_case import BOUND, Case
from thorprobe.bench.verify_data import lengths, load
from thorprobe.bench.verify_draw import SIDES, Group
from thorprobe.bench.verify_record import Tally
from thorprobe.bench.verify_reference import reference
from thorprobe.bench.verify_seat import POISON, Replay, Seat

_SAME = 3
# Calls of a case that is repeated: what is wrong by chance has more chances.


@dataclass
class Held:
    """What became of a group: how many calls by the rung that ran, and the wrong ones.

    ``wrong`` has the numbers of input and call, ``ran`` the rung of each call of the last input,
    ``refused`` the calls that the device has no room for. ``detail`` says what the last wrong call
    has.
    """

    group: Group
    calls: int = 0
    rungs: Counter[str] = field(default_factory=Counter)
    ran: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    wrong: list[tuple[int, int]] = field(default_factory=list)
    detail: str = ""


def run(group: Group, bed: Bed, *, tell: bool = False) -> Held:
    """Run every call of a group; ``tell`` asks what the last wrong call has.

    Raises ThorprobeError where a launch is refused that the ladder would make.
    """
    torch, first = bed.torch, group.inputs[0]
    held = Held(group)
    seat = Seat(group, bed)
    refused = held.refused = seat.prepare()
    flags = torch.zeros((len(group.inputs), len(group.calls)), dtype=torch.bool, device=bed.device)
    graphs: list[Replay] = []
    for number, case in enumerate(group.inputs):
        many = lengths(bed, case, number)
        scores = load(bed, case, many)
        right = reference(torch, scores, many, case.k, nan=case.nan, ordered=case.ordered)
        seat.results.fill_(POISON)
        if graphs:
            seat.replay(graphs)
        else:
            seat.run(scores, many)
        flags[number] = seat.wrong(right)
        for call, rung in enumerate(seat.ran):
            if call not in refused:
                held.rungs[rung] += 1
        if first.mode == "graph" and bed.capture is not None and not graphs:
            graphs = seat.captured(scores, many)
    if refused:
        flags[:, refused] = False
    held.calls = len(group.inputs) * (len(group.calls) - len(refused))
    held.ran = seat.ran
    held.wrong = [(int(i), int(j)) for i, j in flags.cpu().nonzero().tolist()]
    if tell and held.wrong:
        held.detail = _detail(seat, held.wrong[-1][1])
    return held


def _detail(seat: Seat, call: int) -> str:
    """Say where a result of the last input differs first."""
    found, wanted = seat.results[call].cpu(), seat.wanted.cpu()
    other = (found != wanted).nonzero().tolist()
    if not other:
        return "a replay of the same input is right"
    row, place = other[0]
    place_in_row = place - seat.shape.out_left
    where = f"row {row}, place {place_in_row}"
    if row >= seat.shape.rows or not 0 <= place_in_row < seat.shape.k:
        return f"{where}, outside of the result, was written: {int(found[row, place]):,}"
    rows = len({row for row, _ in other})
    return (
        f"{where} has {int(found[row, place]):,} where the sort has {int(wanted[row, place]):,}; "
        f"{rows} of {seat.shape.rows} rows differ"
    )


def alone(case: Case) -> Group:
    """Return the group that repeats one case: a few calls of it, on as many streams as it asks.

    A graph is captured, and a call prepared, with other data first.
    """
    calls = SIDES if case.mode in ("streams", "threads") else _SAME
    inputs: tuple[Case, ...] = (case,)
    if case.mode in BOUND:
        inputs = (replace(case, seed=case.seed + 1), case)
    return Group(inputs, ((case.kernel, case.partition),) * calls)


def count(held: Held) -> Tally:
    """Return what a group adds to a tally."""
    group, shape = held.group, held.group.inputs[0]
    each, many = held.calls // len(group.inputs), len(group.inputs)
    distributions, asked, places = Counter[str](), Counter[str](), Counter[str]()
    for case in group.inputs:
        distributions[case.distribution] += each
    for number, (kernel, partition) in enumerate(group.calls):
        if number not in held.refused:
            asked[kernel] += many
            places[partition] += many
    return Tally(
        calls=held.calls,
        wrong=len(held.wrong),
        inputs=many,
        groups=1,
        ran=dict(held.rungs),
        asked=dict(asked),
        partitions=dict(places),
        dtypes={shape.dtype: held.calls},
        modes={shape.mode: held.calls},
        distributions=dict(distributions),
    )
