# SPDX-License-Identifier: Apache-2.0
"""Questions: what they ask next, how they come back from a store, and their plan's digest."""

import hashlib
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe.cli.study import ArmsStudy, SweepStudy, of_header, plan_digest
from thorprobe.errors import UsageError
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.sweep import SweepOptions
from thorprobe.record import Header, Observed, Origin, Outcome, Status, Verdict

POLICY = "e126687a9a"
SWEEPS = [
    SweepOptions(),
    SweepOptions(sizes=(4, 16), kernels=("topk",), partition="sms=8", compiled=True),
]
DRIVES = [
    ArmsOptions(capability=(11, 0)),
    ArmsOptions(
        policies=(POLICY,),
        capability=(9, 0),
        rows=(1, 40),
        lengths=(0, 512),
        columns=4_096,
        stride=8_192,
        k=(512, 2_048),
        distribution="ten-values",
        seed=3,
        repeats=5,
        partition="sms=24",
        compiled=True,
        alternatives=False,
        call_site="decode: 40 requests",
    ),
]


def header(question, device, **changes):
    """Return a store's header of that question, as it is read back from its line."""
    made = Header(
        command=question.command,
        started="2026-11-30T00:00:00Z",
        origin=Origin.MEASURED,
        device=device,
        options=question.options,
        plan=plan_digest(question.first()),
    )
    line = msgspec.json.encode(msgspec.structs.replace(made, **changes))
    return msgspec.json.decode(line, type=Header)


def answered(spec, verdict):
    """Return a judged outcome of a launch."""
    return Outcome(
        id=spec.id,
        spec=spec,
        status=Status.PASS,
        origin=Origin.MEASURED,
        observed=Observed(launch_code=0 if verdict is Verdict.LAUNCHES else 912),
        verdict=verdict,
    )


def drive(options, verdict_of):
    """Answer a drive until it asks no more; return the rows asked, round by round.

    ``verdict_of`` takes a number of rows. Checks on the way that no launch is asked twice.
    """
    question = ArmsStudy(options)
    outcomes, asked, rounds = [], set(), []
    waiting = question.first()
    while waiting:
        ids = [spec.id for spec in waiting]
        assert len(ids) == len(set(ids))
        assert not asked & set(ids)
        asked |= set(ids)
        rounds.append(sorted({spec.workload.rows for spec in waiting}))
        outcomes += [answered(spec, verdict_of(spec.workload.rows)) for spec in waiting]
        assert len(rounds) < 40
        waiting = question.more(outcomes)
    return rounds


@pytest.mark.parametrize(
    "question",
    [*map(SweepStudy, SWEEPS), *map(ArmsStudy, DRIVES)],
    ids=["sweep", "sweep of everything", "drive", "drive of everything"],
)
def test_a_question_comes_back_from_its_header(question, fake_device):
    """A header read from its JSON line gives the same question: options, launches and digest."""
    made = header(question, fake_device)
    again = of_header(made)
    assert type(again) is type(question)
    assert again.options == question.options
    assert again.first() == question.first()
    assert plan_digest(again.first()) == made.plan


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"command": "topology"}, "`topology`"),
        ({"options": {"sizes": "all"}}, "options"),
        ({"options": {"sizes": [1.5]}}, "options"),
        ({"options": {"kernels": 7}}, "options"),
    ],
)
def test_a_header_that_asks_nothing_known_is_refused(fake_device, changes, named):
    """An unknown command, or options of another shape, is one sentence with a hint."""
    with pytest.raises(UsageError, match=named) as caught:
        of_header(header(SweepStudy(SWEEPS[0]), fake_device, **changes))
    assert caught.value.hint


def test_options_that_no_launch_can_have_are_refused(fake_device):
    """A store that asks for an unknown policy or distribution is refused before it is judged."""
    question = ArmsStudy(DRIVES[0])
    for changed in ({"policies": ["nope"]}, {"distribution": "nope"}, {"rows": [0]}):
        options = question.options | changed
        with pytest.raises(UsageError):
            of_header(header(question, fake_device, options=options))


