# SPDX-License-Identifier: Apache-2.0
"""What ``select`` remembers of earlier calls never stands in the way of a check."""

import runpy
import sys
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from thorprobe import topk
from thorprobe.topk import array

_HERE = Path(__file__).parent
_PLAYED = runpy.run_path(str(_HERE / "topk_played.py"))
_BAD = runpy.run_path(str(_HERE / "test_topk_arguments.py"))["BAD"]
_SELECT = sys.modules["thorprobe.topk.select"]


@pytest.fixture
def remembered(monkeypatch):
    """Begin with nothing remembered; return what remembers."""
    fresh = lru_cache(_SELECT.request.cache_info().maxsize)(_SELECT.request.__wrapped__)
    monkeypatch.setattr(_SELECT, "request", fresh)
    return fresh


@pytest.fixture
def board(monkeypatch):
    """Play a device, on which all arrays are."""
    return _PLAYED["install"](monkeypatch)


def _arrays(rows=3, columns=4_000, k=8):
    return (
        torch.zeros(rows, columns),
        torch.full((rows,), columns, dtype=torch.int32),
        torch.zeros(rows, k, dtype=torch.int32),
    )


@pytest.mark.parametrize("case", _BAD)
def test_a_bad_argument_is_refused_after_good_ones_too(case, remembered):
    """The same arguments but for one were served before and after, and the error is the same."""
    options, *words = _BAD[case]
    logits = torch.arange(12.0).reshape(3, 4)
    good = {"logits": logits, "lengths": torch.tensor([4] * 3, dtype=torch.int32), "k": 2}
    for _ in range(2):
        assert topk.select(**good).tolist() == [[3, 2]] * 3
        with pytest.raises(topk.ArgumentError) as caught:
            topk.select(**(good | options))
        assert all(word in f"{caught.value.sentence}; {caught.value.hint}" for word in words)
    assert remembered.cache_info().currsize == 1


def test_arguments_alike_are_checked_once(remembered, monkeypatch):
    """Other arrays with the same traits need no look, and are read at their own addresses."""
    looks = []
    monkeypatch.setattr(array, "check", lambda *views: looks.append(views))
    for value in (1.0, 2.0, 3.0):
        logits, lengths, out = _arrays(columns=5)
        logits[:, 2] = value
        lengths[1] = 0
        found = topk.select(logits, lengths, 8, out=out, ordered=True)
        assert found is out
        assert found.tolist() == [[2, 0, 1, 3, 4, -1, -1, -1], [-1] * 8, [2, 0, 1, 3, 4, *[-1] * 3]]
    assert len(looks) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda logits, lengths, out: logits.resize_(3),
        lambda logits, lengths, out: logits.unsqueeze_(0),
        lambda logits, lengths, out: logits.t_(),
        lambda logits, lengths, out: lengths.resize_(2),
        lambda logits, lengths, out: lengths.as_strided_((3,), (0,)),
        lambda logits, lengths, out: out.resize_(3, 7),
        lambda logits, lengths, out: out.as_strided_((3, 8), (1, 1)),
        lambda logits, lengths, out: setattr(logits, "data", torch.zeros(3, 4_000).double()),
        lambda logits, lengths, out: setattr(lengths, "data", torch.zeros(3).long()),
    ],
)
def test_an_array_that_changed_in_place_is_checked_anew(board, change):
    """The very objects of the last call with another shape, strides or type do not pass for it."""
    arrays = _arrays()
    topk.select(*arrays[:2], 8, out=arrays[2])
    change(*arrays)
    with pytest.raises(topk.ArgumentError):
        topk.select(*arrays[:2], 8, out=arrays[2])
    assert len(board.launched) == 1


def test_a_workspace_is_checked_by_its_address_as_well(board):
    """One of the same size that is not aligned is refused after one that is, and then not taken."""
    logits, lengths, out = _arrays()
    size = topk.workspace_bytes(3, 8)
    whole = torch.zeros(size + 8, dtype=torch.uint8)
    options = {"out": out, "rung": "many-ctas"}
    for _ in range(2):
        topk.select(logits, lengths, 8, workspace=whole[:size], **options)
        with pytest.raises(topk.ArgumentError, match="workspace"):
            topk.select(logits, lengths, 8, workspace=whole[1 : size + 1], **options)
    assert [pointers[4] for _, pointers, _ in board.launched] == [whole.data_ptr()] * 4


def test_a_workspace_that_serves_fewer_rows_does_not_serve_more(board):
    """What was found out about a workspace is of one shape of call."""
    workspace = torch.zeros(topk.workspace_bytes(3, 8), dtype=torch.uint8)
    topk.select(*_arrays()[:2], 8, workspace=workspace, rung="many-ctas")
    with pytest.raises(topk.ArgumentError, match="workspace"):
        topk.select(*_arrays(rows=4)[:2], 8, workspace=workspace, rung="many-ctas")


