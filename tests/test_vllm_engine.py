# SPDX-License-Identifier: Apache-2.0
"""``model-topk --engine vllm``: engines in processes of their own, against a fake vLLM."""

import runpy
import sys
from pathlib import Path

import msgspec
import pytest

from thorprobe.answer import read, sheets
from thorprobe.errors import CouldNotProbeError
from thorprobe.oracle.evidence import read_all
from thorprobe.render.sheet import render_json, render_markdown, render_text
from thorprobe.vllm import engine, engine_process
from thorprobe.vllm.engine_plan import MODELS, Case, Engine, Suite

_FAKE = Path(__file__).parent / "fake_engine.py"
COMMAND = (sys.executable, str(_FAKE))
SENTENCE = "cooperative_topk launch failed: a kernel launch error has occurred due to cluster "
GROUPS = "sms=8,groups-of=2"

CASES = (
    Case(name="one", prompt=100, tokens=4, forced=True, repeat=2),
    Case(name="many", requests=3, prompt=90, tokens=2),
    Case(name="timed", prompt=80, tokens=3, timed=True),
)
ENGINES = (
    Engine(name="eager", cases=("one", "many", "timed")),
    Engine(name="part", partition=GROUPS, cases=("one", "many")),
    Engine(name="part-fallback", partition=GROUPS, drop_in="fallback", cases=("one", "timed")),
    Engine(name="graphs", graphs="full-and-piecewise", drop_in="always", wave=2, cases=("one",)),
    Engine(name="odd", wave=2, cases=("one",)),
    Engine(name="dies-at-start", wave=2, cases=("one",)),
    Engine(name="aborts", wave=2, cases=("one",)),
    Engine(name="no-partition", wave=2, partition="sms=9999", cases=("one",)),
)
SUITE = Suite(name="test", cases=CASES, engines=ENGINES)


@pytest.fixture(scope="module")
def small():
    """Put small models in their places, here as in the engines' processes."""
    made = runpy.run_path(str(_FAKE))["small"]()
    before = dict(MODELS)
    MODELS.update(made)
    yield made
    MODELS.update(before)


@pytest.fixture(scope="module")
def kept():
    """Return what takes every answer that is handed over on the way."""
    return []


@pytest.fixture(scope="module")
def answer(small, kept):
    """Return the answer of the whole suite."""
    return engine.ask(SUITE, "cpu", argv=("model-topk",), command=COMMAND, keep=kept.append)


@pytest.fixture(scope="module")
def runs(answer):
    """Return the engines by name."""
    return {run.engine: run for run in answer.results}


def case_of(run, name="one"):
    """Return one case of an engine."""
    return next(case for case in run.cases if case.case == name)


def test_an_engine_says_what_it_is_and_what_ran_in_order(runs):
    """Versions, runner, backend and graph mode; the prefill's operator, then the decode's."""
    run = runs["eager"]
    assert run.versions["vllm"] == "0.33.0"
    assert (run.runner, run.graph_mode, set(run.backends.values())) == ("V2", "NONE", {"FAKE_QSA"})
    assert run.start_ops == ()
    ops = [(op.op, op.rows, op.captured, op.calls) for op in case_of(run).ops]
    assert ops == [("persistent_topk", 100, False, 2), ("cooperative_topk", 1, False, 6)]
    assert run.beside == 3
    assert run.death is None


def test_a_graph_engine_counts_what_it_captures_at_its_start(runs):
    """Eager and captured calls are told apart, in order."""
    ops = [(op.rows, op.captured) for op in runs["graphs"].start_ops]
    assert ops == [(n, captured) for captured in (False, True) for n in (1, 2, 4, 8)]
    assert runs["graphs"].capture_sizes == (1, 2, 4, 8)


def test_tokens_logprobs_and_sets_equal_transformers_on_forced_tokens(runs):
    """The same weights give the same best tokens and sets; log-probabilities lie close."""
    for name in ("eager", "part-fallback", "graphs"):
        found = case_of(runs[name]).likeness
        assert found.forced
        assert (found.positions, found.equal, found.ties, found.other) == (4, 4, 0, 0)
        assert 0 <= found.max_difference < 0.1
        assert found.prefill.compared == 2 * (100 - 3)
        # Position 67 is the first that sees a seventeenth block.
        assert found.prefill.past_budget == 2 * (100 - 67)
        assert (found.decode.compared, found.decode.past_budget) == (6, 6)
        assert found.prefill.wrong == found.decode.wrong == 0


