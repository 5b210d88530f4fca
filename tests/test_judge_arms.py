# SPDX-License-Identifier: Apache-2.0
"""Summaries of drives of the top-k arms, from the real policies and plans."""

import re
from collections.abc import Callable, Iterable

import msgspec
import pytest

from devices import CLAIM, LIMITS, THOR
from thorprobe.judge.arms import summarize
from thorprobe.judge.catalogue import cause
from thorprobe.judge.cause import judge
from thorprobe.judge.fail_on import failing
from thorprobe.judge.topology import hosted
from thorprobe.plan import arms as plan
from thorprobe.plan import policy
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.record import Check, Device, LaunchSpec, Observed, Origin, Outcome, Status, Verdict
from thorprobe.summary import ArmRow, ArmsSummary, Document

PARTITION = Device(
    name="NVIDIA H200",
    capability=(9, 0),
    sms=132,
    limits=LIMITS,
    partition="sms=8",
    partition_sms=8,
)
Answer = Callable[[LaunchSpec], Outcome]


def launched(spec: LaunchSpec, **seen: object) -> Outcome:
    """Return a launch that ran and was right, as far as ``seen`` does not say otherwise."""
    work = spec.workload
    right = {
        "launch_code": 0,
        "sync_code": 0,
        "cluster_seen": spec.cluster_size,
        "verified": True,
        "check": Check(oracle="torch.topk", rows=work.rows, wrong_rows=0),
        "time_us": 10.0 + spec.cluster_size if spec.repeats else None,
    }
    return Outcome(
        id=spec.id,
        spec=spec,
        status=Status.PASS,
        origin=Origin.MEASURED,
        observed=Observed(**(right | seen)),
        driver_log=(),
    )


def refused(spec: LaunchSpec) -> Outcome:
    """Return a cluster that no group hosts."""
    return Outcome(
        id=spec.id,
        spec=spec,
        status=Status.PASS,
        origin=Origin.MEASURED,
        observed=Observed(launch_code=912, max_potential=8, max_active=0),
        driver_log=(),
    )


def in_partition(spec: LaunchSpec) -> Outcome:
    """Return what one group of 8 SMs answers."""
    return launched(spec) if spec.cluster_size <= 8 else refused(spec)


def drive(answer: Answer, device: Device = PARTITION, **options: object) -> ArmsSummary:
    """Plan as for cc 11.0, answer every launch, and summarise."""
    asked = ArmsOptions(**({"capability": (11, 0), "repeats": 20} | options))
    probes = plan.plan(asked)
    results = [answer(spec) for spec in plan.specs(probes)]
    policies = [policy.load(name) for name in asked.policies]
    return summarize(probes, results, device, policies, asked.capability, call_site="here")


def arm(summary: ArmsSummary, name: str, row: int) -> ArmRow:
    """Return the arm of a policy that ``row`` takes."""
    return next(
        a
        for a in summary.arms
        if a.policy == name and a.rows[0] <= row and (a.rows[1] is None or row <= a.rows[1])
    )


def test_the_reports_failure_in_one_sentence() -> None:
    """Rows 1-4 are refused with code and cause, the others launch and are right, per policy."""
    summary = drive(in_partition)
    assert summary.finding.startswith(
        "Dispatched as cc 11.0: rows 1-4 take 16 CTAs and are refused: "
        "912 CUDA_ERROR_INVALID_CLUSTER_SIZE (larger than any GPC); "
        "rows 5-32 (e126687a9a) and 5-64 (0.33.0) launch, and thorprobe's kernel is right there ("
    )
    assert summary.finding.endswith(" results checked against torch.topk)")
    assert summary.failing_cluster_sizes == (16,)
    assert summary.call_site == "here"
    assert summary.capability == (11, 0)
    # The rows of both policies, each launch once, at four lengths; those of the stand-in are not.
    rows = 5 + 8 + 9 + 32 + 33 + 33 + 34 + 64
    compared = 4 * (rows - 33)
    assert f"({compared} results" in summary.finding


