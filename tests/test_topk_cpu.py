# SPDX-License-Identifier: Apache-2.0
"""The contract of ``thorprobe.topk.select``, line by line, on arrays of the host."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe import topk
from thorprobe.topk import fallback

_MADE = runpy.run_path(str(Path(__file__).parent / "topk_cases.py"))
expected, scores = _MADE["expected"], _MADE["scores"]

NAN, INF = float("nan"), float("inf")
KINDS = ("torch-float32", "torch-float16", "torch-bfloat16", "numpy-float32", "numpy-float16")


def _array(kind, rows):
    """Return rows as an array of one library and type."""
    library, dtype = kind.split("-")
    if library == "torch":
        return torch.tensor(rows, dtype=getattr(torch, dtype))
    return np.array(rows, dtype=dtype)


def _lengths(logits, lengths):
    if isinstance(logits, torch.Tensor):
        return torch.tensor(lengths, dtype=torch.int32)
    return np.array(lengths, dtype=np.int32)


def _rows(array):
    """Return what an array really holds, as Python floats."""
    wide = array.double() if isinstance(array, torch.Tensor) else array.astype(np.float64)
    return wide.tolist()


def _check(logits, lengths, k, *, nan="largest", ordered=False, **options):
    """Select, and hold every row against Python's sort."""
    found = topk.select(
        logits, _lengths(logits, lengths), k, nan=nan, ordered=ordered, **options
    ).tolist()
    wanted = [
        expected(row, length, k, nan=nan, ordered=ordered)
        for row, length in zip(_rows(logits), lengths, strict=True)
    ]
    assert found == wanted
    return found


# One row each: scores, length, k, options and the answer written by hand.
CONTRACT = {
    "best first": ([1, 4, 2, 3], 4, 2, {}, [1, 3]),
    "a tie at the cut goes to the smaller index": ([7, 5, 5, 5], 4, 2, {}, [0, 1]),
    "equal scores stand by index": ([5, 7, 5, 7], 4, 3, {}, [1, 3, 0]),
    "-0 equals +0": ([-0.0, 0.0, -0.0, -1], 4, 2, {}, [0, 1]),
    "+0 does not pass -0": ([-1, -0.0, 0.0, -1], 4, 1, {}, [1]),
    "NaN ranks above +inf": ([INF, NAN, 1, NAN], 4, 3, {}, [1, 3, 0]),
    "NaN ranks below -inf on request": ([NAN, -INF, NAN, 1], 4, 3, {"nan": "last"}, [3, 1, 0]),
    "all NaN are equal": ([NAN, -NAN, NAN, 0], 4, 2, {}, [0, 1]),
    "-inf is a score": ([-INF, -INF, -1, -INF], 4, 2, {}, [2, 0]),
    "padding is -1": ([3, 9, 1, 4], 2, 4, {}, [0, 1, -1, -1]),
    "k may pass the columns": ([3, 9, 1], 3, 5, {}, [0, 1, 2, -1, -1]),
    "as many as are asked stand by index": ([3, 9, 1], 3, 3, {}, [0, 1, 2]),
    "ordered sorts a short row too": ([3, 9, 1], 3, 5, {"ordered": True}, [1, 0, 2, -1, -1]),
    "a negative length is 0": ([3, 9, 1, 4], -7, 2, {}, [-1, -1]),
    "a length of 0": ([3, 9, 1, 4], 0, 2, {"ordered": True}, [-1, -1]),
    "a length beyond counts as the columns": ([3, 9, 1, 4], 99, 2, {}, [1, 3]),
    "nothing beyond the length is selected": ([3, 2, 1, NAN, INF, 9], 3, 2, {}, [0, 1]),
    "not even as padding": ([-INF, -INF, NAN, INF], 2, 3, {}, [0, 1, -1]),
    "k = 1": ([0, -1, 5, 5], 4, 1, {}, [2]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("line", CONTRACT)
def test_every_line_of_the_contract(line, kind):
    """Each promise holds in each library and type, and Python's sort agrees with the hand."""
    row, length, k, options, wanted = CONTRACT[line]
    (found,) = _check(_array(kind, [row]), [length], k, **options)
    assert found == wanted


VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 6e-8, -6e-8, 1e-40, 65504.0]) | (
    st.floats(width=16)
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_scores_are_selected_as_python_sorts_them(data):
    """Whatever the scores, lengths, k and options are, the indices are those of a stable sort."""
    columns = data.draw(st.integers(0, 24), "columns")
    row = st.lists(VALUES, min_size=columns, max_size=columns)
    rows = data.draw(st.lists(row, min_size=1, max_size=5), "rows")
    kind = data.draw(st.sampled_from(KINDS), "kind")
    length = st.integers(-2, columns + 2)
    lengths = data.draw(st.lists(length, min_size=len(rows), max_size=len(rows)), "lengths")
    _check(
        _array(kind, rows),
        lengths,
        data.draw(st.integers(1, columns + 3), "k"),
        nan=data.draw(st.sampled_from(["largest", "last"]), "nan"),
        ordered=data.draw(st.booleans(), "ordered"),
        ties=data.draw(st.sampled_from(["lowest", "any"]), "ties"),
    )


@settings(max_examples=150, deadline=None)
@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=40), k=st.integers(1, 8))
def test_any_bits_of_fp32_are_ordered(bits, k):
    """Every pattern of bits is a score: subnormal numbers and NaN of any payload and sign too."""
    row = np.array([bits], dtype=np.uint32).view(np.float32)
    _check(row, [len(bits)], k)
    _check(torch.from_numpy(row), [len(bits)], k, nan="last")


