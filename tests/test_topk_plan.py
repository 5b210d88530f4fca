# SPDX-License-Identifier: Apache-2.0
"""Which kernels a shape may take, what they cost, and the order in which a plan tries them."""

import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe.topk import contract, kernel, ladder, plan
from thorprobe.topk.variant import variants as kernels_of

_PLAYED = runpy.run_path(str(Path(__file__).parent / "topk_played.py"))
costs = _PLAYED["costs"]

KERNEL_RUNGS = contract.RUNGS[:-1]


@pytest.fixture
def board(monkeypatch):
    """Play a device, with a calibration of its own that a test may replace."""
    monkeypatch.setattr(ladder, "costs", lambda _k: costs(long_512x8_16=1.0))
    return _PLAYED["install"](monkeypatch)


def _make(rung="auto", *, rows=4, columns=50_000, dtype="float32", **wish):
    asked = contract.SelectOptions(**({"k": 512} | wish))
    shape = plan.Shape(
        rows=rows, columns=columns, dtype=dtype, strided=False, wish=asked, rung=rung
    )
    return plan.make(shape, 0, 7)


def _priced(monkeypatch, **microseconds):
    """Let the named choices cost what is given, and all others far more."""
    table = costs(**microseconds).choices
    monkeypatch.setattr(
        plan,
        "predict",
        lambda choice, **_: table[choice.name].launch if choice.name in table else 99,
    )


@pytest.mark.parametrize("dtype", contract.DTYPES)
@pytest.mark.parametrize("columns", [1, 4_096, 4_097, 8_192, 8_193, 16_384, 2**30])
def test_every_rung_has_a_kernel_for_every_shape(columns, dtype):
    """Long kernels serve any row; short ones are offered only where the row fits into a CTA."""
    found = ladder.choices(columns, dtype)
    assert {choice.rung for choice in found} == set(KERNEL_RUNGS)
    assert len({choice.name for choice in found}) == len(found)
    for choice in found:
        assert choice.variant in kernels_of(dtype)
        assert choice.clustered == (choice.rung != "many-ctas")
        if choice.variant.function == "short":
            assert (choice.rung, choice.ctas) == ("one-cta", 1)
            assert columns <= choice.variant.capacity
        if choice.rung.startswith("cluster-"):
            assert choice.ctas == int(choice.rung.removeprefix("cluster-"))
    short = {v for v in kernels_of(dtype) if v.function == "short" and columns <= v.capacity}
    assert short == {c.variant for c in found if c.variant.function == "short"}


@pytest.mark.parametrize("rung", contract.RUNGS)
def test_one_rung_offers_its_own_kernels_only(rung):
    """Asked for one rung, the ladder gives what it gives for all, less the others."""
    found = ladder.choices(4_096, "float32", rung=rung)
    assert found == [c for c in ladder.choices(4_096, "float32") if c.rung == rung]
    assert bool(found) == (rung != "torch")


def test_kernels_of_four_scores_are_for_fp32():
    """16 bytes hold eight 16-bit scores, so that four of them have no kernel."""
    for dtype in contract.DTYPES:
        smallest = min(variant.scores for variant in kernels_of(dtype))
        assert smallest == (4 if dtype == "float32" else 8)


def test_the_ladder_goes_down_to_torch():
    """Below each rung are all later ones in order, and below torch is none."""
    for place, rung in enumerate(contract.RUNGS):
        assert (*contract.RUNGS[:place], rung, *ladder.below(rung)) == contract.RUNGS
    assert ladder.below("torch") == ()


def test_the_calibration_that_ships_names_real_kernels():
    """Each file of costs reads, names kernels that exist, and leaves none without a neighbour."""
    assert ladder.costs(1) is ladder.costs(512) is not ladder.costs(513)
    assert ladder.costs(1_025) is ladder.costs(contract.MAX_K)
    for k in (512, 1_024, contract.MAX_K):
        _real(ladder.costs(k))