def test_the_devices_own_dispatch_needs_no_word() -> None:
    """Where the dispatched capability is the device's the finding begins with the rows."""
    summary = drive(in_partition, capability=(9, 0))
    assert summary.capability == PARTITION.capability
    assert summary.finding.startswith("Rows 1-32 (e126687a9a) and 1-64 (0.33.0) launch, and ")


def test_an_arm_row_holds_what_was_asked_and_answered() -> None:
    """A row has its range, footprint, verdict, code and cause, and the compared results."""
    summary = drive(in_partition)
    first, second = arm(summary, "0.33.0", 1), arm(summary, "0.33.0", 34)
    assert (first.rows, first.cluster, first.dynamic_smem) == ((1, 4), 16, 156_416)
    assert (first.verdict, first.code) == (Verdict.REFUSED, 912)
    assert (first.cause, first.checked) == ("larger-than-any-gpc", (0, 0))
    assert (second.rows, second.cluster, second.dynamic_smem) == ((34, 64), 2, 221_952)
    assert (second.verdict, second.code, second.cause) == (Verdict.LAUNCHES, None, None)
    assert second.probed_rows == (34, 64)
    assert second.checked == (4 * (34 + 64), 4 * (34 + 64))
    assert second.oracle == "torch.topk"


def test_the_fastest_size_is_named_at_the_last_row_and_the_whole_length() -> None:
    """The time is the arm's own; the fastest may be another size, and a refused arm has none."""
    summary = drive(in_partition)
    second = arm(summary, "0.33.0", 5)
    assert (second.time_us, second.time_shape, second.fastest) == (18.0, "8 x 65,536", 2)
    first = arm(summary, "0.33.0", 1)
    assert (first.time_us, first.fastest) == (None, 2)
    alone = drive(in_partition, alternatives=False)
    assert arm(alone, "0.33.0", 5).fastest is None


def test_a_wrong_alternative_is_not_the_fastest() -> None:
    """A size that is quick and wrong is never recommended, and counts as failing."""

    def answer(spec: LaunchSpec) -> Outcome:
        if spec.cluster_size == 2 and spec.workload.rows <= 8:
            check = Check(oracle="torch.topk", rows=spec.workload.rows, wrong_rows=1)
            return launched(spec, check=check, verified=False, time_us=0.1)
        return in_partition(spec)

    summary = drive(answer)
    assert arm(summary, "0.33.0", 5).fastest == 4
    assert summary.failing_cluster_sizes == (2, 16)


def test_a_gate_that_lets_failing_rows_through_accepts_falsely() -> None:
    """Both gates admit rows 1-4, which are refused; nothing that launches is shut out."""
    summary = drive(in_partition)
    for name in ("e126687a9a", "0.33.0"):
        assert summary.gates[name].false_accepts == ((1, 4),)
        assert summary.gates[name].false_rejects == ()
        assert summary.gates[name].undetermined == ()


def test_a_gate_that_shuts_out_what_launches_rejects_falsely() -> None:
    """0.29.0 stops at 32 rows, though its kernel's arms for 33-64 launch and are right."""
    summary = drive(in_partition, policies=("0.29.0",))
    assert summary.gates["0.29.0"].false_accepts == ((1, 4),)
    assert summary.gates["0.29.0"].false_rejects == ((33, 64),)
    assert "rows 5-32 launch" in summary.finding
    assert summary.finding.endswith("; gate shut for rows 33-64")


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ({"verified": False}, Verdict.WRONG),
        ({"sync_code": 700}, Verdict.FAULTS),
        ({"verified": None, "check": None, "cluster_seen": None}, Verdict.UNDETERMINED),
    ],
)
def test_the_worst_probe_of_an_arm_is_its_verdict(
    seen: dict[str, object], verdict: Verdict
) -> None:
    """One bad launch among many right ones decides the arm and is kept apart in the gates."""

    def answer(spec: LaunchSpec) -> Outcome:
        bad = (spec.workload.rows, spec.workload.length) == (8, 16_384)
        return launched(spec, **seen) if bad and spec.cluster_size == 8 else in_partition(spec)

    summary = drive(answer, rows=(5, 6, 7, 8))
    row = arm(summary, "0.33.0", 5)
    assert row.verdict is verdict
    assert "the verdict changes within these rows: 5-7 launches, 8 " in row.note
    gate = summary.gates["0.33.0"]
    found = gate.undetermined if verdict is Verdict.UNDETERMINED else gate.false_accepts
    assert found == ((8, 8),)


