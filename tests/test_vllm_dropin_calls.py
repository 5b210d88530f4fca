# SPDX-License-Identifier: Apache-2.0
"""Calls inside captures, of several threads, and what the log counts of them."""

import threading

import msgspec
import pytest
import torch

from dropin_bed import NAMES, REFUSED, Host, batch, best, call, dropped_in, picked
from thorprobe.topk import ArgumentError
from thorprobe.vllm import dropin_log, dropin_route, dropin_start
from thorprobe.vllm.dropin_ladder import Ladder
from thorprobe.vllm.dropin_log import DropInReport


def report():
    """Return what was done so far."""
    return dropin_start.active().report()


def unplanned(monkeypatch, host):
    """Let the ladder refuse shapes that it first meets inside a capture, as its kernels do."""
    seen, run = set(), Ladder.__call__

    def once(self, logits, *rest):
        key = (threading.get_ident(), logits.shape)
        if host.captured and key not in seen:
            raise ArgumentError("selected for the first time inside a capture")
        seen.add(key)
        run(self, logits, *rest)

    monkeypatch.setattr(Ladder, "__call__", once)


def test_a_shape_that_ran_before_is_captured_with_the_ladder(monkeypatch):
    """VLLM runs each shape once before it captures it; the capture asks the device nothing."""
    host = Host(largest=8)
    unplanned(monkeypatch, host)
    with dropped_in(monkeypatch, "fallback", host, largest=8) as vllm:
        call(NAMES[0], *batch(1))
        host.captured = True
        logits, lengths = batch(1, seed=3)
        assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == []
        (one,) = report().shapes
        assert (one.calls, one.captured, one.answered) == (2, 1, "ladder")


def test_an_arm_that_was_never_asked_about_stays_vllms_inside_a_capture(monkeypatch):
    """Nothing is known there; the same shape is decided anew once the device can be asked."""
    host = Host(largest=8)
    with dropped_in(monkeypatch, "fallback", host) as vllm:
        host.captured = True
        call(NAMES[0], *batch(1))
        assert host.asked == []
        assert vllm.calls == [(NAMES[0], 1)]
        host.captured = False
        call(NAMES[0], *batch(1))
        assert vllm.calls == [(NAMES[0], 1)]
        (fall,) = report().falls
        assert "inside a capture" in fall.name
        assert {(one.answered, one.calls) for one in report().shapes} == {
            ("vllm", 1),
            ("ladder", 1),
        }


def test_an_unplanned_shape_in_a_capture_is_vllms_where_that_is_hosted(monkeypatch):
    """Mode ``always`` then gives up its order for that graph, and says so; nothing is raised."""
    host = Host(largest=8)
    unplanned(monkeypatch, host)
    with dropped_in(monkeypatch, "always", host) as vllm:
        call(NAMES[0], *batch(9))
        host.captured = True
        logits, lengths = batch(33)
        assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(NAMES[0], 33)]
        told = report()
        assert [(one.calls, one.rows) for one in told.falls] == [(1, 33)]
        assert any("inside a capture" in line for line in told.said)
        assert {one.name: one.calls for one in told.rungs} == {"torch": 1}


def test_an_unplanned_shape_that_vllm_cannot_launch_is_one_clear_error(monkeypatch):
    """Neither can select, so nothing is selected wrongly; the sentence says both reasons."""
    host = Host(largest=8)
    unplanned(monkeypatch, host)
    with dropped_in(monkeypatch, "fallback", host, largest=8) as vllm:
        call(NAMES[0], *batch(5))
        host.captured = True
        with pytest.raises(RuntimeError, match=r"16 CTAs cannot launch here .* inside a capture"):
            call(NAMES[0], *batch(1))
        assert vllm.calls == [(NAMES[0], 5)]
        assert {(one.num_rows, one.answered) for one in report().shapes} == {
            (5, "vllm"),
            (1, "none"),
        }


def test_a_ladder_that_breaks_never_breaks_vllm(monkeypatch):
    """Whatever the ladder raises, vLLM's own operator answers where the device hosts it."""
    with dropped_in(monkeypatch, "always", Host(largest=16)) as vllm:

        def broken(*_):
            raise ValueError("no such thing")

        monkeypatch.setattr(Ladder, "__call__", broken)
        logits, lengths = batch(2)
        for _ in range(2):
            assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(NAMES[0], 2)] * 2
        assert [(one.name, one.calls) for one in report().falls] == [
            ("the ladder does not serve it: ValueError: no such thing", 2)
        ]


