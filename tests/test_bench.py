# SPDX-License-Identifier: Apache-2.0
"""``bench``: who is timed on what, what is checked, and what the times come to."""

import hashlib
import runpy
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from thorprobe.bench import device as bed
from thorprobe.bench.answer import inquire
from thorprobe.bench.candidates import flashinfer
from thorprobe.bench.check import expected
from thorprobe.bench.inputs import scores
from thorprobe.bench.judge import geometric_mean
from thorprobe.bench.plan import (
    COLUMNS,
    DISTRIBUTIONS,
    ROWS,
    BenchOptions,
    check,
    parse_numbers,
    shapes,
)
from thorprobe.errors import UsageError
from thorprobe.record import Status
from thorprobe.topk import RUNGS

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
SMALL = BenchOptions(rows=(1, 4), columns=(1024, 4096), k=(16,), host_calls=16)


def timed(options=SMALL, peers=None, **ladder):
    """Run a bench on the played bed."""
    return inquire(options, opener=BED.opener(BED.PlayedLadder(**ladder), peers))


def test_the_usual_bench_has_the_36_shapes_of_the_recorded_peers():
    """Without options the shapes are those of the recorded peers, and every rung runs with auto."""
    asked = shapes(BenchOptions())
    assert len(asked) == len({shape.id for shape in asked}) == 36
    assert {(s.columns, s.rows) for s in asked} == {(c, r) for c in COLUMNS for r in ROWS}
    assert {shape.seed for shape in asked} == {c + r for c in COLUMNS for r in ROWS}
    assert asked[0].bytes == 4096 * 4 + 4 + 512 * 4
    assert BenchOptions().contenders == tuple((rung, "lowest") for rung in ("auto", *RUNGS))
    both = BenchOptions(ties="both", rungs=("cluster-8", "auto")).contenders
    assert both == (("cluster-8", "lowest"), ("auto", "lowest"), ("auto", "any"))
    assert BenchOptions(ties="any", rungs=("auto",)).contenders == (("auto", "any"),)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rows": (0,)}, "rows of 0"),
        ({"rows": ()}, "no number"),
        ({"columns": (2**31,)}, "columns of"),
        ({"rows": (2**16,), "columns": (2**20,)}, "at most 1,073,741,824 scores"),
        ({"k": (0,)}, "--k 0"),
        ({"k": (512, 2049)}, "--k 2049"),
        ({"dtypes": ("fp32",)}, "--dtype fp32"),
        ({"distributions": ("cauchy",)}, "--distribution cauchy"),
        ({"rungs": ("cluster-3",)}, "--rung cluster-3"),
        ({"peers": ("cub",)}, "--peer cub"),
        ({"ties": "highest"}, "--ties highest"),
        ({"launches": 0}, "launches of 0"),
        ({"replays": 10**6}, "replays of 1,000,000"),
        ({"host_calls": -1}, "host calls of -1"),
    ],
)
def test_options_that_cannot_be_served_are_refused(change, named):
    """Each bad option is named in one sentence, with a hint."""
    with pytest.raises(UsageError) as raised:
        check(msgspec.structs.replace(SMALL, **change))
    assert named in raised.value.sentence
    assert raised.value.hint


