# SPDX-License-Identifier: Apache-2.0
"""What the engine's driver is made of: its plan, its watch, its comparison, its words."""

import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from thorprobe.errors import UsageError
from thorprobe.record import Check
from thorprobe.vllm import engine_plan as plans
from thorprobe.vllm.engine_case import Trace, save
from thorprobe.vllm.engine_death import death
from thorprobe.vllm.engine_judge import summarize, with_arm
from thorprobe.vllm.engine_likeness import likeness, read_rows, selections
from thorprobe.vllm.engine_page import sheet
from thorprobe.vllm.engine_plan import MODELS, Case, Engine, Suite
from thorprobe.vllm.engine_watch import OPERATORS, Keeper, Watch, added, check, muted
from thorprobe.vllm.engine_words import (
    CaseRun,
    Death,
    EngineRun,
    KernelTime,
    OpRun,
    Repeats,
    Times,
)

ONE = Suite(name="one", cases=(Case(name="c"),), engines=(Engine(name="e", cases=("c",)),))


def test_the_shipped_suite_asks_everything_that_the_page_is_for():
    """Every mode, both graph modes, a refusing partition with and without, and the hybrid model."""
    suite = plans.load("h200")
    have = {(e.graphs, e.drop_in, e.partition, e.model) for e in suite.engines}
    refusing = "sms=8,groups-of=2"
    for wanted in (
        ("eager", "", "", "qsa"),
        *(("eager", mode, "", "qsa") for mode in plans.DROP_INS),
        *(("full-and-piecewise", mode, "", "qsa") for mode in ("", *plans.DROP_INS)),
        *(("full-decode-only", mode, "", "qsa") for mode in ("", "always")),
        *(("eager", mode, refusing, "qsa") for mode in ("", "fallback", "always")),
        *(("eager", mode, "", "hybrid") for mode in ("", "always")),
    ):
        assert wanted in have
    cases = {case.name: case for case in suite.of(suite.engines[0])}
    assert {case.requests for case in cases.values()} == {1, 8, 64, 65}
    assert {case.prompt for case in cases.values()} == {2_300, 30_000}
    assert max(case.repeat for case in cases.values()) == 50
    assert {case.name for case in suite.forced("hybrid")} == {"one"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cases": (Case(name="c"), Case(name="c"))}, "case c occurs twice"),
        ({"engines": (Engine(name="e", cases=("d",)),)}, "names case d, which is not there"),
        ({"engines": (Engine(name="e", cases=("c", "c")),)}, "occurs twice"),
        ({"engines": (Engine(name="e"), Engine(name="e"))}, "engine e occurs twice"),
    ],
)
def test_a_suite_with_a_slip_is_refused(change, told):
    """Names occur once, and every case that is named is there."""
    with pytest.raises(ValueError, match=told):
        msgspec.structs.replace(ONE, **change)
    with pytest.raises(ValueError, match="partition is"):
        Engine(name="e", partition="eight")


@pytest.mark.parametrize(
    "text",
    [
        'name = "x"\n',
        'name = "x"\n[[case]]\nname = "c"\nprompts = 3\n[[engine]]\nname = "e"\ncases = ["c"]\n',
        'name = "x"\n[[case]]\nname = "c"\nprompt = 0\n[[engine]]\nname = "e"\ncases = ["c"]\n',
        'name = "x"\n[[case]]\nname = "c"\n[[engine]]\nname = "e"\ndrop_in = "all"\ncases = []\n',
        'name = "x"\n[[case]]\nname = "c"\n[[engine]]\nname = "../e"\ncases = ["c"]\n',
    ],
)
def test_a_suite_file_outside_the_schema_is_one_sentence(tmp_path, text):
    """Unknown keys, values out of range, modes that do not exist, and names that leave a folder."""
    path = tmp_path / "suite.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="does not fit the schema"):
        plans.load(str(path))


ASKED = {
    "requests": 1,
    "context": 2_300,
    "tokens": 8,
    "graphs": "eager",
    "drop_in": "",
    "partition": "",
    "repeat": 0,
    "hybrid": False,
    "seed": 0,
}


