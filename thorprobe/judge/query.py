# SPDX-License-Identifier: Apache-2.0
"""What the occupancy queries say of a launch that nobody made."""

from thorprobe.driver.code import INVALID_CLUSTER_SIZE, INVALID_VALUE, LAUNCH_CAUSES
from thorprobe.record import Origin, Outcome, Status

NO_ROOM = "queried only: no cluster is resident, and the queries do not say why"


def is_query(outcome: Outcome) -> bool:
    """Say whether a device answered the occupancy queries and was never asked to launch."""
    seen = outcome.observed
    return (
        outcome.origin is not Origin.PREDICTED
        and outcome.status is Status.PASS
        and seen.max_active_code is not None
        and seen.launch_code is None
        and seen.sync_code is None
    )


def refusing_code(outcome: Outcome) -> int:
    """Return the code that a launch would be refused with, 0 where the queries name none.

    A setter or a query that failed has said so itself. Where no cluster is resident although
    smaller ones of the same kernel are, a launch answers 912 (2,210 of 2,210 recorded points of an
    H200, 2026-11-30).
    """
    seen, size = outcome.observed, outcome.spec.cluster_size
    setters = [call.code for call in outcome.calls if "SetAttribute" in call.call and call.code]
    for code in (*setters, seen.max_active_code or 0):
        if code in {INVALID_VALUE, INVALID_CLUSTER_SIZE, *LAUNCH_CAUSES}:
            return code
    smaller = seen.max_potential is not None and 1 <= seen.max_potential < size
    return INVALID_CLUSTER_SIZE if seen.max_active == 0 and smaller else 0