def test_a_list_of_numbers_is_read_in_order():
    """Numbers are sorted and unique; anything else is refused and the option named."""
    assert parse_numbers("--rows", "8, 1,4,4") == (1, 4, 8)
    for text in ("", "1,,2", "-1", "1e3", "\N{SUPERSCRIPT TWO}", "99999999999"):
        with pytest.raises(UsageError, match="--rows"):
            parse_numbers("--rows", text)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_what_its_name_says(name):
    """Every name is drawn, the same for the same seed, and has the property it is named after."""
    made = scores(3, 4096, name, 7)
    assert made.shape == (3, 4096)
    assert made.dtype == np.float32
    assert made.flags.c_contiguous
    assert np.array_equal(made, scores(3, 4096, name, 7), equal_nan=True)
    with np.errstate(invalid="ignore"):
        steps, mean = np.diff(made, axis=1), np.nanmean(made[np.isfinite(made)])
    holds = {
        "normal": lambda: abs(mean) < 0.1 and np.nanstd(made) > 0.9,
        "uniform": lambda: 0 <= made.min() < made.max() < 1,
        "ascending": (steps >= 0).all,
        "descending": (steps <= 0).all,
        "all-equal": lambda: len(np.unique(made)) == 1,
        "ten-values": lambda: len(np.unique(made)) == 10,
        "relu-sum": lambda: made.min() == 0,
        "half-zero": lambda: abs((made == 0).mean() - 0.5) < 0.05 and made.max() > 1,
        "fp16-ties": lambda: (
            len(np.unique(made)) > 1000 and len(np.unique(made.astype(np.float16))) == 8
        ),
        "nan-inf": lambda: all(f(made).any() for f in (np.isnan, np.isposinf, np.isneginf)),
    }
    assert holds[name]()


