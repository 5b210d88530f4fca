# SPDX-License-Identifier: Apache-2.0
"""Calls that are prepared, and shapes that are warmed, on a played device."""

import gc
import runpy
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from thorprobe import topk
from thorprobe.errors import CouldNotProbeError
from thorprobe.topk import contract, kernel, ladder
from thorprobe.topk.plans import plans
from thorprobe.topk.request import columns_class

_PLAYED = runpy.run_path(str(Path(__file__).parent / "topk_played.py"))
_BAD = runpy.run_path(str(Path(__file__).parent / "test_topk_arguments.py"))["BAD"]
K = 512
LOGITS = np.random.default_rng(5).permutation(3 * 20_000).reshape(3, 20_000).astype(np.float32)
LENGTHS = np.array([20_000, 100, 0], dtype=np.int32)
WANTED = topk.select(LOGITS, LENGTHS, 5)


@pytest.fixture
def board(monkeypatch):
    """Play a device on which more CTAs a row are cheaper, and clusters cheaper than none."""
    monkeypatch.setattr(
        "thorprobe.topk.plan.predict",
        lambda choice, **_: 1 / choice.ctas + choice.variant.scores + 50 * (not choice.clustered),
    )
    return _PLAYED["install"](monkeypatch)


def _refuse(board, rung, code):
    for choice in ladder.choices(1, "float32", rung=rung):
        board.codes[choice.name] = code


@pytest.mark.parametrize("rung", ["auto", *contract.RUNGS])
@pytest.mark.parametrize("options", [{}, {"nan": "last", "ordered": True}])
def test_a_prepared_call_launches_what_select_does(board, rung, options):
    """The same kernels with the same parameters, as often as it is called, and the same record."""
    out, status = np.zeros((3, K), dtype=np.int32), np.zeros(3, dtype=np.int32)
    workspace = np.zeros(topk.workspace_bytes(3, K), dtype=np.uint8)
    options = options | {"rung": rung, "out": out, "status": status, "workspace": workspace}
    made = topk.prepare(LOGITS, LENGTHS, K, **options)
    assert board.launched == []
    with topk.record() as log:
        assert made() is out
        assert made() is made.out
    prepared, board.launched = board.launched, []
    with topk.record() as other:
        topk.select(LOGITS, LENGTHS, K, **options)
    assert prepared == 2 * board.launched
    assert log.calls == 2 * other.calls
    assert made.rung == other.calls[0].rung


def test_a_prepared_call_makes_what_is_not_given_once(board):
    """Its result and the memory between two launches stay the same from call to call."""
    made = topk.prepare(LOGITS, LENGTHS, K, rung="many-ctas")
    assert (made.out.shape, made.out.dtype) == ((3, K), np.int32)
    for _ in range(3):
        made()
    assert len({pointers for _, pointers, _ in board.launched}) == 1
    (pointers,) = {pointers for _, pointers, _ in board.launched}
    assert pointers[2] == made.out.ctypes.data
    assert pointers[4] % 8 == 0 != pointers[4]


def test_a_prepared_call_is_not_changed_by_other_calls(board):
    """``select`` and other prepared calls of the same shapes have launches of their own."""
    mine = topk.prepare(LOGITS, LENGTHS, K)
    mine()
    before = board.launched[-1]
    other = LOGITS[:, :19_900].copy()
    topk.prepare(other, LENGTHS, K)()
    assert board.launched[-1] != before
    topk.select(other, LENGTHS, K)
    mine()
    assert board.launched[-1] == before


def test_a_prepared_call_goes_to_the_current_stream(board):
    """Another stream of the partition needs nothing asked; another partition gets its own plan."""
    board.slots = {c.name: 0 for c in ladder.choices(1, "float32", rung="cluster-16")}
    made = topk.prepare(LOGITS, LENGTHS, K)
    asked = len(board.asked)
    board.stream, board.capturing = 8, True
    made()
    assert (board.launched[-1][2]["stream"], len(board.asked)) == (8, asked)
    board.slots, board.stream, board.partition, board.capturing = {}, 9, 5, False
    made()
    name, _, words = board.launched[-1]
    assert (name, words["stream"]) == ("long-512x4/16", 9)
    board.stream, board.partition = 7, 0
    made()
    name, _, words = board.launched[-1]
    assert (name, words["stream"]) == ("long-512x4/8", 7)


def test_a_prepared_call_falls_as_select_does(board):
    """A launch that is refused is tried once; what answers next does so from then on."""
    _refuse(board, "cluster-16", 912)
    _refuse(board, "cluster-8", 1)
    made = topk.prepare(LOGITS, LENGTHS, K)
    assert made.rung == "cluster-16"
    with topk.record() as log:
        for _ in range(3):
            made()
    assert board.names == ["long-512x4/16", "long-512x4/8", *["long-512x4/4"] * 3]
    assert log.rungs == {"cluster-4": 3}
    for call in log.calls:
        assert [(fall.rung, fall.code) for fall in call.falls] == [
            ("cluster-16", 912),
            ("cluster-8", 1),
        ]