def _real(table):
    names = {c.name for dtype in contract.DTYPES for c in ladder.choices(4_096, dtype)}
    told = {name.rpartition(":")[2] for name in table.choices}
    assert told <= names
    assert all(min(c.launch, c.wave, c.batch, c.megabyte) >= 0 for c in table.choices.values())
    assert (table.device == "none") == (not table.choices)
    functions = {name.partition("-")[0] for name in names}
    assert functions == {name.partition("-")[0] for name in told} or not told


SHAPES = {
    "slots": st.integers(1, 200),
    "sms": st.integers(1, 200),
    "rows": st.integers(1, 70_000),
    "columns": st.integers(1, 2**20),
    "k": st.integers(1, contract.MAX_K),
    "dtype": st.sampled_from(contract.DTYPES),
}


@settings(max_examples=200, deadline=None)
@given(shape=st.fixed_dictionaries(SHAPES), more=st.integers(1, 1_000), data=st.data())
def test_more_work_never_costs_less(shape, more, data):
    """The prediction grows with rows and columns, and shrinks with SMs and with room for rows.

    More rows at once share SMs, so that a wave less may cost more than it saves: a further CTA on
    an SM counts for a fifth of the wave.
    """
    choice = data.draw(st.sampled_from(ladder.choices(1, shape["dtype"])))
    base = ladder.predict(choice, **shape)
    assert base > 0
    for name, sign in (("rows", 1), ("columns", 1), ("slots", -1), ("sms", -1)):
        other = ladder.predict(choice, **(shape | {name: shape[name] + more}))
        spare = {"slots": 0.25, "rows": 0.1}.get(name, 0) * base + 1e-9
        assert sign * (other - base) >= -spare


@pytest.mark.parametrize(
    ("rows", "slots", "ctas", "expected"),
    [
        (30, 60, 4, 1.0),  # Two CTAs an SM, so that 30 clusters of 4 find SMs of their own.
        (32, 60, 4, 1.2),
        (60, 60, 4, 1.2),
        (61, 60, 4, 2.4),
        (64, 66, 2, 1.0),  # One CTA an SM.
        (67, 66, 2, 2.0),
        (0, 66, 2, 0.0),
    ],
)
def test_a_wave_counts_for_more_where_ctas_share_an_sm(rows, slots, ctas, expected):
    """How many rows find SMs of their own follows from the rows at once, not from SMs alone."""
    assert ladder.waves(rows, slots=slots, ctas=ctas, sms=132) == pytest.approx(expected)


def test_a_kernel_without_a_cost_takes_its_nearest_neighbours(monkeypatch):
    """A neighbour is of the same kernel, with the nearest number of CTAs; without one, a guess."""
    choices = {c.name: c for c in ladder.choices(4_096, "float32")}
    ask = {"slots": 1, "sms": 1, "rows": 1, "columns": 1, "k": 512, "dtype": "float32"}
    table = costs(long_512x8_2=20.0, long_512x16_16=160.0, part_512x16_4=40.0)
    monkeypatch.setattr(ladder, "costs", lambda _k: table)
    for name, cost in (
        ("long-512x8/2", 20),
        ("long-512x8/1", 20),
        ("long-512x8/16", 160),
        ("part-512x16/16", 40),
    ):
        assert ladder.predict(choices[name], **ask) == cost
    assert ladder.predict(choices["short-512x16/1"], **ask) > 0


def test_the_prediction_counts_waves_batches_and_bytes(monkeypatch):
    """Begun waves and batches count whole; each SM reads its share of the bytes."""
    table = ladder.Costs(
        device="",
        measured="",
        choices={"long-512x8/2": ladder.Cost(launch=100, wave=10, batch=1, megabyte=1000)},
    )
    monkeypatch.setattr(ladder, "costs", lambda _k: table)
    (choice,) = (c for c in ladder.choices(1, "float16") if c.name == "long-512x8/2")
    for rows, columns, waves, batches in (
        (4, 8_192, 1, 1),
        (5, 8_192, 2, 1),
        (8, 8_193, 2, 2),
        (9, 20_000, 3, 3),
    ):
        shape = {"rows": rows, "columns": columns, "k": 512, "dtype": "float16"}
        told = ladder.predict(choice, slots=4, sms=10, **shape)
        read = 1000 * rows * columns * 2 / 10 / 1e6
        assert told == pytest.approx(100 + waves * (10 + batches - 1) + read)