def test_the_options_of_the_command_line_make_one_engine():
    """One start, one case that is compared and one that is timed."""
    suite = plans.one(**ASKED | {"drop_in": "always", "hybrid": True, "repeat": 3})
    engine = suite.engines[0]
    assert (engine.model, engine.drop_in) == ("hybrid", "always")
    asked, timed = suite.of(engine)
    assert (asked.forced, asked.repeat, asked.timed) == (True, 3, False)
    assert (timed.forced, timed.timed) == (False, True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"graphs": "full"}, "--graphs full"),
        ({"drop_in": "maybe"}, "--drop-in maybe"),
        ({"requests": 0}, "--requests 0"),
        ({"context": 32_768}, "--context 32768"),
        ({"tokens": 0}, "--decode-tokens 0"),
        ({"repeat": -1}, "--repeat -1"),
        ({"seed": -1}, "--seed -1"),
        ({"partition": "sms=0"}, "--partition sms=0"),
    ],
)
def test_a_value_that_no_engine_can_have_is_refused(change, told):
    """The option and its value are named."""
    with pytest.raises(UsageError) as caught:
        plans.one(**ASKED | change)
    assert told in caught.value.sentence
    assert caught.value.hint


def test_prompts_are_the_same_in_every_batch_and_all_pass_the_budget():
    """The first prompts of a batch are those of a smaller one; each is a token shorter."""
    one = plans.prompts(0, Case(name="c"))
    many = plans.prompts(0, Case(name="d", requests=65))
    assert many[0] == one[0]
    assert [len(prompt) for prompt in many] == [2_300 - i for i in range(65)]
    assert len({prompt[:64] for prompt in many}) == 65
    assert plans.prompts(1, Case(name="c")) != one
    assert all(0 <= token < 4_096 for token in one[0])


@pytest.mark.parametrize("prompt", [1, 700, 2_560, 2_561, 30_000])
@pytest.mark.parametrize("chunk", [512, 2_048, 8_192])
def test_the_compared_queries_do_not_depend_on_how_a_prompt_is_cut(prompt, chunk):
    """Whatever the chunk, the same positions are compared, and the last is among them."""
    found = []
    for first in range(0, prompt, chunk):
        tokens = min(chunk, prompt - first)
        found += [first + query for query in plans.wanted(prompt, first, tokens)]
    whole = list(plans.wanted(prompt, 0, prompt))
    assert found == whole
    assert found[-1] == prompt - 1
    assert len(found) == prompt if prompt <= plans.WHOLE else len(found) <= 2 * plans.QUERIES


def _rows(source, rows, columns, k):
    """Return scores with ties, lengths of every kind, and a right selection in any order."""
    scores = torch.tensor(
        [[source.choice((0.0, 0.5, 1.0, 2.0, 3.5)) for _ in range(columns)] for _ in range(rows)]
    )
    lengths = [source.choice((0, 1, k - 1, k, k + 1, columns, columns + 9)) for _ in range(rows)]
    output = torch.full((rows, k), -1, dtype=torch.int32)
    for row, length in enumerate(lengths):
        end = min(length, columns)
        count = min(end, k)
        order = sorted(range(end), key=lambda i, row=row: -float(scores[row, i]))[:count]
        source.shuffle(order)
        output[row, :count] = torch.tensor(order, dtype=torch.int32)
    return scores, torch.tensor(lengths, dtype=torch.int32), output


