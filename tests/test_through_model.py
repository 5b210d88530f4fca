# SPDX-License-Identifier: Apache-2.0
"""``topk-arms --through-model``: arms reached by requests and query tokens alone."""

import json
import runpy
from pathlib import Path

import msgspec
import pytest

from thorprobe import answer as evidence
from thorprobe.errors import UsageError
from thorprobe.qwen4exp.records import Fallen
from thorprobe.qwen4exp.through_answer import inquire
from thorprobe.qwen4exp.through_judge import contrasts, summarize
from thorprobe.qwen4exp.through_page import sheet
from thorprobe.qwen4exp.through_plan import Drive, drives
from thorprobe.qwen4exp.through_records import ArmCall
from thorprobe.qwen4exp.through_run import rung_for
from thorprobe.record import Check, Origin, Status
from thorprobe.render.sheet import render_markdown

_EXACT = runpy.run_path(str(Path(__file__).parent / "selections.py"))["exact"]
THOR = (11, 0)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_arm_is_reached_by_the_models_own_calls():
    """The selection sees the rows that the settings make, and with them every arm's dispatch."""
    answer = inquire(["0.33.0"], THOR, "cpu")
    found = answer.summary
    assert found.missed == 0
    assert {(arm.cluster, arm.path) for arm in found.arms} == {
        *((size, "cooperative") for size in (16, 8, 4, 2)),
        (1, "persistent"),
    }
    reached = {arm.cluster: (arm.num_rows[0], arm.num_rows[-1]) for arm in found.arms}
    assert reached == {16: (1, 4), 8: (5, 8), 4: (9, 33), 2: (34, 64), 1: (65, 130)}
    assert all(right == rows > 0 for right, rows in (arm.checked for arm in found.arms))
    assert all(call.num_rows == call.requests * call.query_tokens for call in answer.results)
    assert "The rows of every arm came through the model" in found.finding
    assert "no cluster was launched here" in found.finding
    page = render_markdown(sheet(answer), answer)
    assert "4 requests, 1 speculative token -&gt; 8 rows -&gt; 8 CTAs" in page
    assert "No Thor was measured" in page


def test_the_drives_are_those_of_the_call_site():
    """An arm has the least and the most requests at each draft count, and a prefill chunk."""
    planned = drives(["0.33.0", "0.33.0"], THOR)
    assert len(planned) == len(set(planned))
    sixteen = [drive for drive in planned if drive.cluster == 16]
    assert [(d.kind, d.requests, d.tokens) for d in sixteen] == [
        *(("decode", 1, 1), ("decode", 4, 1), ("decode", 1, 2), ("decode", 2, 2)),
        *(("decode", 1, 3), ("decode", 1, 4), ("prefill", 1, 1)),
    ]
    assert {d.cluster for d in drives(["0.33.0"], (9, 0))} == {8, 4, 2, 1}
    assert sixteen[-1].setting == "1 prefill token"


@pytest.mark.parametrize(
    ("drive", "on_gpu", "rung"),
    [
        ({"cluster": 16, "path": "cooperative"}, True, "cluster-16"),
        ({"cluster": 16, "path": "cooperative"}, False, "auto"),
        ({"cluster": 1, "path": "persistent"}, True, "auto"),
    ],
)
def test_on_a_gpu_the_arms_own_size_is_asked_of_the_ladder(drive, on_gpu, rung):
    """So the cluster that upstream would launch is launched, or is seen to be refused."""
    made = Drive(policy="0.33.0", kind="decode", requests=1, tokens=1, **drive)
    assert rung_for(made, on_gpu=on_gpu) == rung


def _call(setting, rows, cluster, **changes):
    base = {
        "id": setting,
        "status": Status.PASS,
        "origin": Origin.MEASURED,
        "policy": "p",
        "kind": "decode",
        "setting": setting,
        "requests": 2,
        "query_tokens": rows // 2,
        "wanted_rows": rows,
        "wanted_cluster": cluster,
        "num_rows": rows,
        "columns": 9,
        "cluster": cluster,
        "path": "cooperative",
        "gate": True,
        "asked_rung": "auto",
        "rung": "torch",
        "check": Check(oracle="o", rows=rows, wrong_rows=0),
    }
    return ArmCall(**(base | changes))


def test_other_rows_than_the_settings_make_are_not_passed_over():
    """A call that brings other rows, or takes another arm, is counted and said first."""
    calls = [_call("a", 4, 16), _call("b", 8, 8, wanted_rows=6), _call("c", 4, 8, wanted_cluster=4)]
    found = summarize(calls, THOR, "model", 9, 2)
    assert found.missed == 2
    assert found.finding.startswith("2 calls brought other rows")


def test_falls_and_wrong_rows_are_counted_by_arm():
    """A refused rung is named with its calls, and wrong rows are not right ones."""
    fall = Fallen(rung="cluster-16", code=912, reason="no group of 16")
    calls = [
        _call("a", 4, 16, falls=(fall,), rung="cluster-8"),
        _call("b", 2, 16, falls=(fall,), check=Check(oracle="o", rows=2, wrong_rows=1)),
    ]
    (arm,) = summarize(calls, THOR, "model", 9, 2).arms
    assert arm.falls == 2
    assert arm.fallen == (msgspec.structs.replace(fall, calls=2),)
    assert arm.checked == (5, 6)
    assert arm.rungs == {"cluster-8": 1, "torch": 1}
    finding = summarize([*calls, _call("c", 8, 8, rung="cluster-8")], THOR, "model", 9, 2).finding
    assert "13 of 14 rows are right" in finding
    assert "launched 8 CTAs where it picks them" in finding
    assert "16 CTAs were refused and the next rung answered" in finding


def test_contrasts_name_the_knob_that_moved_the_rows():
    """Equal requests in two arms, and different requests in one, once a policy."""
    calls = [_call("a", 4, 16), _call("b", 8, 8), _call("c", 4, 16, requests=4)]
    told = list(contrasts(calls))
    assert told == [
        "p: equal requests, different arms: a -> 4 rows -> 16 CTAs; b -> 8 rows -> 8 CTAs",
        "p: different requests, one arm: a -> 4 rows -> 16 CTAs; c -> 4 rows -> 16 CTAs",
    ]


def test_the_command_answers_in_json_that_renders_to_its_page(main, tmp_path, monkeypatch):
    """The answer is read back as what it is, and its page is the same."""
    planned = drives(["0.33.0"], THOR)[:2]
    monkeypatch.setattr("thorprobe.qwen4exp.through_answer.drives", lambda *_: planned)
    path = tmp_path / "answer.json"
    asked = ("topk-arms", "--through-model", "--policy", "0.33.0", "--as-capability", "11.0")
    ran = main(*asked, "--device", "cpu", "--json", "--output", path)
    assert ran.code == 0, ran.err
    assert json.loads(path.read_text())["command"] == "topk-arms --through-model"
    answer = evidence.read(path)
    assert [call.num_rows for call in answer.results] == [1, 4]
    assert main("report", path).out == render_markdown(sheet(answer), answer)


@pytest.mark.parametrize("option", ["--rows", "--requests", "--profile", "--store", "--kernel"])
def test_options_that_make_launches_are_refused(main, option):
    """The model makes its own launches; an option that would be passed over is named."""
    ran = main("topk-arms", "--through-model", option, "1")
    assert ran.code == 2
    assert f"`{option}` was given together with `--through-model`" in ran.err


def test_an_unknown_policy_is_refused_before_anything_is_built():
    """The policies are read first."""
    with pytest.raises(UsageError, match="unknown Policy"):
        inquire(["0.1"], THOR, "cpu", select=_EXACT)
