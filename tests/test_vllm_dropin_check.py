# SPDX-License-Identifier: Apache-2.0
"""Mode ``check`` compares both selections row by row, as sets with ties by their scores."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dropin_bed import NAMES, Host, batch, best, call, dropped_in, picked
from thorprobe.vllm import dropin_start
from thorprobe.vllm.dropin_check import Check, differing


def told():
    """Return what was compared so far."""
    return dropin_start.active().report().check


@pytest.mark.parametrize("name", NAMES)
def test_two_right_selections_agree_and_vllms_is_kept(monkeypatch, name):
    """VLLM's fake shuffles its order, which is no difference; its output is what stays."""
    with dropped_in(monkeypatch, "check", Host(largest=16)) as vllm:
        for rows in (1, 5, 40):
            logits, lengths = batch(rows, seed=rows)
            assert picked(call(name, logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(name, 1), (name, 5), (name, 40)]
        assert (told().rows, told().different, told().not_compared) == (46, 0, 0)


def test_equal_scores_at_the_cut_are_no_difference(monkeypatch):
    """Which of them is taken is left to chance upstream."""
    with dropped_in(monkeypatch, "check", Host(largest=16)):
        logits = torch.zeros(3, 100)
        logits[:, 5] = -0.0
        logits[2, 7:9] = float("nan")
        for _ in range(5):
            call(NAMES[0], logits, torch.tensor([100, 9, 100], dtype=torch.int32))
        assert (told().rows, told().different) == (15, 0)


def test_a_wrong_selection_is_counted_and_kept_with_what_differs(monkeypatch):
    """One row of vLLM's is spoilt: its columns, its length and who broke the contract are kept."""
    with dropped_in(monkeypatch, "check", Host(largest=16)) as vllm:
        logits, lengths = batch(4)
        worst = int(logits[2].argmin())

        def spoil(output):
            output[2, 0] = worst
            output[3, 0] = output[3, 1]

        vllm.spoil = spoil
        call(NAMES[0], logits, lengths)
        seen = told()
        assert (seen.rows, seen.different, seen.vllm_broken, seen.ladder_broken) == (4, 2, 1, 0)
        first, second = seen.details
        assert (first.row, first.vllm_only, len(first.ladder_only)) == (2, (worst,), 1)
        assert (first.vllm_broken, second.row, second.vllm_broken) == (False, 3, True)


def test_what_vllm_cannot_launch_is_selected_by_the_ladder_and_not_compared(monkeypatch):
    """There is nothing to compare with; the call is answered and counted."""
    with dropped_in(monkeypatch, "check", Host(largest=2), largest=2) as vllm:
        logits, lengths = batch(2)
        assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == []
        assert (told().rows, told().not_compared) == (0, 1)


def test_inside_a_capture_the_host_looks_at_nothing(monkeypatch):
    """The first comparison outside makes the counters; one inside adds to them on the device."""
    host = Host(largest=16)
    with dropped_in(monkeypatch, "check", host) as vllm:
        call(NAMES[0], *batch(2))
        vllm.spoil = lambda output: output.fill_(0)
        host.captured = True
        call(NAMES[0], *batch(3))
        seen = told()
        assert (seen.rows, seen.different, seen.details) == (5, 3, ())


def test_a_comparison_first_made_inside_a_capture_is_left_out(monkeypatch):
    """Its counters would be allocated there; the call is answered by vLLM's operator."""
    host = Host(largest=16)
    with dropped_in(monkeypatch, "check", host) as vllm:
        host.captured = True
        call(NAMES[1], *batch(70))
        assert vllm.calls == [(NAMES[1], 70)]
        assert (told().rows, told().not_compared) == (0, 1)


def test_only_so_many_details_are_kept(monkeypatch):
    """Every difference is counted; a hundred are kept."""
    with dropped_in(monkeypatch, "check", Host(largest=16)) as vllm:
        vllm.spoil = lambda output: output.fill_(0)
        for _ in range(3):
            call(NAMES[1], *batch(70))
        assert (told().different, len(told().details)) == (210, 100)


def test_rows_are_compared_in_parts_without_loss(monkeypatch):
    """A prefill of many rows is cut; the row of a difference is that of the whole call."""
    monkeypatch.setattr("thorprobe.vllm.dropin_check._CHUNK", 24)
    check = Check()
    logits, lengths = batch(10)
    right = logits.topk(8, dim=1).indices.to(torch.int32)
    wrong = right.clone()
    wrong[7, 0] = int(logits[7].argmin())
    check.compare("persistent_topk", logits, lengths, wrong, right, capturing=False)
    seen = check.told()
    assert (seen.rows, seen.different) == (10, 1)
    assert [one.row for one in seen.details] == [7]


def naive(scores, length, one, other):
    """Say the same of one row in plain Python."""
    length = max(0, min(length, len(scores)))

    def wrong(columns):
        held = [c for c in columns if c != -1]
        return (
            len(held) != min(length, len(columns))
            or len(set(held)) != len(held)
            or any(not 0 <= c < length for c in held)
        )

    def values(columns):
        inside = [c for c in columns if 0 <= c < len(scores)]
        return sorted((scores[c] for c in inside), reverse=True), len(inside)

    return wrong(one) != wrong(other) or values(one) != values(other), wrong(one), wrong(other)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_comparison_says_what_plain_python_says(data):
    """Any scores with ties, any lengths, right and wrong selections of either side."""
    columns = data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, 6))
    rows = data.draw(st.integers(1, 4))
    whole = st.integers(-2, 2).map(float)
    pick = st.lists(st.integers(-2, columns + 1), min_size=k, max_size=k)
    scores = [data.draw(st.lists(whole, min_size=columns, max_size=columns)) for _ in range(rows)]
    lengths = [data.draw(st.integers(-2, columns + 2)) for _ in range(rows)]

    def selection(row):
        if data.draw(st.booleans()):
            return data.draw(pick)
        length = max(0, min(lengths[row], columns))
        order = sorted(range(length), key=lambda c: -scores[row][c])[:k]
        order = data.draw(st.permutations(order))
        return [*order, *[-1] * (k - len(order))]

    one = [selection(row) for row in range(rows)]
    other = [selection(row) for row in range(rows)]
    found = differing(
        torch.tensor(scores),
        torch.tensor(lengths, dtype=torch.int32),
        torch.tensor(one, dtype=torch.int32),
        torch.tensor(other, dtype=torch.int32),
    )
    wanted = [naive(scores[r], lengths[r], one[r], other[r]) for r in range(rows)]
    assert [tuple(row) for row in found.T.tolist()] == wanted
