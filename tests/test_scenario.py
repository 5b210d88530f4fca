# SPDX-License-Identifier: Apache-2.0
"""Scenarios: the files, their schema, and what check() makes of documents."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from devices import H200
from thorprobe.cli.measure import measure
from thorprobe.cli.study import ArmsStudy, Study, SweepStudy
from thorprobe.errors import UsageError
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.model import profile
from thorprobe.plan import policy
from thorprobe.plan.expectation import hold
from thorprobe.plan.footprint import of_kernels
from thorprobe.plan.scenario import (
    ArmsExpect,
    Scenario,
    SweepExpect,
    SweepProbe,
    check,
    load,
    mismatch,
    names,
    waive,
)
from thorprobe.plan.sweep import SweepOptions
from thorprobe.record import LaunchSpec, Observed, Origin, Outcome, Status, Verdict
from thorprobe.run.model import ModelAnswerer
from thorprobe.summary import ArmRow, ArmsSummary, Document, SweepSummary

SHIPPED = (
    "h200-full",
    "h200-profile",
    "h200-sms24",
    "h200-sms8",
    "sm12x-shared-memory",
    "thor-report",
    "thor-without-layout",
)
PREDICTED = tuple(name for name in SHIPPED if load(name).device.profile)
CLAIM = "largest-cluster-8"


def answered(scenario: Scenario) -> list[Document]:
    """Documents of a predicted scenario, from the model."""
    facts = profile.load(scenario.device.profile)
    if scenario.device.without_layout:
        facts = facts.without_layout()
    answerer = ModelAnswerer(facts, scenario.device.partition)
    questions: list[Study] = []
    for probe in scenario.probes:
        if isinstance(probe, SweepProbe):
            questions.append(SweepStudy(SweepOptions(sizes=probe.sizes, kernels=probe.kernels)))
        else:
            questions.append(ArmsStudy(probe.options(facts.capability)))
    return [measure(question, answerer) for question in questions]


@pytest.fixture(scope="module")
def thor() -> tuple[Scenario, list[Document]]:
    """Give the report's scenario, and what the model answers to it."""
    scenario = load("thor-report")
    return scenario, answered(scenario)


def failures(scenario: Scenario, documents: list[Document | None]) -> list[str]:
    """Sentences of the expectations that do not hold."""
    return [r.sentence for r in check(scenario, documents) if r.status is Status.FAIL]


def changed(document: Document, edit: Callable[[Outcome], Outcome]) -> Document:
    """Copy a document with every outcome edited."""
    return msgspec.structs.replace(document, results=tuple(map(edit, document.results)))


def with_arms(document: Document, edit: Callable[[ArmRow], ArmRow | None]) -> Document:
    """Copy a document with every arm edited, or dropped for None."""
    assert isinstance(document.summary, ArmsSummary)
    arms = tuple(arm for arm in map(edit, document.summary.arms) if arm is not None)
    return msgspec.structs.replace(
        document, summary=msgspec.structs.replace(document.summary, arms=arms)
    )


def test_every_shipped_scenario_loads_under_its_own_name() -> None:
    """The seven scenarios are found, valid, and described in one sentence with a source."""
    assert names() == SHIPPED
    for name in names():
        scenario = load(name)
        assert scenario.name == name
        assert scenario.source
        assert not scenario.description.endswith(".")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_use_words_that_exist(name: str) -> None:
    """Causes, policies, kernels, profiles and claims that a scenario names are all known."""
    scenario = load(name)
    claims: set[str] = {""}
    if scenario.device.profile:
        claims |= {claim.id for claim in profile.load(scenario.device.profile).device().claims}
    for expect in scenario.expects:
        assert expect.cause is None or expect.cause in BY_KEY
        assert expect.under in claims
        if isinstance(expect, SweepExpect):
            assert of_kernels((expect.kernel,))
        elif expect.policy:
            assert expect.policy in policy.names()


@pytest.mark.parametrize("name", PREDICTED)
def test_the_model_fulfils_every_predicted_scenario(name: str) -> None:
    """Each predicted scenario holds against kernels really compiled and the shipped profiles."""
    scenario = load(name)
    results = check(scenario, answered(scenario))
    assert [r.sentence for r in results if r.status is not Status.PASS] == []
    assert len(results) == len(scenario.expects)


