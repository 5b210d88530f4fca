# SPDX-License-Identifier: Apache-2.0
"""``model-topk``: the model with transformers' selection and with another in its place."""

import json
import runpy
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.qwen4exp import plan as plans
from thorprobe.qwen4exp.answer import inquire
from thorprobe.qwen4exp.page import sheet
from thorprobe.qwen4exp.plan import ModelOptions
from thorprobe.record import Status
from thorprobe.render.sheet import render_markdown, render_text

_MADE = runpy.run_path(str(Path(__file__).parent / "selections.py"))
pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ModelOptions(size="tiny", dtype="fp32", context=2_112, decode_tokens=4)
BELOW = msgspec.structs.replace(TINY, context=2_040)


@pytest.mark.parametrize(("requests", "drafts"), [(1, 0), (2, 1)])
def test_ladder_and_reference_agree_past_the_budget(requests, drafts):
    """Equal sets for every query, equal greedy tokens, and every row is a top-k of its scores."""
    options = msgspec.structs.replace(TINY, requests=requests, speculative_tokens=drafts)
    answer = inquire(options, "cpu")
    found = answer.summary
    assert found.sets_equal
    assert found.tokens_equal
    assert found.wrong_rows == 0
    assert found.agreement.past_budget == requests * (2_112 - 2_051 + 4)
    assert found.agreement.compared == requests * (2_112 - 3 + 4)
    assert found.checked_rows == requests * (2_112 + 4)
    assert found.rungs == {"torch": 2 + 4 // (1 + drafts)}
    assert "select equal sets" in found.finding
    assert {step.status for step in answer.results} == {Status.PASS}


@pytest.mark.parametrize("planted", ["smallest", "one_off"])
def test_a_planted_wrong_selection_is_caught_past_the_budget(planted):
    """Other blocks than the reference's are found, by sets and by the rows' own scores."""
    found = inquire(TINY, "cpu", select=_MADE[planted]).summary
    assert not found.sets_equal
    assert found.agreement.wrong == found.agreement.past_budget == found.wrong_rows == 65
    assert found.max_logit_difference > 0
    assert found.finding.startswith("WRONG: 65 queries")


@pytest.mark.parametrize("planted", ["smallest", "one_off"])
def test_a_planted_wrong_selection_is_not_caught_below_the_budget(planted):
    """Every block is selected there whatever selects, and the answer says that nothing can show."""
    found = inquire(BELOW, "cpu", select=_MADE[planted]).summary
    assert found.sets_equal
    assert found.tokens_equal
    assert found.wrong_rows == found.agreement.past_budget == 0
    assert found.max_logit_difference == 0
    assert "a wrong selection could not show" in found.finding
    assert "--context 2300" in found.next_action


def test_a_sampled_reference_visits_few_queries_and_says_so():
    """The sample stands evenly over the context and ends with its last query."""
    options = msgspec.structs.replace(TINY, reference_queries=16, prefill_chunk=512)
    found = inquire(options, "cpu", select=_MADE["exact"]).summary
    assert found.agreement.compared == 16 + 4
    assert found.agreement.past_budget == 1 + 4
    assert found.sets_equal
    assert found.tokens_equal
    assert any("visited 20, evenly" in note for note in found.notes)
    assert found.times[0].reference_queries == 16
    assert found.times[0].ladder_queries == 2_112


def test_rows_are_seen_with_the_arms_that_they_reach():
    """Prefill chunks and decode batches are counted by their rows, an arm for each capability."""
    options = msgspec.structs.replace(
        TINY, requests=3, speculative_tokens=1, context=70, prefill_chunk=64
    )
    found = inquire(options, "cpu", select=_MADE["exact"]).summary
    seen = {(rows.phase, rows.num_rows): (rows.calls, rows.arms) for rows in found.num_rows}
    assert seen == {
        ("prefill", 18): (1, {"11.0": "4 CTAs"}),
        ("prefill", 192): (1, {"11.0": "persistent, no cluster"}),
        ("decode", 6): (2, {"11.0": "8 CTAs"}),
    }


def test_the_plan_feeds_every_token_once():
    """Chunks and decode steps follow one another without a gap."""
    options = ModelOptions(
        context=100, prefill_chunk=48, decode_tokens=7, speculative_tokens=2, reference_queries=10
    )
    steps = plans.steps(options)
    assert [s.id for s in steps] == ["prefill-0", "prefill-1", "prefill-2"] + [
        f"decode-{i}" for i in range(3)
    ]
    for one, other in pairwise(steps):
        assert one.first + one.tokens == other.first
    visited = [step.first + query for step in steps[:3] for query in plans.compared(options, step)]
    assert visited == list(range(9, 100, 10))
    assert plans.compared(options, steps[-1]) == range(3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"context": 0}, "`--context 0`"),
        ({"requests": 0}, "`--requests 0`"),
        ({"decode_tokens": 0}, "`--decode-tokens 0`"),
        ({"speculative_tokens": -1}, "`--speculative-tokens -1`"),
        ({"prefill_chunk": 0}, "`--prefill-chunk 0`"),
        ({"dtype": "fp8"}, "`--dtype fp8`"),
        ({"context": 262_140}, "262,148 tokens"),
        ({"requests": 64, "prefill_chunk": 2_048}, "131,072 rows"),
        ({"policy": "0.1"}, "unknown Policy"),
        ({"size": "huge"}, "'huge' model"),
    ],
)
def test_options_that_no_run_can_have_are_refused(change, told):
    """Each in one sentence that names what was asked, before anything is built."""
    with pytest.raises(UsageError) as refused:
        plans.check(msgspec.structs.replace(ModelOptions(), **change))
    assert told in refused.value.sentence


