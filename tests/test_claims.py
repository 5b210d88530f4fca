# SPDX-License-Identifier: Apache-2.0
"""The register of published claims: what it holds, and how a run stands to each."""

import runpy
from pathlib import Path

import msgspec
import pytest

from thorprobe.cli.measure import of_recording
from thorprobe.commands import claims_check
from thorprobe.errors import UsageError
from thorprobe.judge import sweep as judge_sweep
from thorprobe.judge.cause import judge
from thorprobe.judge.claim import weigh
from thorprobe.judge.claim_records import Claims, Standing
from thorprobe.plan.claim import (
    ClaimStatus,
    Matcher,
    Predicate,
    PublishedClaim,
    Quantity,
    by_id,
    register,
)
from thorprobe.plan.sweep import SweepOptions, plan
from thorprobe.record import Check, Origin, Outcome, Status, Verdict
from thorprobe.render.claim_remarks import remarks
from thorprobe.render.claims import sheet
from thorprobe.render.markdown import render
from thorprobe.render.sheet import render_text as render_sheet
from thorprobe.render.text import render as render_text
from thorprobe.run.model import ModelAnswerer
from thorprobe.run.store import read

SAMPLES = runpy.run_path(str(Path(__file__).parent / "samples.py"))["SAMPLES"]
REPORTS = Path(__file__).parents[1] / "reports"
CONFIRMED, CONTRADICTED, OPEN = Standing


def as_if_measured(profile, claim=""):
    """Return a sweep that a device of this profile would measure if the model were right.

    It is built from predictions for one test's sake, and no measurement of any device.
    """
    model = ModelAnswerer(profile)
    device = msgspec.structs.replace(
        model.device, profile="", claims=(), admissible_maps={}, driver="made up"
    )
    assumed = (claim,) if claim else ()
    told = [o for o in model.ask(plan(SweepOptions())) if o.assumes == assumed]
    made = [judge(_ran(o), device) for o in told]
    sample = SAMPLES["measured-sweep"]()
    return msgspec.structs.replace(
        sample,
        device=device,
        results=tuple(made),
        summary=judge_sweep.summarize(made, device),
        origin=Origin.MEASURED,
    )


def _ran(outcome):
    """Turn a prediction into what a launch of it would have shown."""
    ran = outcome.observed.launch_code == 0
    work = outcome.spec.workload
    seen = msgspec.structs.replace(
        outcome.observed,
        sync_code=0,
        cluster_seen=outcome.spec.cluster_size if ran else None,
        verified=ran or None,
        check=Check(oracle="made up", rows=1, wrong_rows=0) if ran and work else None,
    )
    return msgspec.structs.replace(
        outcome, id=outcome.spec.id, origin=Origin.MEASURED, assumes=(), observed=seen
    )


def changed(document, **limits):
    """Return the document of a device with other limits."""
    device = document.device
    own = {key: limits.pop(key) for key in ("sms", "name", "partition") if key in limits}
    device = msgspec.structs.replace(
        device, limits=msgspec.structs.replace(device.limits, **limits), **own
    )
    return msgspec.structs.replace(document, device=device)


def stand(document, claim):
    """Return how a document stands to a claim of the register, or to one made here."""
    found = by_id(claim) if isinstance(claim, str) else claim
    (result,) = weigh([found], "run", document)
    return result


def says(quantity, value, **words):
    """Make a claim about any device that says one thing."""
    predicate = Predicate(quantity=Quantity(quantity), value=value, **words)
    return PublishedClaim(
        id="made",
        statement="made here",
        source="this test",
        status=ClaimStatus.STATED,
        says=(predicate,),
    )


THOR = as_if_measured("thor", "largest-cluster-8")
GB10 = as_if_measured("gb10", "clusters-of-8")
H200 = of_recording(read(REPORTS / "h200-full.jsonl"))
PART = of_recording(read(REPORTS / "h200-sms24.jsonl"))


