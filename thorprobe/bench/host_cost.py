# SPDX-License-Identifier: Apache-2.0
"""What a call costs the host after warm-up: of ``select``, prepared, and of a peer."""

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

from msgspec import UNSET

from thorprobe.bench.candidates import Data
from thorprobe.bench.plan import AUTO
from thorprobe.bench.records import HostCost
from thorprobe.topk.log import record

_BLOCKS = 8
# 2,000 calls make blocks of 250: a stream holds about 1,000 launches before the next call waits.
_PREPARED = "prepared"


def host_cost(
    data: Data,
    ties: str,
    calls: int,
    select: Callable[..., Any],
    settle: Callable[[], None],
    *,
    prepare: Callable[..., Callable[[], Any]] | None = None,
) -> HostCost | None:
    """Time calls with ``out`` and workspace given, by the host's clock and without waiting inside.

    ``prepare`` makes a prepared call of the same arguments. The lengths are 0, so that the device
    keeps up with the host. None where the ladder's last rung answers: that one is the library's.
    """
    from thorprobe.topk import workspace_bytes

    shape, torch, where = data.shape, data.torch, data.scores.device
    lengths = torch.zeros_like(data.lengths)
    out = torch.empty((shape.rows, shape.k), dtype=torch.int32, device=where)
    size = workspace_bytes(shape.rows, shape.k)
    workspace = torch.empty(size, dtype=torch.uint8, device=where)

    def call(rung: str) -> None:
        select(data.scores, lengths, shape.k, out=out, workspace=workspace, rung=rung, ties=ties)

    with record() as log:
        call(AUTO)
    rung = log.calls[-1].rung
    if rung == "torch":
        return None
    kinds: dict[str, Callable[[], Any]] = {AUTO: lambda: call(AUTO), rung: lambda: call(rung)}
    if prepare is not None:
        kinds[_PREPARED] = prepare(
            data.scores, lengths, shape.k, out=out, workspace=workspace, ties=ties
        )
    taken = _medians(kinds, calls, settle)
    return HostCost(
        rung=rung,
        calls=_each(calls) * _BLOCKS,
        auto_us=taken[AUTO],
        named_us=taken[rung],
        prepared_us=taken.get(_PREPARED, UNSET),
    )


def call_cost(call: Callable[[], Any], calls: int, settle: Callable[[], None]) -> float:
    """Return the microseconds of the host in a call, by blocks that begin with an idle device."""
    return _medians({"": call}, calls, settle)[""]


def _each(calls: int) -> int:
    return max(1, calls // _BLOCKS)


def _medians(
    kinds: Mapping[str, Callable[[], Any]], calls: int, settle: Callable[[], None]
) -> dict[str, float]:
    """Return the microseconds a call of each kind, the kinds in turns, each called once before."""
    each = _each(calls)
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for call in kinds.values():
        call()
    for _ in range(_BLOCKS):
        for name, times in taken.items():
            call = kinds[name]
            settle()
            began = perf_counter()
            for _ in range(each):
                call()
            times.append((perf_counter() - began) / each * 1e6)
    settle()
    return {name: round(median(times), 3) for name, times in taken.items()}
