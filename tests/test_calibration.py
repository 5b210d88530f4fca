# SPDX-License-Identifier: Apache-2.0
"""The calibration of the ladder's costs: the fit, its file, and how well the costs choose."""

import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from thorprobe import answer as evidence
from thorprobe.bench.calibration_answer import again, inquire
from thorprobe.bench.calibration_page import sheet
from thorprobe.bench.calibration_plan import COLUMNS, PARTITIONS, ROWS, CalibrationOptions, check
from thorprobe.bench.calibration_records import ChoiceTimes, FittedCost
from thorprobe.bench.costs import costs_toml
from thorprobe.bench.fit import Grid, Point, error, fit, quality
from thorprobe.bench.least_squares import nonnegative
from thorprobe.errors import UsageError
from thorprobe.record import Origin, Status
from thorprobe.render.sheet import render_json, render_markdown, render_text
from thorprobe.topk import ladder
from thorprobe.topk.ladder import Cost, Costs, choices, starved

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
ROOT = Path(__file__).parents[1]
GRID = Grid(rows=BED.SMALL.rows, columns=BED.SMALL.columns, k=BED.SMALL.k)


@pytest.fixture(scope="module")
def answer():
    """Return a calibration of times that follow the cost model."""
    return inquire(BED.SMALL, opener=BED.room_opener(notes=["sms=24 is left out"]))