def test_a_refusal_of_before_is_not_tried_again(board):
    """What ``select`` found out about a shape holds for a call that is prepared later."""
    _refuse(board, "cluster-16", 912)
    topk.select(LOGITS, LENGTHS, K)
    made = topk.prepare(LOGITS, LENGTHS, K)
    assert made.rung == "cluster-8"
    made()
    assert board.names == ["long-512x4/16", *["long-512x4/8"] * 2]


def test_a_stream_that_got_a_handle_of_before_is_asked_where_it_belongs(board):
    """A refusal on a handle that is now of another partition turns to that partition's plan."""
    made = topk.prepare(LOGITS, LENGTHS, K)
    made()
    board.partition = 5
    board.slots = {c.name: 0 for c in ladder.choices(1, "float32", rung="cluster-16")}
    _refuse(board, "cluster-16", 912)
    with topk.record() as log:
        made()
        made()
    assert board.names == ["long-512x4/16", "long-512x4/16", *["long-512x4/8"] * 2]
    assert [[fall.code for fall in call.falls] for call in log.calls] == [[0], [0]]


def test_a_prepared_call_that_every_kernel_refuses_is_the_librarys(board):
    """The sort of the library answers, at the first call and at every later one."""
    for choice in ladder.choices(1, "float32"):
        board.codes[choice.name] = 912
    made = topk.prepare(LOGITS, LENGTHS, 5)
    with topk.record() as log:
        for _ in range(2):
            made.out[...] = 77
            assert np.array_equal(made(), WANTED)
    assert log.rungs == {"torch": 2}
    assert {len(call.falls) for call in log.calls} == {len(contract.RUNGS) - 1}


def test_a_merge_that_is_refused_is_a_fall_of_a_prepared_call(board):
    """Either of two launches may refuse."""
    board.codes["merge-512x1/1"] = 719
    made = topk.prepare(LOGITS, LENGTHS, 5, rung="many-ctas")
    assert np.array_equal(made(), WANTED)
    assert made.rung == "torch"


@pytest.mark.parametrize("error", [CouldNotProbeError("no NVRTC here", ""), ImportError("no cuda")])
def test_a_prepared_call_without_kernels_selects(board, monkeypatch, error):
    """Where kernels cannot be made, each call says what is missing."""

    def refuse(*_):
        raise error

    monkeypatch.setattr(kernel, "sms", refuse)
    made = topk.prepare(LOGITS, LENGTHS, 5)
    with topk.record() as log:
        assert np.array_equal(made(), WANTED)
    assert [(f.rung, f.reason) for f in log.calls[0].falls] == [("kernels", str(error))]


def test_a_prepared_call_belongs_to_its_thread(board):
    """Another thread is refused, and nothing is launched."""
    made, caught = topk.prepare(LOGITS, LENGTHS, K), []

    def call():
        try:
            made()
        except topk.ArgumentError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "another thread" in caught[0].sentence
    assert caught[0].hint
    assert board.launched == []


@pytest.mark.parametrize("case", _BAD)
def test_what_select_refuses_cannot_be_prepared(case):
    """The same sentence, before anything is called."""
    options, *words = _BAD[case]
    good = {"logits": torch.arange(12.0).reshape(3, 4), "k": 2}
    good["lengths"] = torch.tensor([4] * 3, dtype=torch.int32)
    with pytest.raises(topk.ArgumentError) as caught:
        topk.prepare(**(good | options))
    assert all(word in f"{caught.value.sentence}; {caught.value.hint}" for word in words)


def test_a_workspace_or_an_address_that_cannot_serve_is_refused_when_prepared(board):
    """Nothing is left for the first call to find."""
    small = np.zeros(topk.workspace_bytes(2, K), dtype=np.uint8)
    with pytest.raises(topk.ArgumentError, match="workspace"):
        topk.prepare(LOGITS, LENGTHS, K, workspace=small, rung="many-ctas")
    memory = np.zeros(4 * 20 + 1, dtype=np.uint8)[1:]
    with pytest.raises(topk.ArgumentError, match="address"):
        topk.prepare(memory.view(np.float32).reshape(2, 10), LENGTHS[:2], 3)
    with pytest.raises(topk.ArgumentError, match="address"):
        topk.prepare(LOGITS, memory[:12].view(np.int32), 3)
    assert board.launched == []


def test_a_prepared_call_reads_what_the_arrays_hold_now():
    """On the host too: scores and lengths may change between calls."""
    logits, lengths = torch.zeros(2, 6), torch.tensor([6, 6], dtype=torch.int32)
    made = topk.prepare(logits, lengths, 2)
    for best in (4, 1):
        logits.zero_()
        logits[:, best] = 1
        lengths[1] = best
        assert made().tolist()[0] == [best, 0]
        assert max(made().tolist()[1]) < best
    assert topk.prepare(logits[:0], lengths[:0], 3)().shape == (0, 3)


