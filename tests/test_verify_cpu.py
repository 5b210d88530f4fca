# SPDX-License-Identifier: Apache-2.0
"""Generated calls without a GPU: what is drawn, the reference, the loop, a fault that shrinks."""

import itertools
import json
import math
import runpy
from collections import Counter
from dataclasses import replace as replaced
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from thorprobe.answer import sheets
from thorprobe.bench import (
    verify_bed,
    verify_data,
    verify_draw,
    verify_run,
    verify_session,
    verify_workers,
)
from thorprobe.bench.verify_answer import inquire
from thorprobe.bench.verify_case import LENGTHS, MODES, WHOLE, Case, check, line, parse
from thorprobe.bench.verify_record import together
from thorprobe.bench.verify_reference import reference
from thorprobe.bench.verify_scores import DISTRIBUTIONS, Source, draw
from thorprobe.bench.verify_shrink import shrink, simpler
from thorprobe.errors import CouldNotProbeError, ThorprobeError, UsageError
from thorprobe.render.sheet import render_text
from thorprobe.topk import RUNGS, prepare, select
from thorprobe.topk.contract import DTYPES
from thorprobe.topk.variant import VARIANTS

_EXPECTED = runpy.run_path(str(Path(__file__).parent / "topk_cases.py"))["expected"]
_PLAYED = runpy.run_path(str(Path(__file__).parent / "topk_played.py"))
PLACES = (WHOLE, "sms=8")
CAPACITIES = sorted({v.capacity for v in VARIANTS if v.function == "short"})

pytestmark = pytest.mark.usefixtures("one_thread")


def _groups(many, seed="0", rungs=RUNGS):
    return list(itertools.islice(verify_draw.draw(seed, PLACES, rungs), many))


@pytest.fixture(scope="module")
def drawn():
    """Return what a million calls are drawn from."""
    return _groups(2_400)


@pytest.fixture
def bed():
    """Return a bed on the CPU with the library's sort."""
    return verify_bed.cpu_bed()


def test_every_column_around_a_short_kernels_capacity_is_drawn(drawn):
    """Of each capacity all 19 columns from 9 less to 9 more come, in every type."""
    seen = {(case.dtype, case.columns) for group in drawn for case in group.inputs}
    for dtype in DTYPES:
        for capacity in CAPACITIES:
            for near in range(-verify_draw.NEAR, verify_draw.NEAR + 1):
                assert (dtype, capacity + near) in seen


def test_every_boundary_is_drawn_from_both_sides(drawn):
    """Clusters' capacities, k, units, batches and candidates: at, just below and just above."""
    seen = {(case.k, case.dtype, case.columns) for group in drawn for case in group.inputs}
    columns = {(dtype, columns) for _, dtype, columns in seen}
    for dtype in DTYPES:
        for kind, edges in verify_draw.edges(512, dtype).items():
            for edge in edges:
                sides = Counter(
                    (there > edge) - (there < edge)
                    for of, there in columns
                    if of == dtype and abs(there - edge) <= verify_draw.NEAR
                )
                assert min(sides[-1], sides[1]), (kind, edge, dtype)
    for k in verify_draw.KS:
        for near in (-1, 0, 1):
            assert any(k == of and columns == k + near for of, _, columns in seen), (k, near)


def test_every_kind_is_drawn(drawn):
    """Types, modes, lengths, distributions, options, offsets, layouts, rungs, kernels, rows."""
    cases = [case for group in drawn for case in group.inputs]
    assert {case.mode for case in cases} == set(MODES)
    assert {case.lengths for case in cases} == set(LENGTHS)
    assert {case.distribution for case in cases} == set(DISTRIBUTIONS)
    assert len(DISTRIBUTIONS) >= 14
    assert {(c.nan, c.ordered, c.ties) for c in cases} == set(
        itertools.product(("largest", "last"), (False, True), ("lowest", "any"))
    )
    for dtype, offsets in (("float32", 4), ("float16", 8), ("bfloat16", 8)):
        skews = {(c.offset % offsets, c.row_stride % offsets) for c in cases if c.dtype == dtype}
        assert skews == set(itertools.product(range(offsets), repeat=2))
    assert {0, 1, 2, 1_000} <= {case.rows for case in cases}
    assert any(case.row_stride == 0 for case in cases)
    assert any(case.column_stride == 0 for case in cases)
    assert any(case.row_stride == 1 and case.column_stride > 1 for case in cases)
    assert any(case.sliding and case.row_stride for case in cases)
    asked = {call for group in drawn for call in group.calls}
    for place in PLACES:
        assert {("auto", place), *((rung, place) for rung in RUNGS if rung != "torch")} <= asked
    assert ("torch", WHOLE) in asked
    named = {name.partition("/")[0] for name, _ in asked if "/" in name}
    assert named == {variant.name for variant in VARIANTS}