def test_results_that_are_wrong_are_counted() -> None:
    """The rows that differ from the oracle are in the checked numbers of the arm."""

    def answer(spec: LaunchSpec) -> Outcome:
        rows = spec.workload.rows
        if spec.cluster_size == 4 and rows == 9:
            return launched(spec, check=Check(oracle="torch.topk", rows=9, wrong_rows=2))
        return in_partition(spec)

    row = arm(drive(answer, rows=(9,)), "0.33.0", 9)
    assert (row.verdict, row.cause) == (Verdict.WRONG, "wrong-result")
    assert row.checked == (4 * 7, 4 * 9)
    assert "probed at rows 9 only" in row.note


def test_arms_that_no_probe_reached_are_left_out() -> None:
    """Rows that were not asked have no row, and an unanswered probe is not probed."""
    summary = drive(in_partition, rows=(6,))
    assert {row.rows for row in summary.arms} == {(5, 8)}
    asked = ArmsOptions(capability=(11, 0), rows=(6,), policies=("0.33.0",))
    unanswered = summarize(
        plan.plan(asked), [], PARTITION, [policy.load("0.33.0")], asked.capability
    )
    (row,) = unanswered.arms
    assert (row.verdict, row.cause) == (Verdict.NOT_PROBED, "could-not-run")
    assert unanswered.gates["0.33.0"].undetermined == ((5, 8),)


def test_the_stand_in_is_told_apart_from_upstreams_kernel() -> None:
    """The persistent row is not probed; what stood in for it is in the note and nowhere else."""
    summary = drive(in_partition)
    row = arm(summary, "e126687a9a", 33)
    assert (row.rows, row.path, row.gate) == ((33, None), "persistent", False)
    assert (row.verdict, row.cause, row.code) == (Verdict.NOT_PROBED, None, None)
    assert (row.dynamic_smem, row.checked, row.oracle) == (0, (0, 0), "")
    assert (row.time_us, row.time_shape, row.fastest) == (None, "", None)
    rows = 4 * (33 + 34 + 64 + 65)
    assert row.note == (
        "upstream's persistent_topk was not launched; stand-in without a cluster launched, "
        f"{rows} of {rows} results right; probed at rows 33-34, 64-65 only"
    )
    assert arm(summary, "0.33.0", 65).note.endswith(
        "260 of 260 results right; probed at rows 65 only"
    )


@pytest.mark.parametrize(
    ("seen", "did"),
    [
        ({"launch_code": 1}, "was refused: 1 CUDA_ERROR_INVALID_VALUE (undetermined)"),
        ({"verified": False}, "gave a wrong result, "),
        ({"sync_code": 700}, "faulted, "),
        ({"verified": None, "check": None, "cluster_seen": None}, "left undetermined"),
    ],
)
def test_a_stand_in_that_fails_fails_no_arm(seen: dict[str, object], did: str) -> None:
    """However the stand-in fails, finding, gates, sizes and the next step are as without it."""

    def answer(spec: LaunchSpec) -> Outcome:
        return in_partition(spec) if spec.cluster_attribute else launched(spec, **seen)

    summary, fine = drive(answer), drive(in_partition)
    row = arm(summary, "0.33.0", 65)
    assert row.verdict is Verdict.NOT_PROBED
    assert f"stand-in without a cluster {did}" in row.note
    assert (summary.finding, summary.gates) == (fine.finding, fine.gates)
    assert summary.failing_cluster_sizes == (16,)