@pytest.mark.parametrize("seed", range(6))
def test_a_right_selection_passes_and_each_kind_of_wrong_one_does_not(seed):
    """Another value, a repeat, an index out of range, and a tail that is not -1 are each found."""
    source = random.Random(seed)
    scores, lengths, output = _rows(source, 40, 24, 8)
    # What lies beyond a row's length is anything at all.
    for row, length in enumerate(lengths.tolist()):
        scores[row, max(0, min(length, 24)) :] = float("nan")
    assert check(scores, lengths, output, 8).wrong_rows == 0
    for row in range(40):
        length, count = int(lengths[row]), min(int(lengths[row]), 24, 8)
        slips = [("tail", count, 3)] if count < 8 else []
        if count:
            slips.append(("range", 0, min(length, 24)))
        if count > 1:
            slips.append(("repeat", 0, int(output[row, 1])))
        if min(length, 24) > count > 0:
            left = [i for i in range(min(length, 24)) if i not in output[row].tolist()]
            worst = min(left, key=lambda i, row=row: float(scores[row, i]))
            place = max(range(count), key=lambda i, row=row: float(scores[row, output[row, i]]))
            if scores[row, worst] < scores[row, output[row, place]]:
                slips.append(("value", place, worst))
        for kind, place, index in slips:
            wrong = output.clone()
            wrong[row, place] = index
            found = check(scores, lengths, wrong, 8)
            assert found.wrong_rows == 1, (kind, row)
            assert found.detail.startswith(f"row {row} of 40, length ")


def _namespace():
    """Return operators that write the first k indices, and what they were called with."""
    calls = []

    def operator(name):
        def call(logits, _lengths, output, *rest):
            k = rest[1]
            calls.append((name, logits.shape[0]))
            output.copy_(torch.arange(k).expand(logits.shape[0], k))

        call.default = f"{name}.default"
        return call

    return SimpleNamespace(**{name: operator(name) for name in OPERATORS}), calls


def _call(namespace, name, rows, columns=16, k=4):
    output = torch.empty(rows, k, dtype=torch.int32)
    scores = torch.arange(columns, 0, -1.0).expand(rows, columns)
    lengths = torch.full((rows,), columns, dtype=torch.int32)
    getattr(namespace, name)(scores, lengths, output, torch.empty(0), k, columns)
    return output


def test_the_watch_counts_calls_in_order_and_gives_the_places_back():
    """Equal neighbours are one entry; everything but a call is the operator's own."""
    namespace, calls = _namespace()
    before = dict(vars(namespace))
    watch = Watch(namespace)
    watch.install()
    watch.begin(check=True)
    assert namespace.cooperative_topk.default == "cooperative_topk.default"
    for name, rows in (("persistent_topk", 70), ("cooperative_topk", 1), ("cooperative_topk", 1)):
        _call(namespace, name, rows)
    _call(namespace, "cooperative_topk", 2)
    assert [(run.op, run.rows, run.calls) for run in watch.runs] == [
        ("persistent_topk", 70, 1),
        ("cooperative_topk", 1, 2),
        ("cooperative_topk", 2, 1),
    ]
    assert watch.last is None
    assert watch.checks["cooperative_topk"].rows == 4
    assert not any(found.wrong_rows for found in watch.checks.values())
    with muted(watch):
        _call(namespace, "cooperative_topk", 3)
    assert len(calls) == 5
    assert sum(run.calls for run in watch.runs) == 4
    watch.remove()
    assert vars(namespace) == before


def test_calls_beyond_what_is_listed_are_counted():
    """A list stays short whatever runs."""
    namespace, _ = _namespace()
    watch = Watch(namespace)
    watch.install()
    watch.begin()
    for number in range(600):
        _call(namespace, OPERATORS[number % 2], 1)
    assert len(watch.runs) == 256
    assert watch.more == 600 - 256


@pytest.mark.parametrize("quiet", [False, True])
def test_a_refusing_operator_leaves_its_call(quiet):
    """The error comes through, and what was asked is known, whether or not it was watched."""

    def refuse(*_):
        raise RuntimeError("no cluster")

    watch = Watch(SimpleNamespace(cooperative_topk=refuse, persistent_topk=refuse))
    watch.install()
    watch.begin(check=True)
    watch.quiet = quiet
    with pytest.raises(RuntimeError, match="no cluster"):
        _call(watch._namespace, "cooperative_topk", 5)
    assert (watch.last.rows, watch.last.columns, watch.last.k) == (5, 16, 4)
    assert watch.checks == {}


