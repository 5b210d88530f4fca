# SPDX-License-Identifier: Apache-2.0
"""The plans of a thread: found by a class of shapes and a partition, made at its first call."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from thorprobe.topk.contract import ArgumentError

if TYPE_CHECKING:
    from thorprobe.topk.contract import SelectOptions
    from thorprobe.topk.plan import Plan
    from thorprobe.topk.request import ShapeClass

LIMIT = 4_096
"""Plans that a thread remembers; a serving process meets a few hundred."""


class Plans(threading.local):
    """Plans of one thread, whose parameters are written in place, by class and partition."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[ShapeClass, int], Plan] = {}


plans = Plans()


@lru_cache(maxsize=1)
def kernels() -> Any:
    """Import the kernels at the first call that needs them: the host's rung needs no CUDA."""
    from thorprobe.topk import kernel

    return kernel


def plan_for(found: ShapeClass, asked: SelectOptions, stream: int) -> Plan:
    """Return this thread's plan of a class of shapes in the stream's partition.

    The device's context is current. Raises ArgumentError where the device would have to be asked
    and the stream is being captured.
    """
    key = (found, kernels().partition(stream))
    return plans.by_key.get(key) or add(key, asked, stream)


def add(key: tuple[ShapeClass, int], asked: SelectOptions, stream: int) -> Plan:
    """Make the plan of a class in a partition, and remember it. Raises as ``plan_for`` does."""
    from thorprobe.topk import plan as making

    found, part = key
    device = found.device or 0
    shape = making.Shape(
        rows=found.rows,
        columns=found.columns,
        dtype=found.dtype,
        strided=found.column_stride != 1,
        wish=asked,
        rung=found.rung,
    )
    asking = not kernels().capturing(stream)
    if not (asking or making.known(shape, device, part)):
        raise ArgumentError(
            f"rows of up to {found.columns:,} scores were selected for the first time inside a "
            "capture, where the device cannot be asked",
            "call `select` or `warm` once with this type, k and partition before the capture",
        )
    made = making.make(shape, device, stream, found.column_stride, asking=asking)
    if len(plans.by_key) >= LIMIT:
        plans.by_key.clear()
    plans.by_key[key] = made
    return made
