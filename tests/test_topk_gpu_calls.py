# SPDX-License-Identifier: Apache-2.0
"""How the ladder behaves on a GPU: repeats, partitions, graphs, streams, threads, falls, memory."""

import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from thorprobe import topk
from thorprobe.driver.context import Context
from thorprobe.topk import kernel, ladder
from thorprobe.topk.contract import RUNGS

pytestmark = pytest.mark.gpu

scores = runpy.run_path(str(Path(__file__).parent / "topk_cases.py"))["scores"]
K, COLUMNS = 512, 50_000
KERNEL_RUNGS = RUNGS[:-1]
EVERY_RUNG = pytest.mark.parametrize("rung", KERNEL_RUNGS)


def _input(name="normal", rows=5, seed=0, dtype=torch.float32):
    """Return scores and lengths on the GPU, complete before any other stream reads them."""
    logits = scores(name, (rows, COLUMNS), dtype, "cuda", seed)
    lengths = [COLUMNS, COLUMNS - 1, 600, 513, 512, COLUMNS // 2 + 1][seed % 3 :]
    many = torch.tensor((lengths * rows)[:rows], dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    return logits, many


def _wanted(logits, lengths, k=K):
    found = topk.select(logits, lengths, k, rung="torch")
    torch.cuda.synchronize()
    return found


def _memory(rows, k=K):
    """Return ``out`` and ``workspace`` for a call, as its options."""
    return {
        "out": torch.empty((rows, k), dtype=torch.int32, device="cuda"),
        "workspace": torch.empty(topk.workspace_bytes(rows, k), dtype=torch.uint8, device="cuda"),
    }


@pytest.fixture(scope="module")
def parts():
    """Give the streams of the whole device and of green contexts of 24 and of 8 SMs, by SMs."""
    torch.cuda.init()
    contexts = {sms: Context(0, f"sms={sms}") for sms in (24, 8)}
    streams = {sms: torch.cuda.ExternalStream(int(c.stream)) for sms, c in contexts.items()}
    yield streams | {0: torch.cuda.Stream()}
    torch.cuda.synchronize()
    del contexts


@pytest.fixture
def plans():
    """Give this thread's plans; they, and what the device answered, are forgotten around a test."""
    from thorprobe.topk import plan

    found = sys.modules["thorprobe.topk.select"]._plans
    found.by_key.clear()
    plan._ANSWERS.clear()
    yield found
    found.by_key.clear()
    plan._ANSWERS.clear()


def _repeat(stream, rung, logits, lengths, times):
    """Select so many times on a stream; return all results and the rungs that answered."""
    many = torch.empty((times, len(logits), K), dtype=torch.int32, device="cuda")
    workspace = _memory(len(logits))["workspace"]
    torch.cuda.synchronize()
    with topk.record() as log, torch.cuda.stream(stream):
        for out in many:
            topk.select(logits, lengths, K, rung=rung, out=out, workspace=workspace)
    stream.synchronize()
    return many, log


@pytest.mark.parametrize("name", ["equal", "ten"])
@EVERY_RUNG
def test_a_thousand_repeats_give_one_result(parts, plans, rung, name):
    """On the whole device and in parts of 24 and 8 SMs all results are the same bits."""
    logits, lengths = _input(name)
    wanted = _wanted(logits, lengths)
    for sms, stream in parts.items():
        many, log = _repeat(stream, rung, logits, lengths, 1_000)
        assert torch.equal(many, wanted.expand_as(many)), sms
        answered = "cluster-8" if rung == "cluster-16" and sms else rung
        assert log.rungs == {answered: 1_000}


def test_the_sort_repeats_itself_too():
    """The last rung gives one result as well."""
    logits, lengths = _input("ten", rows=2)
    wanted = _wanted(logits, lengths)
    for _ in range(100):
        assert torch.equal(_wanted(logits, lengths), wanted)


@pytest.mark.parametrize("name", ["normal", "nan-and-inf", "relu"])
def test_a_part_selects_what_the_device_does(parts, plans, name):
    """Each rung that is asked for, and ``auto``, are exact on 8 and on 24 SMs."""
    logits, lengths = _input(name, rows=40)
    wanted = _wanted(logits, lengths)
    for stream in parts.values():
        for rung in ("auto", *KERNEL_RUNGS):
            many, _ = _repeat(stream, rung, logits, lengths, 1)
            assert torch.equal(many[0], wanted)


def test_a_part_without_room_for_the_cluster_falls(parts, plans):
    """In 8 SMs the rung of 16 CTAs falls to 8 before any launch, and ``explain`` says the same."""
    logits, lengths = _input()
    _, log = _repeat(parts[8], "cluster-16", logits, lengths, 3)
    assert (log.rungs, log.falls) == ({"cluster-8": 3}, 3)
    (fall,) = log.calls[0].falls
    assert (fall.rung, fall.code) == ("cluster-16", 0)
    assert fall.reason.startswith("max_active_clusters is 0 for long-")
    with torch.cuda.stream(parts[8]):
        told = topk.explain(logits, lengths, K, rung="cluster-16")
    assert (told.rung, told.falls) == ("cluster-8", (fall,))
    _, log = _repeat(parts[8], "auto", logits, lengths, 1)
    assert log.calls[0].rung != "cluster-16"


def test_a_launch_that_the_driver_refuses_falls_and_is_remembered(parts, plans, monkeypatch):
    """Where occupancy promised too much, the driver's 912 is the fall, and is asked for once."""
    monkeypatch.setattr(kernel.Launch, "slots", lambda self: 1)
    calls = []
    launch = kernel.Launch.__call__

    def counted(self, pointers):
        code = launch(self, pointers)
        calls.append(code)
        return code

    monkeypatch.setattr(kernel.Launch, "__call__", counted)
    logits, lengths = _input()
    many, log = _repeat(parts[8], "cluster-16", logits, lengths, 4)
    assert calls == [912, 0, 0, 0, 0]
    assert {call.rung for call in log.calls} == {"cluster-8"}
    assert [fall.code for call in log.calls for fall in call.falls] == [912] * 4
    assert "CUDA_ERROR_INVALID_CLUSTER_SIZE" in log.calls[0].falls[0].reason
    assert torch.equal(many[3], _wanted(logits, lengths))


@pytest.mark.parametrize("given", [True, False], ids=["memory given", "memory found"])
@EVERY_RUNG
def test_a_captured_graph_selects_from_new_inputs(plans, rung, given):
    """A graph captured once gives the right result of whatever scores and lengths come later."""
    logits, lengths = _input()
    options = _memory(len(logits)) if given else {}
    topk.select(logits, lengths, K, rung=rung, **options)
    graph = torch.cuda.CUDAGraph()
    with topk.record() as log, torch.cuda.graph(graph):
        out = topk.select(logits, lengths, K, rung=rung, **options)
    assert log.rungs == {rung: 1}
    for seed, name in enumerate(("normal", "ten", "nan-and-inf", "equal", "up", "normal")):
        new, many = _input(name, seed=seed)
        logits.copy_(new)
        lengths.copy_(many)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, _wanted(new, many))


def test_a_shape_that_was_never_selected_is_not_captured(plans):
    """Its first call inside a capture is refused in words, and the capture itself is not broken."""
    logits, lengths = _input()
    options, graph = _memory(len(logits)), torch.cuda.CUDAGraph()
    few = torch.zeros((2, COLUMNS), device="cuda")
    topk.select(few, lengths[:2], K, rung="cluster-4")
    with torch.cuda.graph(graph):
        with pytest.raises(topk.ArgumentError, match="inside a capture"):
            topk.select(logits, lengths, K, **options)
        found = topk.select(few, lengths[:2], K, rung="cluster-4")
    few.copy_(logits[:2])
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, _wanted(few, lengths[:2]))
    topk.select(logits, lengths, K, **options)
    assert torch.equal(options["out"], _wanted(logits, lengths))


