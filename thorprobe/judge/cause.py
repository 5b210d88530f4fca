# SPDX-License-Identifier: Apache-2.0
"""The verdict and the cause of one outcome, for measurements, recordings and predictions alike.

Evidence is weighed in the order in which a driver judges a launch: an earlier error, the module,
block and shared memory, the cluster, then what the kernel did. Shared memory and cluster are never
mixed: the first answers 1, the second 912 (measured on an H200, driver 580, 2026-11-30).
"""

from collections.abc import Callable

import msgspec

from thorprobe.driver.code import (
    CODE_NAMES,
    FAULTS,
    INVALID_CLUSTER_SIZE,
    INVALID_VALUE,
    LAUNCH_CAUSES,
    LAUNCH_TIMEOUT,
    MODULE_CAUSES,
    MODULE_NAMES,
    NOT_READY,
    NOT_SUPPORTED,
)
from thorprobe.judge.catalogue import (
    BY_KEY,
    CATALOGUE,
    CONSISTENT,
    REFUSALS,
    SEVERITY,
    cause,
)
from thorprobe.judge.cause_entry import Cause
from thorprobe.judge.cause_refused import (
    expected_cluster,
    failed_setter,
    hosted_nowhere,
    of_invalid_cluster,
    of_invalid_value,
)
from thorprobe.judge.driver_log import quote
from thorprobe.judge.query import NO_ROOM, is_query, refusing_code
from thorprobe.plan.operator import NAMESPACE
from thorprobe.record import (
    Device,
    DriverCall,
    Origin,
    Outcome,
    Status,
    Verdict,
)
from thorprobe.summary import Refusal

__all__ = [
    "BY_KEY",
    "CATALOGUE",
    "CODE_NAMES",
    "CONSISTENT",
    "REFUSALS",
    "SEVERITY",
    "Cause",
    "cause",
    "expected_cluster",
    "judge",
    "proven",
    "refusal",
    "settled",
]

HANG_STAGES = frozenset({"attributes", "occupancy", "launch", "sync", "time"})
"""What the worker does while the driver or the kernel has the word: silence there is a hang of the
launch. Elsewhere (compiling, making inputs, comparing results) it says nothing of the launch."""

_LAUNCH_CALLS = (
    *("cuLaunchKernel", "cuGraphLaunch", "cuGraphInstantiate", "cuLaunchCooperative"),
    f"{NAMESPACE}::",  # An operator, whose host code launches.
)
_LOAD_CALLS = ("cuModule", "cuLibrary", "cuKernelGetFunction")
_Finding = tuple[Verdict, str | None, str]


def judge(outcome: Outcome, device: Device) -> Outcome:
    """Set ``verdict``, ``cause`` and, where evidence must be quoted, ``note``; never raises.

    The pair always obeys ``CONSISTENT``. Judging twice changes nothing.
    """
    verdict, key, remark = _decide(outcome, device)
    note = outcome.note
    if remark and remark not in note:
        note = f"{note}; {remark}" if note else remark
    return msgspec.structs.replace(outcome, verdict=verdict, cause=key, note=note)


def proven(outcome: Outcome) -> bool:
    """Say whether the kernel itself, or a compared result, proves that the launch ran as asked."""
    seen = outcome.observed
    if seen.verified is not None:
        return seen.verified
    if seen.check is not None and seen.check.rows > 0:
        return seen.check.wrong_rows == 0
    return seen.cluster_seen is not None and seen.cluster_seen == expected_cluster(outcome.spec)


def settled(outcome: Outcome) -> Verdict:
    """Return the verdict of a judged outcome that a summary may count.

    A measured launch counts only when it is proven: an ignored cluster answers 0 as well.
    """
    unproven = outcome.origin is not Origin.PREDICTED and not proven(outcome)
    if outcome.verdict is Verdict.LAUNCHES and unproven:
        return Verdict.UNDETERMINED
    return outcome.verdict


