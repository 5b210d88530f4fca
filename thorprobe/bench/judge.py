# SPDX-License-Identifier: Apache-2.0
"""What a bench means: geometric means of ratios, where ``auto`` is slower, what was not timed."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from thorprobe.bench.aim_judge import aims
from thorprobe.bench.aims import HOST_MEASURE
from thorprobe.bench.group import groups
from thorprobe.bench.group_records import AimFound
from thorprobe.bench.plan import AUTO
from thorprobe.bench.records import Against, BenchPoint, BenchSummary, CopyRate, HostCost, Missing
from thorprobe.bench.times import auto, best_peer, best_rung, geometric_mean, us
from thorprobe.record import Status

BEST_PEER = "the best peer"
UPSTREAM = "upstream's own choice"
BEST_RUNG = "the best rung"
ANY_TIES = 'auto with ties="any"'

_AUTO_GOAL, _HOST_GOAL_US = 1.1, 10.0
# What the ladder promises of auto: within 1.1 times of the best rung, under 10 us of the host.
_TOLD = 3
# So many missed goals fit into a finding.


def summarize(
    points: Sequence[BenchPoint],
    rates: Sequence[CopyRate] = (),
    notes: Sequence[str] = (),
    partition: str = "",
) -> BenchSummary:
    """Compare ``auto`` with everything that was timed beside it; ``partition`` '' is the whole."""
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
        host_prepared_us=_prepared(hosts),
        host_peers_us=_of_peers(points),
        groups=groups(points, partition),
        aims=aims(points, partition),
    )
    return replace(found, finding=finding(found, len(points)), next_action=next_action(found))


Other = Callable[[BenchPoint], float | None]


def _others(points: Sequence[BenchPoint]) -> Iterator[tuple[str, Other]]:
    """Yield what ``auto`` is compared with, by name."""
    yield BEST_PEER, lambda point: us(best_peer(point))
    peers = dict.fromkeys(one.contender for p in points for one in p.times if one.peer)
    for name in peers:
        yield name, lambda point, name=name: point.time(name)  # type: ignore[misc]
    yield UPSTREAM, lambda point: point.time(point.upstream) if point.upstream else None
    yield BEST_RUNG, lambda point: us(best_rung(point))
    yield ANY_TIES, _any_ties


def _any_ties(point: BenchPoint) -> float | None:
    asked = auto(point)
    return point.time(AUTO, "any") if asked is not None and asked.ties == "lowest" else None


def _against(what: str, points: Sequence[BenchPoint], of: Other) -> Against | None:
    """Return how many times faster ``auto`` is, over the shapes that both have a time of."""
    ratios: list[tuple[BenchPoint, float]] = []
    for point in points:
        mine, other = us(auto(point)), of(point)
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


def _prepared(hosts: Sequence[HostCost]) -> float | UnsetType:
    known = [h.prepared_us for h in hosts if isinstance(h.prepared_us, float)]
    return round(median(known), 2) if known else UNSET


def _of_peers(points: Sequence[BenchPoint]) -> dict[str, float] | UnsetType:
    """Return what a call of each peer costs the host, the median over the shapes."""
    held: dict[str, list[float]] = {}
    for point in points:
        for one in point.times:
            if isinstance(one.host_us, float):
                held.setdefault(one.contender, []).append(one.host_us)
    return {name: round(median(taken), 2) for name, taken in held.items()} or UNSET


def _missing(points: Sequence[BenchPoint]) -> tuple[Missing, ...]:
    counts = Counter(
        (one.contender, one.status, one.note) for p in points for one in p.times if one.us is None
    )
    return tuple(
        Missing(contender=name, status=status, reason=reason, shapes=shapes)
        for (name, status, reason), shapes in counts.items()
    )


def finding(found: BenchSummary, shapes: int) -> str:
    """Return what stands first: wrong results, then the best peer, the goals, and ``auto``."""
    peer, rung, ties = (found.compared(w) for w in (BEST_PEER, BEST_RUNG, ANY_TIES))
    parts = [f"WRONG results of the ladder on {_shapes(found.wrong)}"] if found.wrong else []
    parts.append(_faster(peer) if peer else f"no peer was timed on the {_shapes(shapes)}")
    if goals := _goals(found.aims or ()):
        parts.append(goals)
    if rung:
        # The inverse: how much slower auto is than the rung that turned out best.
        parts.append(f"auto takes at most {1 / rung.least:.2f} times the best rung's time")
    if ties:
        parts.append(
            f"lowest ties take {1 / ties.geometric_mean:.2f} times what any ties do "
            f"(at most {1 / ties.least:.2f})"
        )
    if found.host_us is not None:
        parts.append(f"a call of auto costs the host {found.host_us:.1f} us")
    return ". ".join(part[:1].upper() + part[1:] for part in parts)


def _goals(stated: Sequence[AimFound]) -> str:
    judged = [one for one in stated if one.verdict != "open"]
    missed = [one for one in judged if one.verdict == "missed"]
    if not judged:
        return ""
    if not missed:
        many = f"all {len(judged)} goals are" if len(judged) > 1 else "the one goal is"
        return f"{many} met"
    told = [_missed(one) for one in missed[:_TOLD]]
    more = [f"and {len(missed) - _TOLD} more"] if len(missed) > _TOLD else []
    met = len(judged) - len(missed)
    return f"{met} of {len(judged)} goals met. Missed are {'; '.join([*told, *more])}"


def _missed(one: AimFound) -> str:
    if one.measure == HOST_MEASURE:
        return f"{one.aim}, by {one.missed_by:.2f} us"
    return f"{one.aim}: {one.measure} by {one.missed_by:.2f}"


def _faster(peer: Against) -> str:
    slower = f"slower on {_shapes(len(peer.slower))}" if peer.slower else "nowhere slower"
    return (
        f"auto is {peer.geometric_mean:.2f} times faster than the best peer of each shape "
        f"(geometric mean of {_shapes(peer.shapes)}), {slower} (least {peer.least:.2f})"
    )


def next_action(found: BenchSummary) -> str:
    """Return what a reader does about the worst of what was found, '' where nothing is to do."""
    peer, rung = found.compared(BEST_PEER), found.compared(BEST_RUNG)
    if found.wrong:
        return (
            "do not rely on a rung that is wrong below; `thorprobe bench --verify 60` looks for "
            "the smallest input that shows it"
        )
    if peer is None:
        return "name a peer: `--peer torch`, or `--peer vllm` where vLLM is installed"
    if peer.slower:
        where = f"on the {_shapes(len(peer.slower))} listed below, most of all {peer.least_at}"
        return f"take the peer where it is faster and ties may fall at will: {where}"
    if rung and 1 / rung.least > _AUTO_GOAL:
        return (
            f"name the rung at {rung.least_at}, where auto is furthest off, or fit the costs to "
            "this device with `--calibrate`"
        )
    if found.host_most_us is not None and found.host_most_us > _HOST_GOAL_US:
        return (
            f"a call costs the host up to {found.host_most_us:.1f} us: capture it in a CUDA graph, "
            "or prepare it once with `thorprobe.topk.prepare`"
        )
    return ""


def _shapes(number: int) -> str:
    return f"{number} shape{'' if number == 1 else 's'}"