def test_a_prepared_call_keeps_its_arrays_alive(board):
    """Memory that a launch is given is not freed while the call can be made."""
    logits = LOGITS.copy()
    kept = weakref.ref(logits)
    made = topk.prepare(logits, LENGTHS, K)
    del logits
    gc.collect()
    assert kept() is not None
    del made
    gc.collect()
    assert kept() is None


def test_a_warmed_shape_may_be_met_first_inside_a_capture(board):
    """Whatever the start of its rows, no question is left, and the rungs were told before."""
    assert topk.warm(3, 20_000, K, device=0) == ("cluster-16",)
    assert board.launched == []
    asked, board.capturing = list(board.asked), True
    memory = np.zeros(3 * 20_003 + 4, dtype=np.float32)
    for apart in range(4):
        for offset in range(4):
            wide = memory[offset : offset + 3 * (20_000 + apart)].reshape(3, -1)
            topk.select(wide[:, :20_000], LENGTHS, K)
    assert set(board.names) == {"long-512x4/16"}
    assert board.asked == asked


@pytest.mark.parametrize("first", [(1, 100), (70, 200_000)])
def test_what_was_answered_serves_other_rows_and_lengths_inside_a_capture(board, first):
    """Rows and lengths are no part of a question: one warmed shape opens all of its type and k."""
    topk.warm(*first, K, device=0)
    asked, board.capturing = list(board.asked), True
    for columns in (1, 600, 4_093, 8_192, 20_000):
        topk.select(LOGITS[:, :columns], LENGTHS, K)
    topk.prepare(LOGITS[:2], LENGTHS[:2], K)()
    assert board.asked == asked
    for other in ({"k": 8}, {"logits": LOGITS[:, ::2]}, {"logits": LOGITS.astype(np.float16)}):
        given = {"logits": LOGITS, "lengths": LENGTHS, "k": K} | other
        with pytest.raises(topk.ArgumentError, match="capture") as caught:
            topk.select(**given)
        assert "`warm`" in caught.value.hint
    board.partition = 5
    with pytest.raises(topk.ArgumentError, match="capture"):
        topk.select(LOGITS, LENGTHS, K)


def test_another_thread_needs_no_asking_inside_a_capture(board):
    """Answers are of the process, though plans are of a thread."""
    topk.warm(3, 20_000, K, device=0)
    asked, board.capturing = list(board.asked), True
    thread = threading.Thread(target=topk.select, args=(LOGITS, LENGTHS, K))
    thread.start()
    thread.join()
    assert board.names == ["long-512x4/16"]
    assert board.asked == asked


def test_warming_makes_just_the_plans_that_select_finds(board):
    """One for a class of lengths, wherever rows begin; gaps between columns make another."""
    topk.warm(9, 4_095, 8, device=0)
    assert {key[0].columns for key in plans.by_key} == {4_096}
    made = set(plans.by_key)
    assert columns_class(4_095) == 4_096
    wide = np.zeros((9, 4_099), dtype=np.float32)
    lengths = np.zeros(9, dtype=np.int32)
    topk.select(wide[:, :4_095], lengths, 8)
    topk.select(wide[:1, :4_095], lengths[:1], 8)
    assert set(plans.by_key) - made == {(k, p) for k, p in plans.by_key if k.rows == 1}
    topk.warm(9, 4_095, 8, column_stride=2, device=0)
    assert {key[0].columns for key in plans.by_key if key[0].column_stride == 2} == {4_096}


def test_warming_tells_the_rungs_that_come_first(board):
    """Those of the plans; the library's where it was asked for, or where there are no kernels."""
    assert topk.warm(3, 20_000, K, rung="many-ctas", device=0) == ("many-ctas",)
    assert topk.warm(3, 20_000, K, rung="torch") == ("torch",)
    for choice in ladder.choices(1, "float32"):
        board.slots[choice.name] = 0
    assert topk.warm(3, 20_000, 9, device=0) == ("torch",)


def test_warming_without_a_gpu_is_the_librarys_sort():
    """On a machine without one nothing is raised: ``select`` works there too."""
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    assert topk.warm(3, 20_000, K) == ("torch",)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rows": 0}, "0 rows"),
        ({"columns": 0}, "of 0 scores"),
        ({"columns": 2**31}, "columns"),
        ({"rows": 2.5}, "2.5 rows"),
        ({"rows": "3"}, "whole numbers"),
        ({"k": 0}, "k = 0"),
        ({"k": 2.5}, "k = 2.5"),
        ({"dtype": "float64"}, "float64"),
        ({"column_stride": 0}, "0 apart"),
        ({"library": "numpy"}, "`cupy`"),
        ({"rung": "cluster-3"}, "cluster-3"),
        ({"nan": "no"}, "'no'"),
        ({"ties": "no"}, "'no'"),
    ],
)
def test_a_shape_that_cannot_be_selected_cannot_be_warmed(change, word):
    """One sentence and a hint, as of ``select``."""
    with pytest.raises(topk.ArgumentError) as caught:
        topk.warm(**({"rows": 3, "columns": 20_000, "k": 8} | change))
    assert word in f"{caught.value.sentence}; {caught.value.hint}"
    assert caught.value.hint
