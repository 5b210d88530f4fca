# SPDX-License-Identifier: Apache-2.0
"""What the page of a run says of the published claims about its device."""

from thorprobe.judge.claim import weigh
from thorprobe.judge.claim_records import ClaimResult, Standing
from thorprobe.plan.claim import Quantity, register
from thorprobe.plan.reported import reported
from thorprobe.record import Origin
from thorprobe.render.escape import plain
from thorprobe.summary import Document


def remarks(document: Document) -> list[tuple[str, str]]:
    """Return what a run says of the claims about its own device.

    A prediction says nothing of them: what others ran on such a device stands beside it instead.
    Claims about any device are left to ``thorprobe claims``: they are no news of this one.
    """
    if document.origin is Origin.PREDICTED:
        return _reported(document)
    own = [claim for claim in register() if not claim.general]
    found = [result for result in weigh(own, "", document) if result.about]
    return [
        (f"Published claims {standing.value}", "; ".join(_told(r) for r in of))
        for standing in Standing
        if (of := [result for result in found if result.standing is standing])
    ]


def _reported(document: Document) -> list[tuple[str, str]]:
    """Return each size that others saw launch or refused on such a device, and the run of it."""
    said = [
        (predicate.cluster, predicate.value is True, run)
        for run in reported()
        if run.device.fits(document.device)
        for predicate in run.says
        if predicate.quantity is Quantity.LAUNCHES
    ]
    parts: list[tuple[str, str]] = []
    for cluster, launches in dict.fromkeys(sorted((size, does) for size, does, _ in said)):
        runs = [run for size, does, run in said if (size, does) == (cluster, launches)]
        told = "; ".join(f"{run.id}: {run.told}, sureness {run.sure.value}" for run in runs)
        does = "launches" if launches else "is refused"
        parts.append((f"Reported at {cluster}", plain(f"{does} ({told})")))
    return parts


def _told(result: ClaimResult) -> str:
    return plain(f"{result.claim} ({result.observed or result.reason})")
