# SPDX-License-Identifier: Apache-2.0
"""The verdict and the cause of one outcome, for measurements, recordings and predictions alike.

Evidence is weighed in the order in which a driver judges a launch: an earlier error, the module,
block and shared memory, the cluster, then what the kernel did. Shared memory and cluster are never
mixed: the first answers 1, the second 912 (measured on an H200, driver 580, 2026-11-30).
"""

import re

import msgspec

from thorprobe.judge.catalogue import (
    BY_KEY,
    CATALOGUE,
    CONSISTENT,
    REFUSALS,
    SEVERITY,
    Cause,
    cause,
)
from thorprobe.record import (
    MAX_CLUSTER,
    PORTABLE_CLUSTER,
    Device,
    LaunchSpec,
    Origin,
    Outcome,
    Refusal,
    Status,
    Verdict,
)

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

INVALID_VALUE = 1
INVALID_CLUSTER_SIZE = 912
NOT_SUPPORTED = 801
LAUNCH_TIMEOUT = 702
NOT_READY = 600

MODULE_CAUSES = {209: "no-kernel-image", 222: "ptx-too-new", 200: "invalid-image"}
CODE_NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    720: "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    912: "CUDA_ERROR_INVALID_CLUSTER_SIZE",
}
"""Names of the results that the catalogue speaks of, for outcomes without driver calls (CUDA driver
API reference)."""
LAUNCH_CAUSES = {720: "cooperative-too-large", 701: "out-of-resources", **MODULE_CAUSES}
# A compiler front end such as CuPy loads the module itself and leaves the name in its message only.
_MODULE_NAMES = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "no-kernel-image",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "ptx-too-new",
    "CUDA_ERROR_INVALID_IMAGE": "invalid-image",
}
FAULTS = frozenset({214, 700, 710, 714, 715, 716, 717, 718, 719})
"""Results that only a running kernel raises and that stay with its context (CUDA driver API
reference, CUresult)."""

MAX_BLOCK_Z = 64
"""Largest z dimension of a block (CUDA programming guide, compute capabilities table)."""

_LAUNCH_CALLS = ("cuLaunchKernel", "cuGraphLaunch", "cuGraphInstantiate", "cuLaunchCooperative")
_LOAD_CALLS = ("cuModule", "cuLibrary", "cuKernelGetFunction")
_NOISE = re.compile(r"cuGetProcAddress|\breturning\s+\d+\b.*\bfrom\s+\w+", re.IGNORECASE)
# Keyed by words rather than by whole sentences: drivers reword their log between releases.
_LOG_PATTERNS = (
    ("cooperative-too-large", re.compile(r"cooperative", re.IGNORECASE)),
    ("non-portable-not-enabled", re.compile(r"portable", re.IGNORECASE)),
    ("grid-not-divisible", re.compile(r"\bdivi(de|sib)", re.IGNORECASE)),
    (
        "required-cluster-mismatch",
        re.compile(r"cluster.*(match|required)|(match|required).*cluster", re.IGNORECASE),
    ),
    ("shared-memory", re.compile(r"shared\s*mem|\bsmem\b", re.IGNORECASE)),
    ("block-too-large", re.compile(r"\bblock\s*dim|\bthreads\b", re.IGNORECASE)),
    ("grid", re.compile(r"\bgrid\s*dim", re.IGNORECASE)),
)
_CLUSTER_MISUSE = ("required-cluster-mismatch", "non-portable-not-enabled", "grid-not-divisible")
_VALUE_MISUSE = ("block-too-large", "shared-memory", "grid")

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


def expected_cluster(spec: LaunchSpec) -> int:
    """CTAs that the kernel should count in its own cluster, in CTAs.

    Without the attribute a kernel with compiled dimensions still gets those.
    """
    if not spec.cluster_attribute and spec.compiled_cluster:
        return spec.compiled_cluster
    return spec.cluster_size


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
    if not code and failed is not None:
        code = failed.code
    if not code and outcome.cause == "larger-than-any-gpc":
        code = INVALID_CLUSTER_SIZE
    name = next((call.name for call in outcome.calls if call.code == code), "") if code else ""
    if code and not name:
        name = CODE_NAMES.get(code, "")
    return Refusal(code=code or None, name=name, cause=outcome.cause or "undetermined")


