# SPDX-License-Identifier: Apache-2.0
"""The words of ``bench``: one shape, who was timed on it, and what that came to.

Times are in microseconds a launch. A ratio says how many times faster ``auto`` is than another.
"""

import msgspec
from msgspec import UNSET, UnsetType

from thorprobe.bench.group_records import AimFound, BenchGroup
from thorprobe.record import Origin, Record, Status

# What was added later is UNSET where it was not recorded, so that older evidence stays as it is.


class BenchTime(Record, frozen=True, kw_only=True):
    """One contender on one shape: its result was checked, and then it was timed.

    ``ties`` is what was asked of the ladder, empty for a peer. ``rung`` and ``choice`` say which
    rung and which kernel took it. ``us`` is the median over the replays of a graph of ``launches``
    launches, ``spread_us`` the largest less the least. ``host_us`` is what a call of a peer costs
    the host. Without a time ``status`` and ``note`` say why: waived where it does not take the
    shape, fail where its result is wrong.
    """

    contender: str
    peer: bool = False
    ties: str = ""
    status: Status
    rung: str = ""
    choice: str = ""
    us: float | None = None
    spread_us: float | None = None
    launches: int = 0
    note: str = ""
    host_us: float | UnsetType = UNSET


class HostCost(Record, frozen=True, kw_only=True):
    """Microseconds that the host spends in a call of ``select`` after warm-up, over ``calls``.

    ``auto_us`` with rung="auto", ``named_us`` with ``rung`` named, which is the one auto takes;
    ``prepared_us`` of a call that was prepared before, by ``thorprobe.topk.prepare``.
    """

    rung: str
    calls: int
    auto_us: float
    named_us: float
    prepared_us: float | UnsetType = UNSET


class Floor(Record, frozen=True, kw_only=True):
    """What no launch can be faster than, if its bytes come from memory.

    ``bytes`` are the scores and lengths read and the indices written, ``copy_us`` what they take
    at the copy rate, ``empty_us`` an empty launch of as many clusters of ``cluster`` CTAs as there
    are rows; None where it could not be timed, and then ``us`` is the copy alone.
    """

    bytes: int
    copy_us: float
    cluster: int
    empty_us: float | None
    us: float


class BenchPoint(Record, frozen=True, kw_only=True):
    """Every contender on one shape: ``rows`` x ``columns`` scores, all of them valid.

    ``upstream`` names the contender that upstream's host code would take for these rows on this
    device, empty where no shipped kernel is timed or its gate is shut. ``status`` is fail where a
    result of the ladder is wrong.
    """

    id: str
    status: Status
    origin: Origin
    rows: int
    columns: int
    k: int
    dtype: str
    distribution: str
    seed: int
    floor: Floor | None = None
    upstream: str = ""
    times: tuple[BenchTime, ...] = ()
    host: HostCost | None = None
    duration_us: float = 0.0

    def time(self, contender: str, ties: str = "") -> float | None:
        """Return a contender's microseconds, None where it has none."""
        for one in self.times:
            if (one.contender, one.ties) == (contender, ties):
                return one.us
        return None


class CopyRate(Record, frozen=True, kw_only=True):
    """How fast memory is copied: bytes read and written over the time, by what copied."""

    how: str
    bytes: int
    us: float
    gb_per_s: float


class Against(Record, frozen=True, kw_only=True):
    """How many times faster ``auto`` is than something else, over ``shapes`` shapes.

    ``by_rows`` has the geometric mean for each number of rows, as text. ``slower`` lists the shapes
    where ``auto`` is not faster (a ratio below 1).
    """

    what: str
    shapes: int
    geometric_mean: float
    least: float
    least_at: str
    by_rows: dict[str, float] = msgspec.field(default_factory=dict)
    slower: tuple[str, ...] = ()


class Missing(Record, frozen=True, kw_only=True):
    """A contender without a time, the reason, and on how many shapes."""

    contender: str
    status: Status
    reason: str
    shapes: int


class BenchSummary(Record, frozen=True, kw_only=True):
    """What a bench came to.

    ``against`` compares ``auto`` with the best peer of each shape, each peer, upstream's own
    choice, the best rung, and itself with ``ties="any"``. ``host_us`` is the median over the shapes
    of the host's cost of a call with ``auto``, ``host_over_named_us`` of what ``auto`` adds to it,
    ``host_prepared_us`` of a prepared call, ``host_peers_us`` of a call of each peer. ``groups``
    part the shapes by kind, ``aims`` say how each aim stands whose shapes were all timed.
    """

    finding: str
    next_action: str = ""
    contenders: tuple[str, ...] = ()
    copy_rates: tuple[CopyRate, ...] = ()
    against: tuple[Against, ...] = ()
    host_us: float | None = None
    host_most_us: float | None = None
    host_over_named_us: float | None = None
    wrong: int = 0
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    host_prepared_us: float | UnsetType = UNSET
    host_peers_us: dict[str, float] | UnsetType = UNSET
    groups: tuple[BenchGroup, ...] | UnsetType = UNSET
    aims: tuple[AimFound, ...] | UnsetType = UNSET

    def compared(self, what: str) -> Against | None:
        """Return a comparison by its name, None where it was not made."""
        return next((one for one in self.against if one.what == what), None)
