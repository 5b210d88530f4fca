# SPDX-License-Identifier: Apache-2.0
"""``select`` and ``explain``: the ladder as a model calls it."""

import threading
from typing import Any

from thorprobe.errors import CouldNotProbeError, ThorprobeError
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
        why = "the arrays are on the host" if seen.device is None else "it was asked for"
        return Explanation(rung=TORCH, why=why)
    try:
        plan = _plan(seen, asked, rung)
    except ThorprobeError as error:
        return Explanation(
            rung=TORCH,
            why=error.sentence,
            falls=(Fall(rung="kernels", code=0, reason=error.sentence),),
        )
    offers = tuple(
        f"{offer.choice.rung} ({offer.choice.name}): "
        + (f"{offer.slots} rows at once, {offer.microseconds:.1f} us" if offer.slots else "refused")
        for offer in plan.offers
    )
    open_steps = [step for step in plan.steps if not step.refused]
    if not open_steps:
        return Explanation(rung=TORCH, why="every rung refused", offers=offers, falls=plan.falls)
    first = open_steps[0].choice
    why = "the cheapest by the cost model" if rung == "auto" else "it was asked for, or is next"
    return Explanation(rung=first.rung, why=f"{why}: {first.name}", offers=offers, falls=plan.falls)


def workspace_bytes(rows: int, k: int) -> int:
    """Return the bytes of a workspace that serves every rung."""
    from thorprobe.topk.kernel import parts_bytes

    return parts_bytes(rows, k)


class _Plans(threading.local):
    """Plans of this thread: their parameters are written in place."""

    def __init__(self) -> None:
        self.by_key: dict[Any, Any] = {}


_plans = _Plans()


def _plan(seen: View, asked: Wish, rung: str) -> Any:
    """Return the plan of a shape on the caller's stream, made at its first call there."""
    from thorprobe.topk import kernel

    device = seen.device if seen.device is not None else 0
    kernel.activate(device)
    stream = array.current_stream(seen)
    strided = seen.shape[1] > 1 and seen.strides[1] != 1
    gap = seen.strides[1] if strided else 1
    key = (seen.shape, seen.dtype, gap, asked, rung, device, kernel.stream_id(stream))
    found = _plans.by_key.get(key)
    if found is None:
        from thorprobe.topk.plan import Shape, make

        if len(_plans.by_key) >= _PLANS:
            _plans.by_key.clear()
        shape = Shape(
            rows=seen.shape[0],
            columns=seen.shape[1],
            dtype=seen.dtype,
            strided=strided,
            wish=asked,
            rung=rung,
        )
        found = make(shape, device, stream)
        for step in found.steps:
            for launch in step.launches:
                launch.set_shape(seen.shape[1], gap, asked.k, asked.flags)
        _plans.by_key[key] = found
    return found


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
        plan = _plan(seen, asked, rung)
    except (CouldNotProbeError, ImportError) as error:
        reason = getattr(error, "sentence", str(error))
        return TORCH, (Fall(rung="kernels", code=0, reason=reason),)
    falls: tuple[Fall, ...] = plan.falls
    for step in plan.steps:
        if not step.refused:
            parts = _parts(step.parts_bytes, *arrays) if step.parts_bytes else 0
            wide = (seen.pointer, pointers.lengths, pointers.out, pointers.status, parts)
            for launch in step.launches:
                step.refused = step.refused or launch((*wide, seen.strides[0], pointers.out_stride))
        if not step.refused:
            return step.choice.rung, falls
        name = step.choice.rung
        falls += (Fall(rung=name, code=step.refused, reason=_refusal(step.refused)),)
    return TORCH, falls


def _refusal(code: int) -> str:
    from thorprobe.run.context import describe

    return " ".join(("the launch answered", str(code), *describe(code)))


def _parts(size: int, logits: Any, workspace: Any) -> int:
    if workspace is None:
        # Freed in stream order by the library's own allocator.
        return array.view(array.empty(logits, (size // 8 * 2,), "int32")).pointer
    held = array.view(workspace)
    if held.dtype != "uint8" or held.shape[0] < size:
        raise ArgumentError(
            f"a workspace of {held.shape} {held.dtype} was given",
            f"this shape needs uint8 [{size}], see `workspace_bytes`",
        )
    return held.pointer


def _status(status: Any, seen: View) -> int:
    if status is None:
        return 0
    held = array.view(status)
    if held.dtype != "int32" or held.shape != (seen.shape[0],) or held.device != seen.device:
        raise ArgumentError(
            f"status of type {held.dtype} and shape {held.shape} was given",
            f"status is int32 [{seen.shape[0]}] on the device of logits",
        )
    return held.pointer