def _decide(outcome: Outcome, device: Device) -> _Finding:
    if outcome.status is Status.WAIVED:
        return Verdict.NOT_PROBED, "could-not-run", ""
    before_launch = _before_launch(outcome)
    if before_launch is not None:
        return before_launch
    code = outcome.observed.launch_code
    if code is None and outcome.observed.sync_code:
        code = 0
    if code is None and _hosted_nowhere(outcome) and outcome.origin is Origin.PREDICTED:
        code = INVALID_CLUSTER_SIZE
    if code:
        return _of_launch_code(code, outcome, device)
    if outcome.status is Status.TIMEOUT:
        return Verdict.HANGS, "hang", ""
    if code is None:
        if outcome.origin is Origin.PREDICTED and outcome.status is Status.PASS:
            return Verdict.UNDETERMINED, "undetermined", ""
        for name, key in _MODULE_NAMES.items():
            if name in outcome.note:
                return Verdict.REFUSED, key, ""
        return Verdict.NOT_PROBED, "could-not-run", _first_failure(outcome)
    return _of_run(outcome, device)


def _before_launch(outcome: Outcome) -> _Finding | None:
    """Find an error that the context carried already, or a module that did not load."""
    code = outcome.observed.launch_code
    launched = False
    for call in outcome.calls:
        if call.call.startswith(_LAUNCH_CALLS):
            launched = launched or call.code == 0
            if call.code:
                break
            continue
        if launched or call.code in (0, NOT_READY):
            continue
        answer = f"{call.call} answered {call.code} {call.name} before the launch"
        if call.code in FAULTS or "ynchronize" in call.call or "rror" in call.call:
            return Verdict.NOT_PROBED, "prior-error", answer
        if code is None and call.call.startswith(_LOAD_CALLS):
            if call.code in MODULE_CAUSES:
                return Verdict.REFUSED, MODULE_CAUSES[call.code], ""
            return Verdict.NOT_PROBED, "could-not-run", answer
    # A launch that itself answers a fault reports an earlier kernel's, not its own.
    if code in FAULTS and not launched:
        return Verdict.NOT_PROBED, "prior-error", f"the launch itself answered {code}"
    return None


def _of_launch_code(code: int, outcome: Outcome, device: Device) -> _Finding:
    if code in FAULTS:
        return Verdict.FAULTS, "kernel-fault", f"a later call answered {code}"
    if code == LAUNCH_TIMEOUT:
        return Verdict.HANGS, "hang", f"the driver ended it: {code}"
    if code == INVALID_CLUSTER_SIZE:
        key, remark = _of_invalid_cluster(outcome, device)
    elif code == INVALID_VALUE:
        key, remark = _of_invalid_value(outcome, device)
    elif code == NOT_SUPPORTED and not device.limits.cluster_launch:
        key, remark = "no-cluster-launch", ""
    else:
        key = LAUNCH_CAUSES.get(code, "undetermined")
        remark = "" if code in LAUNCH_CAUSES else _quote(f"launch code {code}", outcome)
    return Verdict.REFUSED, key, remark


def _of_invalid_cluster(outcome: Outcome, device: Device) -> tuple[str, str]:
    spec = outcome.spec
    if not device.limits.cluster_launch:
        return "no-cluster-launch", ""
    size = expected_cluster(spec)
    if size > MAX_CLUSTER:
        return "cluster-over-16", ""
    named, unknown = _read_log(outcome)
    foreign = [key for key in named if key not in _CLUSTER_MISUSE]
    for key in named:
        if key in _CLUSTER_MISUSE:
            return key, ""
    wanted = spec.cluster
    if spec.compiled_cluster:
        compiled = (1, spec.compiled_cluster, 1)
        if spec.cluster_attribute and spec.cluster != compiled:
            return "required-cluster-mismatch", ""
        wanted = compiled
    opted_in = spec.non_portable and not _failed_setter(outcome, "NON_PORTABLE")
    if size > PORTABLE_CLUSTER and not opted_in:
        return "non-portable-not-enabled", ""
    if any(c > 0 and g % c for g, c in zip(spec.grid, wanted, strict=True)):
        return "grid-not-divisible", ""
    if unknown or foreign:
        return "undetermined", _quote("912 with a sentence outside the catalogue", outcome)
    if _hosted_nowhere(outcome):
        return "larger-than-any-gpc", ""
    active = outcome.observed.max_active
    if active is None:
        return "undetermined", "912 with every argument in order; max active clusters not known"
    return "undetermined", f"912 although max active clusters is {active}"


