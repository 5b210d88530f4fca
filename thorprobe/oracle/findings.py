# SPDX-License-Identifier: Apache-2.0
"""Which exhibits answer for a device of a fleet, and which of them counts more."""

from collections.abc import Iterable, Sequence

from thorprobe.judge.catalogue import SEVERITY
from thorprobe.oracle.evidence_file import EvidenceFile
from thorprobe.oracle.fleet import FleetDevice
from thorprobe.plan.policy import Policy, row_ranges
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Origin, Record, Verdict
from thorprobe.summary import ArmRow

_RANK = (Origin.MEASURED, Origin.RECORDED, Origin.PREDICTED)
# A measurement outranks a recording of one, and both outrank a prediction.


class Finding(Record, frozen=True, kw_only=True):
    """What the best evidence says of one arm; ``because`` are the exhibits that say it."""

    arm: ArmRow
    origin: Origin
    because: tuple[str, ...]


def answers_for(device: FleetDevice, exhibit: EvidenceFile) -> bool:
    """Say whether an exhibit is about this device.

    A prediction is only where the fleet names its profile, a measurement where the GPU's name and
    the partition fit. What a device answered while dispatching for another is about the other.
    """
    if device.host:
        return not exhibit.device
    if not exhibit.device or exhibit.partition != device.partition:
        return False
    if exhibit.capability != exhibit.dispatched and exhibit.arms is not None:
        return False
    if exhibit.line.origin is Origin.PREDICTED:
        return bool(device.profile) and exhibit.profile == device.profile
    return bool(device.gpu) and device.gpu.casefold() in exhibit.device.casefold()


def best(found: Iterable[EvidenceFile]) -> tuple[EvidenceFile, ...]:
    """Keep the exhibits of the best origin that is there."""
    held = list(found)
    for origin in _RANK:
        kept = tuple(exhibit for exhibit in held if exhibit.line.origin is origin)
        if kept:
            return kept
    return ()


def testimonies(policy: Policy, k: int, exhibits: Sequence[EvidenceFile]) -> tuple[Finding, ...]:
    """Return what is known of each arm of a policy at one k, in order of its rows.

    Of each arm the best origin counts, of one origin upstream's own kernel before the stand-in,
    and of those the worst verdict. An arm that no exhibit holds is not probed. Empty where no
    exhibit drove this policy at all.
    """
    held = [
        (arm, exhibit)
        for exhibit in exhibits
        if exhibit.arms is not None
        for arm in exhibit.arms.arms
        if arm.policy == policy.name and arm.k == k
    ]
    if not held:
        return ()
    major = held[0][1].dispatched[0]
    told = []
    for extent in row_ranges(policy, major):
        own = [(arm, x) for arm, x in held if arm.rows == (extent.first, extent.last)]
        # A probe that ended without an answer does not outrank one that has an answer.
        own = [pair for pair in own if pair[0].verdict is not Verdict.NOT_PROBED] or own
        kept = best(x for _, x in own)
        if not kept:
            told.append(_nobody(held[0][0], extent.first, extent.last, extent.cluster, extent.path))
            continue
        arms = [(arm, x) for arm, x in own if x in kept]
        # Upstream's own kernel, where it was launched, says more than the stand-in.
        arms = [pair for pair in arms if is_shipped(pair[0].kernel)] or arms
        worst = max((arm for arm, _ in arms), key=lambda arm: SEVERITY.index(arm.verdict))
        told.append(
            Finding(
                arm=worst,
                origin=kept[0].line.origin,
                because=tuple(x.line.id for arm, x in arms if arm.verdict is worst.verdict),
            )
        )
    return tuple(told)


def _nobody(like: ArmRow, first: int, last: int | None, cluster: int, path: str) -> Finding:
    arm = ArmRow(
        policy=like.policy,
        rows=(first, last),
        k=like.k,
        dtype=like.dtype,
        path=path,
        kernel=like.kernel,
        cluster=cluster,
        dynamic_smem=0,
        gate=path == "cooperative",
        verdict=Verdict.NOT_PROBED,
    )
    return Finding(arm=arm, origin=Origin.PREDICTED, because=())