def test_every_row_is_checked_and_a_wrong_one_is_found(runs):
    """A batch's rows all count; an operator that repeats an index is wrong in nearly every row."""
    many = case_of(runs["eager"], "many").checks
    assert many["persistent_topk"].rows == 2 * (90 + 89 + 88)
    assert many["cooperative_topk"].rows == 2 * 3
    assert not any(check.wrong_rows for check in many.values())
    odd = case_of(runs["odd"]).checks["persistent_topk"]
    assert odd.wrong_rows > odd.rows // 2
    assert odd.detail.startswith("row ")


def test_a_death_in_a_prompt_is_an_answer_with_its_call_frames_and_text(runs):
    """The record holds the call and its arm, vLLM's frames without thorprobe's, and the text."""
    run = runs["part"]
    found = run.death
    assert run.cases == ()
    assert (found.moment, found.case, found.kind) == ("prompt", "one", "RuntimeError")
    assert (found.last.op, found.last.rows, found.last.captured) == ("cooperative_topk", 1, False)
    assert found.arm == "8 CTAs"
    assert found.text.startswith(SENTENCE)
    assert found.frames[0].startswith("vllm/__init__.py:")
    assert found.frames[-1].startswith("vllm/_C_stable_libtorch.py:")
    assert not any("thorprobe" in frame or frame.startswith("/") for frame in found.frames)


def test_a_death_at_the_start_and_a_dead_process_are_answers_too(runs):
    """An error of LLM() has the moment; a process that aborts has its exit status."""
    start = runs["dies-at-start"].death
    assert (start.moment, start.kind, start.text) == ("start-up", "ValueError", "no engine today")
    dead = runs["aborts"].death
    assert (dead.moment, dead.case, dead.kind) == ("prompt", "one", "process")
    assert dead.exit_status == -6
    none = runs["no-partition"].death
    assert (none.kind, none.text) == ("CouldNotProbeError", "there is no such partition")


def test_a_drop_in_carries_an_engine_past_the_refusal(answer, runs):
    """Where vLLM alone dies, the engine with the drop-in runs, and the page says so."""
    assert runs["part-fallback"].death is None
    told = " ".join(answer.summary.sentences)
    assert f"the operators alone in {GROUPS}: it dies in case one, at cooperative_topk" in told
    assert f"drop-in fallback, the operators alone in {GROUPS}: it runs, 206 of 206 rows" in told


def test_repeats_count_sequences_and_traces(answer, runs):
    """A steady engine gives one of each, an unsteady one as many as there are runs."""
    steady = case_of(runs["eager"]).repeats
    assert (steady.runs, steady.sequences, steady.traces) == (2, 1, 1)
    odd = case_of(runs["odd"]).repeats
    assert (odd.sequences, odd.traces, odd.worst_sequences, odd.worst_traces) == (2, 2, 2, 2)
    told = " ".join(answer.summary.sentences)
    assert "drop-in always repeats itself" in told
    assert "vLLM alone does not repeat itself" in told


def test_tokens_that_cannot_be_forced_count_up_to_the_first_other(runs):
    """Then the prefix is another one: what comes after says nothing."""
    found = case_of(runs["odd"]).likeness
    assert not found.forced
    assert (found.positions, found.equal, found.other) == (1, 0, 1)
    assert "no tie" in found.ties_named[0]


def test_a_timed_case_has_times_and_says_where_no_kernel_was_seen(answer, runs):
    """Host times are there without a GPU; the profiler's absence is told, not hidden."""
    times = case_of(runs["eager"], "timed").times
    assert times.runs == 5
    assert times.prefill_us > 0
    assert times.kernels == ()
    assert times.unprofiled
    assert any("No kernel was seen" in note for note in answer.summary.notes)


def test_each_case_is_handed_over_as_it_ends(answer, kept):
    """A kill loses the case in flight at most; what is planned and not there is named."""
    sizes = [sum(len(run.cases) for run in one.results) for one in kept]
    assert sizes == sorted(sizes)
    assert set(range(sizes[-1] + 1)) <= set(sizes)
    assert kept[0].summary.missing
    assert answer.summary.missing == ()


