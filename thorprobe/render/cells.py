# SPDX-License-Identifier: Apache-2.0
"""The words that one judged outcome puts in a table cell, and what each of them means."""

from thorprobe.judge.cause import proven, refusal
from thorprobe.record import DriverCall, Origin, Outcome, Status, Verdict

PROVEN = "ok"
RAN = "ran"
PREDICTED = "yes"
REFUSED = "no"
WRONG = "wrong"
FAULT = "fault"
HANG = "hang"
WAIVED = "n/a"
ERROR = "err"
UNKNOWN = "?"
PRIOR = "prior"
NOT_ASKED = "-"
QUERY_REFUSED = "x"

MEANINGS = {
    PROVEN: "launched, and the kernel or its checked result proved it",
    RAN: "launched; nothing proved what ran",
    PREDICTED: "predicted to launch; nothing ran, so nothing is verified",
    REFUSED: "refused; no code was recorded",
    WRONG: "launched, but the cluster it saw or the result it gave is wrong",
    FAULT: "launched, then failed in the kernel",
    HANG: "the launch did not finish before its deadline",
    WAIVED: "waived: cannot apply here",
    ERROR: "the probe itself failed or was lost: nothing is known of the launch",
    UNKNOWN: "undetermined: the facts at hand do not decide it",
    PRIOR: "not judged: the context already carried an error of an earlier launch",
    NOT_ASKED: "not asked, or no answer",
    QUERY_REFUSED: "the query itself was refused",
}
"""Every word that is neither a number nor a driver code, with its legend sentence."""

_BY_VERDICT = {
    Verdict.WRONG: WRONG,
    Verdict.FAULTS: FAULT,
    Verdict.HANGS: HANG,
    Verdict.UNDETERMINED: UNKNOWN,
}
_BY_STATUS = {Status.WAIVED: WAIVED, Status.PASS: NOT_ASKED}


def potential(outcome: Outcome | None) -> str:
    """Return the answer of cuOccupancyMaxPotentialClusterSize in CTAs, as a word."""
    if outcome is None:
        return NOT_ASKED
    seen = outcome.observed
    return _answer(outcome, seen.max_potential, seen.max_potential_code)


def active(outcome: Outcome | None) -> str:
    """Return the answer of cuOccupancyMaxActiveClusters in clusters, or its range, as a word."""
    if outcome is None:
        return NOT_ASKED
    seen, spec = outcome.observed, outcome.spec
    if spec.cooperative and not (spec.cluster_attribute or spec.compiled_cluster):
        return NOT_ASKED  # A launch without a cluster has no clusters to be resident.
    if seen.max_active is None and seen.max_active_range is not None:
        least, most = seen.max_active_range
        return str(least) if least == most else f"{least}-{most}"
    return _answer(outcome, seen.max_active, seen.max_active_code)


def launch(outcome: Outcome | None) -> str:
    """Return what became of the launch: a word of ``MEANINGS`` or the driver's code."""
    if outcome is None:
        return NOT_ASKED
    if outcome.verdict is Verdict.REFUSED:
        code = refusal(outcome).code
        return REFUSED if code is None else str(code)
    if outcome.verdict is Verdict.LAUNCHES:
        if proven(outcome):
            return PROVEN
        # Without a synchronisation no kernel ran, whatever the document says of its origin.
        return PREDICTED if outcome.observed.sync_code is None else RAN
    if outcome.verdict is Verdict.NOT_PROBED:
        prior = outcome.cause == "prior-error"
        return PRIOR if prior else _BY_STATUS.get(outcome.status, ERROR)
    return _BY_VERDICT[outcome.verdict]


def refusing_call(outcome: Outcome) -> DriverCall | None:
    """Return the driver call that refused the launch: that of its code, else the last to fail."""
    failed = [call for call in outcome.calls if call.code]
    wanted = outcome.observed.launch_code or outcome.observed.sync_code
    named = [call for call in failed if call.code == wanted]
    # A setter or query may have answered the same code earlier; the launch is the later call.
    found = named or failed
    return found[-1] if found else None


def _answer(outcome: Outcome, value: int | None, code: int | None) -> str:
    if code:
        return QUERY_REFUSED
    if value is not None:
        return str(value)
    return UNKNOWN if outcome.origin is Origin.PREDICTED else NOT_ASKED