def test_factors_that_are_not_negative_are_found_again():
    """Of noiseless data the factors come back, those that are 0 too."""
    rng = np.random.default_rng(1)
    for wanted in ([1.0, 2.0, 0.5, 3.0], [0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 1e-6]):
        matrix = rng.random((40, 4)) * [1, 10, 1e3, 1e-3]
        assert nonnegative(matrix, matrix @ wanted) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_the_fit_is_the_least_error_among_factors_that_are_not_negative():
    """Where the unconstrained solution has a negative factor, no better one is near the fit."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        matrix, target = rng.standard_normal((30, 4)), rng.standard_normal(30)
        found = nonnegative(matrix, target)
        assert (found >= 0).all()
        slope = matrix.T @ (target - matrix @ found)
        # The conditions of Karush, Kuhn and Tucker.
        assert (slope <= 1e-6).all()
        assert np.abs(slope[found > 0]).max(initial=0) < 1e-6


def test_a_feature_that_never_moves_and_equal_features_are_no_trouble():
    """A column of zeros gets 0, equal columns share one factor, and nothing to fit is 0."""
    column = np.arange(1.0, 9.0)
    matrix = np.stack([column, np.zeros(8), column, np.ones(8)], axis=1)
    found = nonnegative(matrix, 2 * column + 1)
    assert found[1] == 0
    assert found[0] + found[2] == pytest.approx(2)
    assert found[3] == pytest.approx(1)
    assert nonnegative(matrix, np.zeros(8)).tolist() == [0, 0, 0, 0]
    assert nonnegative(matrix, -column).tolist() == [0, 0, 0, 0]


def test_the_costs_of_every_choice_are_found_again(answer):
    """Times made by the model give its factors back, and the costs then choose the best."""
    made = {
        choice.name: choice
        for c in GRID.columns
        for choice in choices(c, "float32")
        if not starved(choice.variant, choice.ctas, c, GRID.k)
    }
    assert set(answer.summary.costs) == set(made)
    for name, cost in answer.summary.costs.items():
        launch, wave, batch, megabyte = BED.factors(made[name])
        assert cost.launch == pytest.approx(launch, rel=0.006)
        assert cost.wave == pytest.approx(wave, rel=0.006)
        assert cost.batch == pytest.approx(batch, rel=0.006) or cost.batch == 0
        assert cost.megabyte == pytest.approx(megabyte, rel=0.006)
    assert answer.summary.error.worst < 0.01
    assert {one.worst for one in answer.summary.auto} == {1.0}
    assert [one.partition for one in answer.summary.auto] == ["", "sms=8"]
    assert "at most 1.00" in answer.summary.finding


def test_the_fit_and_the_ladder_have_one_model(answer, monkeypatch):
    """A cost means the same to the fit and to the ladder, to the last bit but one."""
    text = costs_toml(answer.summary)
    monkeypatch.setattr(ladder, "costs", lambda _k: msgspec.convert(tomllib.loads(text), Costs))
    for series in answer.results:
        (choice,) = [c for c in choices(1024, "float32") if c.name == series.choice] or [None]
        if choice is None or not series.slots:
            continue
        for rows in (1, 8, 300):
            for columns in (100, 1024, 262_144):
                point = Point(series, rows, columns, 1.0)
                assert point.predicted(answer.summary.costs[series.choice]) == pytest.approx(
                    ladder.predict(
                        choice,
                        slots=series.slots,
                        sms=series.sms,
                        rows=rows,
                        columns=columns,
                        k=GRID.k,
                        dtype="float32",
                    )
                )


def test_a_refused_choice_has_no_times_and_no_part_in_the_fit(answer):
    """16 CTAs are refused on the small part: waived, with the reason, and fitted elsewhere."""
    refused = [one for one in answer.results if one.status is Status.WAIVED]
    assert {one.id for one in refused} >= {"sms=8/long-512x8/16", "sms=8/part-512x16/16"}
    for one in refused:
        assert (one.slots, one.us, one.note) == (0, {}, "max_active_clusters is 0")
    assert answer.summary.costs["long-512x8/16"].points == 6
    assert answer.summary.wrong == 0


def test_a_wrong_result_is_no_time_of_it():
    """A choice whose rows are wrong is an error and the finding says so first."""
    wrong = inquire(BED.SMALL, opener=BED.room_opener(wrong="long-512x8/4"))
    bad = [one for one in wrong.results if one.status is Status.ERROR]
    assert {one.choice for one in bad} == {"long-512x8/4"}
    assert all(us is None for one in bad for times in one.us.values() for us in times)
    assert "long-512x8/4" not in wrong.summary.costs
    assert wrong.summary.finding.startswith("WRONG or refused launches in 2 series")


def series(choice, slots=4, **us):
    """Return the times of a made-up choice of 8 SMs."""
    return ChoiceTimes(
        id=choice,
        status=Status.PASS,
        origin=Origin.MEASURED,
        partition="sms=8",
        sms=8,
        choice=choice,
        rung="one-cta",
        ctas=1,
        capacity=1024,
        slots=slots,
        us={name.removeprefix("n"): times for name, times in us.items()},
    )


def test_quality_is_the_preferred_choices_time_over_the_bests():
    """Costs that prefer the slower of two are told by how much, and where."""
    held = (series("a", n1024=(2.0, 4.0)), series("b", n1024=(3.0, 3.0)))
    costs = {
        name: FittedCost(launch=launch, wave=0, batch=0, megabyte=0)
        for name, launch in (("a", 2.0), ("b", 3.0))
    }
    grid = Grid(rows=(1, 2), columns=(1024,))
    (found,) = quality(held, grid, costs)
    assert (found.shapes, found.worst, found.worst_at) == (2, 1.333, "r2n1024 a")
    assert found.median == pytest.approx(1.167, abs=0.001)
    off = error(held, grid, costs)
    assert (off.points, off.worst, off.worst_at) == (4, 0.5, "a/r2n1024")


def test_times_that_are_no_numbers_above_zero_are_left_out():
    """Evidence may hold anything: 0, less, null, too few and too many times."""
    held = (series("a", n1024=(0.0, -1.0, None, 5.0, 9.0)), series("b", n7=(1.0,)))
    grid = Grid(rows=(1, 2, 3, 4), columns=(1024,))
    assert fit(held, grid)["a"].points == 1
    assert set(fit(held, grid)) == {"a"}
    assert error((), grid, {}) is None
    assert quality((), grid, {}) == ()


def test_the_file_of_costs_is_what_the_ladder_reads(answer):
    """It is TOML of the ladder's own schema, with the fit's numbers."""
    text = costs_toml(answer.summary)
    read = msgspec.convert(tomllib.loads(text), Costs)
    assert read.device == "Fake GPU"
    assert read.measured == answer.summary.measured
    assert f"{answer.summary.error.points} points" in read.measured
    assert read.choices == {
        name: Cost(launch=c.launch, wave=c.wave, batch=c.batch, megabyte=c.megabyte)
        for name, c in answer.summary.costs.items()
    }
    small = FittedCost(launch=1.23e-7, wave=1234.0, batch=0.0, megabyte=1e-14)
    odd = msgspec.structs.replace(answer.summary, device='a"\n\\b', costs={"x": small})
    read = msgspec.convert(tomllib.loads(costs_toml(odd)), Costs)
    assert read.device == "a???b"
    assert read.choices["x"] == Cost(launch=1.23e-7, wave=1234.0, batch=0.0, megabyte=0.0)
    empty = msgspec.structs.replace(answer.summary, costs={})
    assert msgspec.convert(tomllib.loads(costs_toml(empty)), Costs).choices == {}


def test_a_recorded_calibration_gives_the_same_costs(answer, tmp_path):
    """Written, read and fitted anew: the same summary, and the same page and file of it."""
    path = tmp_path / "calibration.json"
    path.write_text(render_json(answer), encoding="utf-8")
    held = evidence.read(path)
    assert held == answer
    assert again(held) == answer
    page = render_markdown(sheet(held), held)
    assert "sms=24 is left out" in page
    assert costs_toml(answer.summary) in page
    assert "off by" in render_text(sheet(held), 100)


def test_a_room_in_which_nothing_runs_is_shown():
    """Without a time there is no cost, and the finding says so."""
    options = msgspec.structs.replace(BED.SMALL, columns=(), rows=(1,))
    nothing = inquire(options, opener=BED.room_opener())
    assert nothing.summary.finding == "nothing was timed, so that no cost is known"
    assert "[choices]" in render_text(sheet(nothing), 100)


def test_the_usual_grid_covers_the_shapes_of_a_model():
    """One to 128 rows of 1,024 to 262,144 columns, whole and in parts where rows wait."""
    options = CalibrationOptions()
    assert (options.rows, options.columns) == (ROWS, COLUMNS)
    assert (ROWS[0], ROWS[-1], COLUMNS[0], COLUMNS[-1]) == (1, 128, 1024, 262_144)
    assert options.partitions == PARTITIONS == ("", "sms=24", "sms=8")
    check(())
    with pytest.raises(UsageError, match="`--rows`, `--svg`"):
        check(("--rows", "--svg"))


@pytest.mark.parametrize("k", [512, 1_024, 2_048])
def test_the_shipped_costs_are_the_fit_of_the_committed_calibration(k):
    """A file of costs is what the committed times of its k are fitted to."""
    name = "topk-calibration" if k == 512 else f"topk-calibration-k{k}"
    held = evidence.read(ROOT / "reports" / f"{name}.json")
    text = (ROOT / "thorprobe" / "topk" / "costs" / f"{k}.toml").read_text(encoding="utf-8")
    assert (held.origin, held.summary.k) == (Origin.MEASURED, k)
    assert again(held) == held
    assert costs_toml(held.summary) == text
