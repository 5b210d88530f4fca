# SPDX-License-Identifier: Apache-2.0
"""The audit of the gates: what each decides wrongly on each device, why, and what it costs."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from thorprobe.audit import answer as auditing
from thorprobe.audit.finding import labels_text
from thorprobe.audit.judge import AuditedGate, audit
from thorprobe.audit.records import Decision, Finding
from thorprobe.errors import UsageError
from thorprobe.plan import gate as gates
from thorprobe.plan.policy import load as load_policy
from thorprobe.record import DriverCall, Origin, Verdict

REPORTS = Path(__file__).parents[1] / "reports"
STORES = {
    "full": "h200-full-arms",
    "sms8": "h200-sms8-arms-as-11.0",
    "sms24": "h200-sms24-arms-as-11.0",
    "shipped-full": "h200-full-shipped-arms",
    "shipped-sms8": "h200-sms8-shipped-arms-as-11.0",
    "shipped-sms24": "h200-sms24-shipped-arms-as-11.0",
}
SHIPPED = ("shipped-sms8", "shipped-sms24")
PARTITIONS = ("sms8", "sms24")
EIGHT = "largest-cluster-8"
NONE_WRONG = [[], [], [], []]
"""False accepts, false rejects, undetermined rows, and rows that the device decides."""


@cache
def party(name):
    """Return a profile by the model, or a committed store."""
    if name in STORES:
        return auditing.of_store(REPORTS / f"{STORES[name]}.jsonl")
    return auditing.of_profile(name)


def judged(name, gate, results=None):
    """Audit one gate on one subject, with other results than its own if they are given."""
    found, loaded = party(name), gates.load(gate)
    document = found.document
    if results is not None:
        document = msgspec.structs.replace(document, results=tuple(results))
    contender = AuditedGate(gate=loaded, policy=loaded.effective())
    return audit(contender, found.subject, document)


def summary(names, wanted=gates.DEFAULT, sources=None):
    """Audit these gates on these subjects."""
    return auditing.audit([party(name) for name in names], wanted, sources).summary


@pytest.mark.parametrize(
    ("subject", "gate", "wrong"),
    [
        ("thor", "e126687a9a", [[(1, 4)], [], [(5, 32)], []]),
        ("thor", "0.29.0", [[(1, 4)], [(34, 64)], [(5, 33)], []]),
        ("thor", "0.33.0", [[(1, 4)], [], [(5, 33)], []]),
        ("thor", "pr-56084", [[], [(34, 64)], [(5, 33)], []]),
        ("thor", "pr-56102", [[], [(34, 64)], [(5, 33)], []]),
        ("thor", "occupancy", [[], [], [], [(5, 33)]]),
        ("thor", "step-down", [[], [], [], [(1, 33)]]),
        ("h200", "0.29.0", [[], [(33, 64)], [], []]),
        *(("h200", gate, NONE_WRONG) for gate in gates.DEFAULT),
        ("gb10", "e126687a9a", [[(1, 32)], [], [], []]),
        *(("gb10", gate, NONE_WRONG) for gate in gates.DEFAULT[1:]),
        *(("full", gate, NONE_WRONG) for gate in gates.DEFAULT),
        *(("shipped-full", gate, NONE_WRONG) for gate in gates.DEFAULT),
        *((part, "0.33.0", [[(1, 4)], [], [], []]) for part in SHIPPED),
        *((part, "pr-56102", [[], [(5, 64)], [], []]) for part in SHIPPED),
        *((part, "step-down", NONE_WRONG) for part in SHIPPED),
        *((part, "e126687a9a", [[(1, 4)], [], [], []]) for part in PARTITIONS),
        *((part, "0.29.0", [[(1, 4)], [(33, 64)], [], []]) for part in PARTITIONS),
        *((part, "0.33.0", [[(1, 4)], [], [], []]) for part in PARTITIONS),
        *((part, "pr-56084", [[], [(5, 64)], [], []]) for part in PARTITIONS),
        *((part, "pr-56102", [[], [(5, 64)], [], []]) for part in PARTITIONS),
        *((part, "occupancy", NONE_WRONG) for part in PARTITIONS),
        *((part, "step-down", NONE_WRONG) for part in PARTITIONS),
    ],
)
def test_what_each_gate_decides_wrongly(subject, gate, wrong):
    """Rows let through and kept out wrongly, those open, and those that only the device decides."""
    _, found = judged(subject, gate)
    told = (found.false_accepts, found.false_rejects, found.undetermined, found.on_device)
    assert [list(rows) for rows in told] == wrong


@pytest.mark.parametrize(
    ("gate", "accepts", "rejects"),
    [
        ("0.33.0", [(1, 4)], []),
        ("pr-56084", [], [(5, 64)]),
        ("occupancy", [], []),
        ("step-down", [], []),
    ],
)
def test_the_published_claim_settles_thor_the_other_way(gate, accepts, rejects):
    """With the claim that 8 CTAs are Thor's largest no row is left open on it."""
    _, found = judged("thor", gate)
    under = found.under_claims[EIGHT]
    assert (list(under.false_accepts), list(under.false_rejects)) == (accepts, rejects)
    assert under.undetermined == ()


