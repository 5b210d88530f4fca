# SPDX-License-Identifier: Apache-2.0
"""``select`` and ``explain``: the ladder as a model calls it."""

import threading
from functools import lru_cache
from typing import Any

from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Record
from thorprobe.topk import array, fallback
from thorprobe.topk.array import TORCH, View
from thorprobe.topk.contract import ArgumentError, Wish, check_rung, wish
from thorprobe.topk.log import Call, Fall, active

_PLANS = 4_096
# Shapes remembered a thread; a serving process meets a few hundred.


class Explanation(Record, frozen=True, kw_only=True):
    """Which rung would run, and why.

    ``offers`` holds a line for each kernel that was considered, in the order in which they would be
    tried; ``falls`` the rungs that come before the one that runs, and refuse.
    """

    rung: str
    why: str
    offers: tuple[str, ...] = ()
    falls: tuple[Fall, ...] = ()


def select(
    logits: Any,
    lengths: Any,
    k: int,
    *,
    out: Any = None,
    workspace: Any = None,
    rung: str = "auto",
    ties: str = "lowest",
    nan: str = "largest",
    ordered: bool = False,
    status: Any = None,
) -> Any:
    """Return the indices of the k best scores of each row, int32 [rows, k].

    logits: [rows, columns] float32, float16 or bfloat16, any strides, a torch tensor, CuPy or NumPy
    array. lengths: int32 [rows] on the same device, the valid prefix of each row; negative counts
    as 0. The rest of the contract is that of ``thorprobe.topk.contract``. The work goes to the
    caller's current stream and can be captured in a graph once the same shape has run on that
    stream.

    out: int32 [rows, k] to write into. workspace: uint8 of ``workspace_bytes(rows, k)``, which the
    rung ``many-ctas`` uses; with both given nothing is allocated after the first call of a shape.
    status: int32 [rows]; receives how each row was selected, plus 16 where its length was more than
    the columns (it then counts as the columns). Only the kernels write it.

    Raises ArgumentError for arguments that cannot be served; lengths are not read by the host.
    """
    asked = wish(k, ties, nan, ordered=ordered)
    check_rung(rung)
    seen, many = array.view(logits), array.view(lengths)
    array.check(seen, many)
    if out is None:
        out = array.empty(logits, (seen.shape[0], asked.k), "int32")
    written = array.view(out)
    array.check_out(written, seen, asked.k)
    if seen.shape[0] == 0:
        return out
    pointers = _Pointers(
        lengths=many.pointer,
        out=written.pointer,
        status=_status(status, seen),
        out_stride=written.strides[0],
    )
    taken, falls = _run(seen, pointers, asked, rung, (logits, workspace))
    if taken == TORCH:
        fallback.select(logits, lengths, asked, out)
    for log in active():
        log.calls.append(
            Call(
                rung=taken,
                num_rows=seen.shape[0],
                columns=seen.shape[1],
                k=asked.k,
                device=array.where(seen),
                falls=falls,
            )
        )
    return out


def explain(
    logits: Any,
    lengths: Any,
    k: int,
    *,
    rung: str = "auto",
    ties: str = "lowest",
    nan: str = "largest",
    ordered: bool = False,
) -> Explanation:
    """Say which rung ``select`` would take for these arguments, and why; nothing is selected."""
    asked = wish(k, ties, nan, ordered=ordered)
    check_rung(rung)
    seen = array.view(logits)
    array.check(seen, array.view(lengths))
    if seen.device is None or rung == TORCH or not all(seen.shape):
        why = "it was asked for" if rung == TORCH else "there is nothing to select"
        if seen.device is None:
            why = "the arrays are on the host"
        return Explanation(rung=TORCH, why=why)
    try:
        with _kernels().Current(seen.device):
            plan = _plan(seen, asked, rung, array.current_stream(seen))
    except (CouldNotProbeError, ImportError) as error:
        missing = _missing(error)
        return Explanation(rung=TORCH, why=missing.reason, falls=(missing,))
    offers = tuple(
        f"{offer.choice.rung} ({offer.choice.name}): "
        + (f"{offer.slots} rows at once, {offer.microseconds:.1f} us" if offer.slots else "refused")
        for offer in plan.offers
    )
    falls: tuple[Fall, ...] = plan.falls
    for step in plan.steps:
        if not step.refused:
            first = step.choice
            why = "the cheapest by the costs" if rung == "auto" else "it was asked for, or is next"
            return Explanation(
                rung=first.rung, why=f"{why}: {first.name}", offers=offers, falls=falls
            )
        falls += (_refusal(step),)
    return Explanation(rung=TORCH, why="every rung refused", offers=offers, falls=falls)


def workspace_bytes(rows: int, k: int) -> int:
    """Return the bytes of a workspace that serves every rung."""
    from thorprobe.topk.kernel import parts_bytes

    return parts_bytes(rows, k)


