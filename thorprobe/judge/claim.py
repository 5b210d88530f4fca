# SPDX-License-Identifier: Apache-2.0
"""Which published claims a run confirms, contradicts or leaves open.

Only what was measured counts: a prediction confirms nothing, and a partition says nothing of the
clusters of the whole device. A value that was not asked leaves the claim open.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from thorprobe.judge.catalogue import cause as catalogue_cause
from thorprobe.judge.cause import settled
from thorprobe.judge.claim_records import ClaimResult, ReportedResult, Standing
from thorprobe.plan.claim import Predicate, PublishedClaim, Quantity
from thorprobe.plan.reported import ReportedRun
from thorprobe.record import MAX_CLUSTER, PORTABLE_CLUSTER, Origin, Outcome, Verdict
from thorprobe.summary import Document, SweepSummary

TOO_LARGE = catalogue_cause("larger-than-any-gpc").key

_OF_CLUSTER = (TOO_LARGE, catalogue_cause("non-portable-not-enabled").key)

IN_A_PART = "measured in a part"
"""How a reason starts that a partition or MIG slice is not the whole device."""

_LIMITS: Mapping[Quantity, Callable[[Document], int]] = {
    Quantity.SMS: lambda d: d.device.sms,
    Quantity.SMEM_OPTIN: lambda d: d.device.limits.max_smem_per_block_optin,
    Quantity.SMEM_PER_SM: lambda d: d.device.limits.max_smem_per_sm,
    Quantity.THREADS_PER_SM: lambda d: d.device.limits.max_threads_per_sm,
    Quantity.REGISTERS_PER_SM: lambda d: d.device.limits.registers_per_sm,
}

_SEEN: Mapping[Quantity, Callable[[Outcome], int | None]] = {
    Quantity.MAX_ACTIVE: lambda o: o.observed.max_active,
    Quantity.CLUSTER_SEEN: lambda o: o.observed.cluster_seen,
    Quantity.LAUNCH_CODE: lambda o: o.observed.launch_code,
}

_Told = tuple[Standing, str]
"""How one predicate stands, and what was observed or why it is open."""


def weigh(
    claims: Iterable[PublishedClaim], subject: str, document: Document
) -> tuple[ClaimResult, ...]:
    """Hold every claim against one run; ``subject`` names it."""
    return tuple(_weigh(claim, subject, document) for claim in claims)


def weigh_reported(
    runs: Iterable[ReportedRun], subject: str, document: Document
) -> tuple[ReportedResult, ...]:
    """Hold the reported runs on such a device against one run, those it contradicts first."""
    found = [
        ReportedResult(
            subject=subject,
            run=result.claim,
            standing=result.standing,
            observed=result.observed,
            reason=result.reason,
        )
        for result in weigh((run.as_claim() for run in runs if run.says), subject, document)
        if result.about
    ]
    return tuple(sorted(found, key=lambda r: r.standing is not Standing.CONTRADICTED))


def _weigh(claim: PublishedClaim, subject: str, document: Document) -> ClaimResult:
    about = claim.device.fits(document.device)
    if not about:
        told: list[_Told] = [(Standing.OPEN, f"of another device ({claim.device.text})")]
    elif document.origin is Origin.PREDICTED:
        told = [(Standing.OPEN, "a prediction confirms nothing")]
    else:
        told = [_of(said, document) for said in claim.says]
    standings = [standing for standing, _ in told]
    texts = list(dict.fromkeys(text for _, text in told))
    if Standing.CONTRADICTED in standings:
        standing = Standing.CONTRADICTED
        texts = [text for found, text in told if found is standing]
    elif Standing.OPEN in standings:
        standing = Standing.OPEN
        texts = list(dict.fromkeys(text for found, text in told if found is standing))
    else:
        standing = Standing.CONFIRMED
    is_open = standing is Standing.OPEN
    return ClaimResult(
        id=f"{subject}/{claim.id}",
        subject=subject,
        claim=claim.id,
        standing=standing,
        about=about,
        observed="" if is_open else "; ".join(texts),
        reason="; ".join(texts) if is_open else "",
    )


def _of(said: Predicate, document: Document) -> _Told:
    quantity, device = said.quantity, document.device
    if quantity in _LIMITS:
        return _compared(said, _LIMITS[quantity](document))
    if device.partition or "MIG" in device.name.split():
        return Standing.OPEN, f"{IN_A_PART} of {device.available_sms} SMs only"
    return _of_clusters(said, document)


def _of_clusters(said: Predicate, document: Document) -> _Told:
    quantity = said.quantity
    if quantity is Quantity.LARGEST_CLUSTER:
        return _largest(said, document)
    if quantity is Quantity.LARGEST_GROUP:
        return _compared(said, _largest_group(document))
    outcomes = _asked(said, document)
    if quantity is Quantity.LAUNCHES:
        return _launches(said, outcomes)
    return _compared(said, _one(_SEEN[quantity](o) for o in outcomes))


def _largest_group(document: Document) -> int | None:
    summary = document.summary
    solved = summary.gpc_map.solved if isinstance(summary, SweepSummary) else None
    return solved[0] if solved else None


def _compared(said: Predicate, value: int | None) -> _Told:
    if value is None:
        return Standing.OPEN, f"no one answer to {said.quantity.value}{_where(said)} was recorded"
    holds = {
        "equal to": value == said.value,
        "at least": value >= said.value,
        "at most": value <= said.value,
    }
    standing = Standing.CONFIRMED if holds[said.relation] else Standing.CONTRADICTED
    return standing, f"{said.quantity.value}{_where(said)} is {value:,}"


def _where(said: Predicate) -> str:
    return f" at cluster {said.cluster}" if said.cluster else ""


def _largest(said: Predicate, document: Document) -> _Told:
    """Compare the largest size that launches; a size that was not asked leaves it open."""
    launched, refused = _sizes(document)
    value, above = int(said.value), range(int(said.value) + 1, MAX_CLUSTER + 1)
    larger = [size for size in launched if size > value]
    told = f"{max(launched)} CTAs launch" if launched else "no size is known to launch"
    none_above = bool(above) and all(size in refused for size in above)
    no_value = all(size in refused for size in range(value, MAX_CLUSTER + 1))
    if said.relation != "at least" and larger:
        return Standing.CONTRADICTED, told
    if said.relation != "at most" and no_value:
        return Standing.CONTRADICTED, f"{told}, {value} to {MAX_CLUSTER} are refused"
    if said.relation == "at least" and (value in launched or larger):
        return Standing.CONFIRMED, told
    if said.relation == "at most" and none_above:
        return Standing.CONFIRMED, told
    if said.relation == "equal to" and value in launched and (none_above or not above):
        return Standing.CONFIRMED, told
    asked = "no larger size is asked" if not above else "not every size that decides it was asked"
    return Standing.OPEN, f"{told}; {asked}"


def _sizes(document: Document) -> tuple[set[int], set[int]]:
    """Return the sizes that launch, and those refused because no group of SMs hosts them."""
    launched, refused = set(), set()
    for outcome in _cluster_alone(document):
        size = outcome.spec.cluster_size
        if settled(outcome) is Verdict.LAUNCHES:
            launched.add(size)
        elif outcome.verdict is Verdict.REFUSED and outcome.cause == TOO_LARGE:
            refused.add(size)
    return launched, refused


def _launches(said: Predicate, outcomes: Sequence[Outcome]) -> _Told:
    found: set[bool] = set()
    for outcome in outcomes:
        verdict = settled(outcome)
        if verdict in (Verdict.LAUNCHES, Verdict.REFUSED):
            found.add(verdict is Verdict.LAUNCHES)
    if len(found) != 1:
        return Standing.OPEN, f"no one answer to launches{_where(said)} was recorded"
    launches = found.pop()
    standing = Standing.CONFIRMED if launches == said.value else Standing.CONTRADICTED
    opt_in = "" if said.opt_in else " without the opt-in"
    does = "launches" if launches else "is refused"
    return standing, f"a cluster of {said.cluster}{opt_in} {does}"


def _asked(said: Predicate, document: Document) -> list[Outcome]:
    """Return the launches that a claim about one size is about."""
    if said.quantity is Quantity.MAX_ACTIVE:
        found = _one_cta_per_sm(document)
    elif said.dynamic_smem:
        found = [
            o
            for o in document.results
            if o.spec.kernel != "trivial" and o.spec.dynamic_smem == said.dynamic_smem
        ]
    else:
        found = _cluster_alone(document)
    needs = said.cluster > PORTABLE_CLUSTER or not said.opt_in
    return [
        o
        for o in found
        if o.spec.cluster_size == said.cluster
        and o.spec.cluster_attribute
        and not o.spec.spin_cycles
        and (not needs or o.spec.non_portable == said.opt_in)
    ]


def _cluster_alone(document: Document) -> list[Outcome]:
    """Return the launches of the trivial kernel with the least shared memory.

    Where it was not asked, what other kernels say of the cluster: those that launch, and those
    refused for the cluster itself.
    """
    asked = [o for o in document.results if not o.spec.spin_cycles and not o.assumes]
    own = [o for o in asked if o.spec.kernel == "trivial"]
    if not own:
        return [o for o in asked if settled(o) is Verdict.LAUNCHES or o.cause in _OF_CLUSTER]
    least = min(o.spec.dynamic_smem for o in own)
    return [o for o in own if o.spec.dynamic_smem == least]


def _one_cta_per_sm(document: Document) -> list[Outcome]:
    """Return the launches of footprints of which an SM holds one CTA."""
    full = {
        o.spec.footprint
        for o in document.results
        if o.spec.cluster_size == 1 and o.observed.max_active == document.device.available_sms
    }
    return [o for o in document.results if o.spec.footprint in full]


def _one(values: Iterable[int | None]) -> int | None:
    """Return the one value that all answers have, None where they differ or there is none."""
    found = set(values) - {None}
    return found.pop() if len(found) == 1 else None
