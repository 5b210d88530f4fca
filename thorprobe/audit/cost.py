# SPDX-License-Identifier: Apache-2.0
"""What rows lose that a gate keeps from their arm, as far as times of a partition are on record.

A shipped kernel's times come from its own store; where only thorprobe's kernel was launched,
upstream's come from a recording. None is of persistent_topk, the kernel that vLLM falls back to: of
that no time in a partition is on record.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from thorprobe.audit.recorded_times import RecordedTimes
from thorprobe.audit.records import AuditResult, Cost, Decision, Finding, GateRange, Subject
from thorprobe.driver.partition import same
from thorprobe.record import Origin, Record, Workload
from thorprobe.summary import Document

OWN_KERNEL = "thorprobe's cluster_topk"
STAND_IN = "thorprobe's stand-in without a cluster"
REPLAYED = "medians of graph replays, inputs warm in cache where they fit"
"""How the times of a store were taken (thorprobe/driver/launch.py)."""


class _Times(Record, frozen=True, kw_only=True):
    """Microseconds of one input by cluster size, and of a launch without a cluster."""

    kernel: str = ""
    us: dict[int, float] = msgspec.field(default_factory=dict)
    alone: float | None = None


class _Other(Record, frozen=True, kw_only=True):
    """What ran without a cluster at the same rows; empty where nothing did."""

    other: str = ""
    other_us: float | None = None
    other_source: str = ""


def costs(
    subject: Subject,
    document: Document,
    results: Sequence[AuditResult],
    recorded: Iterable[RecordedTimes],
) -> tuple[Cost, ...]:
    """Return the times on record at rows that some gate of ``results`` keeps from their arm.

    Rows whose own arm is refused are among them where a step down serves them. Of a store with
    several k the least counts. Empty for a whole device and for a prediction: the question is what
    a part of a Thor's size loses.
    """
    device = subject.device
    if not device.partition or subject.origin is Origin.PREDICTED:
        return ()
    kept = list(recorded)
    own = list(_own(subject, document, results, kept))
    upstream = _upstream(subject, results, kept)
    if not subject.kernel:
        return (*upstream, *own)
    # Of shapes that the store has not timed the older recording of the same kernel is left.
    timed = {(cost.rows, cost.columns, cost.k) for cost in own}
    more = [cost for cost in upstream if (cost.rows, cost.columns, cost.k) not in timed]
    return tuple(sorted((*own, *more), key=lambda cost: cost.rows))


def _upstream(
    subject: Subject, results: Sequence[AuditResult], recorded: Iterable[RecordedTimes]
) -> Iterator[Cost]:
    device = subject.device
    for recording in recorded:
        if recording.device != device.name:
            continue
        for time in recording.times:
            here = same(time.partition, device.partition)
            at = _lost(results, time.rows) if here else None
            us = {int(size): value for size, value in time.us.items()}
            if at is not None and at[0] in us:
                yield _cost(
                    subject,
                    at,
                    us,
                    _Other(other=recording.other, other_us=time.torch_us),
                    rows=time.rows,
                    columns=time.columns,
                    k=recording.k,
                    kernel=recording.kernel,
                    source=recording.source,
                )


def _own(
    subject: Subject,
    document: Document,
    results: Sequence[AuditResult],
    recorded: Sequence[RecordedTimes],
) -> Iterator[Cost]:
    timed = _timed(document)
    least = min((work.k for work in timed), default=0)
    for work, times in sorted(timed.items(), key=lambda item: item[0].rows):
        at = _lost(results, work.rows)
        if work.k != least or at is None or at[0] not in times.us:
            continue
        other = _beside(subject, work, recorded) if subject.kernel else _Other()
        if times.alone is not None:
            other = _Other(other=STAND_IN, other_us=times.alone)
        elif not subject.kernel:
            continue
        yield _cost(
            subject,
            at,
            times.us,
            other,
            rows=work.rows,
            columns=work.columns,
            k=work.k,
            kernel=f"shipped {times.kernel}" if subject.kernel else OWN_KERNEL,
            source=f"{subject.source}; {REPLAYED}",
        )


def _beside(subject: Subject, work: Workload, recorded: Iterable[RecordedTimes]) -> _Other:
    """Find what another recording timed without a cluster in this partition on the same shape."""
    device = subject.device
    for recording in recorded:
        if recording.device != device.name or recording.k != work.k:
            continue
        for time in recording.times:
            shape = (time.columns, time.rows)
            if same(time.partition, device.partition) and shape == (work.columns, work.rows):
                return _Other(
                    other=recording.other, other_us=time.torch_us, other_source=recording.source
                )
    return _Other()


def _cost(
    subject: Subject,
    at: tuple[int, tuple[str, ...]],
    us: dict[int, float],
    other: _Other,
    **known: object,
) -> Cost:
    cluster, gates = at
    best = min(us, key=lambda size: us[size])
    return msgspec.convert(
        {
            "subject": subject.name,
            "cluster": cluster,
            "gates": gates,
            "origin": Origin.RECORDED,
            "arm_us": us[cluster],
            "best_cluster": best,
            "best_us": us[best],
            **msgspec.structs.asdict(other),
            **known,
        },
        Cost,
    )


def _timed(document: Document) -> dict[Workload, _Times]:
    """Collect the times of each input."""
    found: dict[Workload, _Times] = {}
    for outcome in document.results:
        spec, time = outcome.spec, outcome.observed.time_us
        if spec.workload is None or time is None or outcome.assumes:
            continue
        held = found.get(spec.workload, _Times())
        if spec.cluster_attribute:
            us = held.us | {spec.cluster_size: time}
            held = msgspec.structs.replace(held, us=us, kernel=spec.kernel)
        else:
            held = msgspec.structs.replace(held, alone=time)
        found[spec.workload] = held
    return found


def _lost(results: Iterable[AuditResult], rows: int) -> tuple[int, tuple[str, ...]] | None:
    """Return the cluster size lost at these rows and the gates that lose it, None where none is."""
    rejecting: list[tuple[str, GateRange]] = []
    stepped: list[GateRange] = []
    for result in results:
        for part in result.ranges:
            if part.rows[0] <= rows <= part.rows[1]:
                if part.finding is Finding.FALSE_REJECT:
                    rejecting.append((result.gate, part))
                elif part.cluster != part.dispatched and part.decision is Decision.OPEN:
                    stepped.append(part)
    if rejecting:
        return rejecting[0][1].cluster, tuple(gate for gate, _ in rejecting)
    return (stepped[0].cluster, ()) if stepped else None
