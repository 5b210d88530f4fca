# SPDX-License-Identifier: Apache-2.0
"""One call of ``select`` as one line of text that repeats it, data included."""

from collections.abc import Callable

from msgspec.structs import asdict, replace

from thorprobe.errors import UsageError
from thorprobe.record import Record
from thorprobe.topk.contract import DTYPES, MAX_K, RUNGS, SCORE_BYTES
from thorprobe.topk.variant import VARIANTS

WHOLE = "whole"
"""The partition that is none: the whole device."""

MODES = ("stream", "streams", "threads", "graph", "prepared")
"""How calls are made: on one stream of each partition, on several streams of the device at once,
from several threads with a stream each, captured in a graph that is replayed with new data, or
prepared once and called with new data."""

BOUND = ("graph", "prepared")
"""Modes whose calls are bound to places, which several inputs then share."""

LENGTHS = (
    *("full", "random", "mixed", "zero", "negative", "below-k", "equal-k", "above-k"),
    *("near-end", "beyond"),
)
"""Kinds of lengths: the columns, any number around them, or one special number for each row."""

BEYOND = ("plain", "hot")
"""What lies beyond a row's length: more scores, or what would be chosen before all others."""

MAX_SPAN = 2**27
"""Bytes that the scores of a case span at most, gaps included."""

SLACK = 2**16
"""Bytes around the scores, filled as what is between them."""

MAX_ROWS = 1_000
"""Rows of a case at most."""

_MOST = {"rows": MAX_ROWS, "columns": 2**22, "offset": 64, "seed": 2**62}
_STRIDE = 2**31
_HINT = "a case is a line that `thorprobe bench --verify` printed: `rows=3 columns=8191 k=1024 ...`"


class Case(Record, frozen=True, kw_only=True):
    """One call, and the input that it gets.

    ``offset`` is where the scores begin, in elements from a 512-byte boundary; strides are in
    elements. ``out_left`` elements stand before each row of the result, and ``out_gap`` lie
    between its rows; the workspace is given, or made by each call. ``kernel`` is a rung, ``auto``,
    or one kernel of the ladder by its name.
    """

    rows: int
    columns: int
    k: int
    dtype: str = "float32"
    offset: int = 0
    row_stride: int
    column_stride: int = 1
    lengths: str = "full"
    beyond: str = "plain"
    distribution: str = "normal"
    seed: int = 0
    nan: str = "largest"
    ordered: bool = False
    ties: str = "lowest"
    out_left: int = 0
    out_gap: int = 0
    workspace: str = "given"
    kernel: str = "auto"
    partition: str = WHOLE
    mode: str = "stream"

    @property
    def vector(self) -> int:
        """Scores in 16 bytes."""
        return 16 // SCORE_BYTES[self.dtype]

    @property
    def span(self) -> int:
        """Elements from the first score to the one after the last."""
        if not self.rows or not self.columns:
            return 0
        return (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1

    @property
    def skew(self) -> int:
        """Most scores that a row begins after a 16-byte boundary, 0 where columns have gaps."""
        if self.columns > 1 and self.column_stride != 1:
            return 0
        rows = range(min(self.rows, self.vector))
        starts = (self.offset + row * self.row_stride for row in rows)
        return max((start % self.vector for start in starts), default=0)

    @property
    def sliding(self) -> bool:
        """Whether rows share scores: one row expanded, or windows that overlap."""
        return self.rows > 1 and self.row_stride < self.columns and self.column_stride == 1


_DEFAULTS = asdict(Case(rows=1, columns=1, k=1, row_stride=1))
_ALWAYS = ("rows", "columns", "k", "dtype", "kernel")
# What every line says.


def line(case: Case) -> str:
    """Write a case as one line; what is as usual is left out."""
    told = []
    for name, value in asdict(case).items():
        usual = usual_stride(case) if name == "row_stride" else _DEFAULTS[name]
        if value != usual or name in _ALWAYS:
            text = ("no", "yes")[value] if isinstance(value, bool) else str(value)
            told.append(f"{name.replace('_', '-')}={text}")
    return " ".join(told)


def usual_stride(case: Case) -> int:
    """Return the row stride without a gap between rows."""
    return case.columns * case.column_stride


def parse(text: str) -> Case:
    """Read a line that ``line`` wrote. Raises UsageError for anything else."""
    given: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        field = name.replace("-", "_")
        if not equals or field not in _DEFAULTS or field in given:
            raise UsageError(f"`{word}` is no part of a case", _HINT)
        given[field] = value
    for field in ("rows", "columns", "k"):
        if field not in given:
            raise UsageError(f"the case says no `{field}`", _HINT)
    read = {field: _READ[type(_DEFAULTS[field])](field, text) for field, text in given.items()}
    stride = read.pop("row_stride", None)
    case = Case(row_stride=0, **read)  # type: ignore[arg-type]
    case = replace(case, row_stride=usual_stride(case) if stride is None else stride)
    check(case)
    return case


def _number(field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UsageError(f"`{field.replace('_', '-')}={text}` is no whole number", _HINT)
    return int(text)


def _flag(field: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise UsageError(f"`{field}={text}` is neither yes nor no", _HINT)
    return text == "yes"


_READ: dict[type, Callable[[str, str], int | bool | str]] = {
    int: _number,
    bool: _flag,
    str: lambda _field, text: text,
}


def check(case: Case) -> None:
    """Raise UsageError for a case that cannot be made."""
    from thorprobe.bench.verify_scores import DISTRIBUTIONS

    known = {
        "dtype": DTYPES,
        "lengths": LENGTHS,
        "beyond": BEYOND,
        "distribution": tuple(DISTRIBUTIONS),
        "nan": ("largest", "last"),
        "ties": ("lowest", "any"),
        "mode": MODES,
        "workspace": ("given", "none"),
        "kernel": ("auto", *RUNGS),
    }
    told = asdict(case)
    for field, names in known.items():
        fine = told[field] in names or (field == "kernel" and _is_kernel(case.kernel))
        if not fine:
            raise UsageError(
                f"`{field}={told[field]}` is none of {', '.join(names)}"
                + (", or a kernel such as long-512x16/4" if field == "kernel" else ""),
                _HINT,
            )
    if not 1 <= case.k <= MAX_K:
        raise UsageError(f"`k={case.k}` was asked for, but k is 1 to {MAX_K}", _HINT)
    most = _MOST | dict.fromkeys(("row_stride", "column_stride"), _STRIDE)
    for field, limit in (most | {"out_left": 64, "out_gap": 64}).items():
        if not 0 <= told[field] <= limit:
            raise UsageError(
                f"`{field.replace('_', '-')}={told[field]}` is not 0 to {limit:,}", _HINT
            )
    if (case.span + case.offset) * SCORE_BYTES[case.dtype] > MAX_SPAN:
        raise UsageError(f"the scores of the case span more than {MAX_SPAN:,} B", _HINT)
    if not case.sliding and _overlaps(case):
        raise UsageError("the case has two scores in one place, with strides that are kept", _HINT)


def _is_kernel(name: str) -> bool:
    kernel, _, ctas = name.partition("/")
    return kernel in {v.name for v in VARIANTS} and ctas in ("1", "2", "4", "8", "16")


def _overlaps(case: Case) -> bool:
    """Say whether two scores share a place other than by a stride of 0."""
    if min(case.rows, case.columns) < 2 or 0 in (case.row_stride, case.column_stride):
        return False
    rows_apart = case.row_stride > (case.columns - 1) * case.column_stride
    return not rows_apart and case.column_stride <= (case.rows - 1) * case.row_stride
