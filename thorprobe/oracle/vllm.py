# SPDX-License-Identifier: Apache-2.0
"""What vLLM's selection does on a device, as far as evidence of its arms says: rules V1 to V6.

Evidence of its arms can show that it is blocked; that it runs it cannot show, and no rule of these
says so. What its engine did is asked before (``oracle_engine``).
"""

from collections.abc import Iterable, Sequence

from thorprobe.judge.catalogue import BY_KEY, FAILING
from thorprobe.judge.cause import CODE_NAMES
from thorprobe.judge.finding import code_text
from thorprobe.judge.ranges import span, spans
from thorprobe.oracle.findings import Finding
from thorprobe.oracle.fleet import Candidate, FleetDevice
from thorprobe.oracle.records import BlockedArm, Gateable, OracleStatus
from thorprobe.plan import gate as gates
from thorprobe.plan.gate import AuditGate
from thorprobe.plan.policy import Capability, Policy
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Origin, Record, Verdict
from thorprobe.summary import ArmRow, Refusal

PERSISTENT = "persistent_topk"


class Ruling(Record, frozen=True, kw_only=True):
    """What one rule says of a candidate on a device."""

    rule: str
    status: OracleStatus
    reason: str
    gateable: Gateable = Gateable.UNMEASURED
    origin: Origin | None = None
    arm: BlockedArm | None = None
    because: tuple[str, ...] = ()


class Paths(Record, frozen=True, kw_only=True):
    """Where a candidate's gate sends the arms of a device.

    ``either`` are those that a gate which asks the device sends to one or the other, and nothing
    says to which.
    """

    cluster: tuple[Finding, ...] = ()
    persistent: tuple[Finding, ...] = ()
    either: tuple[Finding, ...] = ()


def rule(
    candidate: Candidate,
    device: FleetDevice,
    policy: Policy,
    told: Sequence[Finding],
    capability: Capability,
) -> Ruling:
    """Return what the first rule that fits says; ``told`` are the arms in order of their rows.

    ``capability`` is the device's, empty ``told`` aside.
    """
    if not told:
        return Ruling(
            rule="V1",
            status=OracleStatus.NOT_ESTABLISHED,
            reason=f"no evidence of the arms of {policy.version}",
        )
    gate = gates.load(candidate.gate) if candidate.gate else None
    paths = sent(policy, gate, told, capability)
    failing = [one for one in paths.cluster if _carries_over(one.arm)]
    if failing:
        return _failing(candidate, device, policy, failing)
    unknown = [one for one in paths.cluster if one.arm.verdict is not Verdict.LAUNCHES]
    if unknown:
        return _unknown(unknown)
    if not any(one.arm.rows[0] == 1 for one in paths.cluster):
        return _persistent(paths, told)
    return _launching(paths.cluster, told)


def sent(
    policy: Policy,
    gate: AuditGate | None,
    told: Iterable[Finding],
    capability: Capability,
) -> Paths:
    """Return where the policy's own gate, or ``gate`` in its place, sends each cooperative arm.

    A gate that asks for max_active_clusters keeps away rows whose cluster cannot be resident.
    """
    bounds = (gate.effective() if gate else policy).gate
    asks = gate is not None and gate.asks_occupancy
    shut = capability[0] * 10 in bounds.excluded_families
    if bounds.min_capability is not None:
        shut = shut or capability < bounds.min_capability
    cluster, persistent, either = [], [], []
    for one in told:
        arm = one.arm
        if arm.path != "cooperative":
            continue
        if shut or arm.rows[0] > bounds.rows or (asks and arm.verdict is Verdict.REFUSED):
            persistent.append(one)
        elif asks and arm.verdict is Verdict.UNDETERMINED:
            either.append(one)
        else:
            cluster.append(one)
    return Paths(cluster=tuple(cluster), persistent=tuple(persistent), either=tuple(either))


def _carries_over(arm: ArmRow) -> bool:
    """Say whether a failure is one of upstream's kernel too: of the stand-in's only a refusal."""
    return arm.verdict in (FAILING if is_shipped(arm.kernel) else (Verdict.REFUSED,))