class _Plans(threading.local):
    """Plans of this thread: their parameters are written in place."""

    def __init__(self) -> None:
        self.by_key: dict[Any, Any] = {}


_plans = _Plans()


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """Import the kernels at the first call that needs them: the host's rung needs no CUDA."""
    from thorprobe.topk import kernel

    return kernel


def _missing(error: Exception) -> Fall:
    """Return the fall of all kernels where they cannot be had."""
    return Fall(rung="kernels", code=0, reason=getattr(error, "sentence", str(error)))


def _plan(seen: View, asked: Wish, rung: str, stream: int) -> Any:
    """Return the plan of a class of shapes in the stream's partition, made at its first call.

    Rows of about the same length share one, because a model's rows grow with every token. Raises
    ArgumentError where there is none and the stream is being captured.
    """
    kernel = _kernels()
    device = seen.device or 0
    strided = seen.shape[1] > 1 and seen.strides[1] != 1
    gap = seen.strides[1] if strided else 1
    rows, columns = seen.shape[0], shape_class(seen.shape[1])
    key = (rows, columns, seen.dtype, gap, asked, rung, device, kernel.partition(stream))
    found = _plans.by_key.get(key)
    if found is None:
        from thorprobe.topk.plan import Shape, make

        if kernel.capturing(stream):
            raise ArgumentError(
                f"rows of {seen.shape[1]:,} scores were selected for the first time inside a "
                "capture, where the device cannot be asked",
                "call `select` once with this shape before the capture",
            )
        if len(_plans.by_key) >= _PLANS:
            _plans.by_key.clear()
        shape = Shape(
            rows=rows, columns=columns, dtype=seen.dtype, strided=strided, wish=asked, rung=rung
        )
        found = make(shape, device, stream)
        for step in found.steps:
            for launch in step.launches:
                launch.set_shape(seen.shape[1], gap, asked.k, asked.flags)
        _plans.by_key[key] = found
    return found


def shape_class(columns: int) -> int:
    """Return the longest row that shares a plan with rows of ``columns`` scores.

    Eight classes an octave; a power of two, as the capacity of a kernel is, ends one.
    """
    step = 1 << max(3, (columns - 1).bit_length() - 4)
    return -(-columns // step) * step


class _Pointers(Record, frozen=True, kw_only=True):
    """Device addresses of a call besides the scores, and the row stride of ``out``."""

    lengths: int
    out: int
    status: int
    out_stride: int


def _run(
    seen: View, pointers: _Pointers, asked: Wish, rung: str, arrays: tuple[Any, Any]
) -> tuple[str, tuple[Fall, ...]]:
    """Launch the first rung that the device takes; return its name and the falls before it.

    ``arrays`` are the scores and the workspace, as they were given.
    """
    if seen.device is None or rung == TORCH or seen.shape[1] == 0:
        return TORCH, ()
    try:
        with _kernels().Current(seen.device):
            stream = array.current_stream(seen)
            plan = _plan(seen, asked, rung, stream)
            return _launched(plan, stream, seen, pointers, arrays)
    except (CouldNotProbeError, ImportError) as error:
        return TORCH, (_missing(error),)


def _launched(
    plan: Any, stream: int, seen: View, pointers: _Pointers, arrays: tuple[Any, Any]
) -> tuple[str, tuple[Fall, ...]]:
    falls: tuple[Fall, ...] = plan.falls
    for step in plan.steps:
        if not step.refused:
            # Held until the launches are made: without a pool, memory that is dropped is freed.
            held = _parts(step.parts_bytes, *arrays) if step.parts_bytes else None
            wide = (
                seen.pointer,
                pointers.lengths,
                pointers.out,
                pointers.status,
                held[1] if held else 0,
                seen.strides[0],
                pointers.out_stride,
            )
            for launch in step.launches:
                launch.aim(stream, seen.shape[1])
                step.refused = step.refused or launch(wide)
        if not step.refused:
            return step.choice.rung, falls
        falls += (_refusal(step),)
    return TORCH, falls


def _refusal(step: Any) -> Fall:
    from thorprobe.run.context import describe

    told = " ".join(("the launch answered", str(step.refused), *describe(step.refused)))
    return Fall(rung=step.choice.rung, code=step.refused, reason=told)


def _parts(size: int, logits: Any, workspace: Any) -> tuple[Any, int]:
    """Return the memory that ``part`` and ``merge`` share, and its address.

    What is made here is freed in stream order by the library's own allocator, or by a free that
    waits for the device.
    """
    if workspace is None:
        made = array.empty(logits, (size // 4,), "int32")
        return made, array.view(made).pointer
    held = array.view(workspace)
    array.check_workspace(held, array.view(logits), size)
    return workspace, held.pointer


def _status(status: Any, seen: View) -> int:
    if status is None:
        return 0
    held = array.view(status)
    array.check_status(held, seen)
    return held.pointer