def test_an_unknown_distribution_is_no_silent_default():
    """A name that nobody draws raises."""
    with pytest.raises(ValueError, match="cauchy"):
        scores(1, 8, "cauchy", 0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_expected_selection_is_that_of_a_float64_sort(name):
    """The reference gives the indices of NumPy's stable sort in float64, NaN first."""
    made = scores(2, 700, name, 3)
    found = expected(torch, torch.from_numpy(made), 64)
    keys = np.where(np.isnan(made), np.inf, made.astype(np.float64))
    # NaN before +inf, then by score, then by index.
    order = [np.lexsort((range(700), -keys[row], ~np.isnan(made[row])))[:64] for row in range(2)]
    assert found.indices.tolist() == [list(row) for row in order]
    assert found.other_rows(found.indices) == found.wrong_rows(found.indices) == 0


def test_wrong_selections_are_told_apart():
    """Another order is other indices but no wrong set; a repeat, a bad value or a bad tail is."""
    found = expected(torch, torch.tensor([[3.0, 1.0, -0.0, 0.0, 2.0]]), 3)
    assert found.indices.tolist() == [[0, 4, 1]]
    turned = torch.tensor([[4, 0, 1]], dtype=torch.int32)
    assert (found.other_rows(turned), found.wrong_rows(turned)) == (1, 0)
    for chosen in ([0, 0, 4], [0, 4, 2], [0, 4, 5], [0, 4, -1]):
        assert found.wrong_rows(torch.tensor([chosen])) == 1
    tied = expected(torch, torch.tensor([[0.0, -0.0, 1.0]]), 2)
    assert tied.indices.tolist() == [[2, 0]]
    assert tied.wrong_rows(torch.tensor([[1, 2]])) == 0
    whole = expected(torch, torch.tensor([[1.0, 2.0]]), 4)
    assert whole.indices.tolist() == [[0, 1, -1, -1]]
    assert whole.wrong_rows(torch.tensor([[1, 0, -1, -1]])) == 0
    assert whole.wrong_rows(torch.tensor([[1, 0, -1, 3]])) == 1


def test_every_contender_is_timed_on_every_shape():
    """A point holds rungs and peers, the floor of its bytes, and the host's cost of a call."""
    answer = timed(msgspec.structs.replace(SMALL, ties="both"))
    assert [point.id for point in answer.results] == [s.id for s in shapes(SMALL)]
    point = answer.results[-1]
    assert point.status is Status.PASS
    assert point.time("cluster-8", "lowest") == round(3.0 + 1e-5 * 4 * 4096, 3)
    assert point.time("torch.topk") == 12.0
    auto = point.times[0]
    assert (auto.contender, auto.rung, auto.choice) == ("auto", "cluster-8", "kernel/auto")
    floor = point.floor
    assert (floor.bytes, floor.cluster) == (4 * (4096 * 4 + 4 + 16 * 4), 8)
    assert floor.copy_us == round(floor.bytes / 4e6, 3)
    assert floor.us == pytest.approx(floor.copy_us + floor.empty_us, abs=0.001)
    assert point.host.rung == "cluster-8"
    assert point.host.calls == 16
    assert point.host.auto_us > 0
    assert point.host.prepared_us > 0
    assert answer.summary.host_prepared_us > 0
    costs = [p.times[-1].host_us for p in answer.results]
    assert min(costs) <= answer.summary.host_peers_us["torch.topk"] + 0.01 <= max(costs) + 0.02
    assert answer.options["peers"] == ["torch"]
    assert (answer.options["k"], answer.options["dtype"]) == (16, "float32")
    assert "dtypes" not in answer.options


def test_a_refused_rung_is_waived_with_the_devices_reason():
    """Another rung than the one named is no time of it; the fall's reason is told."""
    answer = timed()
    refused = [t for p in answer.results for t in p.times if t.contender == "cluster-16"]
    assert {one.status for one in refused} == {Status.WAIVED}
    assert {one.us for one in refused} == {None}
    (missing,) = answer.summary.missing
    assert missing.shapes == 4
    assert missing.reason == "max_active_clusters is 0 for long-512x4/16"


def test_a_wrong_result_is_never_timed():
    """A rung with two places swapped fails its point, is said first, and is never the best."""
    answer = timed(wrong="cluster-8")
    for point in answer.results:
        assert point.status is Status.FAIL
        assert point.time("cluster-8", "lowest") is None
        assert point.host is None
    assert answer.summary.wrong == 4
    assert answer.summary.finding.startswith("WRONG results of the ladder on 4 shapes")
    assert "--verify" in answer.summary.next_action


def test_what_was_timed_is_checked_too():
    """A rung that is right at first and selects nothing while it is timed has no time."""
    answer = timed(slips="cluster-4")
    slipped = [t for p in answer.results for t in p.times if t.contender == "cluster-4"]
    assert {one.us for one in slipped} == {None}
    assert {one.note for one in slipped if one.status is Status.FAIL} == {
        "1 of 1 rows are wrong when timed",
        "4 of 4 rows are wrong when timed",
    }
    assert answer.summary.wrong == 4


def test_what_fails_costs_one_line():
    """A timing that fails, and a peer that raises or refuses, leave the others as they were."""
    answer = timed(peers=(BED.TorchTopk(), BED.Broken(), BED.Choosy()), dead="cluster-4")
    told = {one.contender: one for one in answer.summary.missing}
    assert told["cluster-4"].status is Status.ERROR
    assert "912" in told["cluster-4"].reason
    assert told["flashinfer"].reason.startswith("FileNotFoundError: [Errno 2] no compiler")
    assert "\n" not in told["flashinfer"].reason
    assert told["shipped-8"].status is Status.WAIVED
    assert all(point.time("torch.topk") == 12.0 for point in answer.results)
    assert {point.status for point in answer.results} == {Status.PASS}


def test_a_rung_in_whose_place_another_is_captured_has_no_time():
    """What answers in the graph must be what answered before, or it would be another's time."""
    (_, drifted) = timed(drifts="cluster-2").summary.missing
    assert (drifted.contender, drifted.status) == ("cluster-2", Status.ERROR)
    assert drifted.reason.startswith("torch answered in its place when captured")


def test_a_peer_is_not_asked_for_more_than_a_row_has():
    """torch.topk with k beyond the columns is waived; the ladder answers."""
    answer = timed(msgspec.structs.replace(SMALL, columns=(8,)))
    (point, _) = answer.results
    assert point.time("torch.topk") is None
    assert point.time("auto", "lowest") is not None


def test_the_summary_holds_auto_against_everything():
    """Ratios are those of the times: best peer, each peer, upstream's choice, best rung, ties."""
    answer = timed(msgspec.structs.replace(SMALL, ties="both"))
    found = {one.what: one for one in answer.summary.against}
    ladder = BED.PlayedLadder()
    auto = {
        (r, c): round(ladder.cost("one-cta" if c == 1024 else "cluster-8", r, c), 3)
        for c in (1024, 4096)
        for r in (1, 4)
    }
    peer = found["the best peer"]
    assert peer.geometric_mean == round(geometric_mean([12 / us for us in auto.values()]), 3)
    assert peer.by_rows["4"] == round(geometric_mean([12 / auto[4, c] for c in (1024, 4096)]), 3)
    assert peer.least == round(min(12 / us for us in auto.values()), 3)
    assert peer.least_at == "normal/float32/k16/r4n1024"
    assert peer.slower == ()
    assert found["torch.topk"] == msgspec.structs.replace(peer, what="torch.topk")
    assert found["upstream's own choice"].shapes == 2
    # auto took one CTA for the short rows, and 8 would have been faster.
    assert found["the best rung"].least < 0.4
    assert len(found["the best rung"].slower) == 2
    assert found['auto with ties="any"'].geometric_mean == pytest.approx(0.95, abs=0.002)
    assert "1.05 times what" in answer.summary.finding
    assert "--calibrate" in answer.summary.next_action


def test_a_slower_auto_is_named():
    """Shapes on which the best peer is faster are counted in the finding and listed."""
    answer = timed(msgspec.structs.replace(SMALL, rows=(4, 64), columns=(65536,)))
    peer = answer.summary.compared("the best peer")
    assert peer.slower == ("normal/float32/k16/r64n65536",)
    assert "slower on 1 shape (" in answer.summary.finding


def test_without_a_peer_nothing_is_compared_with_one():
    """The finding says so and the next step names a peer."""
    found = timed(peers=()).summary
    assert found.compared("the best peer") is None
    assert found.finding.startswith("No peer was timed on the 4 shapes")
    assert "--peer torch" in found.next_action


def test_a_missing_flashinfer_is_said_and_not_guessed(monkeypatch):
    """Without the package there is a note; a version without top_k has another."""
    monkeypatch.setitem(__import__("sys").modules, "flashinfer", None)
    library, note = flashinfer()
    assert library is None
    assert "not installed" in note
    fake = SimpleNamespace(__version__="0.1")
    monkeypatch.setitem(__import__("sys").modules, "flashinfer", fake)
    assert flashinfer() == (None, "FlashInfer is not timed: 0.1 has no top_k")
    fake.top_k = lambda made, k: (made.topk(k).values, made.topk(k).indices)
    library, note = flashinfer()
    assert note == "FlashInfer is 0.1"
    assert library.built is None
    answer = timed(peers=(library,))
    assert all(point.time("flashinfer") == 12.0 for point in answer.results)


def test_kernels_of_flashinfer_that_were_built_ahead_are_named(monkeypatch, tmp_path):
    """Where its library of top-k kernels lies in the package, its hash is an input of the bench."""
    built = tmp_path / "data" / "aot" / "topk" / "topk.so"
    built.parent.mkdir(parents=True)
    built.write_bytes(b"kernels")
    fake = SimpleNamespace(__version__="0.7", __path__=[str(tmp_path)], top_k=lambda *_: None)
    monkeypatch.setitem(__import__("sys").modules, "flashinfer", fake)
    library, note = flashinfer()
    assert library.built == built
    assert note == "FlashInfer is 0.7, its kernels built ahead of time"
    options = msgspec.structs.replace(SMALL, peers=("flashinfer",))
    found = bed._Peers(options, BED.cpu_place(), 0, lambda _done, _total: None)
    assert found.notes == [note]
    assert found.inputs == {"FlashInfer's topk.so": hashlib.sha256(b"kernels").hexdigest()}
