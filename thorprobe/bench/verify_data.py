# SPDX-License-Identifier: Apache-2.0
"""The input of a case: its scores in their place, with what would be chosen around them."""

from random import Random
from typing import Any

from thorprobe.bench.verify_bed import Bed
from thorprobe.bench.verify_case import SLACK, Case
from thorprobe.bench.verify_scores import Source, draw


def placed(bed: Bed, case: Case) -> Any:
    """Return the place of a case's scores: a view [rows, columns] of the memory, as it is."""
    flat = bed.memory.view(getattr(bed.torch, case.dtype))
    return flat.as_strided(
        (case.rows, case.columns), (case.row_stride, case.column_stride), _begin(case)
    )


def load(bed: Bed, case: Case, lengths: Any) -> Any:
    """Draw a case's scores into their place and return it; ``lengths`` int32 [rows] on the device.

    The memory around and between them holds what would be chosen first.
    """
    torch = bed.torch
    hot = float("nan") if case.nan == "largest" else float("inf")
    flat = bed.memory.view(getattr(torch, case.dtype))
    begin = _begin(case)
    flat[: begin + case.span + begin].fill_(hot)
    view = placed(bed, case)
    if not case.rows or not case.columns:
        return view
    if case.sliding:
        shape = 1, case.span
        target = flat[begin : begin + case.span][None]
    else:
        shape = (
            case.rows if case.row_stride else 1,
            case.columns if case.column_stride else 1,
        )
        target = view[: shape[0], : shape[1]]
    made = draw(case.distribution, Source(torch, shape, case.dtype, bed.device, case.seed))
    if case.beyond == "hot" and shape == (case.rows, case.columns):
        index = torch.arange(case.columns, dtype=torch.int32, device=bed.device)
        made = torch.where(index >= lengths[:, None], hot, made)
    target.copy_(made)
    return view


def _begin(case: Case) -> int:
    """Return the element at which the scores begin: whole 512-byte blocks, and the offset."""
    return SLACK // 4 // (16 // case.vector) + case.offset


def lengths(bed: Bed, case: Case, slot: int = 0) -> Any:
    """Return the lengths of a case, int32 [rows], in a place of their own that is always the same.

    ``slot`` is the place on the host that they are copied from, without waiting for the copy.
    """
    if not case.rows:
        return bed.lengths[:0]
    staged = bed.staged[slot, : case.rows]
    staged.numpy()[:] = _numbers(case)
    return bed.lengths[: case.rows].copy_(staged, non_blocking=True)


def _numbers(case: Case) -> list[int]:
    """Draw the length of each row."""
    chance = Random(case.seed)  # noqa: S311  no secret
    if case.lengths == "random":
        return chance.choices(range(-3, case.columns + 4), k=case.rows)
    special = {
        "full": (case.columns,),
        "zero": (0,),
        "negative": (-1, -chance.randint(2, 2**31)),
        "below-k": (case.k - 1,),
        "equal-k": (case.k,),
        "above-k": (case.k + 1,),
        "near-end": tuple(range(case.columns - 9, case.columns + 1)),
        "beyond": (case.columns + 1, case.columns + 9, 2**31 - 1),
    }
    if case.lengths == "mixed":
        numbers = tuple(one for kind in special.values() for one in kind)
    else:
        numbers = special[case.lengths]
    return chance.choices(numbers, k=case.rows)