@EVERY_RUNG
def test_a_shape_that_was_only_explained_is_captured(plans, rung):
    """``explain`` asks all that a capture must not, and what is prepared inside asks nothing."""
    logits, lengths = _input()
    options, wanted = _memory(len(logits)), _wanted(logits, lengths)
    assert topk.explain(logits, lengths, K, rung=rung).rung == rung
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        topk.select(logits, lengths, K, rung=rung, **options)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(options["out"], wanted)


def test_a_rung_that_is_refused_inside_a_capture_falls_there(plans, monkeypatch):
    """The rungs below, prepared inside the capture, are captured in its place."""
    logits, lengths = _input()
    options, wanted = _memory(len(logits)), _wanted(logits, lengths)
    topk.select(logits, lengths, K, rung="one-cta", **options)
    launch = kernel.Launch.__call__
    codes = iter([912])
    monkeypatch.setattr(
        kernel.Launch, "__call__", lambda self, given: next(codes, 0) or launch(self, given)
    )
    graph = torch.cuda.CUDAGraph()
    with topk.record() as log, torch.cuda.graph(graph):
        topk.select(logits, lengths, K, rung="one-cta", **options)
    assert (log.rungs, log.falls) == ({"many-ctas": 1}, 1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(options["out"], wanted)


@pytest.mark.parametrize("rung", ["auto", *KERNEL_RUNGS])
def test_a_growing_row_is_selected_right(plans, rung):
    """Rows that share a plan because they are about as long each keep their own length."""
    whole = scores("normal", (3, 9_000), device="cuda")
    for columns in (*range(8_180, 8_210), 8_704, 8_705, 9_000):
        logits = whole[:, :columns]
        lengths = torch.tensor([columns, columns + 9, columns - 1], device="cuda").int()
        assert torch.equal(topk.select(logits, lengths, K, rung=rung), _wanted(logits, lengths))


@pytest.mark.parametrize("rung", ["auto", *KERNEL_RUNGS])
def test_nothing_is_allocated_after_the_first_call(plans, rung):
    """With ``out`` and ``workspace`` given, further calls of a shape ask for no memory."""
    logits, lengths = _input(rows=9)
    options = _memory(9) | {"status": torch.empty(9, dtype=torch.int32, device="cuda")}
    topk.select(logits, lengths, K, rung=rung, **options)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for _ in range(20):
        topk.select(logits, lengths, K, rung=rung, **options)
    torch.cuda.synchronize()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    assert torch.equal(options["out"], _wanted(logits, lengths))


@EVERY_RUNG
def test_the_work_goes_to_the_callers_stream(plans, rung):
    """A selection waits for what its own stream does before it, and for nothing else."""
    new, lengths = _input("normal")
    wanted = _wanted(new, lengths)
    logits, side = torch.zeros_like(new), torch.cuda.Stream()
    for _ in range(2):  # The first call also makes the plan, while the stream may run dry.
        logits.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            logits.copy_(new)
            found = topk.select(logits, lengths, K, rung=rung)
        side.synchronize()
        assert torch.equal(found, wanted)


def test_threads_select_side_by_side(plans):
    """Four threads with streams of their own, 300 calls each of changing shapes, never mix."""
    made = [_input("normal", rows=3 + number, seed=number) for number in range(4)]
    wanted = [_wanted(*given) for given in made]
    rungs = ("auto", *KERNEL_RUNGS)

    def work(number):
        stream = torch.cuda.Stream()
        wrong = 0
        with torch.cuda.stream(stream):
            for turn in range(300):
                which = (number + turn) % 4
                found = topk.select(*made[which], K, rung=rungs[turn % len(rungs)])
                wrong += int(not torch.equal(found, wanted[which]))
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [0] * 4


@pytest.mark.parametrize("rung", ["auto", *RUNGS])
def test_cupy_arrays_are_selected_in_place(plans, rung):
    """CuPy's arrays give a CuPy result on CuPy's current stream, in both types that it has."""
    import cupy

    for dtype in (torch.float32, torch.float16):
        logits, lengths = _input("ten", dtype=dtype)
        wanted = _wanted(logits, lengths)
        given = cupy.from_dlpack(logits), cupy.from_dlpack(lengths)
        for stream in (None, cupy.cuda.Stream(non_blocking=True)):
            with topk.record() as log, stream or nullcontext():
                found = topk.select(*given, K, rung=rung)
            cupy.cuda.Device().synchronize()
            assert isinstance(found, cupy.ndarray)
            assert torch.equal(torch.from_dlpack(found), wanted)
            (call,) = log.calls
            assert call.device == "cupy cuda:0"
            assert rung in ("auto", call.rung)


@pytest.mark.parametrize("choice", ladder.choices(1, "float32"), ids=lambda c: c.name)
def test_a_status_says_how_each_row_was_selected(plans, monkeypatch, choice):
    """1 trivial, 2 in registers, 3 by candidates, 4 exactly; 16 more where the length is too long.

    Rows beyond are left out, and the words around the status are not written.
    """
    monkeypatch.setattr("thorprobe.topk.plan.choices", lambda columns, dtype: [choice])
    columns = choice.variant.capacity if choice.variant.function == "short" else COLUMNS
    usual = 2 if choice.variant.function == "short" else 3
    logits = scores("normal", (7, columns), device="cuda")
    logits[1] = 1.5
    lengths = torch.tensor(
        [columns, columns, K, 0, -4, columns + 1, 2**31 - 1], dtype=torch.int32, device="cuda"
    )
    wide = torch.full((9,), 77, dtype=torch.int32, device="cuda")
    topk.select(logits, lengths, K, rung=choice.rung, status=wide[1:8])
    assert wide.tolist() == [77, usual, 4, 1, 1, 1, usual + 16, usual + 16, 77]
    few = torch.full((2,), 77, dtype=torch.int32, device="cuda")
    topk.select(logits[:2, :K], lengths[:2], K, rung=choice.rung, status=few)
    assert few.tolist() == [17, 17]


@pytest.mark.parametrize("rung", ["auto", *RUNGS])
def test_no_rows_and_no_columns(plans, rung):
    """An empty array has an empty result, and places without a score are -1."""
    logits, lengths = _input()
    assert topk.select(logits[:0], lengths[:0], K, rung=rung).shape == (0, K)
    found = topk.select(logits[:, :0], lengths, K, rung=rung)
    assert (found == -1).all()
    assert (topk.select(logits, torch.zeros_like(lengths), K, rung=rung) == -1).all()


def test_explain_agrees_with_select(plans):
    """The rung that is announced is the one that runs, for many shapes."""
    for rows in (1, 9, 65):
        for columns in (600, 4_096, 16_384, COLUMNS):
            logits = torch.rand((rows, columns), device="cuda")
            lengths = torch.full((rows,), columns, dtype=torch.int32, device="cuda")
            told = topk.explain(logits, lengths, K)
            with topk.record() as log:
                topk.select(logits, lengths, K)
            assert (told.rung, told.falls) == (log.calls[0].rung, log.calls[0].falls)


def test_lengths_beyond_the_columns_read_nothing_beyond(plans):
    """A length that is too long counts as the columns, and never selects the next row's scores."""
    whole = scores("normal", (6, 2 * COLUMNS), device="cuda")
    logits = whole[:, :COLUMNS]
    whole[:, COLUMNS:] = torch.inf
    lengths = torch.full((6,), 2 * COLUMNS, dtype=torch.int32, device="cuda")
    wanted = _wanted(logits, lengths.clamp(max=COLUMNS))
    for rung in KERNEL_RUNGS:
        assert torch.equal(topk.select(logits, lengths, K, rung=rung), wanted)


@EVERY_RUNG
def test_clusters_come_and_go_whatever_their_rows_ask(rung):
    """Thousands of rows without work, short, long and repeated exactly, end without a fault.

    A CTA that leaves while a store of its own is on the way faults now and then (719), so that it
    takes many clusters of all kinds side by side to see it.
    """
    logits, _ = _input(rows=64)
    logits = logits[:, :8_192].contiguous()
    logits[::4] = 1.0  # All equal: repeated exactly.
    asked = torch.tensor([0, 512, 513, 8_192], dtype=torch.int32, device="cuda")
    order = torch.randint(64, (4_000,), device="cuda")
    lengths = asked[torch.randint(4, (4_000,), device="cuda")]
    many = logits[order]
    wanted = _wanted(many, lengths)
    for _ in range(20):
        found = topk.select(many, lengths, K, rung=rung)
    torch.cuda.synchronize()
    assert torch.equal(found, wanted)
