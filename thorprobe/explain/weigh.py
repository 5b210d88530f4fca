# SPDX-License-Identifier: Apache-2.0
"""Which cause the facts of one launch leave: one, a ranked few with the missing fact, or none.

The order is that of evidence: an earlier error, what a sentence names, what the kernel did, the
module, then the launch, by the table of rules that predictions use.
"""

from collections.abc import Callable, Iterable

from thorprobe.binary.image import choose, parse
from thorprobe.driver.code import (
    FAULTS,
    INVALID_CLUSTER_SIZE,
    LAUNCH_TIMEOUT,
    MODULE_CAUSES,
    NO_BINARY_FOR_GPU,
    NOT_SUPPORTED,
)
from thorprobe.explain.records import Told
from thorprobe.model.launch_facts import volume
from thorprobe.model.launch_rules import BY_CAUSE, COOPERATIVE, RESOURCES, RULES, VALUE
from thorprobe.record import Record

OPTIONS = {
    "dynamic_smem": "smem",
    "limits": "profile",
    "hosted": "max-active",
    "raised": "setter-limit",
}
"""Facts whose option has another name; the others are spelled alike, with dashes."""

RUNTIME_CONFIGURATION, RUNTIME_FUNCTION = 9, 98
"""cudaErrorInvalidConfiguration and cudaErrorInvalidDeviceFunction (CUDA runtime API reference)."""

OPEN = "undetermined"

_COMMON = (
    *("smem-over-optin", "smem-not-opted-in", "smem-limit-lowered"),
    *("larger-than-any-gpc", "non-portable-not-enabled", "grid-not-divisible"),
    *("required-cluster-mismatch", "grid-too-large", "empty-grid", "block-too-large"),
    *("out-of-resources", "cooperative-too-large", "no-cluster-launch", "cluster-over-16"),
)
# Causes of one code, roughly from the most to the least frequent in public reports.

_TRAPS = frozenset({710, 715, 719})


class Weighed(Record, frozen=True, kw_only=True):
    """What the facts leave: ``cause`` is None where nothing is wrong."""

    cause: str | None = None
    candidates: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def weigh(told: Told) -> Weighed:
    """Return the cause that the facts settle, else the candidates and the facts that decide.

    Total: the cause is an entry of the catalogue or None, and ``undetermined`` names what is
    missing.
    """
    for step in _STEPS:
        found = step(told)
        if found is not None:
            return found
    return _of_rules(told, None)


def _earlier(told: Told) -> Weighed | None:
    """Find an error that an earlier call left: sticky, or pending and reported once more."""
    before = told.earlier_code
    if not before:
        return None
    if before in FAULTS or before == (told.code or told.sync_code):
        remark = f"an earlier call of the process had {before} already: explain that one"
        return Weighed(cause="prior-error", remarks=(remark,))
    return None


def _named(told: Told) -> Weighed | None:
    if not told.named:
        return None
    return Weighed(cause=told.named[0], candidates=told.named[1:])


def _of_kernel(told: Told) -> Weighed | None:
    """Judge what the kernel reported of itself, or its result."""
    size, grid = told.launch.size, told.launch.grid
    if told.observed_cluster is not None and size and told.observed_cluster != size:
        remark = f"the kernel saw a cluster of {told.observed_cluster}, not {size}"
        return Weighed(cause="cluster-ignored", remarks=(remark,))
    if told.observed_ctas is not None and grid and told.observed_ctas != volume(grid):
        remark = f"{told.observed_ctas:,} CTAs ran, {volume(grid):,} were meant"
        return Weighed(cause="grid-unit", remarks=(remark,))
    if told.wrong_rows:
        return Weighed(cause="wrong-result")
    return None


def _hang(told: Told) -> Weighed | None:
    """Judge what does not come back, and CTAs that wait for peers that are not resident."""
    facts, code = told.launch, told.code or told.sync_code
    over = None
    if facts.grid is not None and facts.resident is not None:
        over = volume(facts.grid) > facts.resident
    hung = (told.hung or code == LAUNCH_TIMEOUT) and code in (None, 0, LAUNCH_TIMEOUT)
    if over and (hung or (told.waits and not code)) and not facts.cooperative:
        remark = (
            f"{volume(facts.grid or (0, 0, 0)):,} CTAs, of which {facts.resident:,} are resident"
        )
        return Weighed(cause="residency-exceeded", remarks=(remark,))
    if not hung:
        return None
    candidates = ["residency-exceeded"] if over is None else []
    candidates += ["early-exit"] if (facts.size or 1) > 1 else []
    missing = () if over is not None else tuple(_lacking(facts, ("grid", "resident")))
    return Weighed(cause="hang", candidates=tuple(candidates), missing=missing)


def _fault(told: Told) -> Weighed | None:
    code = told.code or told.sync_code
    if code not in FAULTS:
        return None
    candidates = ["early-exit"] if (told.launch.size or 1) > 1 else []
    if code in _TRAPS and not _made_for(told):
        candidates.append("body-without-code")
    missing = ("images",) if code in _TRAPS and told.images is None else ()
    where = "the launch was accepted" if not told.code else "the call that answers it may be later"
    remark = f"{code} is a running kernel's fault, not a refusal: {where}"
    return Weighed(
        cause="kernel-fault", candidates=tuple(candidates), missing=missing, remarks=(remark,)
    )


