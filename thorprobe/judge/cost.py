# SPDX-License-Identifier: Apache-2.0
"""What rows lose that a gate keeps from their arm, as far as times of a partition are on record.

Upstream's own times come from a recording, thorprobe's from the store that is audited. Neither is
of persistent_topk, the kernel that vLLM falls back to: of that no time in a partition is on record.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from thorprobe.record import Document, Origin, Workload
from thorprobe.run.recorded_times import RecordedTimes
from thorprobe.words.audit import AuditResult, Cost, Decision, Finding, GateRange, Subject

OWN_KERNEL = "thorprobe's cluster_topk"
STAND_IN = "thorprobe's stand-in without a cluster"


def costs(
    subject: Subject,
    document: Document,
    results: Sequence[AuditResult],
    recorded: Iterable[RecordedTimes],
) -> tuple[Cost, ...]:
    """Return the times on record at rows that some gate of ``results`` keeps from their arm.

    Rows whose own arm is refused are among them where a step down serves them. Empty for a whole
    device and for a prediction: the question is what a part of a Thor's size loses.
    """
    device = subject.device
    if not device.partition or subject.origin is Origin.PREDICTED:
        return ()
    found = [*_upstream(subject, results, recorded), *_own(subject, document, results)]
    return tuple(found)


def _upstream(
    subject: Subject, results: Sequence[AuditResult], recorded: Iterable[RecordedTimes]
) -> Iterator[Cost]:
    device = subject.device
    for recording in recorded:
        if recording.device != device.name:
            continue
        for time in recording.times:
            at = _lost(results, time.rows) if time.partition == device.partition else None
            us = {int(size): value for size, value in time.us.items()}
            if at is not None and at[0] in us:
                yield _cost(
                    subject,
                    at,
                    us,
                    rows=time.rows,
                    columns=time.columns,
                    kernel=recording.kernel,
                    source=recording.source,
                    other=recording.other,
                    other_us=time.torch_us,
                )


def _own(subject: Subject, document: Document, results: Sequence[AuditResult]) -> Iterator[Cost]:
    for work, (us, alone) in sorted(_timed(document).items(), key=lambda item: item[0].rows):
        at = _lost(results, work.rows)
        if at is not None and at[0] in us and alone is not None:
            yield _cost(
                subject,
                at,
                us,
                rows=work.rows,
                columns=work.columns,
                kernel=f"shipped {subject.kernel}" if subject.kernel else OWN_KERNEL,
                source=subject.source,
                other=STAND_IN,
                other_us=alone,
            )


def _cost(
    subject: Subject, at: tuple[int, tuple[str, ...]], us: dict[int, float], **known: object
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
            **known,
        },
        Cost,
    )


def _timed(document: Document) -> dict[Workload, tuple[dict[int, float], float | None]]:
    """Collect per input the time of each cluster size, and of a launch without a cluster."""
    found: dict[Workload, tuple[dict[int, float], float | None]] = {}
    for outcome in document.results:
        work, time = outcome.spec.workload, outcome.observed.time_us
        if work is None or time is None or outcome.assumes:
            continue
        us, alone = found.get(work, ({}, None))
        if outcome.spec.cluster_attribute:
            us = us | {outcome.spec.cluster_size: time}
        else:
            alone = time
        found[work] = (us, alone)
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
