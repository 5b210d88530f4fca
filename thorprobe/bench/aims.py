# SPDX-License-Identifier: Apache-2.0
"""What the ladder aims at, as data: which shapes, held against what, and the number to reach."""

from typing import Literal

from thorprobe.bench.plan import COLUMNS, EXACT_PATH, FLASHINFER_PEER, ROWS
from thorprobe.record import Record
from thorprobe.topk.contract import SCORE_BYTES

Against = Literal["the best peer", "flashinfer", "its aligned neighbour", "the host"]
Measure = Literal["geometric mean", "least", "most", "us a call"]


HOST_MEASURE: Measure = "us a call"


class Goal(Record, frozen=True, kw_only=True):
    """A number to reach: at least it for ``geometric mean`` and ``least``, else at most it."""

    measure: Measure
    value: float

    @property
    def at_least(self) -> bool:
        """Whether more is better."""
        return self.measure in ("geometric mean", "least")


class Aim(Record, frozen=True, kw_only=True):
    """One aim for the whole device; a bench that timed all of its shapes says how it stands.

    ``k`` empty stands for every k that was timed, ``columns`` empty for every shape. ``peers`` are
    the peers of which one must have been timed, by the start of their names; empty for none.
    """

    name: str
    against: Against
    goals: tuple[Goal, ...]
    k: tuple[int, ...] = (512,)
    dtypes: tuple[str, ...] = ("float32",)
    rows: tuple[int, ...] = (1, 8, 32, 64)
    columns: tuple[int, ...] = COLUMNS
    distributions: tuple[str, ...] = ("normal",)
    peers: tuple[str, ...] = ()


_VLLM = ("vllm", "shipped-")
_HALF = tuple(dtype for dtype, size in SCORE_BYTES.items() if size == 2)

AIMS = (
    Aim(
        name="k 512",
        against="the best peer",
        goals=(Goal(measure="geometric mean", value=2.0), Goal(measure="least", value=1.2)),
        rows=ROWS,
        peers=_VLLM,
    ),
    Aim(
        name="k 1,024 and 2,048",
        against="the best peer",
        goals=(Goal(measure="geometric mean", value=1.7), Goal(measure="least", value=1.0)),
        k=(1_024, 2_048),
        peers=_VLLM,
    ),
    Aim(
        name="unaligned columns",
        against="its aligned neighbour",
        goals=(Goal(measure="most", value=1.1),),
        k=(),
        columns=(4_095, 65_537, 100_003),
    ),
    Aim(
        name="exact path: sorted, ties in masses, NaN",
        against="flashinfer",
        goals=(Goal(measure="least", value=1.0),),
        rows=(8,),
        columns=(131_072,),
        distributions=EXACT_PATH,
        peers=(FLASHINFER_PEER,),
    ),
    Aim(
        name="16-bit scores",
        against="flashinfer",
        goals=(Goal(measure="geometric mean", value=1.5),),
        dtypes=_HALF,
        peers=(FLASHINFER_PEER,),
    ),
    Aim(
        name="host cost of a call, by `select` or prepared",
        against="the host",
        goals=(Goal(measure="us a call", value=7.5),),
        columns=(),
    ),
)
"""Every aim; docs/topk.md says why one is not reached."""