def test_the_digest_is_of_the_ids_in_order():
    """SHA-256 over the ids, a line each; another order or another launch is another plan."""
    specs = SweepStudy(SWEEPS[1]).first()
    expected = hashlib.sha256("\n".join(spec.id for spec in specs).encode()).hexdigest()
    assert plan_digest(specs) == expected
    assert plan_digest(specs[::-1]) != expected
    assert plan_digest(specs[1:]) != expected
    assert len({plan_digest(SweepStudy(options).first()) for options in SWEEPS}) == 2


@settings(max_examples=25, deadline=None)
@given(last=st.integers(1, 63))
def test_bisection_finds_the_last_row_that_launches(last):
    """Asked at 1 and 64, a drive closes in on any boundary in seven rounds and asks both sides."""
    options = ArmsOptions(
        policies=(POLICY,), capability=(9, 0), rows=(1, 64), lengths=(512,), columns=512
    )
    rounds = drive(options, lambda rows: Verdict.LAUNCHES if rows <= last else Verdict.REFUSED)
    rows = {row for asked in rounds for row in asked}
    assert {last, last + 1} <= rows
    assert len(rounds) <= 7
    assert all(len(asked) == 1 for asked in rounds[1:])


@settings(max_examples=25, deadline=None)
@given(
    verdicts=st.lists(
        st.sampled_from([Verdict.LAUNCHES, Verdict.REFUSED, Verdict.WRONG, Verdict.NOT_PROBED]),
        min_size=64,
        max_size=64,
    )
)
def test_bisection_ends_whatever_is_answered(verdicts):
    """Any pattern of verdicts ends, no launch is asked twice, and no open gap is left."""
    options = ArmsOptions(
        policies=(POLICY, "0.33.0"), capability=(11, 0), rows=(1, 20, 64), lengths=(512,)
    )
    options = msgspec.structs.replace(options, columns=512, alternatives=False)
    rounds = drive(options, lambda rows: verdicts[rows - 1])
    rows = sorted({row for asked in rounds for row in asked})
    for low, high in pairwise(rows):
        pair = {verdicts[low - 1], verdicts[high - 1]}
        assert high - low == 1 or len(pair) == 1 or Verdict.NOT_PROBED in pair


def test_rows_chosen_by_the_policies_need_no_bisection():
    """Without rows of the user's own the policies' boundaries are asked, and nothing more."""
    rounds = drive(
        ArmsOptions(policies=(POLICY,), capability=(11, 0), lengths=(512,), columns=512),
        lambda rows: Verdict.REFUSED if rows <= 4 else Verdict.LAUNCHES,
    )
    assert rounds == [[1, 4, 5, 8, 9, 32, 33]]


def test_a_wrong_result_at_one_length_decides_a_row():
    """A row launches only if each of its lengths does: one wrong length opens the gap."""
    options = ArmsOptions(
        policies=(POLICY,), capability=(9, 0), rows=(5, 8), lengths=(0, 512), columns=512
    )
    question = ArmsStudy(options)
    outcomes = [
        answered(
            spec,
            Verdict.WRONG
            if spec.workload.rows == 8 and spec.workload.length == 0
            else Verdict.LAUNCHES,
        )
        for spec in question.first()
    ]
    assert {spec.workload.rows for spec in question.more(outcomes)} == {6}


def test_a_prediction_of_a_sweep_asks_for_no_map():
    """The launches that read SM ids follow a measurement only, and once."""
    question = SweepStudy(SweepOptions(kernels=("trivial",), sizes=(2, 4)))
    outcomes = [
        msgspec.structs.replace(
            answered(spec, Verdict.LAUNCHES), observed=Observed(launch_code=0, max_active=3)
        )
        for spec in question.first()
    ]
    predicted = [msgspec.structs.replace(o, origin=Origin.PREDICTED) for o in outcomes]
    assert not question.more(predicted)
    asked = question.more(outcomes)
    assert [(spec.grid, spec.cluster_size) for spec in asked] == [((3, 4, 1), 4), ((3, 2, 1), 2)]
    assert all(spec.spin_cycles for spec in asked)
    answers = [answered(spec, Verdict.LAUNCHES) for spec in asked]
    assert not question.more([*outcomes, *answers])
