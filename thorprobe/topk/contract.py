# SPDX-License-Identifier: Apache-2.0
"""What every rung promises, and the checks of what it is asked.

Contract of a row with ``length`` valid scores, ``n = min(k, length)``:

* the first n places hold the indices of the n largest valid scores, the rest -1;
* what lies at or beyond the length is never selected, whatever it holds;
* best first, equal scores by index; a row of at most k valid scores holds 0..length-1 in order of
  index instead, unless ``ordered`` is asked;
* -0 equals +0, all NaN are equal, and rank above +inf (as in torch.topk) or below -inf;
* with ``ties="lowest"`` equal scores at the cut go to the smaller index, so the result is the same
  bits on every rung, device, run and partition.
"""

from operator import index
from typing import Any, Literal

from thorprobe.errors import UsageError
from thorprobe.record import Record

MAX_K = 2048
"""Largest k of the kernels: what one CTA sorts in shared memory."""

MAX_COLUMNS = 2**31 - 2**20
"""Longest row: indices are int32, and a CTA counts a little beyond the row's end."""

SCORE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a score by its type."""

DTYPES = tuple(SCORE_BYTES)
"""Types of scores, in the order of the kernels' SCORE macro."""

RUNGS = ("cluster-16", "cluster-8", "cluster-4", "cluster-2", "one-cta", "many-ctas", "torch")
"""The ladder. ``torch`` is the library's own sort: torch, or NumPy or CuPy for their arrays."""

Ties = Literal["lowest", "any"]
Nan = Literal["largest", "last"]

_NAN_LAST, _SORTED = 1, 2


class ArgumentError(UsageError, ValueError):
    """What was asked of ``select`` cannot be done; the sentence says which argument and why."""


class SelectOptions(Record, frozen=True, kw_only=True):
    """What is asked of every row."""

    k: int
    ties: Ties = "lowest"
    nan: Nan = "largest"
    ordered: bool = False

    @property
    def flags(self) -> int:
        """The bits that the kernels take; ties at will cost them as much as the smaller index."""
        return _NAN_LAST * (self.nan == "last") | _SORTED * self.ordered


def whole(k: Any) -> int:
    """Return ``k`` as an int of Python's. Raises ArgumentError where it is no whole number."""
    try:
        return int(index(k))
    except TypeError as error:
        raise ArgumentError(f"k = {k!r} was asked for", f"k is an integer, 1 to {MAX_K}") from error


def select_options(k: int, ties: str, nan: str, *, ordered: bool) -> SelectOptions:
    """Check the options of a call. Raises ArgumentError."""
    k = whole(k)
    if not 1 <= k <= MAX_K:
        raise ArgumentError(f"k = {k} was asked for, but k is 1 to {MAX_K}", "sort the row instead")
    if ties not in ("lowest", "any"):
        raise ArgumentError(f"ties={ties!r} was asked for", "ties is `lowest` or `any`")
    if nan not in ("largest", "last"):
        raise ArgumentError(f"nan={nan!r} was asked for", "nan is `largest` or `last`")
    return SelectOptions(k=k, ties=ties, nan=nan, ordered=bool(ordered))  # type: ignore[arg-type]


def check_rung(rung: str) -> None:
    """Raise ArgumentError for a rung that does not exist."""
    if rung != "auto" and rung not in RUNGS:
        raise ArgumentError(
            f"rung={rung!r} was asked for", f"rung is `auto`, {', '.join(f'`{r}`' for r in RUNGS)}"
        )