@pytest.mark.parametrize(("name", "borrowed"), [("thor", True), ("gb10", True), ("h200", False)])
def test_a_number_of_another_device_is_told_as_such(name: str, borrowed: bool) -> None:
    """The cap on CTAs per SM is of an H200: profiles of other parts say so where it matters."""
    loaded = profile.load(name)
    origin = loaded.limits.max_cluster_ctas_per_sm.origin
    assert origin is (Origin.RECORDED if borrowed else Origin.MEASURED)
    told = "CTAs per SM in clusters capped at 8, as measured on an H200"
    assert (told in loaded.device().basis) is borrowed


def test_the_persistent_path_is_expected_not_probed() -> None:
    """Every scenario that speaks of upstream's persistent kernel expects no launch of it."""
    found = [
        expect
        for name in SHIPPED
        for expect in load(name).expects
        if isinstance(expect, ArmsExpect) and expect.path == "persistent"
    ]
    assert len(found) == 10
    assert {(expect.verdict, expect.checked) for expect in found} == {(Verdict.NOT_PROBED, None)}


def test_a_changed_verdict_fails_and_names_both_sides(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """If 16 launched on Thor, every expectation of its refusal fails, naming what was seen."""
    scenario, (sweep, arms) = thor

    def launched(outcome: Outcome) -> Outcome:
        if outcome.spec.cluster_size != 16 or outcome.assumes:
            return outcome
        return msgspec.structs.replace(outcome, verdict=Verdict.LAUNCHES)

    found = failures(scenario, [changed(sweep, launched), arms])
    assert len(found) == 2
    assert all("expected refused" in text and "observed launches" in text for text in found)
    assert found[0].startswith("trivial, cluster 16, with the opt-in: ")


def test_one_footprint_that_differs_is_enough_to_fail(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """An expectation holds at every footprint, and the failing one is named."""
    scenario, (sweep, arms) = thor
    label = "trivial 1024 thr 156,416 B"

    def other(outcome: Outcome) -> Outcome:
        odd = outcome.spec.cluster_size == 9 and outcome.spec.footprint.label == label
        return msgspec.structs.replace(outcome, verdict=Verdict.WRONG) if odd else outcome

    (found,) = failures(scenario, [changed(sweep, other), arms])
    assert "observed wrong result at" in found
    assert label in found


@pytest.mark.parametrize(
    ("field", "value"), [("cause", "smem-over-optin"), ("cause", None), ("code", 1), ("code", None)]
)
def test_a_wrong_cause_or_code_fails(
    thor: tuple[Scenario, list[Document]], field: str, value: object
) -> None:
    """The right verdict for another cause, or with another code, is a failure."""
    scenario, (sweep, arms) = thor

    def other(outcome: Outcome) -> Outcome:
        if outcome.spec.cluster_size != 16 or outcome.assumes:
            return outcome
        if field == "cause":
            return msgspec.structs.replace(outcome, cause=value)
        seen = msgspec.structs.replace(outcome.observed, launch_code=value)
        return msgspec.structs.replace(outcome, observed=seen)

    found = failures(scenario, [changed(sweep, other), arms])
    assert len(found) == 2
    assert all(f"observed {field} {value or 'none'}" in text for text in found)


def test_a_missing_result_fails_and_never_passes_silently(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """Without results every expectation fails: no outcome, no arm, no document."""
    scenario, (sweep, arms) = thor
    empty = msgspec.structs.replace(sweep, results=())
    per_size = [e for e in scenario.expects if isinstance(e, SweepExpect) and e.size]
    found = failures(scenario, [empty, arms])
    assert len(found) == len(per_size)
    assert all("observed no such result" in text for text in found)
    sixteen = msgspec.structs.replace(
        sweep, results=tuple(o for o in sweep.results if o.spec.cluster_size != 16)
    )
    assert len(failures(scenario, [sixteen, arms])) == 4
    everything = failures(scenario, [None, None])
    assert len(everything) == len(scenario.expects) == len(failures(scenario, []))
    assert all("observed no result" in text for text in everything)


def test_answers_under_a_claim_do_not_stand_in_for_the_layout(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """Predictions under a claim answer only what is expected under it, and the reverse."""
    scenario, (sweep, arms) = thor
    bare = msgspec.structs.replace(sweep, results=tuple(o for o in sweep.results if not o.assumes))
    per_claim = [e for e in scenario.expects if isinstance(e, SweepExpect) and e.under and e.size]
    found = failures(scenario, [bare, arms])
    assert len(found) == len(per_claim) > 0
    assert all(f"under the claim {CLAIM}" in text for text in found)


def test_arms_fail_on_verdict_cluster_cause_claim_and_missing_rows(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """Each field of an arm is compared, and rows that no arm covers are named."""
    scenario, (sweep, arms) = thor

    def edited(**changes: object) -> Callable[[ArmRow], ArmRow | None]:
        def edit(arm: ArmRow) -> ArmRow | None:
            hit = arm.policy == "0.33.0" and arm.rows == (1, 4)
            return msgspec.structs.replace(arm, **changes) if hit else arm

        return edit

    for changes, word in [
        ({"verdict": Verdict.LAUNCHES}, "observed launches"),
        ({"cluster": 8}, "observed cluster 8"),
        ({"cause": "smem-over-optin"}, "observed cause smem-over-optin"),
        ({"code": None}, "observed code none"),
        ({"gate": False}, "observed gate shut"),
        ({"under_claims": {}}, "observed verdict none"),
        ({"under_claims": {CLAIM: Verdict.LAUNCHES}}, "observed launches"),
        ({"rows": (1, 3)}, "observed no such result for rows 4"),
        ({"rows": (2, 4)}, "observed no such result for rows 1-4"),
        ({"probed_rows": ()}, "observed none of these rows was probed"),
    ]:
        found = failures(scenario, [sweep, with_arms(arms, edited(**changes))])
        assert found, changes
        assert all(text.startswith("policy 0.33.0, rows 1-4") for text in found)
        assert word in found[-1] or word in found[0]
    gone = with_arms(arms, lambda arm: None if arm.policy == "0.33.0" else arm)
    assert all("no such result for rows" in text for text in failures(scenario, [sweep, gone]))
    assert len(failures(scenario, [sweep, gone])) == 9


def test_largest_and_failing_sizes_are_compared_with_the_summary(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """Summary-wide expectations fail on another number and on a summary without them."""
    _, (sweep, arms) = thor
    largest = SweepExpect(kernel="topk", largest=8, under=CLAIM)
    assert hold(largest, sweep)[0] is Status.PASS
    assert hold(msgspec.structs.replace(largest, largest=4), sweep) == (
        Status.FAIL,
        f"topk, under the claim {CLAIM}: expected largest 4; observed largest 8",
    )
    assert "no such kernel" in hold(SweepExpect(kernel="topk", largest=8, under="other"), sweep)[1]
    assert "no such kernel" in hold(largest, arms)[1]
    assert hold(ArmsExpect(failing_cluster_sizes=(16,)), arms)[0] is Status.PASS
    assert hold(ArmsExpect(failing_cluster_sizes=(8, 16)), arms)[0] is Status.FAIL
    assert hold(ArmsExpect(failing_cluster_sizes=()), arms)[1].endswith("observed 16")
    assert "no arms" in hold(ArmsExpect(failing_cluster_sizes=(16,)), sweep)[1]


def test_documents_of_another_device_or_command_fail(
    thor: tuple[Scenario, list[Document]],
) -> None:
    """A prediction for another profile, or a document in the wrong place, proves nothing."""
    scenario, (sweep, arms) = thor
    other = msgspec.structs.replace(
        sweep, device=msgspec.structs.replace(sweep.device, profile="h200")
    )
    assert any("profile h200 answered, not thor" in t for t in failures(scenario, [other, arms]))
    swapped = failures(scenario, [arms, sweep])
    assert len(swapped) == len(scenario.expects)
    assert "observed a document of topk-arms" in swapped[0]


PART = msgspec.structs.replace(H200, partition="sms=8")


def test_mismatch_compares_gpu_profile_and_partition() -> None:
    """A scenario's GPU is a part of the name, and its partition is the same in any spelling."""
    wanted = load("h200-sms8").device
    assert mismatch(wanted, PART) == ""
    assert mismatch(wanted, msgspec.structs.replace(PART, partition="sms=8,flags=0")) == ""
    for changes, word in [
        ({"name": "NVIDIA H100"}, "the GPU is NVIDIA H100, not NVIDIA H200"),
        ({"partition": ""}, "partition none answered, not sms=8"),
        ({"partition": "sms=8,flags=2"}, "flags=2 answered"),
        ({"profile": "h200"}, "profile h200 answered, not a GPU"),
    ]:
        assert word in mismatch(wanted, msgspec.structs.replace(PART, **changes))
    assert "profile none answered" in mismatch(load("h200-profile").device, PART)


def arms_document(**changes: object) -> Document:
    """Make a measured document with one arm of 1 to 8 rows."""
    arm = ArmRow(
        policy="0.33.0",
        rows=(1, 8),
        k=512,
        dtype="fp32",
        path="cooperative",
        kernel="topk",
        cluster=8,
        dynamic_smem=156_416,
        gate=True,
        verdict=Verdict.LAUNCHES,
        probed_rows=(1, 8),
        checked=(36, 36),
    )
    return Document(
        command="topk-arms",
        started="2026-11-30T00:00:00Z",
        origin=Origin.MEASURED,
        device=PART,
        summary=ArmsSummary(finding="", arms=(msgspec.structs.replace(arm, **changes),)),
    )


def test_checked_demands_that_results_were_compared_and_right() -> None:
    """An arm that launched with no result compared, or one wrong, is not checked."""
    expect = ArmsExpect(policy="0.33.0", rows=(1, 8), verdict=Verdict.LAUNCHES, checked=True)
    assert hold(expect, arms_document())[0] is Status.PASS
    for checked in [(0, 0), (35, 36)]:
        status, sentence = hold(expect, arms_document(checked=checked))
        assert status is Status.FAIL
        assert "observed results not all right, or none checked" in sentence


def test_open_rows_need_an_open_arm() -> None:
    """Rows written as a first row alone are not covered by an arm that ends."""
    expect = ArmsExpect(policy="0.33.0", rows=(1,), cluster=8)
    assert hold(expect, arms_document())[1].endswith("observed no such result for rows 9 and up")
    assert hold(expect, arms_document(rows=(1, None)))[0] is Status.PASS


def test_a_result_waived_on_the_device_waives_the_expectation() -> None:
    """Where every matching probe was waived the expectation is waived, with the probe's reason."""
    spec = LaunchSpec(kernel="trivial", grid=(1, 2, 1), block=(32, 1, 1), cluster=(1, 2, 1))
    outcome = Outcome(
        id=spec.id, spec=spec, status=Status.WAIVED, origin=Origin.MEASURED, note="no such part"
    )
    document = Document(
        command="cluster-sweep",
        started="2026-11-30T00:00:00Z",
        origin=Origin.MEASURED,
        device=PART,
        results=(outcome,),
        summary=msgspec.convert(
            {"kind": "cluster-sweep", "finding": "", "kernels": {}, "gpc_map": {}}, SweepSummary
        ),
    )
    expect = SweepExpect(kernel="trivial", size=2, verdict=Verdict.LAUNCHES)
    status, sentence = hold(expect, document)
    assert status is Status.WAIVED
    assert "no such part" in sentence
    ran = msgspec.structs.replace(
        outcome, status=Status.PASS, verdict=Verdict.LAUNCHES, observed=Observed(launch_code=0)
    )
    both = msgspec.structs.replace(document, results=(outcome, ran))
    assert hold(expect, both)[0] is Status.PASS
    assert "1 of 2 results" in hold(expect, both)[1]


def test_waive_keeps_every_expectation_and_says_why() -> None:
    """A scenario without its device is waived as a whole, an expectation at a time."""
    scenario = load("h200-full")
    results = waive(scenario, "no CUDA driver")
    assert len(results) == len(scenario.expects)
    assert {r.status for r in results} == {Status.WAIVED}
    assert all(r.sentence.endswith("waived: no CUDA driver") for r in results)


GOOD = """
name = "own"
description = "One"
source = "nobody"
[device]
profile = "thor"
[[probe]]
command = "cluster-sweep"
[[probe]]
command = "topk-arms"
rows = "1-4"
[[expect]]
command = "cluster-sweep"
kernel = "trivial"
size = 16
verdict = "refused"
"""


def test_a_scenario_file_of_ones_own_is_read_by_path(tmp_path: Path) -> None:
    """A path ending in .toml is a scenario, and its options reach the plan."""
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace('rows = "1-4"', 'rows = "1-4"\nas_capability = "11.0"'))
    scenario = load(str(path))
    assert scenario.name == "own"
    probe = scenario.probes[1]
    assert not isinstance(probe, SweepProbe)
    options = probe.options((9, 0), "sms=8")
    assert (options.capability, options.rows) == ((11, 0), (1, 2, 3, 4))
    assert options.partition == "sms=8"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("size = 16", "size = 17", "expect"),
        ("size = 16", "size = 0", "expect"),
        ("size = 16", "", "a size goes with a verdict"),
        ('verdict = "refused"', 'verdict = "maybe"', "maybe"),
        ('verdict = "refused"', "", "needs a verdict"),
        ('verdict = "refused"', 'verdict = "refused"\nlargest = 8', "largest"),
        ('verdict = "refused"', 'verdict = "refused"\nsurprise = 1', "surprise"),
        ('rows = "1-4"', 'rows = "4-1"', "backwards"),
        ('rows = "1-4"', 'rows = "0"', "0 rows"),
        ('rows = "1-4"', 'as_capability = "eleven"', "as_capability"),
        ('profile = "thor"', "", "either a profile or a gpu"),
        ('profile = "thor"', 'profile = "thor"\ngpu = "X"', "either a profile or a gpu"),
        ('profile = "thor"', 'gpu = "X"\nwithout_layout = true', "without_layout"),
        ('profile = "thor"', 'gpu = "X"\npartition = "half"', "partition"),
        ('profile = "thor"', 'gpu = "X"\ncount = 0', "count"),
        ('source = "nobody"', "", "source"),
        ('source = "nobody"', 'source = ""', "source"),
        ('command = "cluster-sweep"\n[[probe]]', 'command = "doctor"\n[[probe]]', "doctor"),
        ('[[probe]]\ncommand = "cluster-sweep"\n', "", "answered by no probe"),
        (
            'command = "topk-arms"\nrows = "1-4"',
            'command = "cluster-sweep"',
            "answered by 2 probes",
        ),
        ('kernel = "trivial"', 'kernel = "trivial"\nprobe = "x"', "answered by no probe"),
        ("[device]", "[device", "Expected"),
    ],
)
def test_a_scenario_file_outside_the_schema_is_named(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    """Unknown fields, bad values and expectations that nothing answers are usage errors."""
    assert old in GOOD
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UsageError, match="does not fit the schema") as error:
        load(str(path))
    assert complaint in error.value.sentence
    assert error.value.hint


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('policy = "0.33.0"\nrows = [1, 4]', "something to expect"),
        ('policy = "0.33.0"\nverdict = "refused"', "policy and rows"),
        ('rows = [1, 4]\nverdict = "refused"', "policy and rows"),
        ('policy = "0.33.0"\nrows = [4, 1]\ncluster = 8', "backwards"),
        ('policy = "0.33.0"\nrows = []\ncluster = 8', "rows"),
        ('policy = "0.33.0"\nrows = [1, 2, 3]\ncluster = 8', "rows"),
        ('policy = "0.33.0"\nrows = [1]\ncause = "hang"\nunder = "c"', "under a claim"),
        ('policy = "0.33.0"\nfailing_cluster_sizes = [16]', "of its own"),
    ],
)
def test_an_arms_expectation_that_says_nothing_is_rejected(
    tmp_path: Path, body: str, complaint: str
) -> None:
    """An expectation about arms names a policy, rows in order, and something to expect."""
    path = tmp_path / "own.toml"
    path.write_text(f'{GOOD}\n[[expect]]\ncommand = "topk-arms"\n{body}\n')
    with pytest.raises(UsageError) as error:
        load(str(path))
    assert complaint in error.value.sentence


def test_a_claim_cannot_be_expected_of_a_measurement(tmp_path: Path) -> None:
    """Only predictions rest on claims."""
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace('profile = "thor"', 'gpu = "X"') + 'under = "largest-cluster-8"\n')
    with pytest.raises(UsageError, match="a measurement rests on none"):
        load(str(path))


def test_unknown_unreadable_and_huge_scenarios_are_usage_errors(tmp_path: Path) -> None:
    """A wrong name lists the known ones; a missing, binary or huge file is named."""
    with pytest.raises(UsageError, match="Unknown scenario 'thor'") as error:
        load("thor")
    assert "thor-report" in error.value.hint
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="does not fit the schema"):
        load(str(path))
    path.write_text("#" * 300_000)
    with pytest.raises(UsageError, match="more than 262,144 bytes"):
        load(str(path))