def test_sm12x_is_refused_for_shared_memory_and_never_for_the_cluster():
    """On GB10 every fp32 arm answers 1 for shared memory; 912 and the cluster are not among it."""
    for gate in gates.names():
        result, _ = judged("gb10", gate)
        assert result.ranges
        for part in result.ranges:
            assert part.verdict is Verdict.REFUSED
            assert (part.cause, part.code) == ("smem-over-optin", 1)
    found = summary(["gb10", "thor"])
    assert set(found.causes["gb10"]) == {"smem-over-optin"}
    assert set(found.causes["thor"]) == {"larger-than-any-gpc"}
    assert found.causes["gb10"]["smem-over-optin"].clusters == (2, 4, 8, 16)
    assert found.causes["thor"]["larger-than-any-gpc"].clusters == (16,)


@pytest.mark.parametrize("part", PARTITIONS)
def test_a_step_down_serves_the_rows_whose_own_size_is_refused(part):
    """Rows 1-4 take 8 CTAs where 16 are not resident, and the launch is right."""
    result, _ = judged(part, "step-down")
    first = result.ranges[0]
    assert (first.rows, first.dispatched, first.cluster) == ((1, 4), 16, 8)
    assert (first.decision, first.verdict) == (Decision.OPEN, Verdict.LAUNCHES)
    assert first.checked == (5, 5)


@pytest.mark.parametrize("name", [*STORES, "h200", "thor", "gb10"])
def test_asking_the_device_agrees_with_every_launch(name):
    """Where the query was answered, it is above 0 exactly where the launch goes through."""
    for outcome in party(name).document.results:
        seen, spec = outcome.observed, outcome.spec
        asked = spec.cluster_attribute and seen.max_active is not None
        if asked and outcome.verdict in (Verdict.LAUNCHES, Verdict.REFUSED):
            assert bool(seen.max_active) == (outcome.verdict is Verdict.LAUNCHES), outcome.id


def test_a_condition_that_is_not_established_is_named_beside_a_false_accept():
    """At e126687a9a the family exclusion is unknown, and its false accepts say so."""
    _, early = judged("gb10", "e126687a9a")
    assert "excluded family" in early.unestablished
    _, late = judged("thor", "0.33.0")
    assert late.unestablished == ()
    finding = summary(["gb10"], ["e126687a9a"]).finding
    assert "as far as its conditions are established" in finding


def test_a_wrong_result_is_no_false_reject_and_is_a_false_accept():
    """A gate that keeps rows from a kernel that errs is right, and one that lets them is not."""
    results = [
        msgspec.structs.replace(o, verdict=Verdict.WRONG, cause="wrong-result")
        if o.spec.cluster_size == 8 and o.spec.cluster_attribute
        else o
        for o in party("sms8").document.results
    ]
    _, shut = judged("sms8", "pr-56084", results)
    assert shut.false_rejects == ((9, 64),)
    _, opened = judged("sms8", "0.33.0", results)
    assert opened.false_accepts == ((1, 8),)


def test_rows_without_a_launch_are_undetermined():
    """Evidence that lacks an arm leaves its rows open for every gate, and guesses nothing."""
    results = [o for o in party("sms8").document.results if o.spec.cluster_size != 4]
    for gate in ("0.33.0", "pr-56084", "occupancy", "step-down"):
        result, found = judged("sms8", gate, results)
        assert (9, 33) in found.undetermined
        assert Finding.UNDETERMINED in {part.finding for part in result.ranges}


def test_a_query_without_an_answer_leaves_an_asking_gate_undetermined():
    """A recording without max_active says nothing of a gate that asks for it."""
    results = [
        msgspec.structs.replace(o, observed=msgspec.structs.replace(o.observed, max_active=None))
        for o in party("sms8").document.results
    ]
    result, found = judged("sms8", "occupancy", results)
    assert found.undetermined == ((1, 64),)
    assert {part.decision for part in result.ranges} == {Decision.UNKNOWN}