def test_the_answer_reads_back_and_renders(answer, tmp_path):
    """JSON decodes to the same answer; the pages name the death's text and no folder of here."""
    path = tmp_path / "engine.json"
    path.write_text(render_json(answer), encoding="utf-8")
    again = read(path)
    assert again.results == answer.results
    assert again.summary == answer.summary
    page = sheets([again])[0]
    told = render_markdown(page, again)
    assert SENTENCE in told
    assert "persistent_topk 100 x 64 (2 times)" in told
    assert str(Path.home()) not in told
    assert render_text(page).startswith("NVIDIA H200")


def test_the_oracle_reads_it_as_evidence_of_each_engine(answer, tmp_path):
    """What counts for a cell is taken by name: rows, likeness, repeats, and deaths in a call."""
    path = tmp_path / "engine.json"
    path.write_text(render_json(answer), encoding="utf-8")
    (exhibit,) = read_all([path])
    assert exhibit.device == "NVIDIA H200"
    found = dict(zip([run.engine for run in answer.results], exhibit.engines, strict=True))
    eager = found["eager"]
    assert (eager.version, eager.prompts, eager.wrong_rows) == ("0.33.0", (90, 100), 0)
    assert eager.rows == 206 + 2 * (90 + 89 + 88) + 6
    assert (eager.positions, eager.other_tokens, eager.wrong_sets) == (4, 0, 0)
    assert (eager.runs, eager.sequences, eager.traces) == (2, 1, 1)
    assert found["part"].died.startswith(f"in cooperative_topk of 1 row: {SENTENCE}")
    assert (found["part"].partition, found["part-fallback"].drop_in) == (GROUPS, "fallback")
    # The start and the process died elsewhere, which says nothing of the selection.
    assert found["dies-at-start"].died == found["aborts"].died == ""
    assert found["odd"].wrong_rows > 0


def test_an_answer_is_gone_on_with_where_it_was_cut(answer, small):
    """Only the engine that lacks a case starts again, and only for that case."""
    short = []
    for run in answer.results:
        cases = tuple(case for case in run.cases if case.case != "many")
        short.append(msgspec.structs.replace(run, cases=cases))
    before = msgspec.structs.replace(answer, results=tuple(short))
    again = engine.ask(SUITE, "cpu", before=before, command=COMMAND)
    names = {run.engine: [case.case for case in run.cases] for run in again.results}
    assert names["eager"] == ["one", "timed", "many"]
    assert again.results[3:] == before.results[3:]
    assert again.results[0].cases[0] == answer.results[0].cases[0]


def test_other_weights_are_not_gone_on_with(answer, small):
    """Cases on two models would be one answer of neither."""
    models = tuple(msgspec.structs.replace(m, weights="0" * 64) for m in answer.summary.models)
    summary = msgspec.structs.replace(answer.summary, models=models)
    before = msgspec.structs.replace(answer, results=(), summary=summary)
    with pytest.raises(CouldNotProbeError, match="other weights"):
        engine.ask(SUITE, "cpu", before=before, command=COMMAND)


def test_an_engine_that_hangs_is_ended_and_told(small, monkeypatch):
    """No answer in time is a death as well."""
    monkeypatch.setitem(engine_process.PATIENCE_S, "case", 1.0)
    monkeypatch.setitem(engine_process.PATIENCE_S, "end", 1.0)
    suite = Suite(
        name="test", cases=(Case(name="one"),), engines=(Engine(name="hangs", cases=("one",)),)
    )
    found = engine.ask(suite, "cpu", command=COMMAND).results[0].death
    assert (found.kind, found.moment, found.case) == ("hang", "prompt", "one")
    assert "no answer within 1 s" in found.text


def test_without_a_gpu_the_process_says_so(small):
    """The real process, where torch sees no GPU: one sentence, no traceback."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = (sys.executable, "-u", "-m", "thorprobe.vllm.engine_child")
    with pytest.raises(CouldNotProbeError, match="needs a GPU"):
        engine.ask(SUITE, "cpu", command=command)
