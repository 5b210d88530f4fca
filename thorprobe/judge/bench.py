# SPDX-License-Identifier: Apache-2.0
"""What a bench means: geometric means of ratios, where ``auto`` is slower, what was not timed."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from statistics import median

from msgspec.structs import replace

from thorprobe.plan.bench import AUTO
from thorprobe.record import Status
from thorprobe.words.bench import (
    Against,
    BenchPoint,
    BenchSummary,
    BenchTime,
    CopyRate,
    HostCost,
    Missing,
)

BEST_PEER = "the best peer"
UPSTREAM = "upstream's own choice"
BEST_RUNG = "the best rung"
ANY_TIES = 'auto with ties="any"'

_AUTO_GOAL, _HOST_GOAL_US = 1.1, 10.0
# What the ladder promises of auto: within 1.1 times of the best rung, under 10 us of the host.


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return exp(sum(map(log, ratios)) / len(ratios))


def summarize(
    points: Sequence[BenchPoint], rates: Sequence[CopyRate] = (), notes: Sequence[str] = ()
) -> BenchSummary:
    """Compare ``auto`` with everything that was timed beside it."""
    against = tuple(one for what, of in _others(points) if (one := _against(what, points, of)))
    missing = _missing(points)
    wrong = sum(point.status is Status.FAIL for point in points)
    hosts = [point.host for point in points if point.host]
    found = BenchSummary(
        finding="",
        contenders=tuple(dict.fromkeys(one.contender for p in points for one in p.times)),
        copy_rates=tuple(rates),
        against=against,
        host_us=round(median(h.auto_us for h in hosts), 2) if hosts else None,
        host_most_us=round(max(h.auto_us for h in hosts), 2) if hosts else None,
        host_over_named_us=_over_named(hosts),
        wrong=wrong,
        missing=missing,
        notes=tuple(notes),
    )
    return replace(found, finding=finding(found, len(points)), next_action=next_action(found))


def auto(point: BenchPoint) -> BenchTime | None:
    """Return the time of ``auto`` that others are compared with: with the lowest ties, if any."""
    found = [one for one in point.times if one.contender == AUTO and one.us is not None]
    return next((one for one in found if one.ties == "lowest"), found[0] if found else None)


def best(times: Sequence[BenchTime]) -> BenchTime | None:
    """Return the fastest of those that were timed."""
    return min((one for one in times if one.us), key=lambda one: one.us or 0.0, default=None)


def best_peer(point: BenchPoint) -> BenchTime | None:
    """Return the fastest peer of a shape."""
    return best([one for one in point.times if one.peer])


def best_rung(point: BenchPoint) -> BenchTime | None:
    """Return the fastest rung that was named, asked the same of ties as ``auto``."""
    asked = auto(point)
    return best(
        [
            one
            for one in point.times
            if asked and not one.peer and one.contender != AUTO and one.ties == asked.ties
        ]
    )


Other = Callable[[BenchPoint], float | None]


def _others(points: Sequence[BenchPoint]) -> Iterator[tuple[str, Other]]:
    """Yield what ``auto`` is compared with, by name."""
    yield BEST_PEER, lambda point: _us(best_peer(point))
    peers = dict.fromkeys(one.contender for p in points for one in p.times if one.peer)
    for name in peers:
        yield name, lambda point, name=name: point.time(name)  # type: ignore[misc]
    yield UPSTREAM, lambda point: point.time(point.upstream) if point.upstream else None
    yield BEST_RUNG, lambda point: _us(best_rung(point))
    yield ANY_TIES, _any_ties


def _any_ties(point: BenchPoint) -> float | None:
    asked = auto(point)
    return point.time(AUTO, "any") if asked is not None and asked.ties == "lowest" else None


def _us(time: BenchTime | None) -> float | None:
    return time.us if time else None


def _against(what: str, points: Sequence[BenchPoint], of: Other) -> Against | None:
    """Return how many times faster ``auto`` is, over the shapes that both have a time of."""
    ratios: list[tuple[BenchPoint, float]] = []
    for point in points:
        mine, other = _us(auto(point)), of(point)
        if mine and other:
            ratios.append((point, other / mine))
    if not ratios:
        return None
    least_at, least = min(ratios, key=lambda pair: pair[1])
    rows = sorted({point.rows for point, _ in ratios})
    return Against(
        what=what,
        shapes=len(ratios),
        geometric_mean=round(geometric_mean([ratio for _, ratio in ratios]), 3),
        least=round(least, 3),
        least_at=least_at.id,
        by_rows={
            str(n): round(geometric_mean([r for p, r in ratios if p.rows == n]), 3) for n in rows
        },
        slower=tuple(point.id for point, ratio in ratios if ratio < 1),
    )


def _over_named(hosts: Sequence[HostCost]) -> float | None:
    return round(median(h.auto_us - h.named_us for h in hosts), 2) if hosts else None


def _missing(points: Sequence[BenchPoint]) -> tuple[Missing, ...]:
    counts = Counter(
        (one.contender, one.status, one.note) for p in points for one in p.times if one.us is None
    )
    return tuple(
        Missing(contender=name, status=status, reason=reason, shapes=shapes)
        for (name, status, reason), shapes in counts.items()
    )


def finding(found: BenchSummary, shapes: int) -> str:
    """Return the sentence that stands first: wrong results, then the best peer, then ``auto``."""
    wrong = f"WRONG results of the ladder on {_shapes(found.wrong)}; " if found.wrong else ""
    peer, rung, ties = (found.compared(w) for w in (BEST_PEER, BEST_RUNG, ANY_TIES))
    parts = [_faster(peer) if peer else f"no peer was timed on the {_shapes(shapes)}"]
    if rung:
        # The inverse: how much slower auto is than the rung that turned out best.
        parts.append(f"auto is at most {1 / rung.least:.2f} times the best rung's time")
    if ties:
        parts.append(
            f'ties="lowest" takes {1 / ties.geometric_mean:.2f} times what "any" does '
            f"(at most {1 / ties.least:.2f})"
        )
    if found.host_us is not None:
        parts.append(f"a call of auto costs the host {found.host_us:.1f} us")
    return wrong + "; ".join(parts)


def _faster(peer: Against) -> str:
    slower = f"slower on {_shapes(len(peer.slower))}" if peer.slower else "nowhere slower"
    return (
        f"auto is {peer.geometric_mean:.2f} times faster than the best peer of each shape "
        f"(geometric mean of {_shapes(peer.shapes)}), {slower} (least {peer.least:.2f})"
    )


def next_action(found: BenchSummary) -> str:
    """Return what to do about the worst of what was found, '' where nothing is to be done."""
    peer, rung = found.compared(BEST_PEER), found.compared(BEST_RUNG)
    if found.wrong:
        return "run `pytest -m gpu`: it holds every rung against a reference"
    if peer is None:
        return "name a peer: `--peer torch`, or `--peer shipped:FILE` with a vLLM wheel"
    if rung and 1 / rung.least > _AUTO_GOAL:
        return f"calibrate the costs with `--calibrate`: auto is furthest off at {rung.least_at}"
    if found.host_most_us is not None and found.host_most_us > _HOST_GOAL_US:
        return (
            f"a call costs the host up to {found.host_most_us:.1f} us, over {_HOST_GOAL_US:.0f}: "
            "profile `select`"
        )
    return ""


def _shapes(number: int) -> str:
    return f"{number} shape{'' if number == 1 else 's'}"