def test_a_host_that_breaks_never_breaks_vllm(monkeypatch):
    """Where a call cannot even be looked at, it is vLLM's."""
    host = Host()
    with dropped_in(monkeypatch, "always", host) as vllm:
        host.place = lambda logits: 1 / 0
        logits, lengths = batch(2)
        assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(NAMES[0], 2)]
        assert any("ZeroDivisionError" in line for line in report().said)


def test_vllms_own_error_comes_through_unchanged(monkeypatch):
    """Where vLLM's operator answers, its exception is its own."""
    with dropped_in(monkeypatch, "report", Host(largest=8), largest=8):
        with pytest.raises(RuntimeError) as caught:
            call(NAMES[0], *batch(1))
        assert str(caught.value) == REFUSED


def test_threads_do_not_lose_counts(monkeypatch):
    """Eight threads call both operators at once; every call is right and counted."""
    each, wrong = 40, []
    with dropped_in(monkeypatch, "always"):

        def work(seed):
            for turn in range(each):
                logits, lengths = batch(1 + (seed + turn) % 3, seed=seed * 100 + turn)
                if picked(call(NAMES[turn % 2], logits, lengths)) != best(logits, lengths):
                    wrong.append((seed, turn))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = report()
        assert wrong == []
        assert told.calls == 8 * each
        assert sum(one.calls for one in told.rungs) == 8 * each
        assert sum(one.rows for one in told.rungs) == sum(
            1 + (seed + turn) % 3 for seed in range(8) for turn in range(each)
        )


def test_shapes_without_end_do_not_fill_the_memory(monkeypatch):
    """Past a number of shapes they are counted together; no call and no row is lost."""
    monkeypatch.setattr(dropin_route, "_ROUTES", 8)
    monkeypatch.setattr(dropin_route, "SHAPES", 10)
    with dropped_in(monkeypatch, "always"):
        for rows in range(1, 41):
            call(NAMES[1], *batch(rows))
        told = report()
        assert told.calls == 40
        assert sum(one.rows for one in told.shapes) == sum(range(1, 41))
        assert len(told.shapes) <= 20
        assert any(one.num_rows == 0 and one.calls > 1 for one in told.shapes)
        assert len(dropin_start.active().drop_in.routes.here()) <= 8


def test_the_log_is_a_line_of_json_a_process(monkeypatch, tmp_path):
    """It says the mode, the versions, and calls and rows by rung and by arm."""
    path = tmp_path / "log.jsonl"
    monkeypatch.setenv("THORPROBE_VLLM_LOG", str(path))
    with dropped_in(monkeypatch, "fallback", Host(largest=8), "0.31.0", largest=8):
        for rows in (1, 2, 7, 7):
            call(NAMES[0], *batch(rows))
        dropin_start.active().write()
        dropin_start.active().write()
    first, second = path.read_bytes().splitlines()
    told = msgspec.json.decode(first, type=DropInReport)
    assert first == second
    assert (told.mode, told.vllm, told.torch) == ("fallback", "0.31.0", torch.__version__)
    assert [(one.name, one.calls, one.rows) for one in told.rungs] == [("torch", 2, 3)]
    assert [(one.name, one.calls, one.rows) for one in told.vllm_arms] == [
        ("cooperative_topk, 8 CTAs", 2, 14)
    ]
    assert told.replaced == ("cooperative_topk: in the dispatcher and for callers by name",)
    assert told.said[0].startswith("THORPROBE_VLLM=fallback, vLLM 0.31.0, process ")
    assert told.said[1].startswith("cooperative_topk with 16 CTAs cannot launch on Thor")


def test_a_log_that_cannot_be_written_is_told_not_raised(monkeypatch, tmp_path):
    """The file was there at the start and its folder is gone at the end."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setenv("THORPROBE_VLLM_LOG", str(folder / "log.jsonl"))
    with dropped_in(monkeypatch, "always"):
        (folder / "log.jsonl").unlink()
        folder.rmdir()
        dropin_start.active().write()
        assert any("was not written" in line for line in report().said)


def test_what_is_said_is_said_once_and_not_without_end(monkeypatch):
    """The same sentence is told once a process, and a hundred at most."""
    speaker = dropin_log.Speaker()
    for number in range(300):
        speaker.tell(f"sentence {number // 2}")
    assert len(speaker.said) == 100


def test_a_second_start_in_the_same_process_changes_nothing(monkeypatch):
    """VLLM may load its plugins more than once; the operators are replaced once."""
    with dropped_in(monkeypatch, "always") as vllm:
        seat = torch.ops._C.cooperative_topk
        assert dropin_start.start("report", host=Host(), key="CPU") is vllm.drop_in
        assert torch.ops._C.cooperative_topk is seat
        call(NAMES[0], *batch(2))
        assert report().calls == 1
        assert report().mode == "always"
