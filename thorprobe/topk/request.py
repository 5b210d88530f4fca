# SPDX-License-Identifier: Apache-2.0
"""What a call of ``select`` asks, found out once for arguments alike in all but their addresses.

Every check of arguments is a pure function of the arrays' traits and the options, so its result is
remembered under just these: what is remembered cannot be of other arguments than those checked.
"""

from functools import lru_cache
from typing import NamedTuple, NoReturn

from thorprobe.record import Record
from thorprobe.topk import array
from thorprobe.topk.array import TORCH, Traits, View
from thorprobe.topk.contract import (
    SCORE_BYTES,
    ArgumentError,
    SelectOptions,
    check_rung,
    select_options,
)

_REQUESTS = 1_024
# Remembered at a time, the latest used: a model's rows are of another length at every token.


class ShapeClass(NamedTuple):
    """What a plan depends on besides the partition: calls that share it share their plans.

    ``columns`` are the most that the class has (``columns_class``). A tuple, because it is a key of
    every call.
    """

    rows: int
    columns: int
    dtype: str
    column_stride: int
    k: int
    flags: int
    rung: str
    device: int | None


class Request(Record, frozen=True, kw_only=True, eq=False):
    """Arguments that have passed the checks. Two are never equal: one is a key by itself.

    Strides are in elements; ``column_stride`` is 1 where there is but one column. ``device`` is
    where a kernel may run, None where there is nothing to select on a device, or the library's sort
    was asked for. ``shape_class`` is what a plan is found by; a score begins at a multiple of
    ``score_bytes``.
    """

    asked: SelectOptions
    rung: str
    logits: View
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    out_stride: int
    device: int | None
    shape_class: ShapeClass
    score_bytes: int

    def misplaced(self, address: int) -> NoReturn:
        """Raise ArgumentError for scores at an address where none can be."""
        raise ArgumentError(
            f"logits of type {self.logits.dtype} at the address {address:#x} were given",
            "a score begins at a multiple of its own bytes; copy the array first",
        )


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
    asked = select_options(k, ties, nan, ordered=ordered)
    check_rung(rung)
    seen = array.view(logits)
    array.check(seen, array.view(lengths))
    out_stride = asked.k
    if out is not None:
        written = array.view(out)
        array.check_out(written, seen, asked.k)
        out_stride = written.strides[0]
    rows, columns = seen.shape
    row_stride, column_stride = seen.strides[0], seen.strides[1] if columns > 1 else 1
    return Request(
        asked=asked,
        rung=rung,
        logits=seen,
        rows=rows,
        columns=columns,
        row_stride=row_stride,
        column_stride=column_stride,
        out_stride=out_stride,
        device=None if rung == TORCH or rows == 0 or columns == 0 else seen.device,
        shape_class=ShapeClass(
            rows,
            columns_class(columns),
            seen.dtype,
            column_stride,
            asked.k,
            asked.flags,
            rung,
            seen.device,
        ),
        score_bytes=SCORE_BYTES[seen.dtype],
    )


@lru_cache(maxsize=_REQUESTS)
def check_workspace(workspace: Traits, offset: int, call: Request, size: int) -> None:
    """Raise ArgumentError where the kernels cannot keep ``size`` bytes in ``workspace``."""
    array.check_workspace(array.view(workspace), offset, call.logits, size)


def columns_class(columns: int) -> int:
    """Return the longest rows that share a plan with rows of ``columns`` scores.

    Eight classes an octave: those numbers of which the four highest bits say all. The capacity of
    a kernel is one, so that no row shares the plan of a kernel that it does not fit into.
    """
    step = 1 << max(3, (columns - 1).bit_length() - 4)
    return -(-columns // step) * step
