# SPDX-License-Identifier: Apache-2.0
"""What ``select`` does on a played device that refuses: fall, remember, count and explain."""

import runpy
import threading
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from thorprobe import topk
from thorprobe.errors import CouldNotProbeError
from thorprobe.topk import contract, kernel, ladder

_PLAYED = runpy.run_path(str(Path(__file__).parent / "topk_played.py"))
K = 512
LOGITS = np.random.default_rng(5).permutation(3 * 20_000).reshape(3, 20_000).astype(np.float32)
LENGTHS = np.array([20_000, 100, 0], dtype=np.int32)


@pytest.fixture
def board(monkeypatch):
    """Play a device on which more CTAs a row are cheaper, and clusters cheaper than none."""
    monkeypatch.setattr(
        "thorprobe.topk.plan.predict",
        lambda choice, **_: 1 / choice.ctas + choice.variant.scores + 50 * (not choice.clustered),
    )
    return _PLAYED["install"](monkeypatch)


def _select(logits=LOGITS, lengths=LENGTHS, k=K, **options):
    """Select once; return the call as it was recorded, and the result."""
    with topk.record() as log:
        found = topk.select(logits, lengths, k, **options)
    (call,) = log.calls
    return call, found


def _refuse(board, rung, code):
    """Let every launch of a rung answer ``code``."""
    for choice in ladder.choices(1, "float32", rung=rung):
        board.codes[choice.name] = code


def test_the_cheapest_rung_is_launched_with_the_addresses_of_the_call(board):
    """One launch on the caller's stream gets pointers, strides, k and flags of this very call."""
    wide = np.zeros((3, 700), dtype=np.int32)
    status = np.zeros(3, dtype=np.int32)
    call, out = _select(out=wide[:, 8 : 8 + K], status=status, nan="last", ordered=True)
    assert call == topk.Call(
        rung="cluster-16", num_rows=3, columns=20_000, k=K, device="numpy cuda:0"
    )
    ((name, pointers, words),) = board.launched
    assert name == "long-512x4/16"
    assert pointers == (
        LOGITS.ctypes.data,
        LENGTHS.ctypes.data,
        out.ctypes.data,
        status.ctypes.data,
        0,
        20_000,
        700,
    )
    assert words == {
        "rows": 3,
        "ctas": 16,
        "clustered": True,
        "strided": False,
        "device": 0,
        "stream": 7,
        "columns": 20_000,
        "column_stride": 1,
        "k": K,
        "flags": 3,
    }


@pytest.mark.parametrize(
    ("options", "flags"),
    [({}, 0), ({"ties": "any"}, 0), ({"nan": "last"}, 1), ({"ordered": True}, 2)],
)
def test_the_flags_are_those_of_the_source(board, options, flags):
    """An option has its flag also for a shape that was seen before; ties at will need none."""
    _select()
    _select(**options)
    assert board.launched[-1][2]["flags"] == flags


def test_gaps_between_columns_are_of_the_call(board):
    """Two calls of one shape whose columns lie differently far apart each get their own stride."""
    wide = np.zeros((3, 900), dtype=np.float32)
    for gap in (2, 3, 1, 2):
        part = wide[:, : 300 * gap : gap]
        topk.select(part, LENGTHS, 8)
        words = board.launched[-1][2]
        assert (words["column_stride"], words["strided"]) == (gap, gap > 1)


def test_a_refused_launch_falls_to_the_next_rung(board):
    """The driver's code is in the fall, and the next cheapest rung answers."""
    _refuse(board, "cluster-16", 912)
    call, _ = _select()
    assert call.rung == "cluster-8"
    (fall,) = call.falls
    assert (fall.rung, fall.code) == ("cluster-16", 912)
    assert fall.reason == "the launch answered 912 NAME a sentence"


def test_a_refusal_is_remembered_and_counted_in_every_call(board):
    """The launch is not tried again for this shape, but each call that fell says so."""
    _refuse(board, "cluster-16", 912)
    with topk.record() as log:
        for _ in range(5):
            topk.select(LOGITS, LENGTHS, K)
    assert board.names.count("long-512x4/16") == 1
    assert board.names.count("long-512x4/8") == 5
    assert (log.rungs, log.falls) == ({"cluster-8": 5}, 5)
    assert {call.falls for call in log.calls} == {log.calls[0].falls}