def test_one_input_serves_about_thirty_calls(drawn):
    """With four partitions 40,000 inputs are over a million calls."""
    groups = list(itertools.islice(verify_draw.draw("1", (*PLACES, "a", "b")), 500))
    inputs = sum(len(group.inputs) for group in groups)
    calls = sum(len(group.inputs) * len(group.calls) for group in groups)
    assert calls > 25 * inputs


def test_what_is_drawn_depends_on_the_seed_alone():
    """The same seed draws the same groups, another one others."""
    assert _groups(20, "7/1") == _groups(20, "7/1")
    assert _groups(20, "7/1") != _groups(20, "7/2")


def test_every_drawn_case_is_a_line_that_reads_back(drawn):
    """A line is one line, says the same case again, and the case can be made."""
    for group in drawn[::7]:
        for number in range(len(group.inputs)):
            case = group.case(number, number % len(group.calls))
            check(case)
            text = line(case)
            assert "\n" not in text
            assert parse(text) == case


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows=1 columns=5", "says no `k`"),
        ("rows=1 columns=5 k=1 fred=2", "`fred=2` is no part"),
        ("rows=1 columns=5 k=1 k=2", "`k=2` is no part"),
        ("rows=1 columns=5 k=x", "`k=x` is no whole number"),
        ("rows=-1 columns=5 k=1", "`rows=-1` is no whole number"),
        ("rows=1 columns=5 k=0", "k is 1 to 2048"),
        ("rows=1001 columns=5 k=1", "`rows=1001` is not 0 to 1,000"),
        ("rows=1 columns=5 k=1 dtype=int8", "`dtype=int8` is none of"),
        ("rows=1 columns=5 k=1 kernel=long-3x3/1", "or a kernel such as"),
        ("rows=1 columns=5 k=1 ordered=maybe", "neither yes nor no"),
        ("rows=3 columns=5 k=1 row-stride=2 column-stride=2", "two scores in one place"),
        ("rows=900 columns=4000000 k=1", "span more than"),
        ("hello", "`hello` is no part"),
    ],
)
def test_a_line_that_is_no_case_is_one_sentence(text, said):
    """Whatever is wrong with a line is named."""
    with pytest.raises(UsageError) as error:
        parse(text)
    assert said in error.value.sentence
    assert error.value.hint


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_reference_is_pythons_own_sort(data):
    """For any bits, lengths and options the reference has what sorting Python's floats gives."""
    rows, columns = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 24))
    floats = st.one_of(
        st.floats(width=32),
        st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 1e-45, -1e-45]),
    )
    values = data.draw(
        st.lists(st.lists(floats, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    )
    dtype = getattr(torch, data.draw(st.sampled_from(DTYPES)))
    scores = torch.tensor(values, dtype=torch.float32).reshape(rows, columns).to(dtype)
    lengths = data.draw(st.lists(st.integers(-2, columns + 2), min_size=rows, max_size=rows))
    k, nan = data.draw(st.integers(1, 30)), data.draw(st.sampled_from(["largest", "last"]))
    ordered = data.draw(st.booleans())
    many = torch.tensor(lengths, dtype=torch.int32)
    found = reference(torch, scores, many, k, nan=nan, ordered=ordered).indices.tolist()
    for row, length, chosen in zip(scores.float().tolist(), lengths, found, strict=True):
        assert chosen == _EXPECTED(row, length, k, nan=nan, ordered=ordered)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_distribution_repeats_itself_and_fills_its_type(distribution, dtype):
    """The same seed gives the same bits; each distribution has its shape and type."""
    made = [draw(distribution, Source(torch, (3, 70), dtype, torch.device("cpu"), 5)) for _ in "ab"]
    kind = torch.int32 if dtype == "float32" else torch.int16
    assert made[0].shape == (3, 70)
    assert made[0].dtype == getattr(torch, dtype)
    assert torch.equal(*(one.contiguous().view(kind) for one in made))


def test_distributions_are_what_they_are_called():
    """Subnormal numbers are subnormal in each type, NaN are there, 60 binades are wide."""

    def of(name, dtype, seed=1):
        return draw(name, Source(torch, (4, 4_096), dtype, torch.device("cpu"), seed)).float()

    for dtype, least in (("float32", 2**-126), ("float16", 2**-14), ("bfloat16", 2**-126)):
        found = of("denormals", dtype)
        assert found.abs().max() < least
        assert found.unique().numel() > 100
    assert {bool(of("nan", "float32", seed).isnan().any()) for seed in range(6)} == {True}
    sizes = of("60-binades", "float32").abs().log2()
    assert sizes.max() - sizes.min() > 55
    assert of("any-bits", "float16").isnan().any()
    assert (of("one-hot", "float16").sum(dim=1) == 1).all()


def test_the_library_sort_is_right_on_everything_drawn(bed):
    """Some hundred generated calls on the CPU: none is wrong, and each is counted once a kind."""
    groups = itertools.islice(verify_draw.draw("5/0", tuple(bed.lanes), bed.rungs), 20)
    tally = together([verify_run.count(verify_run.run(group, bed)) for group in groups])
    assert tally.calls > 500
    assert tally.wrong == 0
    assert tally.inputs == 20 * verify_draw.INPUTS
    assert tally.ran["torch"] > 400
    for name in ("partitions", "dtypes", "modes", "distributions", "asked"):
        assert sum(getattr(tally, name).values()) == tally.calls


def _drops_unaligned_ends(scores, lengths, k, *, out, **options):
    """Select as a kernel of 4,096 or 8,192 slots did that forgot where its rows start."""
    select(scores, lengths, k, out=out, **options)
    rows, columns = scores.shape
    vector = 16 // scores.element_size()
    held = next((size for size in CAPACITIES if columns <= size), None)
    if held is None or scores.stride(1) != 1:
        return
    for row in range(rows):
        start = scores.storage_offset() + row * scores.stride(0)
        kept = held - start % vector
        if kept < columns:
            less = lengths[row : row + 1].clamp(max=kept)
            select(scores[row : row + 1], less, k, out=out[row : row + 1], **options)


def test_the_fault_of_unaligned_short_rows_is_found_in_seconds_and_shrunk_to_one_row():
    """A selector that drops the last columns is met, and its smallest case is a row and k of 1."""
    bed = verify_bed.cpu_bed(_drops_unaligned_ends)
    held = None
    for group in itertools.islice(verify_draw.draw("1/0", (WHOLE,), ("torch",)), 100):
        held = verify_run.run(group, bed)
        if held.wrong:
            break
    assert held.wrong
    number, call = held.wrong[0]
    failure = verify_session._failure(bed, group.case(number, call), "torch", shrunk=True)
    smallest = parse(failure.smallest)
    assert (smallest.rows, smallest.k) == (1, 1)
    assert smallest.distribution == "ascending"
    assert smallest.skew
    assert smallest.columns + smallest.skew == CAPACITIES[0] + 1
    assert verify_session.repeated(bed, smallest).wrong
    assert not verify_session.repeated(verify_bed.cpu_bed(), smallest).wrong
    assert "where the sort has" in failure.detail


def test_a_verification_tells_each_fault_once_a_rung_and_type():
    """Wrong calls are counted, and the first of each rung and type is kept, three made smaller."""
    bed = verify_bed.cpu_bed(_swaps)
    tally = verify_session.verify(bed, 0.0, "2/0")
    assert tally.wrong > len(tally.failures) >= 1
    assert len({(one.ran, parse(one.line).dtype) for one in tally.failures}) == len(tally.failures)
    for one in tally.failures:
        assert verify_session.repeated(bed, parse(one.smallest)).wrong


def _writes_beyond(scores, lengths, k, *, out, **options):
    select(scores, lengths, k, out=out, **options)
    if out.shape[0]:
        flat = out.as_strided((1,), (1,), out[-1].storage_offset() + k)
        flat.fill_(3)


def _swaps(scores, lengths, k, *, out, **options):
    select(scores, lengths, k, out=out, **options)
    if k > 1 and out.numel():
        out[0, :2] = out[0, :2].flip(0)


def _twice(scores, lengths, k, *, out, **options):
    select(scores, lengths, k, out=out, **options)
    if k > 1 and out.shape[0]:
        out[0, 1] = out[0, 0]


_DENSE = Case(rows=2, columns=50, k=4, row_stride=50)


@pytest.mark.parametrize("broken", [_writes_beyond, _swaps, _twice])
@pytest.mark.parametrize("mode", MODES)
def test_what_is_wrong_is_seen_in_every_mode(broken, mode):
    """A write beyond the result, two places exchanged, and an index that comes twice are wrong."""
    case = replace(_DENSE, mode=mode, out_gap=3)
    assert not verify_session.repeated(verify_bed.cpu_bed(), case).wrong
    assert verify_session.repeated(verify_bed.cpu_bed(broken), case).wrong


def _prepared_wrong(*arguments, out, **options):
    """Exchange two places of what a prepared call leaves."""
    made = prepare(*arguments, out=out, **options)

    def call():
        made()
        out[0, :2] = out[0, :2].flip(0)

    return call


def _prepared_of_the_past(*arguments, out, **options):
    """Give what was right when the call was prepared."""
    kept = select(*arguments, out=out, **options).clone()
    return lambda: out.copy_(kept)


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        (prepare, []),
        (_prepared_wrong, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
        (_prepared_of_the_past, [(1, 0), (1, 1), (1, 2)]),
        (lambda *_arguments, **_options: lambda: None, [(i, j) for i in (0, 1) for j in range(3)]),
    ],
)
def test_a_prepared_call_is_held_against_the_sort_at_every_input(broken, wrong):
    """It goes past ``select``: one that errs, or still has the first data's answer, is wrong."""
    bed = replaced(verify_bed.cpu_bed(), prepare=broken)
    assert verify_session.repeated(bed, replace(_DENSE, mode="prepared")).wrong == wrong
    # Nothing else is prepared.
    assert not verify_session.repeated(bed, _DENSE).wrong


def test_ties_at_will_allow_another_index_and_nothing_else():
    """With ``ties=any`` equal scores may change places; another score, or one twice, may not."""

    def other(scores, lengths, k, *, out, **options):
        select(scores, lengths, k, out=out, **options)
        out[0] = torch.arange(49, 45, -1)

    tied = replace(_DENSE, distribution="equal", ties="any")
    assert not verify_session.repeated(verify_bed.cpu_bed(other), tied).wrong
    assert verify_session.repeated(verify_bed.cpu_bed(other), replace(tied, ties="lowest")).wrong
    assert verify_session.repeated(verify_bed.cpu_bed(_twice), tied).wrong
    assert verify_session.repeated(verify_bed.cpu_bed(_writes_beyond), tied).wrong
    ramp = replace(tied, distribution="descending")
    assert verify_session.repeated(verify_bed.cpu_bed(other), ramp).wrong


def test_scores_are_laid_out_as_the_case_says_and_poisoned_around(bed):
    """Every layout holds the drawn scores, and what is between and around them would be chosen."""
    for group in _groups(60, "9"):
        for case in group.inputs[:3]:
            many = verify_data.lengths(bed, case)
            view = verify_data.load(bed, case, many)
            assert view.shape == (case.rows, case.columns)
            assert many.shape == (case.rows,)
            if not case.rows or not case.columns:
                continue
            assert view.stride() == (case.row_stride, case.column_stride)
            begin = view.data_ptr() - bed.memory.data_ptr()
            assert begin % 512 == case.offset * view.element_size() % 512
            flat = bed.memory.view(view.dtype)
            first, last = view.storage_offset() - 1, view.storage_offset() + case.span
            for place in (first, last):
                beyond = flat[place]
                assert beyond.isnan() if case.nan == "largest" else beyond == math.inf


def test_shrinking_is_deterministic_and_keeps_what_is_wrong():
    """Each accepted step is wrong too, the end cannot be made simpler, and it repeats itself."""

    def wrong(case):
        return case.columns >= 100 and case.k >= 3 and case.rows >= 2

    begin = Case(
        rows=17,
        columns=8_191,
        k=600,
        dtype="bfloat16",
        offset=3,
        row_stride=8_200,
        lengths="mixed",
        distribution="any-bits",
        seed=99,
        partition="sms=8",
        mode="graph",
    )
    smallest, tries = shrink(begin, wrong)
    assert (smallest.rows, smallest.columns, smallest.k) == (2, 100, 3)
    assert not any(wrong(case) for case in simpler(smallest))
    assert shrink(begin, wrong) == (smallest, tries)
    few, tries = shrink(begin, wrong, most=5)
    assert tries <= 5
    assert wrong(few)


def test_an_error_in_a_group_ends_it_and_is_a_failure():
    """A launch that raises is told with the line of its group, and counts as wrong."""

    def raises(*_arguments, **_options):
        message = "CUDA error: an illegal memory access was encountered\nmore"
        raise RuntimeError(message)

    tally = verify_session.verify(verify_bed.cpu_bed(raises), 60.0, "1/0")
    assert tally.wrong == 1
    (failure,) = tally.failures
    assert parse(failure.line)
    assert "raised RuntimeError: CUDA error: an illegal memory access" in failure.detail
    assert "more" not in failure.detail


def test_a_process_that_dies_is_a_failure_of_its_group(monkeypatch):
    """The line of the last group is kept; one that dies before any is an error."""
    import sys

    from thorprobe.binary import child

    told = json.dumps({"type": "At", "line": "rows=1 columns=2 k=1"})
    dies = f"import os; print({told!r}, flush=True); os.abort()"
    monkeypatch.setattr(child, "python", lambda _module: (sys.executable, "-c", dies))
    (report,) = verify_workers.verify([verify_workers.Task(seconds=1.0)])
    assert report.tally.wrong == 1
    assert report.tally.failures[0].line == "rows=1 columns=2 k=1"
    assert "ended (-6) in the group" in report.tally.failures[0].detail
    monkeypatch.setattr(child, "python", lambda _module: (sys.executable, "-c", "pass"))
    with pytest.raises(CouldNotProbeError, match="before it held a call"):
        verify_workers.verify([verify_workers.Task(seconds=1.0)])


def test_one_failure_of_several_processes_is_told_once():
    """Processes that shrink a fault to the same case give one result, and all wrong calls count."""
    bed = verify_bed.cpu_bed(_drops_unaligned_ends)

    def verifier(tasks):
        assert [task.seed for task in tasks] == ["4/0", "4/1"]
        case = Case(
            rows=1, columns=4_096, k=1, row_stride=4_096, offset=1, distribution="ascending"
        )
        held = verify_session.repeated(bed, case)
        failure = verify_workers.Failure(line=line(case), smallest=line(case), detail=held.detail)
        tally = replace(verify_run.count(held), failures=(failure,))
        return [verify_workers.Report(tally=tally, software={"torch": "0"}) for _ in tasks]

    answer = inquire(1.0, seed=4, processes=2, verifier=verifier)
    assert len(answer.results) == 1
    assert answer.summary.wrong == 6
    assert answer.summary.next_action.startswith("repeat the smallest: `thorprobe bench --verify-c")
    text = render_text(*sheets([answer]))
    assert "6 of 6 calls of generated inputs are WRONG" in text
    assert f"  {answer.results[0].smallest}" in text
    assert "row 0, place 0 has 4,094 where the sort has 4,095; 1 of 1 rows differ" in text


def test_the_command_answers_in_every_format(command, tmp_path):
    """`bench --verify` runs in processes of its own, and `report` shows the stored answer."""
    kept = tmp_path / "verify.json"
    ran = command(
        *("bench", "--verify", "0", "--device", "cpu", "--seed", "3", "--processes", "2"),
        *("--json", "--output", kept, "--fail-on", "wrong"),
    )
    assert (ran.code, ran.out) == (0, "")
    told = json.loads(kept.read_text())
    summary = told["summary"]
    assert told["command"] == "bench --verify"
    assert summary["calls"] > 20
    assert (summary["wrong"], summary["seed"], summary["processes"]) == (0, 3, 2)
    assert summary["seconds"] > 0
    assert summary["kernel"] == ""
    for form in ("text", "markdown", "github"):
        page = command("report", kept, "--format", form)
        assert page.code == 0
        assert f"all of {summary['calls']:,} calls of generated inputs are right" in page.out


def test_a_line_is_repeated_by_the_command(command):
    """`--verify-case` runs the call of a line alone."""
    ran = command("bench", "--verify-case", "rows=2 columns=9 k=3", "--device", "cpu")
    assert ran.code == 0
    assert "all of 3 calls of the case are right" in ran.out
    ran = command(
        "bench", "--verify-case", "rows=2 columns=9 k=3 partition=sms=8", "--device", "cpu"
    )
    assert ran.code == 3
    assert "does not run here" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seed", "3"), "`--seed` was given without `--verify`"),
        (("--verify", "3", "--rows", "1"), "`--rows` was given with `--verify`"),
        (("--verify", "3", "--calibrate"), "`--calibrate` was given with `--verify`"),
        (("--verify", "-1"), "takes 0 to"),
        (("--verify", "nan"), "takes 0 to"),
        (("--verify", "1", "--processes", "0"), "there are 1 to 64"),
        (("--verify", "1", "--seed", "-1"), "a seed is 0 to"),
        (("--verify", "1", "--device", "x"), "a device is a number or `cpu`"),
        (("--verify", "1", "--verify-case", "rows=1"), "one call with a seed of its own"),
        (("--verify-case", "rows=1"), "the case says no `columns`"),
    ],
)
def test_options_that_cannot_be_served_are_one_sentence(main, arguments, said):
    """Each is usage, with a hint, before anything is started."""
    ran = main("bench", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "hint:" in ran.err


def test_without_a_gpu_it_says_so(main):
    """A GPU that is not there could not be probed."""
    ran = main("bench", "--verify", "1")
    assert ran.code == 3
    assert "torch sees no GPU" in ran.err


def test_a_kernel_is_forced_where_it_fits_and_the_device_hosts_it(monkeypatch):
    """A named kernel launches with its own places and strides; a refused one is None."""
    from thorprobe.bench import verify_gpu

    board = _PLAYED["install"](monkeypatch)
    monkeypatch.setattr(verify_gpu, "describe", lambda _code: ("NAME", "a sentence"))
    lane = verify_bed.Lane("sms=8", SimpleNamespace(cuda_stream=7), torch.empty(2**20))
    case = parse("rows=2 columns=4093 k=5 dtype=float16 offset=3 row-stride=5000 nan=last")
    scores = torch.zeros(10_000, dtype=torch.float16).as_strided((2, 4_093), (5_000, 1))
    many, out = torch.zeros(2, dtype=torch.int32), torch.zeros((2, 9), dtype=torch.int32)
    for name, launches in (("long-512x16/4", 1), ("part-512x16/8", 2), ("short-1024x8/1", 1)):
        made = verify_gpu.force(0, name, lane, case)
        made(scores, many, out, lane.workspace)
        last = board.launched[-launches:]
        assert last[0][0] == name
        for _, pointers, words in last:
            assert pointers[:4] == (scores.data_ptr(), many.data_ptr(), out.data_ptr(), 0)
            assert pointers[5:] == (5_000, 9)
            assert (words["columns"], words["k"], words["flags"]) == (4_093, 5, 1)
        assert bool(last[0][1][4]) == (name[:4] == "part")
    board.slots["long-512x16/16"] = 0
    assert verify_gpu.force(0, "long-512x16/16", lane, case) is None
    # A slot too few; where the rows begin does not matter.
    longer = replace(case, dtype="float32", columns=4_097)
    assert verify_gpu.force(0, "short-1024x4/1", lane, longer) is None
    assert verify_gpu.force(0, "short-1024x4/1", lane, replace(longer, columns=4_096)) is not None
    board.codes["long-512x16/2"] = 912
    with pytest.raises(ThorprobeError, match="long-512x16/2 answered 912"):
        verify_gpu.force(0, "long-512x16/2", lane, case)(scores, many, out, lane.workspace)