def test_kept_rows_are_named_by_layer_and_position(tmp_path):
    """Layers call in turn; what is read back is what was kept, without -1 and beyond lengths."""
    keeper = Keeper(2, lambda first, tokens: range(tokens - 1, tokens) if first < 6 else range(1))
    for first, tokens in ((0, 4), (4, 2), (6, 1)):
        for layer in range(2):
            lengths = torch.arange(first, first + tokens, dtype=torch.int32)
            scores = torch.full((tokens, 8), 10.0 * layer + first)
            output = torch.full((tokens, 3), -1, dtype=torch.int32)
            output[:, 0] = layer
            keeper.take(scores, lengths, output)
    path = tmp_path / "kept.npz"
    save(str(path), keeper)
    rows = read_rows(path)
    assert set(rows) == {(layer, position) for layer in (0, 1) for position in (3, 5, 6)}
    scores, blocks = rows[1, 5]
    assert scores.tolist() == [14.0] * 5
    assert blocks.tolist() == [1]
    assert read_rows(tmp_path / "none.npz") == {}


LINE = np.log(np.array([0.4, 0.3, 0.2, 0.1]))


def _best(*pairs):
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def test_another_best_token_is_a_tie_only_where_both_are_close():
    """Then the reference's own margin is small, and named; a large difference is no tie."""
    same = _best((0, LINE[0] - 0.02), (1, LINE[1]))
    found = likeness([same], [0], LINE[None], forced=True, emitted=[0])
    assert (found.equal, found.ties, found.other) == (1, 0, 0)
    assert found.max_difference == pytest.approx(0.02)
    far = _best((1, LINE[1] + 0.16), (0, LINE[0] - 0.16))
    found = likeness([far], [0], LINE[None], forced=True, emitted=[0])
    assert (found.equal, found.ties, found.other) == (0, 0, 1)
    assert found.ties_named == ("position 0: 1 here, 0 there, margin 0.288, no tie",)
    line = np.log(np.array([0.36, 0.34, 0.2, 0.1]))
    near = _best((1, line[1] + 0.05), (0, line[0] - 0.03))
    found = likeness([near], [0], line[None], forced=True, emitted=[0])
    assert (found.equal, found.ties, found.other) == (0, 1, 0)
    assert found.ties_named == ("position 0: 1 here, 0 there, margin 0.057",)


def test_without_forcing_only_equal_prefixes_count():
    """The position of the first other token still counts; those after it do not."""
    lines = np.stack([LINE] * 4)
    best = [_best((0, LINE[0]), (1, LINE[1]))] * 4
    found = likeness(best, [0, 0, 0, 0], lines, forced=False, emitted=[0, 2, 0, 0])
    assert found.positions == 2
    assert likeness([], [0], lines, forced=False, emitted=[]).positions == 0


def test_sets_are_compared_with_vllms_scores_scaled():
    """Scores of vLLM lack a division that transformers has: scaled, they equal, and sets count."""
    scores = np.linspace(1, 2, 600, dtype=np.float32)
    best = np.argsort(-scores)[:512]
    width = MODELS["qsa"].config["indexer_head_dim"] ** 0.5
    other = best.copy()
    other[-1] = 0
    reference = {(0, 5): (scores, best), (1, 5): (scores, best), (0, 9): (scores, best)}
    engine = {(0, 5): (scores * width, best[::-1]), (1, 5): (scores * width, other)}
    engine[0, 9] = engine[0, 5]
    prefill, decode = selections("qsa", reference, engine, 9)
    assert (prefill.compared, prefill.identical, prefill.wrong) == (2, 1, 1)
    assert (decode.compared, decode.identical) == (1, 1)
    assert prefill.max_score_difference < 1e-6


def test_a_trace_is_every_bit():
    """One unit in the last place of one log-probability is another trace."""
    one = Trace((1,), (((1, -0.5), (2, -1.0)),))
    other = Trace((1,), (((1, float(np.nextafter(-0.5, 0))), (2, -1.0)),))
    again = Trace((1,), (((2, -1.0), (1, -0.5)),))
    assert one.bits() != other.bits()
    assert one.bits() == again.bits()