def test_another_shape_asks_again(board):
    """A refusal is of a shape and a partition: other rows, k or partitions try anew."""
    _refuse(board, "cluster-16", 912)
    _select()
    _select(LOGITS[:2], LENGTHS[:2])
    _select(k=8)
    board.partition = 1
    _select()
    assert board.names.count("long-512x4/16") == 4


def test_another_stream_of_the_partition_shares_the_plan(board):
    """A capture has a stream of its own, where the device cannot be asked, and needs no asking."""
    _select()
    board.stream, board.capturing = 8, True
    call, _ = _select()
    assert call.rung == "cluster-16"
    assert board.launched[-1][2]["stream"] == 8


def test_rows_of_about_the_same_length_share_a_plan(board):
    """A row that grows with every token asks the device no more than eight times an octave."""
    _refuse(board, "cluster-16", 912)
    for columns in range(19_000, 19_400, 50):
        _select(LOGITS[:, :columns], LENGTHS)
        assert board.launched[-1][2]["columns"] == columns
    assert board.names.count("long-512x4/16") == 1


def test_a_shape_that_is_new_inside_a_capture_is_refused(board):
    """Asking would end the capture, so the call says what to do before it."""
    board.capturing = True
    with pytest.raises(topk.ArgumentError, match="capture"):
        _select()
    assert board.launched == []


def test_rungs_fall_in_a_row(board):
    """Several refusals in one call are several falls, in the order in which they were tried."""
    for rung, code in (("cluster-16", 912), ("cluster-8", 1), ("cluster-4", 701)):
        _refuse(board, rung, code)
    call, _ = _select()
    assert call.rung == "cluster-2"
    assert [(fall.rung, fall.code) for fall in call.falls] == [
        ("cluster-16", 912),
        ("cluster-8", 1),
        ("cluster-4", 701),
    ]


@pytest.mark.parametrize("way", ["codes", "slots"])
def test_torch_is_the_last_rung_and_right(board, way):
    """Where every kernel is refused, at launch or before, the library's sort gives the result."""
    for choice in ladder.choices(1, "float32"):
        getattr(board, way)[choice.name] = 912 if way == "codes" else 0
    call, found = _select(k=5)
    assert call.rung == "torch"
    assert {fall.rung for fall in call.falls} == set(contract.RUNGS) - {"torch"}
    assert {fall.code for fall in call.falls} == {912 if way == "codes" else 0}
    assert found[0].tolist() == np.argsort(-LOGITS[0])[:5].tolist()
    assert found[2].tolist() == [-1] * 5
    assert topk.explain(LOGITS, LENGTHS, 5).rung == "torch"


def test_a_named_rung_that_refuses_falls_below_it(board):
    """Higher rungs are not tried although they are cheaper."""
    _refuse(board, "cluster-4", 912)
    call, _ = _select(rung="cluster-4")
    assert (call.rung, [fall.rung for fall in call.falls]) == ("cluster-2", ["cluster-4"])
    assert set(board.names) == {"long-512x4/4", "long-512x4/2"}


@pytest.mark.parametrize("rung", contract.RUNGS)
def test_each_rung_can_be_asked_for(board, rung):
    """The rung that is named answers, without a fall."""
    call, _ = _select(rung=rung)
    assert (call.rung, call.falls) == (rung, ())
    assert len(board.launched) == {"torch": 0, "many-ctas": 2}.get(rung, 1)


def test_separate_ctas_use_the_workspace_that_is_given(board):
    """Both launches get its address; without one, memory is found for the call."""
    workspace = np.zeros(topk.workspace_bytes(3, K), dtype=np.uint8)
    for given in (workspace, None):
        _select(rung="many-ctas", workspace=given)
        (_, first, _), (name, second, words) = board.launched[-2:]
        assert (name, first) == ("merge-512x1/1", second)
        assert words["ctas"] == 16
        assert (first[4] == workspace.ctypes.data) == (given is not None)
        assert first[4] % 8 == 0


def test_a_merge_that_is_refused_is_a_fall_as_well(board):
    """The second launch of a rung counts as the rung's."""
    board.codes["merge-512x1/1"] = 719
    call, _ = _select(rung="many-ctas", k=4)
    assert (call.rung, [fall.code for fall in call.falls]) == ("torch", [719])


SIZE = topk.workspace_bytes(3, K)