def test_an_unanswered_stand_in_has_no_record() -> None:
    """A recording without the stand-in says so, and claims no launch of it."""
    asked = ArmsOptions(capability=(11, 0), rows=(65,), policies=("0.33.0",))
    policies = [policy.load("0.33.0")]
    summary = summarize(plan.plan(asked), [], PARTITION, policies, asked.capability)
    (row,) = summary.arms
    assert row.note.endswith("stand-in without a cluster has no record")


def test_nothing_measured_is_the_finding() -> None:
    """A drive whose every probe was lost says that, and the first note, instead of rows."""

    def answer(spec: LaunchSpec) -> Outcome:
        lost = msgspec.structs.replace(refused(spec), observed=Observed(), note="no compiler")
        return msgspec.structs.replace(lost, status=Status.ERROR)

    summary = drive(answer, rows=(1,), policies=("0.33.0",), capability=(9, 0))
    assert re.fullmatch(
        r"Nothing was measured: \d+ probes ended without an answer \(first: no compiler\)",
        summary.finding,
    )


def test_what_to_do_next_is_about_arms_that_calls_reach() -> None:
    """A refused arm gives the advice, a refused alternative none, a hang of any launch does."""
    assert "launch at most 8 CTAs a cluster" in drive(in_partition).next_action
    own = drive(in_partition, capability=(9, 0))
    assert own.failing_cluster_sizes == (16,)
    assert own.next_action == ""

    def hanging(spec: LaunchSpec) -> Outcome:
        if spec.cluster_size != 2 or spec.workload.rows > 8:
            return in_partition(spec)
        lost = msgspec.structs.replace(refused(spec), observed=Observed(), stage="sync")
        return msgspec.structs.replace(lost, status=Status.TIMEOUT)

    assert drive(hanging, capability=(9, 0)).next_action == cause("hang").next_action


def document(summary: ArmsSummary, results: Iterable[Outcome]) -> Document:
    """Make the document of a drive."""
    return Document(
        command="topk-arms",
        started="2026-11-30T00:00:00Z",
        origin=Origin.MEASURED,
        device=PARTITION,
        results=tuple(judge(o, PARTITION) for o in results),
        summary=summary,
    )


@pytest.mark.parametrize(
    ("capability", "policies", "cluster", "fails"),
    [
        ((11, 0), ("0.33.0",), 16, True),
        ((9, 0), ("0.33.0",), 16, False),
        ((11, 0), ("0.29.0",), 2, False),
    ],
)
def test_fail_on_refused_looks_at_arms_with_an_open_gate(
    capability: tuple[int, int], policies: tuple[str, ...], cluster: int, fails: bool
) -> None:
    """A refused alternative, and an arm behind a shut gate, fail no run; a refused arm does."""

    def answer(spec: LaunchSpec) -> Outcome:
        bad = spec.cluster_attribute and spec.cluster_size == cluster
        return refused(spec) if bad else launched(spec)

    asked = ArmsOptions(capability=capability, policies=policies)
    probes = plan.plan(asked)
    results = [answer(spec) for spec in plan.specs(probes)]
    loaded = [policy.load(name) for name in policies]
    summary = summarize(probes, results, PARTITION, loaded, capability)
    assert cluster in summary.failing_cluster_sizes
    assert bool(failing(document(summary, results), ("refused",))) is fails