def refusal(outcome: Outcome) -> Refusal:
    """Return code, name and cause of a judged outcome that was refused.

    The code is that of the launch, else of the first call that failed, else None.
    """
    seen = outcome.observed
    failed = next((call for call in outcome.calls if call.code), None)
    code = seen.launch_code or seen.sync_code
    if code is None and seen.launch_code is None and failed is not None:
        code = failed.code
    if code is None and outcome.cause == "larger-than-any-gpc" and not is_query(outcome):
        code = INVALID_CLUSTER_SIZE
    name = next((call.name for call in outcome.calls if call.code == code), "") if code else ""
    if code and not name:
        name = CODE_NAMES.get(code, "")
    return Refusal(code=code or None, name=name, cause=outcome.cause or "undetermined")


def _decide(outcome: Outcome, device: Device) -> _Finding:
    """Apply the rules in the order of evidence; a launch that none objects to launches."""
    for rule in _RULES:
        found = rule(outcome, device)
        if found is not None:
            return found
    return Verdict.LAUNCHES, None, ""


def _waived(outcome: Outcome, _device: Device) -> _Finding | None:
    if outcome.status is Status.WAIVED:
        return Verdict.NOT_PROBED, "could-not-run", ""
    return None


def _earlier_error(outcome: Outcome, _device: Device) -> _Finding | None:
    """Find an error that the context carried before this launch."""
    for call in outcome.calls:
        if call.call.startswith(_LAUNCH_CALLS):
            break
        checks = "ynchronize" in call.call or "LastError" in call.call
        if call.code in FAULTS or (checks and call.code not in (0, NOT_READY)):
            return Verdict.NOT_PROBED, "prior-error", _answered(call, "before the launch")
    # A launch that itself answers a fault reports an earlier kernel's, unless one of its own ran.
    own = any(call.call.startswith(_LAUNCH_CALLS) and not call.code for call in outcome.calls)
    code = outcome.observed.launch_code
    if code in FAULTS and not own:
        return Verdict.NOT_PROBED, "prior-error", f"the launch itself answered {code}"
    return None


def _module(outcome: Outcome, _device: Device) -> _Finding | None:
    """Find a module that did not load, where nothing was launched."""
    if outcome.observed.launch_code is not None or outcome.observed.sync_code is not None:
        return None
    for call in outcome.calls:
        if call.code in MODULE_CAUSES:
            return Verdict.REFUSED, MODULE_CAUSES[call.code], ""
        if call.code and call.call.startswith(_LOAD_CALLS):
            return Verdict.NOT_PROBED, "could-not-run", _answered(call, "before the launch")
    if outcome.status is Status.ERROR:
        for name, key in MODULE_NAMES.items():
            if name in outcome.note:
                return Verdict.REFUSED, key, ""
    return None


def _launch(outcome: Outcome, device: Device) -> _Finding | None:
    """Judge the launch's own code."""
    code = outcome.observed.launch_code
    if code in FAULTS:
        return Verdict.FAULTS, "kernel-fault", f"a later call answered {code}"
    return _refused(code, outcome, device) if code and code != LAUNCH_TIMEOUT else None


def _deadline(outcome: Outcome, _device: Device) -> _Finding | None:
    """Tell a launch that hangs from a probe that was lost before or after it."""
    code = outcome.observed.launch_code or outcome.observed.sync_code
    if code == LAUNCH_TIMEOUT:
        return Verdict.HANGS, "hang", f"the driver ended it with {code}"
    if outcome.status is not Status.TIMEOUT:
        return None
    if outcome.stage in HANG_STAGES:
        return Verdict.HANGS, "hang", ""
    return Verdict.NOT_PROBED, "could-not-run", ""


def _not_launched(outcome: Outcome, device: Device) -> _Finding | None:
    """Judge an outcome without a launch code: a prediction may leave it open."""
    seen, spec = outcome.observed, outcome.spec
    if seen.launch_code is not None or seen.sync_code is not None:
        return None
    if found := _asked_only(outcome, device):
        return found
    if outcome.origin is not Origin.PREDICTED or outcome.status is not Status.PASS:
        failed = next((call for call in outcome.calls if call.code), None)
        return Verdict.NOT_PROBED, "could-not-run", _answered(failed, "") if failed else ""
    if not device.limits.cluster_launch and spec.cluster_attribute:
        return Verdict.REFUSED, "no-cluster-launch", ""
    if hosted_nowhere(outcome):
        return _refused(INVALID_CLUSTER_SIZE, outcome, device)
    return Verdict.UNDETERMINED, "undetermined", ""


