# SPDX-License-Identifier: Apache-2.0
"""Arguments that ``select`` refuses, and what it tells of its calls: ``record`` and ``explain``."""

import threading

import numpy as np
import pytest
import torch

from thorprobe import topk
from thorprobe.errors import ExitCode, UsageError
from thorprobe.topk import array

LOGITS = torch.arange(12.0).reshape(3, 4)
LENGTHS = torch.tensor([4, 4, 4], dtype=torch.int32)
TWICE = torch.zeros(3, 8, dtype=torch.int32)


def _select(logits=LOGITS, lengths=LENGTHS, k=2, **options):
    return topk.select(logits, lengths, k, **options)


# What is wrong, and words that the sentence or the hint must hold.
BAD = {
    "k of 0": ({"k": 0}, "k = 0 ", "1 to 2048"),
    "a negative k": ({"k": -1}, "k = -1 ", "1 to 2048"),
    "k beyond the kernels": ({"k": 2049}, "k = 2049 ", "sort the row instead"),
    "a fraction as k": ({"k": 2.5}, "k = 2.5 ", "integer"),
    "a text as k": ({"k": "2"}, "k = '2' ", "integer"),
    "ties of another name": ({"ties": "first"}, "'first'", "`lowest` or `any`"),
    "nan of another name": ({"nan": "first"}, "'first'", "`largest` or `last`"),
    "a rung that is none": ({"rung": "cluster-32"}, "'cluster-32'", "`cluster-16`"),
    "no rung": ({"rung": None}, "None", "`auto`"),
    "a list": ({"logits": [[1.0, 2.0]]}, "`list`", "from_dlpack"),
    "nothing": ({"logits": None}, "`NoneType`", "CuPy"),
    "a NumPy scalar": ({"logits": np.float32(1)}, "`float32`", "NumPy arrays"),
    "a sparse tensor": ({"logits": LOGITS.to_sparse()}, "`Tensor`", "dense"),
    "a type of torch": ({"logits": torch.float32}, "`dtype`", "dense"),
    "double precision": ({"logits": LOGITS.double()}, "float64", "float32, float16, bfloat16"),
    "whole numbers": ({"logits": LENGTHS[:, None]}, "int32", "float32"),
    "big-endian scores": ({"logits": np.zeros((3, 4), ">f4")}, ">f4", "float32"),
    "one dimension": ({"logits": LOGITS[0]}, "(4,)", "[rows, columns]"),
    "three dimensions": ({"logits": LOGITS[None]}, "(1, 3, 4)", "[rows, columns]"),
    "a negative stride": (
        {"logits": np.zeros((3, 4), np.float32)[:, ::-1], "lengths": LENGTHS.numpy()},
        "negative stride",
        "copy",
    ),
    "rows upside down": (
        {"logits": np.zeros((3, 4), np.float32)[::-1], "lengths": LENGTHS.numpy()},
        "negative stride",
        "copy",
    ),
    "lengths of 64 bits": ({"lengths": LENGTHS.long()}, "int64", "int32 [3]"),
    "too few lengths": ({"lengths": LENGTHS[:2]}, "(2,)", "int32 [3]"),
    "a column of lengths": ({"lengths": LENGTHS[:, None]}, "(3, 1)", "int32 [3]"),
    "one length for all": ({"lengths": LENGTHS[:1].expand(3)}, "gaps", "contiguous"),
    "lengths with gaps": ({"lengths": torch.cat([LENGTHS, LENGTHS])[::2]}, "gaps", "contiguous"),
    "a list of lengths": ({"lengths": [4, 4, 4]}, "`list`", "CuPy"),
    "a number as lengths": ({"lengths": np.int32(4)}, "`int32`", "NumPy arrays"),
    "lengths of another library": ({"lengths": LENGTHS.numpy()}, "numpy cpu", "one library"),
    "out of 64 bits": ({"out": TWICE[:, :2].long()}, "int64", "int32 [3, 2]"),
    "out too wide": ({"out": TWICE[:, :3]}, "(3, 3)", "int32 [3, 2]"),
    "out with gaps": ({"out": TWICE[:, ::4]}, "gaps", "contiguous"),
    "out with one row for all": ({"out": TWICE[:1, :2].expand(3, 2)}, "overlap", "its own"),
    "out with rows in one another": (
        {"out": TWICE.as_strided((3, 2), (1, 1))},
        "overlap",
        "its own",
    ),
    "out of another library": ({"out": np.zeros((3, 2), np.int32)}, "numpy cpu", "one library"),
    "out that is a list": ({"out": [[0, 0]] * 3}, "`list`", "CuPy"),
    "status of 64 bits": ({"status": torch.zeros(3).long()}, "int64", "int32 [3]"),
    "status of another shape": ({"status": LENGTHS[:2]}, "(2,)", "int32 [3]"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_argument_is_one_sentence_with_a_hint(case):
    """Each is refused before anything is written, as a usage error and as a ValueError."""
    options, *words = BAD[case]
    with pytest.raises(topk.ArgumentError) as caught:
        _select(**options)
    error = caught.value
    assert isinstance(error, UsageError)
    assert isinstance(error, ValueError)
    assert error.exit_code is ExitCode.USAGE
    assert not error.sentence.endswith(".")
    assert "\n" not in error.sentence + error.hint
    assert error.hint
    for word in words:
        assert word in f"{error.sentence}; {error.hint}"
    assert not TWICE.any()


def _view(device, library="torch", **changes):
    base = {"dtype": "float32", "shape": (3, 4), "strides": (4, 1)}
    return array.View(library=library, device=device, **(base | changes))


def test_arrays_on_two_devices_are_refused():
    """Both places are named, the host and every GPU apart."""
    lengths = {"dtype": "int32", "shape": (3,), "strides": (1,)}
    out = {"dtype": "int32", "shape": (3, 2), "strides": (2, 1)}
    with pytest.raises(topk.ArgumentError, match="torch cuda:0 and lengths on torch cpu"):
        array.check(_view(0), _view(None, **lengths))
    with pytest.raises(topk.ArgumentError, match="torch cuda:0 and lengths on cupy cuda:0"):
        array.check(_view(0), _view(0, "cupy", **lengths))
    with pytest.raises(topk.ArgumentError, match="torch cuda:0 and out on torch cuda:1"):
        array.check_out(_view(1, **out), _view(0), 2)


def test_sizes_that_the_kernels_cannot_count_are_refused():
    """Rows beyond 31 bits and column strides beyond 32 are told with the limit."""
    lengths = _view(0, dtype="int32", shape=(3,), strides=(1,))
    with pytest.raises(topk.ArgumentError, match="2,147,483,647 scores"):
        array.check(_view(0, shape=(3, 2**31 - 1)), lengths)
    with pytest.raises(topk.ArgumentError, match="4,294,967,296 scores"):
        array.check(_view(0, strides=(1, 2**32)), lengths)
    array.check(_view(0, shape=(3, 1), strides=(1, 2**32)), lengths)


@pytest.mark.parametrize("k", [True, np.int64(2), torch.tensor(2)])
def test_any_whole_number_is_a_k(k):
    """What Python takes as an index is a k."""
    assert _select(k=k).shape == (3, int(k))


def test_every_call_is_recorded_with_its_shape():
    """A record holds the calls inside its block, in order, and none from outside it."""
    _select()
    with topk.record() as log:
        _select()
        _select(LOGITS[:1], LENGTHS[:1], 3)
        _select(LOGITS[:0], LENGTHS[:0])
        topk.explain(LOGITS, LENGTHS, 2)
    _select()
    shape = {"rung": "torch", "columns": 4, "device": "torch cpu"}
    assert log.calls == [
        topk.Call(num_rows=3, k=2, **shape),
        topk.Call(num_rows=1, k=3, **shape),
    ]
    assert (log.rungs, log.falls) == ({"torch": 2}, 0)


def test_records_nest():
    """A call counts in every record around it, and an error ends a record all the same."""

    def broken(logs):
        with topk.record() as inner:
            logs.append(inner)
            _select()
            _select(k=0)

    logs = []
    with topk.record() as outer:
        _select()
        with pytest.raises(topk.ArgumentError):
            broken(logs)
        _select()
    assert (len(outer.calls), len(logs[0].calls)) == (3, 1)


def test_a_record_is_of_its_own_thread():
    """A thread's calls count in its own record, and not in one that another thread holds open."""
    found = []

    def work():
        _select()
        with topk.record() as own:
            _select()
        found.append(len(own.calls))

    with topk.record() as log:
        _select()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (found, len(log.calls)) == ([1] * 4, 1)


def test_a_log_counts_rungs_and_falls():
    """Falls are summed over the calls, rungs counted by the one that answered."""
    fall = topk.Fallback(rung="cluster-16", code=912, reason="refused")
    shape = {"num_rows": 1, "columns": 2, "k": 1, "device": "torch cuda:0"}
    log = topk.Log(
        [
            topk.Call(rung="cluster-8", falls=(fall, fall), **shape),
            topk.Call(rung="cluster-8", falls=(fall,), **shape),
            topk.Call(rung="one-cta", **shape),
        ]
    )
    assert (log.rungs, log.falls) == ({"cluster-8": 2, "one-cta": 1}, 3)


@pytest.mark.parametrize("rung", ["auto", "cluster-16", "torch"])
@pytest.mark.parametrize("logits", [LOGITS, LOGITS.numpy(), LOGITS[:0], LOGITS[:, :0]])
def test_explain_says_that_the_arrays_are_on_the_host(logits, rung):
    """On the host the library's sort runs, whatever rung is asked for, and the reason is given."""
    lengths = LENGTHS[: len(logits)]
    told = topk.explain(
        logits, lengths.numpy() if isinstance(logits, np.ndarray) else lengths, 2, rung=rung
    )
    assert (told.rung, told.offers) == ("torch", ())
    assert "host" in told.why


@pytest.mark.parametrize("case", ["k of 0", "a list", "lengths of 64 bits", "a rung that is none"])
def test_explain_refuses_what_select_refuses(case):
    """A question about a call that cannot be made has the same answer as the call."""
    options, word, _ = BAD[case]
    arguments = {"logits": LOGITS, "lengths": LENGTHS, "k": 2} | options
    with pytest.raises(topk.ArgumentError, match=word.strip()):
        topk.explain(**arguments)


@pytest.mark.parametrize("k", [1, 512, 1024, 1025, 2048])
def test_a_workspace_grows_with_the_rows(k):
    """Its bytes are those of the rung that needs one, in whole 16-byte entries, row by row."""
    one = topk.workspace_bytes(1, k)
    assert one % 16 == 0
    assert one >= 16 * 16 + 8 * 2 * k
    assert topk.workspace_bytes(70_000, k) == 70_000 * one