@pytest.mark.parametrize(
    "workspace",
    [
        np.zeros(SIZE - 1, dtype=np.uint8),
        np.zeros(SIZE, dtype=np.int8),
        np.zeros((SIZE, 1), dtype=np.uint8),
        np.zeros(2 * SIZE, dtype=np.uint8)[::2],
        np.zeros(SIZE + 16, dtype=np.uint8)[1:],
        np.zeros((), dtype=np.uint8),
        [0] * SIZE,
    ],
    ids=["too small", "another type", "two dimensions", "gaps", "misaligned", "a scalar", "a list"],
)
def test_a_workspace_that_cannot_serve_is_refused(board, workspace):
    """A kernel never gets memory of another size, type or alignment than it writes."""
    with pytest.raises(topk.ArgumentError) as caught:
        _select(rung="many-ctas", workspace=workspace)
    assert caught.value.hint
    assert board.launched == []


@pytest.mark.parametrize("name", ["status", "workspace"])
def test_memory_of_the_host_is_refused_on_a_device(board, monkeypatch, name):
    """A status or workspace that is not on the device of the scores never reaches a kernel."""
    given = {
        "status": np.zeros(3, dtype=np.int32),
        "workspace": np.zeros(SIZE, dtype=np.uint8),
    }[name]
    from thorprobe.topk import array

    look, hosts = array.view, array.read(given)[0]

    def view(traits):
        return replace(look(traits), device=None) if traits == hosts else look(traits)

    monkeypatch.setattr(array, "view", view)
    with pytest.raises(topk.ArgumentError):
        _select(rung="many-ctas", **{name: given})
    assert board.launched == []


def test_a_status_with_gaps_is_refused(board):
    """The kernel writes one word after the other."""
    with pytest.raises(topk.ArgumentError, match="status"):
        _select(status=np.zeros(6, dtype=np.int32)[::2])
    assert board.launched == []


@pytest.mark.parametrize("error", [CouldNotProbeError("no NVRTC here", ""), ImportError("no cuda")])
def test_a_machine_without_the_kernels_still_selects(board, monkeypatch, error):
    """Where kernels cannot be made at all, the fall names what is missing."""

    def refuse(*_):
        raise error

    monkeypatch.setattr(kernel, "sms", refuse)
    call, found = _select(k=5)
    assert call.rung == "torch"
    assert [(fall.rung, fall.reason) for fall in call.falls] == [("kernels", str(error))]
    assert found[0].tolist() == np.argsort(-LOGITS[0])[:5].tolist()
    told = topk.explain(LOGITS, LENGTHS, 5)
    assert (told.rung, told.falls) == ("torch", call.falls)


def test_explain_names_the_rung_that_select_takes(board):
    """Every kernel has a line in the order of trial, and nothing is launched for it."""
    board.slots = {c.name: 0 for c in ladder.choices(1, "float32", rung="cluster-16")}
    told = topk.explain(LOGITS, LENGTHS, K)
    assert board.launched == []
    call, _ = _select()
    assert (told.rung, told.falls) == (call.rung, call.falls)
    assert told.rung == "cluster-8"
    assert "long-512x4/8" in told.why
    assert len(told.offers) == len(ladder.choices(20_000, "float32"))
    assert told.offers[0] == "cluster-16 (long-512x4/16): refused"
    assert "64 rows at once" in told.offers[1]


def test_explain_knows_of_a_launch_that_was_refused(board):
    """After a refusal at launch, the explanation gives the rung that runs now and the fall."""
    _refuse(board, "cluster-16", 912)
    call, _ = _select()
    told = topk.explain(LOGITS, LENGTHS, K)
    assert (told.rung, told.falls) == (call.rung, call.falls)


def test_explain_says_why_torch_answers(board):
    """Asked for, or nothing to select: the reason is that of the call."""
    assert "asked" in topk.explain(LOGITS, LENGTHS, K, rung="torch").why
    assert "asked" not in topk.explain(LOGITS[:, :0], LENGTHS, K).why


def test_threads_have_plans_of_their_own(board):
    """A prepared launch is written in place, so that no two threads share one."""
    _refuse(board, "cluster-16", 912)
    threads = [threading.Thread(target=_select) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert board.names.count("long-512x4/16") == 3


def test_plans_do_not_pile_up(board, monkeypatch):
    """A process that meets endless shapes keeps a bounded number of them."""
    from thorprobe.topk import plans

    monkeypatch.setattr(plans, "LIMIT", 8)
    for k in range(1, 40):
        topk.select(LOGITS, LENGTHS, k)
    assert len(plans.plans.by_key) <= 8
