# SPDX-License-Identifier: Apache-2.0
"""What a call of ``select`` asks, found out once for arguments alike in all but their addresses.

Every check of arguments is a pure function of the arrays' traits and the options, so its result is
remembered under just these: what is remembered cannot be of other arguments than those checked.
"""

from functools import lru_cache
from typing import Any

from thorprobe.record import Record
from thorprobe.topk import array
from thorprobe.topk.array import TORCH, Traits, View
from thorprobe.topk.contract import Wish, check_rung, wish

_REQUESTS = 1_024
# Remembered at a time, the latest used: a model's rows are of another length at every token.


class Request(Record, frozen=True, kw_only=True, eq=False):
    """Arguments that have passed the checks. Two are never equal: one is a key by itself.

    Strides are in elements; ``column_stride`` is 1 where there is but one column. ``device`` is
    where a kernel may run, None where there is nothing to select on a device, or the library's sort
    was asked for. ``shape_class`` is what a plan depends on besides the partition.
    """

    asked: Wish
    rung: str
    logits: View
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    out_stride: int
    device: int | None
    shape_class: tuple[Any, ...]


@lru_cache(maxsize=_REQUESTS)
def request(  # noqa: PLR0917  Keywords would cost the cache a dictionary a call.
    logits: Traits,
    lengths: Traits,
    out: Traits | None,
    k: int,
    rung: str,
    ties: str,
    nan: str,
    ordered: bool,
) -> Request:
    """Check a call's options and arrays; ``out`` is None where it is still to be made.

    Raises ArgumentError, which is not remembered.
    """
    asked = wish(k, ties, nan, ordered=ordered)
    check_rung(rung)
    seen = array.view(logits)
    array.check(seen, array.view(lengths))
    out_stride = asked.k
    if out is not None:
        written = array.view(out)
        array.check_out(written, seen, asked.k)
        out_stride = written.strides[0]
    rows, columns = seen.shape
    column_stride = seen.strides[1] if columns > 1 else 1
    return Request(
        asked=asked,
        rung=rung,
        logits=seen,
        rows=rows,
        columns=columns,
        row_stride=seen.strides[0],
        column_stride=column_stride,
        out_stride=out_stride,
        device=None if rung == TORCH or rows == 0 or columns == 0 else seen.device,
        shape_class=(
            *(rows, shape_class(columns), seen.dtype, column_stride),
            *(asked.k, asked.flags, rung, seen.device),
        ),
    )


@lru_cache(maxsize=_REQUESTS)
def check_workspace(workspace: Traits, offset: int, call: Request, size: int) -> None:
    """Raise ArgumentError where the kernels cannot keep ``size`` bytes in ``workspace``."""
    array.check_workspace(array.view(workspace), offset, call.logits, size)


def shape_class(columns: int) -> int:
    """Return the longest row that shares a plan with rows of ``columns`` scores.

    Eight classes an octave; a power of two, as the capacity of a kernel is, ends one.
    """
    step = 1 << max(3, (columns - 1).bit_length() - 4)
    return -(-columns // step) * step