def _of_invalid_value(outcome: Outcome, device: Device) -> tuple[str, str]:
    spec, limits = outcome.spec, device.limits
    x, y, z = spec.block
    too_large = spec.threads > limits.max_threads_per_block or z > MAX_BLOCK_Z
    too_large = too_large or max(x, y) > limits.max_threads_per_block
    facts: list[str] = []
    if too_large:
        facts.append("block-too-large")
    if spec.dynamic_smem > limits.max_smem_per_block_optin:
        facts.append("smem-over-optin")
    elif spec.dynamic_smem and _failed_setter(outcome, "DYNAMIC_SHARED"):
        # Static shared memory counts against the same limit and is not part of the spec.
        facts.append("smem-over-optin")
    elif spec.dynamic_smem > limits.max_smem_per_block and not spec.smem_opt_in:
        facts.append("smem-not-opted-in")
    if 0 in spec.grid:
        facts.append("empty-grid")
    named, unknown = _read_log(outcome)
    named = [key for key in named if key in _VALUE_MISUSE]
    agreed = [fact for fact in facts if any(_same_matter(fact, key) for key in named)]
    if agreed:
        return agreed[0], ""
    if facts:
        return facts[0], ""
    if "block-too-large" in named:
        return "block-too-large", ""
    if "shared-memory" in named and not spec.smem_opt_in:
        return "smem-not-opted-in", ""
    if not device.limits.cluster_launch and expected_cluster(spec) > 1 and not unknown:
        return "no-cluster-launch", ""
    return "undetermined", _quote("1 with every known argument in order", outcome)


def _same_matter(fact: str, named: str) -> bool:
    kin = {"smem-over-optin": "shared-memory", "smem-not-opted-in": "shared-memory"}
    return named == {**kin, "empty-grid": "grid"}.get(fact, fact)


def _of_run(outcome: Outcome, device: Device) -> _Finding:
    """Judge a launch that was accepted by what came after it."""
    seen = outcome.observed
    if seen.sync_code:
        if seen.sync_code in FAULTS or seen.sync_code == LAUNCH_TIMEOUT:
            verdict, key, _ = _of_launch_code(seen.sync_code, outcome, device)
            return verdict, key, f"synchronisation answered {seen.sync_code}"
        if seen.sync_code in {INVALID_CLUSTER_SIZE, INVALID_VALUE, *LAUNCH_CAUSES}:
            return _of_launch_code(seen.sync_code, outcome, device)
        remark = _quote(f"synchronisation answered {seen.sync_code}", outcome)
        return Verdict.UNDETERMINED, "undetermined", remark
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
    return Verdict.LAUNCHES, None, ""


def _hosted_nowhere(outcome: Outcome) -> bool:
    """Say whether no group hosts one cluster, on the device or on every admissible map."""
    seen = outcome.observed
    if seen.max_active is not None:
        return seen.max_active == 0
    return seen.max_active_range is not None and seen.max_active_range[1] == 0


def _read_log(outcome: Outcome) -> tuple[list[str], list[str]]:
    """Sort the driver's sentences into named matters and sentences that match none."""
    named: list[str] = []
    unknown: list[str] = []
    for sentence in outcome.driver_log or ():
        if not sentence.strip() or _NOISE.search(sentence):
            continue
        key = next((key for key, words in _LOG_PATTERNS if words.search(sentence)), None)
        if key is None:
            unknown.append(sentence)
        elif key not in named:
            named.append(key)
    return named, unknown


def _failed_setter(outcome: Outcome, attribute: str) -> bool:
    return any(
        call.code and "SetAttribute" in call.call and attribute in f"{call.call} {call.detail}"
        for call in outcome.calls
    )


def _first_failure(outcome: Outcome) -> str:
    failed = next((call for call in outcome.calls if call.code), None)
    return f"{failed.call} answered {failed.code} {failed.name}" if failed else ""


def _quote(what: str, outcome: Outcome) -> str:
    """Quote the driver's own sentences, or say that there are none."""
    if outcome.driver_log is None:
        return f"{what}; driver log not readable"
    said = [line for line in outcome.driver_log if line.strip() and not _NOISE.search(line)]
    return f"{what}; driver log: " + (" / ".join(said) if said else "silent")
