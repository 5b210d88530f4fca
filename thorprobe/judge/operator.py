# SPDX-License-Identifier: Apache-2.0
"""What a row of the arms says of an operator of vLLM: the kernels that ran, and surprises."""

from collections.abc import Sequence

import msgspec

from thorprobe.record import OperatorCall, Outcome
from thorprobe.summary import ArmRow


def of_operator(row: ArmRow, answers: Sequence[Outcome]) -> ArmRow:
    """Return the row with the kernels that its calls ran, as they were seen, in its note.

    Bytes of the persistent operator are its host code's choice and are left 0.
    """
    calls = [o.observed.operator for o in answers if o.observed.operator]
    parts = [_kernels(calls), *dict.fromkeys(n for o in answers if (n := _apart(o)))]
    note = "; ".join(filter(None, (*parts, row.note)))
    return msgspec.structs.replace(row, note=note)


def _kernels(calls: Sequence[OperatorCall]) -> str:
    """Name the kernels that ran, else those that a capture shows: a refused launch runs none."""
    ran = dict.fromkeys(name for call in calls for name in call.ran)
    if ran:
        return f"ran {', '.join(ran)}"
    names = dict.fromkeys(kernel.name for call in calls for kernel in call.captured)
    return f"its call is to launch {', '.join(filter(None, names))}" if any(names) else ""


def _apart(outcome: Outcome) -> str:
    told = (part for part in outcome.note.split("; ") if part.startswith("the host code launched"))
    return next(told, "")
