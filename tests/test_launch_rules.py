# SPDX-License-Identifier: Apache-2.0
"""The table of rules: total, three-valued, and one for predictions, outcomes and ``explain``."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import H200, LIMITS
from thorprobe.binary.cubin import KernelFacts
from thorprobe.explain.answer import readings, summarize
from thorprobe.explain.records import Told
from thorprobe.explain.weigh import OPEN, weigh
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.judge.cause import judge
from thorprobe.model.gpc_maps import Admissible
from thorprobe.model.launch_facts import NO_CLUSTER, LaunchFacts, of_launch
from thorprobe.model.launch_rules import BY_CAUSE, RULES, holding
from thorprobe.model.predict import predict
from thorprobe.record import LaunchSpec, Origin, Outcome, Status

_maybe_bytes = st.none() | st.sampled_from(
    [0, 4, 1_024, 49_152, 49_153, 232_448, 232_449, 512_000_000]
)
_side = st.sampled_from([0, 1, 2, 3, 4, 8, 16, 17, 64, 65, 1_024, 65_536])
_dims = st.tuples(_side, _side, _side)
_maybe_dims = st.none() | st.just(NO_CLUSTER) | _dims
_flag = st.none() | st.booleans()
_codes = st.none() | st.sampled_from(
    [0, 1, 9, 98, 200, 209, 218, 221, 222, 400, 700, 701, 702, 715, 720, 801, 912, 914, 999]
)
_limits = st.none() | st.sampled_from(
    [LIMITS, msgspec.structs.replace(LIMITS, cluster_launch=False)]
)
_facts = st.builds(
    LaunchFacts,
    grid=_maybe_dims,
    block=_maybe_dims,
    cluster=_maybe_dims,
    compiled_cluster=_maybe_dims,
    dynamic_smem=_maybe_bytes,
    static_smem=_maybe_bytes,
    registers=st.none() | st.sampled_from([0, 32, 64, 65, 156, 255]),
    max_threads=st.none() | st.sampled_from([128, 1_024]),
    cooperative=_flag,
    non_portable=_flag,
    raised=_flag,
    setter_limit=_maybe_bytes,
    setter_code=st.none() | st.sampled_from([0, 1]),
    limits=_limits,
    sms=st.none() | st.sampled_from([20, 132]),
    hosted=st.none() | st.sampled_from([(0, 0), (0, 3), (7, 7)]),
    largest_cluster=st.none() | st.sampled_from([8, 16]),
    resident=st.none() | st.sampled_from([0, 20, 132]),
)
_told = st.builds(
    Told,
    launch=_facts,
    capability=st.none() | st.sampled_from([(8, 9), (9, 0), (11, 0), (12, 1)]),
    images=st.none() | st.sampled_from([(), ("sm_90a",), ("sm_110f", "sm_120"), ("compute_80",)]),
    code=_codes,
    sync_code=_codes,
    earlier_code=_codes,
    named=st.sampled_from([(), ("host-refused",)]),
    hung=st.booleans(),
    waits=st.booleans(),
    observed_cluster=st.none() | st.sampled_from([1, 8]),
    observed_ctas=st.none() | st.sampled_from([1, 64]),
    wrong_rows=st.none() | st.sampled_from([0, 3]),
    ptx_version=st.none() | st.just((13, 2)),
    driver_version=st.none() | st.just((13, 0)),
)


@given(told=_told)
@settings(max_examples=600, deadline=None)
def test_any_facts_give_one_cause_or_what_is_missing(told):
    """Total: an entry of the catalogue, or None, and `undetermined` names the fact that decides."""
    found = weigh(told)
    assert found.cause is None or found.cause in BY_KEY
    assert set(found.candidates) <= set(BY_KEY)
    assert found.cause not in found.candidates
    assert (found.cause != OPEN) or found.missing
    summary = summarize(told, found)
    assert summary.finding
    assert bool(summary.settles) == (found.cause is not None)
    assert len(readings(summary)) == len({one.cause for one in readings(summary)})


@given(told=_told)
@settings(max_examples=300, deadline=None)
def test_a_rule_that_lacks_a_fact_says_which(told):
    """A rule is open only where one of its facts is missing, or two maps differ."""
    facts = told.launch
    for rule in RULES:
        if rule.holds(facts) is None and rule.cause != "larger-than-any-gpc":
            assert rule.missing(facts), rule.cause


_specs = st.builds(
    LaunchSpec,
    kernel=st.just("trivial"),
    grid=_dims,
    block=_dims,
    cluster=_dims,
    dynamic_smem=st.sampled_from([0, 49_153, 232_448, 232_449]),
    non_portable=st.booleans(),
    smem_opt_in=st.booleans(),
    cooperative=st.booleans(),
)


@given(spec=_specs, registers=st.sampled_from([32, 64, 156, 255]))
@settings(max_examples=400, deadline=None)
def test_prediction_judge_and_explanation_agree(spec, registers):
    """What the model refuses, the judge and ``explain`` blame on a rule of the same code."""
    kernel = KernelFacts(function="f", registers=registers)
    maps = Admissible(sms=132, known=(18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2))
    seen = predict(spec, kernel, LIMITS, maps, 8)
    facts = of_launch(spec, LIMITS, kernel)
    first = next(holding(facts), None)
    if first is not None:
        assert seen.launch_code == BY_CAUSE[first].code
    if seen.launch_code not in (1, 912):
        return
    one = Outcome(
        id=spec.id,
        spec=spec,
        status=Status.PASS,
        origin=Origin.PREDICTED,
        observed=msgspec.structs.replace(seen),
    )
    cause = judge(one, H200).cause
    assert cause in BY_CAUSE
    assert BY_CAUSE[cause].code == seen.launch_code
    hosted = None if seen.max_active is None else (seen.max_active, seen.max_active)
    told = Told(launch=msgspec.structs.replace(facts, hosted=hosted), code=seen.launch_code)
    assert weigh(told).cause == cause


def test_the_table_and_the_catalogue_name_the_same_codes():
    """A rule's cause is in the catalogue with the rule's code."""
    assert len(BY_CAUSE) == len(RULES) == 14
    for rule in RULES:
        assert rule.code in BY_KEY[rule.cause].codes, rule.cause


def test_nothing_known_is_undetermined():
    """No facts at all leave every rule open, and the first missing fact is one to look up."""
    found = weigh(Told())
    assert found.cause == OPEN
    assert "grid" in found.missing
    assert set(found.candidates) == set(BY_CAUSE)
