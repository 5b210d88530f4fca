# SPDX-License-Identifier: Apache-2.0
"""Which launches of a drive an arm stands for, told from the launches alone."""

from collections.abc import Iterable

from thorprobe.record import Outcome
from thorprobe.summary import ArmRow


def launches_of(arms: Iterable[ArmRow], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes of what the arms really launch, each once, without those of claims.

    Another size asked at the same rows is no arm's launch: an arm has one size.
    """
    wanted = list(arms)
    return [o for o in outcomes if not o.assumes and any(_takes(arm, o) for arm in wanted)]


def _takes(arm: ArmRow, outcome: Outcome) -> bool:
    spec, work = outcome.spec, outcome.spec.workload
    if work is None or (work.k, work.dtype) != (arm.k, arm.dtype):
        return False
    first, last = arm.rows
    same = (spec.kernel, spec.cluster_size, spec.cluster_attribute) == (
        arm.kernel,
        arm.cluster,
        arm.path == "cooperative",
    )
    return same and first <= work.rows and (last is None or work.rows <= last)


def results_right(outcomes: Iterable[Outcome]) -> tuple[int, int, str]:
    """Count the results that are right and those compared (rows), and name the oracles."""
    checks = [o.observed.check for o in outcomes if o.observed.check is not None]
    compared = sum(check.rows for check in checks)
    wrong = sum(check.wrong_rows for check in checks)
    return compared - wrong, compared, ", ".join(dict.fromkeys(check.oracle for check in checks))