def test_a_death_names_the_first_error_and_its_frames(tmp_path):
    """Of a chain the cause counts; frames outside of vLLM and torch are left out."""
    folder = tmp_path / "site"
    (folder / "vllm").mkdir(parents=True)
    source = folder / "vllm" / "steps.py"
    source.write_text(
        "def inner():\n    raise RuntimeError('refused')\n\n"
        "def outer():\n    try:\n        inner()\n"
        "    except RuntimeError as error:\n        raise ValueError('died') from error\n",
        encoding="utf-8",
    )
    made = {}
    exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), made)
    with pytest.raises(ValueError, match="died") as caught:
        made["outer"]()
    last = OpRun(op="cooperative_topk", rows=1, columns=64, k=16)
    found = death(caught.value, "prompt", "one", last, [folder])
    assert (found.kind, found.text) == ("RuntimeError", "refused")
    assert found.frames == (
        "vllm/steps.py:8 in outer",
        "vllm/steps.py:6 in outer",
        "vllm/steps.py:2 in inner",
    )


def test_an_error_that_was_handled_before_is_not_the_death():
    """What a handler met first counts only where it is a RuntimeError: CUDA raises one again."""

    def again(first):
        try:
            raise first
        except (KeyError, RuntimeError):
            raise RuntimeError("refused")  # noqa: B904  the context is what is tested

    for first, told in ((KeyError("looked up"), "refused"), (RuntimeError("the one"), "the one")):
        with pytest.raises(RuntimeError) as caught:
            again(first)
        assert death(caught.value, "prompt", "one", None, []).text == told
    with pytest.raises(ValueError, match="plain") as caught:
        raise ValueError("plain")
    assert death(caught.value, "start-up", "", None, []).kind == "ValueError"


def _run(name, **more):
    return EngineRun(engine=name, model="qsa", graphs="eager", versions={"vllm": "0.33.0"}, **more)


def _case(name="c", **more):
    return CaseRun(case=name, requests=1, prompt_tokens=2_300, new_tokens=8, **more)


@pytest.mark.parametrize(
    ("rows", "capability", "arm"),
    [(1, (9, 0), "8 CTAs"), (1, (11, 0), "16 CTAs"), (34, (9, 0), "2 CTAs"), (65, (9, 0), "per")],
)
def test_the_arm_of_a_death_is_the_versions(rows, capability, arm):
    """The policy of the vLLM that ran names it, for the device's own capability."""
    last = OpRun(op="cooperative_topk", rows=rows, columns=64, k=512)
    run = _run("e", death=Death(moment="prompt", kind="RuntimeError", text="x", last=last))
    assert with_arm(run, capability).death.arm.startswith(arm)
    unknown = msgspec.structs.replace(run, versions={"vllm": "0.99.0"})
    assert with_arm(unknown, capability).death.arm == ""
    assert with_arm(run, None).death.arm == ""


def test_times_are_told_over_vllms_own():
    """Prefill, token and the selection's kernels, each as a ratio to the engine without."""

    def times(factor):
        kernels = tuple(
            KernelTime(phase=phase, name="k", calls=2, total_us=10.0 * factor)
            for phase in ("prefill", "decode")
        )
        return Times(
            runs=5,
            prefill_us=1_000.0 * factor,
            prefill_spread_us=1.0,
            token_us=100.0 * factor,
            token_spread_us=1.0,
            kernels=kernels,
        )

    own = _run("own", cases=(_case(times=times(1.0)),))
    mine = _run("mine", drop_in="always", cases=(_case(times=times(0.5)),))
    told = summarize((own, mine), (), ONE).sentences
    expected = "prefill 0.50, token 0.50, its selection in prefill 0.50, its selection in decode"
    assert any(expected in sentence for sentence in told)


def test_a_carried_engine_is_held_against_its_twin_on_the_whole_device():
    """The same cases with the same digests count; others do not."""
    cases = (_case("a", sequence="s", trace="t"), _case("b", sequence="s", trace="t"))
    twin = _run("twin", drop_in="always", cases=cases)
    where = "sms=8,groups-of=2"
    dead = Death(moment="prompt", case="a", kind="RuntimeError", text="no\ncluster")
    alone = _run("alone", partition=where, death=dead)
    other = (cases[0], msgspec.structs.replace(cases[1], trace="u"))
    held = _run("held", drop_in="always", partition=where, cases=other)
    summary = summarize((twin, alone, held), (), ONE)
    assert summary.finding.endswith("no; with the drop-in (always) it runs there")
    told = " ".join(summary.sentences)
    assert "it dies in case a: no" in told
    assert "2 of 2 cases give the same tokens, 1 the same log-probabilities to the bit" in told


