# SPDX-License-Identifier: Apache-2.0
"""What to do next: the catalogue's advice on the worst cause that was found."""

from collections.abc import Iterable

from thorprobe.judge.catalogue import FAILING, SEVERITY, cause
from thorprobe.judge.cause import expected_cluster, settled
from thorprobe.record import Outcome

_BY_DESIGN = "non-portable-not-enabled"


def next_action(outcomes: Iterable[Outcome]) -> str:
    """Return what to do about judged ``outcomes``, '' where nothing failed.

    Of causes that are equally bad the one of the smallest cluster counts: it limits most. A size
    asked without the opt-in that it needs is refused by design and counts for nothing.
    """
    told = tuple(outcomes)
    failed = [o for o in told if settled(o) in FAILING and o.cause not in (None, _BY_DESIGN)]
    failed = failed or [o for o in told if o.cause == "prior-error"]
    if not failed:
        return ""
    worst = max(failed, key=_rank)
    potential = worst.observed.max_potential
    if worst.cause == "larger-than-any-gpc" and potential:
        return (
            f"No flag mends it: launch at most {potential} CTAs a cluster here, and let "
            "cuOccupancyMaxActiveClusters choose, not the compute capability"
        )
    entry = cause(worst.cause or "undetermined")
    clustered = expected_cluster(worst.spec) > 1
    if entry.key == "cooperative-too-large" and clustered and worst.observed.max_active:
        most = worst.observed.max_active * expected_cluster(worst.spec)
        return f"Launch at most {most:,} CTAs of this cluster, or drop the cooperative attribute"
    if entry.key == "kernel-fault" and clustered:
        early = cause("early-exit").next_action
        return f"{entry.next_action}. A candidate is a CTA that left early: {early.lower()}"
    return entry.next_action


def _rank(outcome: Outcome) -> tuple[int, int, int]:
    number = cause(outcome.cause or "undetermined").number
    return SEVERITY.index(settled(outcome)), -outcome.spec.cluster_size, -number