def test_shared_memory_is_not_blamed_on_the_cluster() -> None:
    """On a part with 99 KiB every fp32 arm is refused with 1, and the cluster is ruled out."""
    limits = msgspec.structs.replace(LIMITS, max_smem_per_block_optin=101_376)
    device = Device(name="NVIDIA GB10", capability=(12, 1), sms=48, limits=limits)

    def answer(spec: LaunchSpec) -> Outcome:
        if spec.dynamic_smem <= limits.max_smem_per_block_optin:
            return launched(spec)
        seen = Observed(launch_code=1)
        return msgspec.structs.replace(refused(spec), observed=seen)

    summary = drive(answer, device, capability=(12, 1), policies=("e126687a9a",))
    causes = {row.path: row.cause for row in summary.arms}
    assert summary.next_action == cause("smem-over-optin").next_action
    assert causes == {"cooperative": "smem-over-optin", "persistent": None}
    assert summary.gates["e126687a9a"].false_accepts == ((1, 32),)
    assert summary.ruled_out[0].startswith("The cluster: the code is 1")
    assert summary.finding == (
        "Rows 1-32 take 4, 8 and 16 CTAs and are refused: 1 CUDA_ERROR_INVALID_VALUE "
        "(shared memory over the opt-in limit)"
    )
    both = drive(answer, device, capability=(12, 1))
    assert both.finding == (
        "Rows 1-32 (e126687a9a) take 4, 8 and 16 CTAs and are refused: "
        "1 CUDA_ERROR_INVALID_VALUE (shared memory over the opt-in limit); "
        "0.33.0: gate shut for rows 1-64"
    )

    def foretold(spec: LaunchSpec) -> Outcome:
        seen = Observed(launch_code=answer(spec).observed.launch_code)
        return msgspec.structs.replace(
            answer(spec), origin=Origin.PREDICTED, observed=seen, driver_log=None
        )

    assert drive(foretold, device, capability=(12, 1)).finding == both.finding
    assert drive(answer, device, capability=(12, 1), policies=("0.33.0",)).finding == (
        "No cooperative arm was reached; gate shut for rows 1-64"
    )


def test_a_prediction_tells_layout_and_claim_apart() -> None:
    """By the layout rows 1-4 are refused and the rest is open; under the claim it launches."""
    asked = ArmsOptions(capability=(11, 0))
    probes = plan.plan(asked)
    results = []
    for spec in plan.specs(probes):
        for assumes, maps in (((), ((8, 8, 4), (2,) * 10)), ((CLAIM.id,), ((8, 8, 4),))):
            counts = [hosted(groups, spec.cluster_size) for groups in maps]
            code = 0 if min(counts) else None if max(counts) else 912
            seen = Observed(launch_code=code, max_active_range=(min(counts), max(counts)))
            results.append(
                Outcome(
                    id=spec.id + " ".join(assumes),
                    spec=spec,
                    status=Status.PASS,
                    origin=Origin.PREDICTED,
                    observed=seen,
                    assumes=assumes,
                )
            )
    policies = [policy.load(name) for name in asked.policies]
    summary = summarize(probes, results, THOR, policies, (11, 0), admissible={"": 23})
    assert summary.finding == (
        "Rows 1-4 take 16 CTAs and are refused on every "
        "admissible map: 912 CUDA_ERROR_INVALID_CLUSTER_SIZE (larger than any GPC); "
        "rows 5-32 (e126687a9a) and 5-33 (0.33.0) take 4 and 8 CTAs and are undetermined by the "
        "layout; rows 34-64 (0.33.0) launch on every admissible map; "
        "with the published claim largest-cluster-8: "
        "rows 5-32 (e126687a9a) and 5-33 (0.33.0) launch"
    )
    row = arm(summary, "0.33.0", 5)
    assert (row.verdict, row.cause) == (Verdict.UNDETERMINED, "undetermined")
    assert row.under_claims == {CLAIM.id: Verdict.LAUNCHES}
    assert (row.checked, row.oracle, row.time_us) == ((0, 0), "", None)
    assert arm(summary, "0.33.0", 1).under_claims == {CLAIM.id: Verdict.REFUSED}
    assert summary.gates["0.33.0"].undetermined == ((5, 33),)
    assert summary.failing_cluster_sizes == (16,)
    assert summary.settles.startswith("cuOccupancyMaxPotentialClusterSize with the opt-in")
    persistent = arm(summary, "0.33.0", 65)
    assert (persistent.verdict, persistent.under_claims) == (Verdict.NOT_PROBED, {})
    assert "stand-in without a cluster is predicted to launch" in persistent.note
