# SPDX-License-Identifier: Apache-2.0
"""``select`` and ``explain``: the ladder as a model calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Record
from thorprobe.topk import array, fallback
from thorprobe.topk.array import TORCH, WORKSPACE_ALIGNMENT, reader, stream_reader
from thorprobe.topk.contract import ArgumentError, whole
from thorprobe.topk.log import Call, Fallback, active
from thorprobe.topk.plans import add, kernels, plan_for
from thorprobe.topk.plans import plans as _plans
from thorprobe.topk.request import Request, check_workspace, request

if TYPE_CHECKING:
    from thorprobe.topk.plan import Step

_INT32_BYTES = 4


class Explanation(Record, frozen=True, kw_only=True):
    """Which rung would run, and why.

    ``offers`` holds a line for each kernel that was considered, in the order in which they would be
    tried; ``falls`` the rungs that come before the one that runs, and refuse.
    """

    rung: str
    why: str
    offers: tuple[str, ...] = ()
    falls: tuple[Fallback, ...] = ()


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
    if type(k) is not int:
        k = whole(k)  # A tensor is a key that changes its value.
    kind: Any = type(logits)
    read = reader(kind)
    seen, scores = read(logits)
    many, counts = read(lengths) if type(lengths) is kind else array.read(lengths)
    written, indices = None, 0
    if out is not None:
        written, indices = read(out) if type(out) is kind else array.read(out)
    sort = ordered if ordered is False else bool(ordered)
    try:
        call = request(seen, many, written, k, rung, ties, nan, sort)
    except TypeError:
        # Something that cannot be a key, which the checks name.
        call = request.__wrapped__(seen, many, written, k, rung, ties, nan, sort)
    if out is None:
        out = array.empty(logits, (call.rows, call.asked.k), "int32")
        indices = array.read(out)[1]
    if call.rows == 0:
        return out
    paths = 0 if status is None else status_of(status, call)
    falls: tuple[Fallback, ...] = ()
    taken, device = TORCH, call.device
    if device is not None:
        try:
            taken, falls = _run(call, device, (scores, counts, indices, paths), logits, workspace)
        except (CouldNotProbeError, ImportError) as error:
            falls = (missing(error),)
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
    (seen, address), many = array.read(logits), array.read(lengths)[0]
    call = request.__wrapped__(seen, many, None, k, rung, ties, nan, bool(ordered))
    if call.device is None:
        why = "it was asked for" if rung == TORCH else "there is nothing to select"
        if call.logits.device is None:
            why = "the arrays are on the host"
        return Explanation(rung=TORCH, why=why)
    try:
        if address % call.score_bytes:
            call.misplaced(address)
        with kernels().Current(call.device):
            stream = stream_reader(call.logits.library)(call.device)
            made = plan_for(call.shape_class, call.asked, stream)
    except (CouldNotProbeError, ImportError) as error:
        fall = missing(error)
        return Explanation(rung=TORCH, why=fall.reason, falls=(fall,))
    offers = tuple(
        f"{offer.choice.rung} ({offer.choice.name}): "
        + (f"{offer.slots} rows at once, {offer.microseconds:.1f} us" if offer.slots else "refused")
        for offer in made.offers
    )
    falls: tuple[Fallback, ...] = made.falls
    for step in made.steps:
        if not step.refused:
            first = step.choice
            why = "the cheapest by the costs" if rung == "auto" else "it was asked for, or is next"
            return Explanation(
                rung=first.rung, why=f"{why}: {first.name}", offers=offers, falls=falls
            )
        falls += (refusal(step),)
    return Explanation(rung=TORCH, why="every rung refused", offers=offers, falls=falls)


def workspace_bytes(rows: int, k: int) -> int:
    """Return the bytes of a workspace that serves every rung."""
    from thorprobe.topk.kernel import parts_bytes

    return parts_bytes(rows, k)


def missing(error: Exception) -> Fallback:
    """Return the fall of all kernels where they cannot be had."""
    return Fallback(rung="kernels", code=0, reason=getattr(error, "sentence", str(error)))


Addresses = tuple[int, int, int, int]
"""Of scores, lengths, out and status."""


def _run(
    call: Request, device: int, addresses: Addresses, logits: Any, workspace: Any
) -> tuple[str, tuple[Fallback, ...]]:
    """Launch the first rung that the device takes; return its name and the falls before it.

    Raises CouldNotProbeError or ImportError where there are no kernels.
    """
    kernel = kernels()
    scores, lengths, out, status = addresses
    if (lengths | out | status) % _INT32_BYTES:
        check_places(lengths, out, status)
    if scores % call.score_bytes:
        call.misplaced(scores)
    before = kernel.enter(device)
    try:
        stream = stream_reader(call.logits.library)(device)
        key = (call.shape_class, kernel.partition(stream))
        plan = _plans.by_key.get(key) or add(key, call.asked, stream)
        falls = plan.falls
        for step in plan.steps:
            if not step.refused:
                # Held until the launches are made: without a pool, memory that is dropped is freed.
                size = step.parts_bytes
                held = parts(size, call, logits, workspace) if size else (None, 0)
                rows, outs = call.row_stride, call.out_stride
                wide = scores, lengths, out, status, held[1], rows, outs
                for launch in step.launches:
                    launch.aim(stream, call.columns)
                    step.refused = launch(wide)
                    if step.refused:
                        break
                else:
                    return step.choice.rung, falls
            falls += (refusal(step),)
        return TORCH, falls
    finally:
        if before is not None:
            kernel.leave(before)


def check_places(*addresses: int) -> None:
    """Raise ArgumentError where an array of int32 begins inside of one."""
    for address in addresses:
        if address % _INT32_BYTES:
            raise ArgumentError(
                f"an array of int32 at the address {address:#x} was given",
                f"an int32 begins at a multiple of {_INT32_BYTES} B; copy the array first",
            )


def refusal(step: Step) -> Fallback:
    """Return the fall of a step whose launch was refused."""
    from thorprobe.driver.context import describe

    told = " ".join(("the launch answered", str(step.refused), *describe(step.refused)))
    return Fallback(rung=step.choice.rung, code=step.refused, reason=told)


def parts(size: int, call: Request, logits: Any, workspace: Any) -> tuple[Any, int]:
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


def status_of(status: Any, call: Request) -> int:
    """Return the address of a status. Raises ArgumentError where it cannot be one."""
    held, address = array.read(status)
    array.check_status(array.view(held), call.logits)
    return address