def test_a_setter_that_fails_shuts_an_asking_gate():
    """A failing shared-memory setter keeps the rows out, whatever the occupancy says."""
    setter = DriverCall(
        call="cuFuncSetAttribute", code=1, name="CUDA_ERROR_INVALID_VALUE", sentence="no"
    )
    results = [msgspec.structs.replace(o, calls=(setter,)) for o in party("sms8").document.results]
    result, _ = judged("sms8", "occupancy", results)
    assert {part.decision for part in result.ranges} == {Decision.SHUT}


def test_a_verdict_that_changes_within_an_arm_splits_its_rows():
    """Rows 9 and 33 of one arm with different verdicts are two ranges."""
    results = [
        msgspec.structs.replace(o, verdict=Verdict.REFUSED, cause="larger-than-any-gpc")
        if o.spec.cluster_size == 4 and o.spec.workload.rows == 9
        else o
        for o in party("sms24").document.results
    ]
    _, found = judged("sms24", "0.33.0", results)
    assert found.false_accepts == ((1, 4), (9, 9))


@pytest.mark.parametrize(
    ("part", "rows", "times"),
    [
        ("sms24", 8, (8, 28.8, 2, 15.7, 104.0)),
        ("sms24", 32, (4, 62.4, 2, 41.3, 183.0)),
        ("sms8", 32, (4, 169.0, 2, 112.0, 409.0)),
    ],
)
def test_what_a_fix_throws_away_of_upstreams_kernel(part, rows, times):
    """The recorded time of the lost arm, of the best size, and of torch.topk, with the source."""
    (cost,) = [c for c in summary([part]).costs if "vLLM" in c.kernel and c.rows == rows]
    assert (cost.cluster, cost.arm_us, cost.best_cluster, cost.best_us, cost.other_us) == times
    assert set(cost.gates) == {"pr-56084", "pr-56102"}
    assert "torch.topk" in cost.other
    assert (cost.origin, "H200" in cost.source) == (Origin.RECORDED, True)


@pytest.mark.parametrize("part", PARTITIONS)
def test_what_a_fix_throws_away_of_thorprobes_kernel(part):
    """At every row count that the stand-in was timed at, the arm's time is the store's own."""
    times = {
        (o.spec.workload.rows, o.spec.cluster_size if o.spec.cluster_attribute else 0): (
            o.observed.time_us
        )
        for o in party(part).document.results
        if o.observed.time_us
    }
    found = [c for c in summary([part]).costs if "thorprobe" in c.kernel]
    assert [c.rows for c in found] == [33, 34, 64]
    for cost in found:
        assert cost.arm_us == times[cost.rows, cost.cluster]
        assert cost.other_us == times[cost.rows, 0]
        assert cost.best_us == min(
            us for (rows, size), us in times.items() if rows == cost.rows and size
        )
        assert set(cost.gates) == {"pr-56084", "pr-56102"}


def test_times_of_a_shipped_kernel_are_not_called_thorprobes():
    """A store of a shipped kernel has that kernel's label at its times, and the least k of it."""
    told = {(cost.kernel, cost.k) for part in SHIPPED for cost in summary([part]).costs}
    assert ("shipped cooperative_topk<512>@4fea76bea9df", 512) in told
    assert not [kernel for kernel, _ in told if "thorprobe" in kernel]
    assert {k for _, k in told} == {512}


@pytest.mark.parametrize("part", SHIPPED)
def test_a_shipped_kernels_own_times_are_preferred(part):
    """Its arms' times are the store's; of the older recording only what had no cluster is kept."""
    times = {
        (o.spec.workload.rows, o.spec.cluster_size): o.observed.time_us
        for o in party(part).document.results
        if o.observed.time_us and o.spec.workload.k == 512 and o.spec.cluster_attribute
    }
    told = summary([part, *PARTITIONS]).costs
    found = {cost.rows: cost for cost in told if "shipped" in cost.kernel}
    assert list(found) == [1, 4, 5, 8, 9, 33, 34, 64]
    for rows, cost in found.items():
        assert cost.arm_us == times[rows, cost.cluster]
        assert cost.best_us == times[rows, cost.best_cluster]
        assert (cost.other_us is None) == (cost.other_source == "")
        assert cost.gates == (() if rows <= 4 else ("pr-56084", "pr-56102"))
    torch = {rows: cost.other_us for rows, cost in found.items() if cost.other_us}
    assert (
        torch == {"shipped-sms8": {1: 94.0, 4: 121.0}, "shipped-sms24": {4: 90.0, 8: 104.0}}[part]
    )
    beside = summary([part, part.removeprefix("shipped-")]).costs
    # 32 rows are in no store of the shipped kernel.
    assert [cost.rows for cost in beside if "vLLM" in cost.kernel] == [32]