def _no_image(told: Told) -> Weighed | None:
    """Judge a file that holds no code for the device, as its images or the code say."""
    loads = _loads(told)
    if told.code is None and loads is False:
        return Weighed(cause="no-kernel-image", remarks=(_reason(told),))
    if told.code not in (NO_BINARY_FOR_GPU, RUNTIME_FUNCTION):
        return None
    if loads:
        remark = f"{_reason(told)}: another file, or another library of the name, was loaded"
        return Weighed(
            cause=OPEN,
            candidates=("no-kernel-image",),
            missing=("loaded-file",),
            remarks=(remark,),
        )
    if loads is None and told.code == RUNTIME_FUNCTION:
        found = ("no-kernel-image", "ptx-too-new")
        return Weighed(cause=OPEN, candidates=found, missing=_image_facts(told))
    reasons = (_reason(told),) if loads is False else ()
    missing = _image_facts(told) if loads is None else ()
    return Weighed(cause="no-kernel-image", missing=missing, remarks=reasons)


def _module(told: Told) -> Weighed | None:
    """Judge the other codes of a module that did not load."""
    if told.code not in MODULE_CAUSES:
        return None
    newer = told.ptx_version and told.driver_version and told.ptx_version > told.driver_version
    key = MODULE_CAUSES[told.code]
    return Weighed(cause="ptx-too-new" if newer and key == "invalid-ptx" else key)


def _launch(told: Told) -> Weighed | None:
    """Judge the launch's own code by the rules that answer it."""
    code = told.code if told.code is not None else told.sync_code
    if not code:
        return None if code is None else Weighed(remarks=("the launch was accepted",))
    if code in (COOPERATIVE, RESOURCES):
        return _single(told, code)
    limits = told.launch.limits
    if code == NOT_SUPPORTED and limits is not None and not limits.cluster_launch:
        return Weighed(cause="no-cluster-launch")
    if code in _BY_RULES:
        return _of_rules(told, code, _BY_RULES[code])
    return Weighed(cause=OPEN, missing=("failing-call",), remarks=(f"code {code} is of no launch",))


_BY_RULES: dict[int, tuple[int, ...]] = {
    VALUE: (VALUE,),
    INVALID_CLUSTER_SIZE: (INVALID_CLUSTER_SIZE,),
    RUNTIME_CONFIGURATION: (VALUE, RESOURCES, INVALID_CLUSTER_SIZE),
}
# Codes of a launch that several rules answer. The runtime answers 9 where the driver answers
# another; the same launch gave 1 and 9 under two toolkits (vLLM #46796).

_STEPS: tuple[Callable[[Told], Weighed | None], ...] = (
    _earlier,
    _named,
    _of_kernel,
    _hang,
    _fault,
    _no_image,
    _module,
    _launch,
)


def _single(told: Told, code: int) -> Weighed:
    """Return the one cause of a code; facts that speak against it are told, not believed."""
    rule = next(rule for rule in RULES if rule.code == code)
    fits = rule.holds(told.launch) is False
    remark = "by the facts given it fits: another context or partition may hold SMs"
    return Weighed(
        cause=rule.cause,
        missing=_options(rule.missing(told.launch)),
        remarks=(remark,) if fits else (),
    )


def _of_rules(told: Told, code: int | None, codes: tuple[int, ...] = ()) -> Weighed:
    """Weigh the rules that answer ``codes``, in order; of ``code`` None, a prediction, all."""
    facts, limits = told.launch, told.launch.limits
    asked = [rule for rule in RULES if code is None or rule.code in codes]
    if code == VALUE and limits is not None and not limits.cluster_launch:
        asked.append(BY_CAUSE["no-cluster-launch"])  # Such a device answers 1 to a cluster.
    held = {rule.cause: rule.holds(facts) for rule in asked}
    holding = [key for key, holds in held.items() if holds]
    if holding:
        return Weighed(cause=holding[0], candidates=() if code is None else tuple(holding[1:]))
    ranked = sorted(
        (rule for rule in asked if held[rule.cause] is None),
        key=lambda rule: (_COMMON.index(rule.cause), len(rule.missing(facts))),
    )
    if ranked:
        lacking = (name for rule in ranked for name in rule.missing(facts) or rule.needs[-1:])
        return Weighed(
            cause=OPEN,
            candidates=tuple(rule.cause for rule in ranked),
            missing=_options(dict.fromkeys(lacking)),
        )
    if code is None:
        return Weighed(remarks=("nothing in these facts is refused",))
    found = ("attribute-rejected",) if code == VALUE else ()
    remark = f"{code} with every known argument in order"
    return Weighed(cause=OPEN, candidates=found, missing=("driver-log",), remarks=(remark,))


def _loads(told: Told) -> bool | None:
    if told.images is None or told.capability is None:
        return None
    return bool(choose(told.images, told.capability).target)


def _reason(told: Told) -> str:
    return choose(told.images or (), told.capability or (0, 0)).reason


def _made_for(told: Told) -> bool:
    """Say whether the file holds an image of exactly the device's own capability."""
    targets = [parse(name) for name in told.images or ()]
    return any(t is not None and not t.ptx and t.capability == told.capability for t in targets)


def _image_facts(told: Told) -> tuple[str, ...]:
    lacking = [] if told.images is not None else ["images"]
    return (*lacking, *(() if told.capability is not None else ("profile",)))


def _lacking(facts: object, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(facts, name) is None]


def _options(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(OPTIONS.get(name, name.replace("_", "-")) for name in names)
