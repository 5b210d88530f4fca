# SPDX-License-Identifier: Apache-2.0
"""``select`` and ``explain``: the ladder as a model calls it."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Record
from thorprobe.topk import array, fallback
from thorprobe.topk.array import TORCH, WORKSPACE_ALIGNMENT, Traits
from thorprobe.topk.contract import ArgumentError, whole
from thorprobe.topk.log import Call, Fall, active
from thorprobe.topk.request import Request, check_workspace, request, shape_class

if TYPE_CHECKING:
    from thorprobe.topk.plan import Plan, Step

__all__ = ["Explanation", "explain", "select", "shape_class", "workspace_bytes"]

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
    seen, scores = array.read(logits)
    many, counts = array.read(lengths)
    written, indices = (None, 0) if out is None else array.read(out)
    call = _request(seen, many, written, k, rung, ties, nan, ordered)
    if out is None:
        out = array.empty(logits, (call.rows, call.asked.k), "int32")
        indices = array.read(out)[1]
    if call.rows == 0:
        return out
    paths = 0 if status is None else _status(status, call)
    falls: tuple[Fall, ...] = ()
    taken = TORCH
    if call.kernels:
        taken, falls = _run(call, (scores, counts, indices, paths), logits, workspace)
    if taken == TORCH:
        fallback.select(logits, lengths, call.asked, out)
    for log in active():
        log.calls.append(
            Call(
                rung=taken,
                num_rows=call.rows,
                columns=call.columns,
                k=call.asked.k,
                device=array.where(call.logits),
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
    seen, many = array.read(logits)[0], array.read(lengths)[0]
    call = _request(seen, many, None, k, rung, ties, nan, ordered)
    device = call.logits.device
    if not call.kernels or device is None:
        why = "it was asked for" if rung == TORCH else "there is nothing to select"
        if device is None:
            why = "the arrays are on the host"
        return Explanation(rung=TORCH, why=why)
    try:
        with _kernels().Current(device):
            plan = _plan(call, array.current_stream(call.logits))
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
        self.by_key: dict[tuple[Any, ...], Plan] = {}


_plans = _Plans()


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """Import the kernels at the first call that needs them: the host's rung needs no CUDA."""
    from thorprobe.topk import kernel

    return kernel


def _missing(error: Exception) -> Fall:
    """Return the fall of all kernels where they cannot be had."""
    return Fall(rung="kernels", code=0, reason=getattr(error, "sentence", str(error)))


def _request(  # noqa: PLR0917  As what it remembers.
    logits: Traits,
    lengths: Traits,
    out: Traits | None,
    k: Any,
    rung: str,
    ties: str,
    nan: str,
    ordered: Any,
) -> Request:
    """Return the checked request, from memory where it can be. Raises ArgumentError."""
    if type(k) is not int:
        # A tensor is a key that changes its value.
        k = whole(k)
    arguments = (logits, lengths, out, k, rung, ties, nan, bool(ordered))
    try:
        return request(*arguments)
    except TypeError:
        # Something that cannot be a key, which the checks name.
        return request.__wrapped__(*arguments)


def _plan(call: Request, stream: int) -> Plan:
    """Return the plan of a class of shapes in the stream's partition, made at its first call.

    Rows of about the same length share one, because a model's rows grow with every token. Raises
    ArgumentError where there is none and the stream is being captured.
    """
    kernel = _kernels()
    key = (call.shape_class, kernel.partition(stream))
    return _plans.by_key.get(key) or _new_plan(key, call, stream)


def _new_plan(key: tuple[Any, ...], call: Request, stream: int) -> Plan:
    from thorprobe.topk.plan import Shape, make

    if _kernels().capturing(stream):
        raise ArgumentError(
            f"rows of {call.columns:,} scores were selected for the first time inside a "
            "capture, where the device cannot be asked",
            "call `select` once with this shape before the capture",
        )
    if len(_plans.by_key) >= _PLANS:
        _plans.by_key.clear()
    shape = Shape(
        rows=call.rows,
        columns=shape_class(call.columns),
        dtype=call.logits.dtype,
        strided=call.column_stride != 1,
        wish=call.asked,
        rung=call.rung,
    )
    plan = make(shape, call.logits.device or 0, stream, call.column_stride)
    _plans.by_key[key] = plan
    return plan


def _run(
    call: Request, addresses: tuple[int, int, int, int], logits: Any, workspace: Any
) -> tuple[str, tuple[Fall, ...]]:
    """Launch the first rung that the device takes; return its name and the falls before it.

    ``addresses`` are those of scores, lengths, out and status.
    """
    try:
        kernel = _kernels()
        if kernel.is_current(call.logits.device):
            return _launched(call, addresses, logits, workspace)
        with kernel.Current(call.logits.device):
            return _launched(call, addresses, logits, workspace)
    except (CouldNotProbeError, ImportError) as error:
        return TORCH, (_missing(error),)


def _launched(
    call: Request, addresses: tuple[int, int, int, int], logits: Any, workspace: Any
) -> tuple[str, tuple[Fall, ...]]:
    stream = array.current_stream(call.logits)
    plan = _plan(call, stream)
    falls = plan.falls
    for step in plan.steps:
        if not step.refused:
            # Held until the launches are made: without a pool, memory that is dropped is freed.
            held = _parts(step.parts_bytes, call, logits, workspace) if step.parts_bytes else None
            wide = (*addresses, held[1] if held else 0, call.row_stride, call.out_stride)
            for launch in step.launches:
                launch.aim(stream, call.columns)
                step.refused = launch(wide)
                if step.refused:
                    break
            else:
                return step.choice.rung, falls
        falls += (_refusal(step),)
    return TORCH, falls


def _refusal(step: Step) -> Fall:
    from thorprobe.run.context import describe

    told = " ".join(("the launch answered", str(step.refused), *describe(step.refused)))
    return Fall(rung=step.choice.rung, code=step.refused, reason=told)


def _parts(size: int, call: Request, logits: Any, workspace: Any) -> tuple[Any, int]:
    """Return the memory that ``part`` and ``merge`` share, and its address.

    What is made here is freed in stream order by the library's own allocator, or by a free that
    waits for the device.
    """
    if workspace is None:
        made = array.empty(logits, (size // 4,), "int32")
        return made, array.read(made)[1]
    held, address = array.read(workspace)
    check_workspace(held, address % WORKSPACE_ALIGNMENT, call, size)
    return workspace, address


def _status(status: Any, call: Request) -> int:
    held, address = array.read(status)
    array.check_status(array.view(held), call.logits)
    return address
