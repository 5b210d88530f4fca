# SPDX-License-Identifier: Apache-2.0
"""What the page of a run says of the published claims about its device."""

from thorprobe.judge.claim import weigh
from thorprobe.judge.claim_records import ClaimResult, Standing
from thorprobe.plan.claim import register
from thorprobe.record import Origin
from thorprobe.render.escape import plain
from thorprobe.summary import Document


def remarks(document: Document) -> list[tuple[str, str]]:
    """Return what a run says of the claims about its own device; empty for a prediction.

    Claims about any device are left to ``thorprobe claims``: they are no news of this one.
    """
    if document.origin is Origin.PREDICTED:
        return []
    own = [claim for claim in register() if not claim.general]
    found = [result for result in weigh(own, "", document) if result.about]
    return [
        (f"Published claims {standing.value}", "; ".join(_told(r) for r in of))
        for standing in Standing
        if (of := [result for result in found if result.standing is standing])
    ]


def _told(result: ClaimResult) -> str:
    return plain(f"{result.claim} ({result.observed or result.reason})")
