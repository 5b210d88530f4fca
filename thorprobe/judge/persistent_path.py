# SPDX-License-Identifier: Apache-2.0
"""The persistent path: upstream's kernel of it is not launched, something else is in its place."""

import msgspec

from thorprobe.judge.cause import refusal
from thorprobe.judge.finding import code_text
from thorprobe.record import Origin, Outcome, Verdict
from thorprobe.summary import ArmRow

_DID = {
    Verdict.LAUNCHES: "launched",
    Verdict.WRONG: "gave a wrong result",
    Verdict.FAULTS: "faulted",
    Verdict.HANGS: "hung",
    Verdict.UNDETERMINED: "left undetermined whether it ran",
    Verdict.NOT_PROBED: "ended without an answer",
}


def not_launched(row: ArmRow, worst: Outcome | None) -> ArmRow:
    """Return the row as not probed: neither bytes, verdict, results nor time are upstream's.

    ``row`` is judged as if the stand-in were the arm, and ``worst`` is its worst launch; what it
    did goes into the note and nowhere else.
    """
    stand_in = f"stand-in without a cluster {_did(row, worst)}"
    what = f"upstream's persistent_topk was not launched; {stand_in}"
    return msgspec.structs.replace(
        row,
        dynamic_smem=0,
        verdict=Verdict.NOT_PROBED,
        cause=None,
        code=None,
        under_claims={},
        checked=(0, 0),
        oracle="",
        note=f"{what}; {row.note}" if row.note else what,
    )


def _did(row: ArmRow, worst: Outcome | None) -> str:
    right, compared = row.checked
    results = f", {right:,} of {compared:,} results right" if compared else ""
    if worst is None:
        return "has no record"
    if row.verdict is Verdict.REFUSED:
        return f"was refused: {code_text(refusal(worst), with_cause=True)}{results}"
    if worst.origin is Origin.PREDICTED:
        launches = row.verdict is Verdict.LAUNCHES
        return "is predicted to launch" if launches else f"is {row.verdict.value}"
    return f"{_DID[row.verdict]}{results}"
