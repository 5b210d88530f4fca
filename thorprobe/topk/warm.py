# SPDX-License-Identifier: Apache-2.0
"""Decides what shapes will take before there are data: a capture then asks the device nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thorprobe.errors import CouldNotProbeError
from thorprobe.topk.array import CUPY, TORCH, stream_reader
from thorprobe.topk.contract import (
    DTYPES,
    MAX_COLUMNS,
    ArgumentError,
    check_rung,
    select_options,
)
from thorprobe.topk.plans import kernels, plan_for
from thorprobe.topk.request import ShapeClass, columns_class

if TYPE_CHECKING:
    from thorprobe.topk.plan import Plan


def warm(
    rows: int,
    columns: int,
    k: int,
    *,
    dtype: str = "float32",
    column_stride: int = 1,
    device: int | None = None,
    library: str = TORCH,
    rung: str = "auto",
    ties: str = "lowest",
    nan: str = "largest",
    ordered: bool = False,
) -> tuple[str, ...]:
    """Make the plan that ``select`` takes for a shape; select nothing.

    It is of this thread, and of the partition of the current stream of ``library`` (``torch`` or
    ``cupy``) on ``device``, its current one unless told. What the device answers for a type, k and
    partition, with gaps between columns or without, serves all other numbers of rows and lengths
    too, in every thread: those may be met first inside a capture. Returns the rung that will be
    tried first, as a tuple of one. Raises ArgumentError for what ``select`` would refuse.
    """
    asked = select_options(k, ties, nan, ordered=ordered)
    check_rung(rung)
    _check(rows, columns, dtype, column_stride, library)
    if rung == TORCH:
        return (TORCH,)
    most = columns_class(columns)
    try:
        here = _device(library, device)
        with kernels().Current(here):
            stream = stream_reader(library)(here)
            key = ShapeClass(rows, most, dtype, column_stride, asked.k, asked.flags, rung, here)
            return (_first(plan_for(key, asked, stream)),)
    except (CouldNotProbeError, ImportError):
        return (TORCH,)


def _first(plan: Plan) -> str:
    """Return the rung that a plan tries first, its launches prepared."""
    for step in plan.steps:
        if not step.refused and step.launches:
            return step.choice.rung
    return TORCH


def _check(rows: int, columns: int, dtype: str, column_stride: int, library: str) -> None:
    """Raise ArgumentError for a shape or library that no call of ``select`` has on a device."""
    if dtype not in DTYPES:
        raise ArgumentError(
            f"logits of type {dtype} were asked for", f"the types are {', '.join(DTYPES)}"
        )
    numbers = (rows, columns, column_stride)
    whole = all(type(number) is int and number >= 1 for number in numbers)
    if not whole or columns > MAX_COLUMNS:
        raise ArgumentError(
            f"{rows} rows of {columns} scores, {column_stride} apart, were asked for",
            f"all are whole numbers from 1 on, columns at most {MAX_COLUMNS:,}",
        )
    if library not in (TORCH, CUPY):
        raise ArgumentError(
            f"library={library!r} was asked for", f"library is `{TORCH}` or `{CUPY}`"
        )


def _device(library: str, device: int | None) -> int:
    """Return the device that was asked for, or a library's current one, with CUDA initialised."""
    module: Any = import_module(library)
    if library == TORCH and module.cuda.is_available():
        module.cuda.init()
    if device is not None:
        return device
    if library == CUPY:
        return int(module.cuda.Device().id)
    if not module.cuda.is_available():
        raise CouldNotProbeError("torch sees no GPU", "")
    return int(module.cuda.current_device())