def test_an_option_that_is_no_key_is_read_at_every_call(remembered):
    """A tensor as k or as an option has the value of the moment, though it is the same object."""
    logits, lengths, _ = _arrays(columns=4)
    logits[:, 1] = 1
    k, ordered = torch.tensor(2), torch.tensor(0)
    assert topk.select(logits, lengths, k).shape == (3, 2)
    k.fill_(4)
    assert topk.select(logits, lengths, k, ordered=ordered).tolist() == [[0, 1, 2, 3]] * 3
    ordered.fill_(1)
    assert topk.select(logits, lengths, k, ordered=ordered).tolist() == [[1, 0, 2, 3]] * 3
    assert topk.select(logits, lengths, k, ordered=[]).tolist() == [[0, 1, 2, 3]] * 3
    with pytest.raises(topk.ArgumentError, match=r"k = 4.0"):
        topk.select(logits, lengths, 4.0)
    for name in ("rung", "ties", "nan"):
        with pytest.raises(topk.ArgumentError, match=name):
            topk.select(logits, lengths, 4, **{name: ["lowest"]})


def test_growing_rows_are_not_remembered_without_end(board):
    """A row of another length at every token keeps a bounded memory, and its plans."""
    whole, lengths, out = _arrays(columns=9_000)
    for columns in range(1_000, 9_000, 3):
        topk.select(whole[:, :columns], lengths, 8, out=out)
        assert board.launched[-1][2]["columns"] == columns
    known = _SELECT.request.cache_info()
    assert known.currsize == known.maxsize == 1_024
    assert len(_SELECT._plans.by_key) <= 8 * 4


def test_a_longer_row_finds_every_kernel_asked(board):
    """The first call asks about the kernels that only longer rows will want, and prepares few."""
    whole, lengths, out = _arrays(columns=200_000, k=512)
    topk.select(whole[:, :2_100], lengths, 512, out=out)
    asked = len(board.asked)
    assert len(set(board.asked)) == asked
    for columns in range(2_300, 200_000, 9_000):
        board.made.clear()
        topk.select(whole[:, :columns], lengths, 512, out=out)
        assert len(board.made) <= 2
    assert len(board.asked) == asked


def test_a_parameter_is_a_tensor_like_another(remembered):
    """Arrays of several types of one library, and a leaf that wants a gradient, are taken."""
    logits, lengths, out = _arrays(columns=4)
    for given in (torch.nn.Parameter(logits), logits):
        assert topk.select(given, lengths, 8, out=out)[0].tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    with pytest.raises(topk.ArgumentError, match="numpy cpu"):
        topk.select(torch.nn.Parameter(logits), lengths.numpy(), 8)


def test_the_stream_is_torch_s_current_one():
    """The short way gives its handle; a torch without it is asked the public way."""
    asked = []
    short = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 70 + device)
    )
    stream = SimpleNamespace(cuda_stream=99)
    long = SimpleNamespace(
        _C=SimpleNamespace(),
        cuda=SimpleNamespace(current_stream=lambda device: asked.append(device) or stream),
    )
    with pytest.MonkeyPatch.context() as patch:
        for module, wanted in ((short, 73), (long, 99)):
            patch.setitem(sys.modules, "torch", module)
            assert array.stream_reader.__wrapped__("torch")(3) == wanted
    assert asked == [3]


def test_what_is_no_array_is_read_without_an_error():
    """Reading tells nothing apart; seeing what was read names the type that cannot be taken."""
    for given, name in (
        (3, "int"),
        (np.float32(1), "float32"),
        (torch.eye(3).to_sparse(), "Tensor"),
    ):
        traits, address = array.read(given)
        assert address == 0
        with pytest.raises(topk.ArgumentError, match=f"`{name}`"):
            array.view(traits)


def _off(array, bytes_off):
    """Return a copy of a NumPy array that begins so many bytes off a multiple of 16."""
    memory = np.zeros(array.nbytes + 32, dtype=np.uint8)
    begin = -memory.ctypes.data % 16 + bytes_off
    made = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


@pytest.mark.parametrize("name", ["logits", "lengths", "out", "status"])
@pytest.mark.parametrize("bytes_off", range(1, 16))
def test_memory_that_holds_no_whole_elements_never_reaches_a_kernel(board, name, bytes_off):
    """A kernel that reads there ends the process's context; the same arrays are right on a host."""
    given = {
        "logits": np.arange(24, dtype=np.float32).reshape(3, 8),
        "lengths": np.full(3, 8, dtype=np.int32),
        "out": np.zeros((3, 2), dtype=np.int32),
        "status": np.zeros(3, dtype=np.int32),
    }
    topk.select(**given, k=2)
    given[name] = _off(given[name], bytes_off)
    if bytes_off % 4 == 0:
        topk.select(**given, k=2)
    else:
        with pytest.raises(topk.ArgumentError, match="address") as caught:
            topk.select(**given, k=2)
        assert caught.value.hint
    assert len(board.launched) == 1 + (bytes_off % 4 == 0)
    del given["status"]
    assert topk.select(**given, k=2, rung="torch").tolist() == [[7, 6]] * 3


def test_strides_that_are_no_whole_number_of_scores_are_refused_on_a_device():
    """Of CuPy's arrays, whose strides are bytes; a dimension of one element has none to use."""
    float32 = np.dtype("float32")
    with pytest.raises(topk.ArgumentError, match="strides of"):
        array.view((float32, (3, 4), (17, 4), 0))
    assert array.view((float32, (1, 4), (17, 4), 0)).strides == (4, 1)
    assert array.view((float32, (3, 4), (32, 8), 0)).strides == (8, 2)