def _failing(
    candidate: Candidate, device: FleetDevice, policy: Policy, failing: Sequence[Finding]
) -> Ruling:
    worst = failing[0]
    arm = worst.arm
    what = f"{_arms(failing)}: {_answer(arm)}, {worst.origin.value}"
    unsure = policy.gate.not_established
    opened = [gate.source for gate in candidate.gate_open if gate.device == device.name]
    if unsure and not opened:
        return Ruling(
            rule="V3",
            status=OracleStatus.NOT_ESTABLISHED,
            reason=f"blocked if the gate lets these rows through: {what}; not established of this "
            f"version: {', '.join(unsure)}",
            origin=worst.origin,
            because=_because(failing),
        )
    decode = (
        "; the decode of one request is among these rows, so the model does not run there"
        if arm.rows[0] == 1
        else "; a step with these rows dies"
    )
    gate = f"; that the gate lets them through is published: {opened[0]}" if unsure else ""
    predicted = worst.origin is Origin.PREDICTED
    return Ruling(
        rule="V2",
        status=OracleStatus.BLOCKED,
        reason=f"blocked at {what}{decode}{gate}",
        gateable=Gateable.NO_PREDICTED if predicted else Gateable.NO,
        origin=worst.origin,
        arm=BlockedArm(rows=arm.rows, cluster=arm.cluster, code=arm.code, cause=arm.cause),
        because=_because(failing),
    )


def _unknown(unknown: Sequence[Finding]) -> Ruling:
    words = "; ".join(f"{_arms([one])} {_open_answer(one.arm)}" for one in unknown)
    return Ruling(
        rule="V4",
        status=OracleStatus.NOT_ESTABLISHED,
        reason=words,
        origin=unknown[0].origin if any(one.because for one in unknown) else None,
        because=_because(unknown),
    )


def _persistent(paths: Paths, told: Sequence[Finding]) -> Ruling:
    parts = []
    if paths.persistent:
        parts.append(f"the gate sends rows {_rows(paths.persistent)} to {PERSISTENT}")
    if paths.either:
        parts.append(
            f"it sends rows {_rows(paths.either)} to a cluster or there, as it is answered"
        )
    seen = [one for one in told if one.arm.path != "cooperative" and _launches(one)]
    only = f"was launched at rows {_rows(seen)} only" if seen else "was not launched"
    parts.append(
        f"the decode of one request depends on {PERSISTENT}, and upstream's kernel of it {only}"
    )
    lost = [one for one in paths.persistent if _launches(one)]
    if lost:
        parts.append(f"rows {_rows(lost)} would launch and are kept away")
    return Ruling(
        rule="V5",
        status=OracleStatus.NOT_PROBED,
        reason="; ".join(parts),
        origin=_weakest(told),
        because=_because(told),
    )


def _launching(reached: Sequence[Finding], told: Sequence[Finding]) -> Ruling:
    origin = _weakest(reached)
    stand_in = not all(is_shipped(one.arm.kernel) for one in reached)
    how = ", with thorprobe's kernel standing in" if stand_in else ""
    results = "vLLM's own results are not measured here"
    if not stand_in:
        right, compared = (sum(one.arm.checked[i] for one in reached) for i in (0, 1))
        results = (
            f"the shipped kernel is right in {right:,} of {compared:,} results; vLLM itself was "
            "not run"
        )
    rest = [one for one in told if one not in reached]
    seen = "launches" if all(map(_launches, rest)) else "was not launched"
    other = f"; rows {_rows(rest)} go to {PERSISTENT}, which {seen}" if rest else ""
    return Ruling(
        rule="V6",
        status=OracleStatus.NOT_ESTABLISHED,
        reason=f"arms launch, rows {_rows(reached)} ({origin.value}{how}); {results}{other}",
        origin=origin,
        because=_because(reached),
    )


def _launches(one: Finding) -> bool:
    return one.arm.verdict is Verdict.LAUNCHES


def _weakest(told: Iterable[Finding]) -> Origin:
    origins = {one.origin for one in told if one.because}
    order = (Origin.PREDICTED, Origin.RECORDED, Origin.MEASURED)
    return next((origin for origin in order if origin in origins), Origin.PREDICTED)


def _because(told: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(sorted({name for one in told for name in one.because}))


def _rows(told: Iterable[Finding]) -> str:
    return spans({one.arm.rows for one in told})


def _arms(told: Sequence[Finding]) -> str:
    parts = [f"rows {span(*one.arm.rows)} ({one.arm.cluster} CTAs)" for one in told]
    return ", ".join(parts)


def _answer(arm: ArmRow) -> str:
    if arm.verdict is not Verdict.REFUSED:
        return arm.verdict.value
    named = Refusal(
        code=arm.code, name=CODE_NAMES.get(arm.code or 0, ""), cause=arm.cause or "undetermined"
    )
    return f"refused with {code_text(named, with_cause=True)}"


def _open_answer(arm: ArmRow) -> str:
    if arm.verdict in FAILING:
        why = BY_KEY[arm.cause].name if arm.cause in BY_KEY else arm.verdict.value
        return f"went wrong in thorprobe's own kernel ({why}), which says nothing of upstream's"
    claims = [f"{name}: {verdict.value}" for name, verdict in arm.under_claims.items()]
    published = f" (with the published claim {', '.join(claims)})" if claims else ""
    return (
        f"{'were' if arm.verdict is Verdict.NOT_PROBED else 'are'} {arm.verdict.value}{published}"
    )