@pytest.mark.parametrize("k", [1, 7, 512, 1024, 2048])
@pytest.mark.parametrize("name", _MADE["DISTRIBUTIONS"])
def test_long_rows_of_every_distribution(name, k):
    """Rows around k and of thousands of scores are exact in every distribution."""
    logits = scores(name, (5, 3_000))
    _check(logits, [k - 1, k, k + 1, 2_999, 3_000], k)
    assert _check(logits[:1].numpy(), [3_000], k) == _check(logits[:1], [3_000], k)


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_and_no_columns(kind):
    """Without rows the result is empty; without columns every place is -1."""
    none = _array(kind, [[0.0] * 4]).reshape(-1)[:0]
    lengths = _lengths(none, [])
    assert tuple(topk.select(none.reshape(0, 4), lengths, 3).shape) == (0, 3)
    assert topk.select(none.reshape(2, 0), _lengths(none, [0, 5]), 3).tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_any_strides(kind):
    """Gaps between columns and rows, a transposed array and one repeated row change nothing."""
    whole = _array(kind, np.random.default_rng(3).permutation(14 * 30).reshape(14, 30).tolist())
    for part in (whole[:, ::2], whole[::3, 1:], whole[1:9, 3:28:3], whole.T):
        _check(part, [part.shape[1] - 1] * part.shape[0], 5)
    same = whole[:1].expand(4, 30) if "torch" in kind else np.broadcast_to(whole[:1], (4, 30))
    _check(same, [30, 29, 5, 0], 5)


@pytest.mark.parametrize("kind", KINDS)
def test_out_is_written_and_returned(kind):
    """A given ``out`` is filled wholly, in place, with gaps between its rows left alone."""
    logits = _array(kind, [[3, 9, 1, 4], [0, 0, 2, 2], [5, 5, 5, 5]])
    wide = _lengths(logits, [77] * 24).reshape(3, 8)
    out = wide[:, 2:7]
    assert topk.select(logits, _lengths(logits, [4, 3, 0]), 5, out=out) is out
    assert out.tolist() == [[0, 1, 2, 3, -1], [0, 1, 2, -1, -1], [-1] * 5]
    assert wide[:, [0, 1, 7]].tolist() == [[77] * 3] * 3


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_the_result_is_int32_of_the_same_library(library):
    """A new result is int32 [rows, k], and the inputs are as they were."""
    logits = _array(f"{library}-float32", [[3, NAN, 1, -0.0]])
    lengths, before = _lengths(logits, [9]), str(logits.tolist())
    found = topk.select(logits, lengths, 2)
    assert type(found) is type(logits)
    assert str(found.dtype).endswith("int32")
    assert (str(logits.tolist()), lengths.tolist()) == (before, [9])


@pytest.mark.parametrize("rung", ["auto", *topk.RUNGS])
def test_a_rung_does_not_change_the_result(rung):
    """On the host every rung gives the same indices, and the library's sort is what ran."""
    logits = scores("ten", (3, 200))
    with topk.record() as log:
        _check(logits, [200, 100, 7], 16, rung=rung)
    assert log.rungs == {"torch": 1}


def test_ties_of_any_kind_give_the_same_scores():
    """With ``ties="any"`` the scores are those of ``lowest``, and no index comes twice."""
    logits = scores("ten", (4, 500))
    lengths = _lengths(logits, [500] * 4)
    lowest, other = (topk.select(logits, lengths, 60, ties=t).long() for t in ("lowest", "any"))
    assert torch.equal(logits.gather(1, lowest), logits.gather(1, other))
    assert all(len(set(row)) == 60 for row in other.tolist())


def test_torch_itself_selects_the_same_scores():
    """torch.topk, which ranks NaN above +inf too, returns the same values in the same order."""
    logits = scores("nan-and-inf", (4, 900))
    found = topk.select(logits, _lengths(logits, [900] * 4), 100).long()
    wanted = torch.topk(logits, 100, dim=1).values
    torch.testing.assert_close(logits.gather(1, found), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("chunk", [1, 700, 2_000])
def test_rows_taken_in_parts_are_the_same_rows(library, chunk, monkeypatch):
    """However many rows are sorted at once, each row's result is its own."""
    logits = scores("ten", (7, 600))
    logits = logits if library == "torch" else logits.numpy()
    monkeypatch.setattr(fallback, "_CHUNK", chunk)
    _check(logits, [600, 0, 5, -1, 599, 40, 41], 40)


def test_scores_with_a_gradient_are_selected():
    """A tensor that asks for a gradient is read like another, and the result has none."""
    logits = scores("normal", (2, 50)).requires_grad_()
    assert not topk.select(logits, _lengths(logits, [50, 9]), 4).requires_grad


def test_a_status_is_left_alone_on_the_host():
    """Only kernels write a status."""
    status = torch.full((2,), 77, dtype=torch.int32)
    logits = scores("normal", (2, 50))
    topk.select(logits, _lengths(logits, [50, 60]), 4, status=status)
    assert status.tolist() == [77, 77]