@pytest.mark.parametrize("dtype", contract.DTYPES)
def test_a_kernel_starves_by_its_groups(dtype):
    """A bound needs twice as many groups as it asks; groups are of four scores, of any type."""
    (alone,) = (c for c in ladder.choices(4_096, dtype) if c.name == "long-512x8/1")
    (two,) = (c for c in ladder.choices(4_096, dtype) if c.name == "long-512x8/2")
    groups = 4_096 // 4
    for k in (groups // 2 - 1, groups // 2, groups // 2 + 1):
        hungry = ladder.starved(alone.variant, 1, 4_096, k)
        assert hungry == (2 * k > groups)
        # Of two CTAs each has half the scores and more than half of what is asked.
        assert ladder.starved(two.variant, 2, 4_096, k)
    for short in (v for v in kernels_of(dtype) if v.function == "short"):
        assert not ladder.starved(short, 1, 4_096, 2_048)


def test_auto_takes_the_cheapest(board, monkeypatch):
    """Steps are in order of the predicted time, one a rung, and nothing falls."""
    _priced(monkeypatch, long_512x8_4=3.0, long_512x16_4=2.0, long_1024x8_1=2.5, long_512x8_16=9.0)
    made = _make()
    assert [step.choice.name for step in made.steps][:3] == [
        "long-512x16/4",
        "long-1024x8/1",
        "long-512x8/16",
    ]
    assert {step.choice.rung for step in made.steps} == set(KERNEL_RUNGS)
    assert len(made.steps) == len(KERNEL_RUNGS)
    assert made.falls == ()
    assert [o.microseconds for o in made.offers] == sorted(o.microseconds for o in made.offers)
    assert board.launched == []


def test_room_on_the_device_is_part_of_the_price(board, monkeypatch):
    """Of kernels alike, that which finds room for all rows at once is taken."""
    alike = ladder.Cost(launch=1, wave=1, batch=0, megabyte=0)
    names = (c.name for c in ladder.choices(1, "float32"))
    table = ladder.Costs(device="", measured="", choices=dict.fromkeys(names, alike))
    monkeypatch.setattr(ladder, "costs", lambda _k: table)
    for choice in ladder.choices(50_000, "float32"):
        board.slots[choice.name] = 4 if choice.name == "long-512x8/2" else 1
    assert _make(rows=4).steps[0].choice.name == "long-512x8/2"


def test_what_the_device_has_no_room_for_falls(board, monkeypatch):
    """A cheaper rung that cannot be resident is a fall with its reason, and gets no step."""
    _priced(monkeypatch, long_512x8_16=1.0, long_512x8_8=2.0)
    board.slots = {c.name: 0 for c in ladder.choices(1, "float32") if c.rung == "cluster-16"}
    made = _make()
    assert made.steps[0].choice.name == "long-512x8/8"
    assert "cluster-16" not in {step.choice.rung for step in made.steps}
    (fall,) = made.falls
    assert (fall.rung, fall.code) == ("cluster-16", 0)
    assert fall.reason == "max_active_clusters is 0 for long-512x8/16"


def test_another_kernel_of_the_same_rung_is_no_fall(board, monkeypatch):
    """Where the rung's second kernel fits, the rung was taken."""
    _priced(monkeypatch, long_512x8_16=1.0, long_512x16_16=2.0)
    board.slots["long-512x8/16"] = 0
    made = _make()
    assert (made.steps[0].choice.name, made.falls) == ("long-512x16/16", ())


def test_a_dearer_rung_that_has_no_room_is_no_fall(board, monkeypatch):
    """What would not have been taken anyway is not reported."""
    _priced(monkeypatch, long_512x8_8=1.0)
    board.slots = {c.name: 0 for c in ladder.choices(1, "float32") if c.rung == "cluster-16"}
    assert _make().falls == ()


def test_a_kernel_that_does_not_load_falls_with_the_drivers_words(board, monkeypatch):
    """An error while a launch is prepared refuses that kernel alone."""
    _priced(monkeypatch, part_512x16_8=1.0, long_512x8_2=2.0)
    for ctas in ladder.CLUSTERS:
        board.broken[f"part-512x16/{ctas}"] = "cuModuleGetFunction answered 500"
    made = _make()
    assert made.steps[0].choice.name == "long-512x8/2"
    assert [(f.rung, f.reason) for f in made.falls] == [
        ("many-ctas", "cuModuleGetFunction answered 500")
    ]


def test_an_answer_that_is_an_error_is_the_reason_of_the_fall(board, monkeypatch):
    """What the driver said to the question stands in the fall, with the kernel's name."""
    _priced(monkeypatch, long_512x8_16=1.0, long_512x8_8=2.0)
    for choice in ladder.choices(1, "float32", rung="cluster-16"):
        board.refusals[choice.name] = "cuOccupancyMaxActiveClusters answered 912 NAME a sentence"
    (fall,) = _make().falls
    assert fall.reason == (
        "long-512x8/16: cuOccupancyMaxActiveClusters answered 912 NAME a sentence"
    )


@pytest.mark.parametrize("rung", KERNEL_RUNGS)
def test_a_named_rung_comes_first_and_lower_ones_follow(board, monkeypatch, rung):
    """However dear it is, a rung that is asked for is tried first; higher ones are never tried."""
    _priced(monkeypatch, long_512x8_16=1.0, part_512x16_2=1.5)
    made = _make(rung)
    assert [s.choice.rung for s in made.steps] == [rung, *ladder.below(rung)[:-1]]
    assert made.falls == ()


def test_a_named_rung_that_refuses_falls_to_the_next_below(board, monkeypatch):
    """All rungs between the one asked for and the one that fits are falls, in order."""
    _priced(monkeypatch, long_512x8_16=1.0, part_512x16_2=1.5)
    for choice in ladder.choices(50_000, "float32"):
        board.slots[choice.name] = 0 if choice.ctas > 2 and choice.clustered else 5
    made = _make("cluster-8")
    assert [fall.rung for fall in made.falls] == ["cluster-8", "cluster-4"]
    assert [s.choice.rung for s in made.steps] == ["cluster-2", "one-cta", "many-ctas"]


def test_a_rung_takes_its_cheapest_kernel(board, monkeypatch):
    """Within a named rung the cost decides between a short and a long kernel."""
    for cheap in ("short_512x16_1", "long_512x8_1"):
        _priced(monkeypatch, **{cheap: 1.0})
        assert _make("one-cta", columns=4_000).steps[0].choice.name == cheap.replace(
            "_", "-", 1
        ).replace("_", "/")


def test_separate_ctas_are_two_launches_with_memory_between(board):
    """CTAs without a cluster leave candidates for a merge that knows how many parts there were."""
    made = _make("many-ctas", rows=6, k=2_048)
    (step,) = made.steps
    first, merge = step.launches
    assert step.parts_bytes == kernel.parts_bytes(6, 2_048)
    assert merge.name == "merge-512x1/1"
    assert (first.words["clustered"], merge.words["rows"]) == (False, 6)
    assert merge.words["ctas"] == first.words["ctas"] == step.choice.ctas
    assert all(len(s.launches) == 1 and not s.parts_bytes for s in _make("one-cta").steps[:1])


def test_separate_ctas_find_room_by_rows(board):
    """Room for CTAs is counted in rows; where less than a row fits at once, rows go by one."""
    board.slots = {f"part-512x16/{n}": 24 for n in ladder.CLUSTERS}
    board.slots["part-512x16/16"] = 9
    found = {o.choice.name: o.slots for o in _make("many-ctas").offers}
    assert found == {
        "part-512x16/16": 1,
        "part-512x16/8": 3,
        "part-512x16/4": 6,
        "part-512x16/2": 12,
    }


def test_nothing_fits(board):
    """A device that refuses every kernel gives a plan without steps, and every rung has fallen."""
    board.slots = dict.fromkeys((c.name for c in ladder.choices(1, "float16")), 0)
    made = _make(dtype="float16")
    assert made.steps == []
    assert {fall.rung for fall in made.falls} == set(KERNEL_RUNGS)