def test_repeats_are_never_told_better_than_the_worst_case():
    """One case that varies is enough for 'does not repeat itself'."""

    def repeats(sequences, traces):
        return Repeats(
            runs=50, sequences=sequences, traces=traces, worst_sequences=1, worst_traces=traces
        )

    good, bad = _case("a", repeats=repeats(1, 1)), _case("b", repeats=repeats(1, 2))
    steady = summarize((_run("e", drop_in="always", cases=(good, good)),), (), ONE)
    assert any("drop-in always repeats itself" in told for told in steady.sentences)
    shaky = summarize((_run("e", drop_in="always", cases=(good, bad)),), (), ONE)
    assert any("drop-in always does not repeat itself" in told for told in shaky.sentences)
    assert not any("always repeats itself" in told for told in shaky.sentences)


def test_what_was_planned_and_is_not_there_is_named():
    """An engine that died is complete; one without its case is not."""
    assert summarize((), (), ONE).missing == ("e: c",)
    assert summarize((_run("e", cases=(_case(),)),), (), ONE).missing == ()
    died = _run("e", death=Death(moment="start-up", kind="X", text="x"))
    assert summarize((died,), (), ONE).missing == ()


def test_checks_add_up():
    """Rows and wrong rows are sums; the first detail stays."""
    one = Check(oracle="o", rows=3, wrong_rows=1, detail="row 2")
    both = added(added(None, one), Check(oracle="o", rows=4, wrong_rows=2, detail="row 1"))
    assert (both.rows, both.wrong_rows, both.detail) == (7, 3, "row 2")


def test_a_page_of_nothing_says_so():
    """No engine, no finding that sounds like one."""
    from thorprobe.record import Origin
    from thorprobe.vllm.engine import COMMAND_NAME, Answer

    answer = Answer(
        command=COMMAND_NAME,
        started="2026-12-01T00:00:00Z",
        origin=Origin.MEASURED,
        summary=summarize((), (), ONE),
    )
    assert sheet(answer).finding == "No engine was started"


BAD = [
    (("--engine", "sglang"), "the only engine is vllm"),
    (("--graphs", "eager"), "given without `--engine`"),
    (("--suite", "h200"), "given without `--engine`"),
    (("--engine", "vllm", "--tiny"), "has no such choice"),
    (("--engine", "vllm", "--rung", "torch"), "has no such choice"),
    (("--engine", "vllm", "--suite", "h200", "--requests", "3"), "`--requests` was given too"),
    (("--engine", "vllm", "--suite", "nope"), "unknown engine suite"),
    (("--engine", "vllm", "--graphs", "none"), "`--graphs none`"),
    (("--engine", "vllm", "--resume", "nothing.json"), "cannot be read"),
    (("--engine", "vllm", "--resume", "a", "--store", "b"), "were both given"),
    (("--engine", "vllm", "--resume", "a", "--hybrid"), "`--hybrid` was given too"),
]


@pytest.mark.parametrize(("words", "told"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_options_are_one_sentence_with_a_hint(main, words, told):
    """Exit code 2, no traceback."""
    found = main("model-topk", *words)
    assert found.code == 2
    assert told in " ".join(found.err.split())
    assert "hint:" in found.err


def test_a_store_that_exists_is_not_written_over(main, tmp_path):
    """The way on is named."""
    path = tmp_path / "engine.json"
    path.write_text("{}", encoding="utf-8")
    found = main("model-topk", "--engine", "vllm", "--store", str(path))
    assert found.code == 2
    assert "exists already" in " ".join(found.err.split())


def test_without_vllm_it_is_one_sentence(main):
    """Nothing is started, nothing is imported."""
    from importlib.util import find_spec

    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    found = main("model-topk", "--engine", "vllm", "--suite", "h200")
    assert found.code == 3
    assert "no vLLM is installed here" in " ".join(found.err.split())