def test_the_register_holds_what_was_published():
    """Every claim has a source and a status, ids are unique, and disputes name their grounds."""
    claims = register()
    assert len({claim.id for claim in claims}) == len(claims) >= 20
    assert all(claim.source and claim.statement for claim in claims)
    disputed = {claim.id for claim in claims if claim.status is ClaimStatus.DISPUTED}
    assert disputed == {"thor-no-clusters", "sm12x-no-clusters", "sm12x-cluster-becomes-1"}
    assert all(by_id(name).disputed_by for name in disputed)


@pytest.mark.parametrize(
    ("document", "claim", "standing"),
    [
        (THOR, "largest-cluster-8", CONFIRMED),
        (THOR, "thor-no-clusters", CONTRADICTED),
        (THOR, "thor-16-refused", CONFIRMED),
        (THOR, "thor-20-sms", CONFIRMED),
        (THOR, "thor-sm-limits", CONFIRMED),
        (THOR, "thor-smem-optin", CONFIRMED),
        (THOR, "thor-five-of-4", OPEN),
        (THOR, "portable-8", CONFIRMED),
        (THOR, "opt-in-above-8", CONFIRMED),
        (THOR, "largest-16", OPEN),
        (THOR, "clusters-of-8", OPEN),
        (GB10, "clusters-of-8", CONFIRMED),
        (GB10, "sm12x-no-clusters", CONTRADICTED),
        (GB10, "sm12x-topk-invalid-value", CONFIRMED),
        (GB10, "sm12x-smem-optin", CONFIRMED),
        (GB10, "gb10-48-sms", CONFIRMED),
        (GB10, "rtx-5090-active", OPEN),
        (H200, "portable-8", CONFIRMED),
        (H200, "opt-in-above-8", CONFIRMED),
        (H200, "largest-16", OPEN),
        (H200, "h20-none-of-16", OPEN),
        (H200, "h100-15-of-8", OPEN),
        (PART, "portable-8", OPEN),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_how_a_run_stands_to_a_published_claim(document, claim, standing):
    """A run confirms, contradicts or leaves open, and says what it saw or why."""
    result = stand(document, claim)
    assert result.standing is standing
    assert bool(result.observed) == (standing is not OPEN)
    assert bool(result.reason) == (standing is OPEN)


@pytest.mark.parametrize(
    ("claim", "standing"),
    [
        (says("largest_cluster", 16), CONFIRMED),
        (says("largest_cluster", 8), CONTRADICTED),
        (says("largest_cluster", 8, relation="at least"), CONFIRMED),
        (says("largest_cluster", 8, relation="at most"), CONTRADICTED),
        (says("largest_cluster", 16, relation="at least"), CONFIRMED),
        (says("launches", value=True, cluster=16), CONFIRMED),
        (says("launches", value=False, cluster=4), CONTRADICTED),
        (says("launches", value=True, cluster=12, opt_in=False), CONTRADICTED),
        (says("launch_code", 0, cluster=16), CONFIRMED),
        (says("launch_code", 912, cluster=16), CONTRADICTED),
        (says("launch_code", 912, cluster=16, opt_in=False), CONFIRMED),
        (says("launch_code", 0, cluster=16, dynamic_smem=156_416), CONFIRMED),
        (says("launch_code", 1, cluster=16, dynamic_smem=99_999), OPEN),
        (says("max_active", 7, cluster=16), CONFIRMED),
        (says("max_active", 15, cluster=8), CONFIRMED),
        (says("max_active", 16, cluster=8), CONTRADICTED),
        (says("cluster_seen", 2, cluster=2), CONFIRMED),
        (says("cluster_seen", 1, cluster=2), CONTRADICTED),
        (says("largest_group", 18), CONFIRMED),
        (says("largest_group", 16, relation="at most"), CONTRADICTED),
        (says("sms", 132), CONFIRMED),
        (says("sms", 144), CONTRADICTED),
        (says("smem_optin", 232_448), CONFIRMED),
        (says("threads_per_sm", 1_536), CONTRADICTED),
        (says("registers_per_sm", 65_536), CONFIRMED),
        (says("smem_per_sm", 233_472), CONFIRMED),
    ],
    ids=lambda value: value.says[0].text if isinstance(value, PublishedClaim) else "",
)
def test_every_quantity_is_held_against_the_measured_h200(claim, standing):
    """Each quantity is read from the committed sweep, and a wrong value contradicts it."""
    assert stand(H200, claim).standing is standing


def test_a_claim_of_several_values_needs_them_all():
    """One wrong value contradicts, one open value leaves it open, and only all confirm."""
    many = by_id("thor-sm-limits")
    assert stand(changed(THOR, max_threads_per_sm=2_048), many).standing is CONTRADICTED
    both = msgspec.structs.replace(
        many,
        says=(*many.says, Predicate(quantity=Quantity.MAX_ACTIVE, cluster=4, value=5)),
    )
    assert stand(THOR, both).standing is OPEN


def test_a_prediction_confirms_nothing():
    """Whatever the model says, a claim about its device stays open."""
    predicted = of_recording(read(REPORTS / "thor-predicted.jsonl"))
    results = weigh(register(), "thor", predicted)
    assert {r.standing for r in results} == {OPEN}
    assert "a prediction confirms nothing" in {r.reason for r in results if r.about}


def test_a_part_of_a_device_says_nothing_of_its_clusters():
    """A partition or a MIG slice settles limits, and no claim about clusters of the device."""
    part = changed(THOR, partition="sms=8")
    assert stand(part, "largest-cluster-8").standing is OPEN
    assert stand(part, "thor-sm-limits").standing is CONFIRMED
    slice_ = changed(H200, name="NVIDIA H200 MIG 1g.18gb")
    assert stand(slice_, says("largest_cluster", 16)).standing is OPEN


def test_sizes_that_were_not_asked_leave_the_largest_open():
    """A sweep up to 8 shows at least 8, and neither equal to 8 nor at most 8."""
    short = tuple(o for o in THOR.results if o.spec.cluster_size <= 8)
    document = msgspec.structs.replace(THOR, results=short)
    assert stand(document, says("largest_cluster", 8, relation="at least")).standing is CONFIRMED
    assert stand(document, says("largest_cluster", 8)).standing is OPEN
    assert stand(document, says("largest_cluster", 8, relation="at most")).standing is OPEN
    assert stand(document, says("largest_cluster", 16)).standing is OPEN
    whole = stand(THOR, says("largest_cluster", 16, relation="at least"))
    assert whole.standing is CONTRADICTED
    assert "are refused" in whole.observed


def test_a_refusal_for_shared_memory_is_no_word_on_the_cluster():
    """On SM12x code 1 refuses the top-k, and that clusters of 8 run is still confirmed."""
    codes = {o.observed.launch_code for o in GB10.results if o.spec.kernel == "topk"}
    assert codes == {1}
    assert stand(GB10, "clusters-of-8").standing is CONFIRMED
    assert stand(GB10, says("launch_code", 912, cluster=8, dynamic_smem=156_416)).standing is (
        CONTRADICTED
    )


def test_answers_that_differ_are_no_answer():
    """Two outcomes of one question with different answers leave it open."""
    first = next(o for o in H200.results if o.spec.kernel == "trivial" and o.spec.cluster_size == 4)
    other = Outcome(
        id="again",
        spec=first.spec,
        status=Status.PASS,
        origin=Origin.MEASURED,
        observed=msgspec.structs.replace(first.observed, launch_code=912),
    )
    document = msgspec.structs.replace(H200, results=(*H200.results, other))
    assert stand(document, says("launch_code", 0, cluster=4)).standing is OPEN


@pytest.mark.parametrize(
    ("matcher", "fits"),
    [
        (Matcher(), True),
        (Matcher(name="H200"), True),
        (Matcher(name="H20"), False),
        (Matcher(name="200"), False),
        (Matcher(name="NVIDIA H200"), True),
        (Matcher(capability=(9, 0)), True),
        (Matcher(capability=(10, 0)), False),
        (Matcher(family=90), True),
        (Matcher(family=120), False),
        (Matcher(sms=132), True),
        (Matcher(sms=78), False),
        (Matcher(name="H.00"), False),
    ],
)
def test_a_claim_is_about_the_devices_that_it_names(matcher, fits):
    """Names match whole words, so that an H200 is no H20."""
    assert matcher.fits(H200.device) is fits


@pytest.mark.parametrize(
    "words",
    [
        {"quantity": "launches", "value": True},
        {"quantity": "launches", "cluster": 8, "value": 1},
        {"quantity": "sms", "value": True},
        {"quantity": "sms", "cluster": 8, "value": 20},
        {"quantity": "max_active", "cluster": 17, "value": 2},
        {"quantity": "speed", "value": 1},
    ],
)
def test_a_predicate_that_says_nothing_is_refused(words):
    """A yes or no of a number, a size missing or too large, and an unknown quantity."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(words, Predicate)


def test_only_claims_about_the_largest_cluster_bound_a_layout():
    """A profile takes a claim as a bound where it is one."""
    assert by_id("clusters-of-8").as_layout().at_least
    assert not by_id("largest-cluster-8").as_layout().at_least
    for name in ("thor-20-sms", "largest-16"):
        with pytest.raises(UsageError, match="says nothing of the largest cluster"):
            by_id(name).as_layout()
    with pytest.raises(UsageError, match="not in the register"):
        by_id("nobody")


def test_the_page_of_a_run_says_what_it_means_for_the_claims():
    """A Thor's page would have a line on each standing, and an H200's has none."""
    told = dict(remarks(THOR))
    assert "largest-cluster-8 (8 CTAs launch)" in told["Published claims confirmed"]
    assert "thor-no-clusters" in told["Published claims contradicted"]
    assert "thor-five-of-4" in told["Published claims left open"]
    assert "Published claims contradicted" in render_text(THOR)
    assert "Published claims confirmed" in render(THOR)
    assert remarks(H200) == []
    predicted = remarks(of_recording(read(REPORTS / "thor-predicted.jsonl")))
    assert not any("claims" in label for label, _ in predicted)


def test_a_run_of_shipped_kernels_counts_where_it_says_something_of_the_cluster():
    """What launches or is refused for its size counts; what its memory refuses says nothing."""
    shipped = of_recording(read(REPORTS / "h200-full-shipped.jsonl"))
    assert stand(shipped, "portable-8").standing is CONFIRMED
    assert stand(shipped, "opt-in-above-8").standing is CONFIRMED
    largest = stand(shipped, "largest-16")
    assert (largest.standing, "16 CTAs launch" in largest.reason) == (OPEN, True)
    refused = tuple(
        msgspec.structs.replace(o, verdict=Verdict.REFUSED, cause="smem-over-optin")
        for o in shipped.results
    )
    without = msgspec.structs.replace(shipped, results=refused)
    assert stand(without, "portable-8").standing is OPEN


def test_what_all_runs_share_is_said_once():
    """Claims about other devices are listed once for several runs of one device."""
    held = claims_check.check([REPORTS / "h200-full.jsonl", REPORTS / "h200-full-shipped.jsonl"])
    labels = [subject.label for subject in held.summary.subjects]
    assert labels[1] == "NVIDIA H200, h200-full-shipped.jsonl (shipped kernels, recorded)"
    answer = Claims(
        command="claims",
        started="2026-11-30T08:00:00Z",
        origin=held.origin,
        results=held.results,
        summary=held.summary,
    )
    assert render_sheet(sheet(answer)).count("About other devices") == 1


def test_runs_are_held_against_the_whole_register(tmp_path):
    """Each store has every claim once; two stores of one name are a usage error."""
    held = claims_check.check([REPORTS / "h200-full.jsonl", REPORTS / "h200-sms24.jsonl"])
    assert len(held.results) == 2 * len(register())
    assert held.summary.standings["h200-full"][CONFIRMED] == ("portable-8", "opt-in-above-8")
    assert held.origin is Origin.RECORDED
    assert len(held.inputs) == 2
    twin = tmp_path / "h200-full.jsonl"
    twin.write_bytes((REPORTS / "h200-full.jsonl").read_bytes())
    with pytest.raises(UsageError, match="two stores are called"):
        claims_check.check([REPORTS / "h200-full.jsonl", twin])
    alone = claims_check.check([])
    assert (alone.origin, alone.results) == (Origin.PUBLISHED, ())
    assert "disputed are" in alone.summary.finding