def test_shipped_subjects_are_told_apart():
    """The label says that the shipped kernel was launched, and so does the finding."""
    found = summary(["sms8", "shipped-sms8"])
    assert [subject.label for subject in found.subjects] == [
        "H200 sms=8 as cc 11.0 (recorded)",
        "H200 sms=8 as cc 11.0 (shipped kernel, recorded)",
    ]
    assert "H200 sms=8 as cc 11.0 (shipped kernel, recorded)" in found.finding


def test_labels_of_one_origin_share_its_brackets():
    """Neighbours are joined, others are not."""
    labels = ["a (predicted)", "b (predicted)", "c (recorded)", "d (predicted)"]
    assert labels_text(labels) == "a and b (predicted), c (recorded), d (predicted)"


def test_rows_whose_arm_is_refused_lose_nothing_to_a_gate():
    """At rows 1 and 4 no gate is charged; only a step down would serve them."""
    found = [c for part in PARTITIONS for c in summary([part]).costs if c.rows <= 4]
    assert found
    assert all(c.gates == () and c.cluster == 8 for c in found)
    assert not summary(["sms8"], ["0.33.0"]).costs
    assert not summary(["full", "thor", "h200", "gb10"]).costs


def test_the_text_for_upstream_holds_what_was_found_and_the_question():
    """The proposal names both causes with their codes, the rows, and what was never launched on."""
    told = summary(["thor", "gb10", *PARTITIONS]).proposal
    text = " ".join(told.paragraphs)
    for words in (
        "rows 1-4",
        "34-64",
        "rows 5-64",
        "912",
        "(shared memory over the opt-in limit, 1",
    ):
        assert words in text
    assert "Nothing was launched on thor and gb10 (predicted)" in text
    assert "by the driver's own answers on H200 sms=8" in text
    assert "cudaOccupancyMaxActiveClusters" in told.code
    compile(told.code, "proposal", "exec")


def test_a_gate_that_errs_is_not_called_right():
    """Were an asking gate wrong, the proposal would not say that it decides no row wrongly."""
    found = party("sms8")
    results = tuple(
        msgspec.structs.replace(o, observed=msgspec.structs.replace(o.observed, max_active=1))
        for o in found.document.results
    )
    document = msgspec.structs.replace(found.document, results=results)
    other = msgspec.structs.replace(found, document=document)
    told = auditing.audit([other], ["occupancy"]).summary
    assert told.on[found.subject.name]["occupancy"].false_accepts == ((1, 4),)
    assert "no row wrongly" not in " ".join(told.proposal.paragraphs)


def test_the_origin_is_the_weakest():
    """A prediction among the subjects makes the whole a prediction; stores alone are recorded."""
    assert auditing.audit([party("sms8")], ["0.33.0"]).origin is Origin.RECORDED
    both = auditing.audit([party("sms8"), party("thor")], ["0.33.0"])
    assert both.origin is Origin.PREDICTED
    assert {s.origin for s in both.summary.subjects} == {Origin.RECORDED, Origin.PREDICTED}
    assert any(name.startswith("store h200-sms8") for name in both.inputs)
    assert "profile thor" in both.inputs


def test_subjects_and_gates_have_names_of_their_own():
    """Two subjects or gates of one name, and a store of another command, are usage errors."""
    with pytest.raises(UsageError, match="two subjects are called `thor`"):
        auditing.audit([party("thor"), party("thor")], ["0.33.0"])
    with pytest.raises(UsageError, match="holds a `cluster-sweep`"):
        auditing.of_store(REPORTS / "h200-full.jsonl")
    with pytest.raises(UsageError, match="cannot be read"):
        auditing.of_store(REPORTS / "none.jsonl")


def test_every_arm_of_a_policy_has_its_range():
    """The ranges of a gate cover the cooperative rows of its policy without gaps."""
    for name in ("thor", "h200", "sms8"):
        for gate in gates.names():
            result, _ = judged(name, gate)
            ends = [part.rows for part in result.ranges]
            assert ends[0][0] == 1
            assert all(a[1] + 1 == b[0] for a, b in pairwise(ends))
            assert ends[-1][1] == load_policy(gates.load(gate).policy).kernel.row_limit
