# SPDX-License-Identifier: Apache-2.0
"""What a call of ``select`` costs the host after warm-up: with ``auto``, and with a rung named."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from thorprobe.plan.bench import AUTO
from thorprobe.run.contender import Data
from thorprobe.topk.log import record
from thorprobe.words.bench import HostCost

_BLOCKS = 8
# 2,000 calls make blocks of 250: a stream holds about 1,000 launches before the next call waits.


def host_cost(
    data: Data, ties: str, calls: int, select: Callable[..., Any], settle: Callable[[], None]
) -> HostCost | None:
    """Time calls with ``out`` and workspace given, by the host's clock and without waiting inside.

    The lengths are 0, so that the device keeps up with the host. None where the ladder's last rung
    answers: that one is the library's.
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
    call(rung)
    each = max(1, calls // _BLOCKS)
    taken: dict[str, list[float]] = {AUTO: [], rung: []}
    for _ in range(_BLOCKS):
        for name, times in taken.items():
            settle()
            began = perf_counter()
            for _ in range(each):
                call(name)
            times.append((perf_counter() - began) / each * 1e6)
    settle()
    return HostCost(
        rung=rung,
        calls=each * _BLOCKS,
        auto_us=round(median(taken[AUTO]), 3),
        named_us=round(median(taken[rung]), 3),
    )