def _asked_only(outcome: Outcome, device: Device) -> _Finding | None:
    """Judge by the queries, or by the setter of the bytes, which refuses what a launch would."""
    if is_query(outcome):
        return _queried(outcome, device)
    if outcome.spec.dynamic_smem and failed_setter(outcome, "DYNAMIC_SHARED") == INVALID_VALUE:
        return _refused(INVALID_VALUE, outcome, device)
    return None


def _queried(outcome: Outcome, device: Device) -> _Finding | None:
    """Judge what the device answered to the queries alone: a query is no failed launch."""
    code, active = refusing_code(outcome), outcome.observed.max_active
    if code:
        return _refused(code, outcome, device)
    if active is None:
        return None
    if active:
        return Verdict.NOT_PROBED, None, ""
    return Verdict.UNDETERMINED, "undetermined", NO_ROOM


def _synchronisation(outcome: Outcome, device: Device) -> _Finding | None:
    code = outcome.observed.sync_code
    if not code:
        return None
    if code in FAULTS:
        remark = f"synchronisation answered {code}"
        if expected_cluster(outcome.spec) > 1:
            remark += f"; candidate: {cause('early-exit').sentence}"
        return Verdict.FAULTS, "kernel-fault", remark
    if code in {INVALID_CLUSTER_SIZE, INVALID_VALUE, *LAUNCH_CAUSES}:
        return _refused(code, outcome, device)
    remark = quote(f"synchronisation answered {code}", outcome)
    return Verdict.UNDETERMINED, "undetermined", remark


def _kernel(outcome: Outcome, _device: Device) -> _Finding | None:
    """Judge what the kernel reported and how its result compares."""
    seen = outcome.observed
    # 0 stands for CTAs that did not agree or did not report, which says nothing of the size.
    if seen.cluster_seen and seen.cluster_seen != expected_cluster(outcome.spec):
        remark = f"the kernel saw a cluster of {seen.cluster_seen}"
        return Verdict.WRONG, "cluster-ignored", remark
    if seen.check is not None and seen.check.wrong_rows:
        remark = f"{seen.check.wrong_rows} of {seen.check.rows} rows differ from the oracle"
        return Verdict.WRONG, "wrong-result", remark
    if seen.verified is False or seen.cluster_seen == 0:
        return Verdict.WRONG, "wrong-result", ""
    if outcome.status in (Status.ERROR, Status.FAIL):
        remark = "accepted, but the probe ended without a result"
        return Verdict.UNDETERMINED, "undetermined", remark
    return None


_RULES: tuple[Callable[[Outcome, Device], _Finding | None], ...] = (
    _waived,
    _earlier_error,
    _module,
    _launch,
    _deadline,
    _not_launched,
    _synchronisation,
    _kernel,
)


def _refused(code: int, outcome: Outcome, device: Device) -> _Finding:
    """Find the cause behind a code that a launch was refused with."""
    if code == INVALID_CLUSTER_SIZE:
        key, remark = of_invalid_cluster(outcome, device)
    elif code == INVALID_VALUE:
        key, remark = of_invalid_value(outcome, device)
    elif code == NOT_SUPPORTED and not device.limits.cluster_launch:
        key, remark = "no-cluster-launch", ""
    elif code in LAUNCH_CAUSES:
        key, remark = LAUNCH_CAUSES[code], ""
    else:
        key, remark = "undetermined", quote(f"code {code}", outcome)
    return Verdict.REFUSED, key, remark


def _answered(call: DriverCall, when: str) -> str:
    return f"{call.call} answered {call.code} {call.name} {when}".strip()