def test_too_little_memory_is_told_before_the_model_is_built(monkeypatch):
    """The weights' size and what is free stand in the sentence."""
    monkeypatch.setattr("thorprobe.driver.torch_device._free_memory", lambda: 1 << 30)
    with pytest.raises(CouldNotProbeError) as refused:
        inquire(ModelOptions(), "cpu")
    assert "weights take 3.4 GiB" in refused.value.sentence
    assert "1.0 GiB are free" in refused.value.sentence


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    """A saved model answers as the built one does; only the folder's name is shown."""
    from thorprobe.driver.torch_device import open_device
    from thorprobe.qwen4exp.model import build

    short = msgspec.structs.replace(TINY, context=40)
    with open_device("cpu") as where:
        build(short, where).network.save_pretrained(tmp_path / "mine")
    saved = msgspec.structs.replace(short, checkpoint=str(tmp_path / "mine"))
    built, loaded = (inquire(options, "cpu", select=_MADE["exact"]) for options in (short, saved))
    assert loaded.summary.max_logit == pytest.approx(built.summary.max_logit, rel=1e-5)
    assert loaded.summary.model == "Qwen4Exp, checkpoint mine"
    assert loaded.options["checkpoint"] == "mine"
    assert str(tmp_path) not in msgspec.json.encode(loaded).decode()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "cannot be read"),
        ({"config.json": "nonsense"}, "is no config"),
        ({"config.json": '{"model_type": "llama"}'}, "holds a llama"),
        ({"config.json": "{}"}, "model without a type"),
        ({"config.json": '{"model_type": "qwen4_exp"}', "model.bin": ""}, "no weights as safetens"),
        (
            {"config.json": '{"model_type": "qwen4_exp_text"}', "model.safetensors": "x"},
            "cannot be loaded",
        ),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path, main, files, told):
    """One sentence and exit code 2, whatever the folder holds."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = main("model-topk", "--device", "cpu", "--checkpoint", tmp_path)
    assert ran.code == 2
    assert told in ran.err
    assert "hint:" in ran.err


def test_the_command_answers_in_json_that_renders_to_its_page(main, tmp_path):
    """The answer holds the contract's fields, is read back, and makes the same page twice."""
    path = tmp_path / "answer.json"
    asked = ("model-topk", "--tiny", "--device", "cpu", "--context", 60, "--decode-tokens", 2)
    ran = main(*asked, "--json", "--output", path, "--no-progress")
    assert ran.code == 0, ran.err
    summary = json.loads(path.read_text())["summary"]
    assert {
        *("context_tokens", "rungs", "sets_equal", "max_logit_difference", "tokens_equal"),
        "tokens_per_second",
    } <= set(summary)
    from thorprobe import answer as evidence

    answer = evidence.read(path)
    page = render_markdown(sheet(answer), answer)
    assert main("report", path).out == page
    assert "No Thor was measured" in page
    assert str(tmp_path) not in page
    assert "CPU, " in render_text(sheet(answer)).splitlines()[0]


@pytest.mark.parametrize(("load", "busy"), [("1.9", True), ("0.1", False), ("?", False)])
def test_times_of_a_busy_machine_are_told_as_such(load, busy):
    """A load beside the run stands in the notes; an idle machine is not spoken of."""
    short = msgspec.structs.replace(TINY, context=20, decode_tokens=1)
    answer = inquire(short, "cpu", select=_MADE["exact"])
    assert float(answer.software["load"]) >= 0
    told = msgspec.structs.replace(answer, software={"load": load, "threads": "2"})
    assert ("of a busy machine" in render_markdown(sheet(told), told)) is busy


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tiny", "--checkpoint", "x"), "one model to run"),
        (("--device", "cpu", "--partition", "sms=8"), "a CPU has no partitions"),
        (("--device", "first"), "a device is a number or `cpu`"),
        (("--fail-on", "refused"), "only `wrong` can be told"),
        (("--rung", "cluster-3", "--tiny", "--device", "cpu", "--context", "60"), "cluster-3"),
    ],
)
def test_bad_arguments_end_in_one_sentence(main, words, told):
    """Exit code 2, a sentence and a hint."""
    ran = main("model-topk", *words)
    assert ran.code == 2, ran.err
    assert told in ran.err
    assert "hint:" in ran.err


def test_fail_on_wrong_is_for_gates(main, monkeypatch):
    """A wrong selection is exit code 0 as a measurement, and 1 with `--fail-on wrong`."""
    monkeypatch.setattr("thorprobe.topk.select", lambda s, n, k, **_: _MADE["smallest"](s, n, k))
    asked = ("model-topk", "--tiny", "--device", "cpu", "--context", 2_056, "--decode-tokens", 1)
    assert main(*asked).code == 0
    ran = main(*asked, "--fail-on", "wrong")
    assert ran.code == 1
    assert "failed: WRONG" in ran.err
