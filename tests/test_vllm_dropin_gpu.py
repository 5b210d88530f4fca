# SPDX-License-Identifier: Apache-2.0
"""The drop-in on a GPU, before operators of the test's own: partitions, graphs, threads, memory."""

import threading
from contextlib import contextmanager

import pytest
import torch

from dropin_bed import NAMES, SCHEMA, vllm
from thorprobe import topk
from thorprobe.driver.context import Context
from thorprobe.vllm import dropin_start
from thorprobe.vllm.dropin_cuda import CudaHost
from thorprobe.vllm.dropin_hosting import arms
from thorprobe.vllm.dropin_release import policy

pytestmark = pytest.mark.gpu

K, COLUMNS = 512, 4_096


class Upstream:
    """Stands for vLLM's kernels: right, without asking the host, and counted."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *arguments):
        """Select with torch."""
        logits, _, output, _, k, _ = arguments
        self.calls += 1
        output.copy_(logits.topk(k, dim=1, sorted=False).indices)


@contextmanager
def dropped_in(monkeypatch, mode):
    """Put the drop-in in before operators on CUDA; every row is of full length."""
    library, made = torch.library.Library("_C", "FRAGMENT"), Upstream()
    for name in NAMES:
        library.define(f"{name}{SCHEMA}")
        library.impl(name, made, "CUDA")
    try:
        with vllm(monkeypatch):
            dropin_start.start(mode)
            yield made
    finally:
        library._destroy()
        for name in NAMES:
            torch.ops._C.__dict__.pop(name, None)


@pytest.fixture(scope="module")
def pairs():
    """Give a stream of a partition of 8 SMs in groups of 2, where no cluster above 2 launches."""
    torch.cuda.init()
    context = Context(0, "sms=8,groups-of=2")
    yield torch.cuda.ExternalStream(int(context.stream))
    torch.cuda.synchronize()


def data(rows, seed=0):
    """Return scores, full lengths, an output and vLLM's workspace, complete for other streams."""
    made = torch.Generator("cuda").manual_seed(seed)
    logits = torch.randn(rows, COLUMNS, device="cuda", generator=made)
    lengths = torch.full((rows,), COLUMNS, dtype=torch.int32, device="cuda")
    output = torch.full((rows, K), -7, dtype=torch.int32, device="cuda")
    workspace = torch.empty(2**20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return logits, lengths, output, workspace


def ask(name, held):
    """Call an operator as vLLM does."""
    logits, lengths, output, workspace = held
    getattr(torch.ops._C, name)(logits, lengths, output, workspace, K, COLUMNS)


def wanted(held):
    """Return what the ladder's last rung selects of the same rows."""
    found = topk.select(held[0], held[1], K, rung="torch")
    torch.cuda.synchronize()
    return found


def test_a_partition_answers_for_itself(pairs):
    """Groups of 2 host clusters of 2 and none above; the whole device hosts those of 2 and 4."""
    host = CudaHost()
    scores = data(1)[0]
    for stream, least, most in ((torch.cuda.current_stream(), 4, 16), (pairs, 2, 2)):
        with torch.cuda.stream(stream):
            place = host.place(scores)
            every = arms(policy("0.33.0"), host.device(place)[1])
            hosted = [arm.cluster for arm in every if host.hosts(place, arm).max_active]
        assert least <= max(hosted) <= most
    assert host.place(scores) == (scores.device.index, 0)


def test_fallback_goes_to_the_ladder_in_the_partition_alone(monkeypatch, pairs):
    """The same rows are vLLM's on the whole device, and the ladder's where groups are of 2."""
    with dropped_in(monkeypatch, "fallback") as made:
        held = data(16)
        ask(NAMES[0], held)
        torch.cuda.synchronize()
        assert made.calls == 1
        with torch.cuda.stream(pairs):
            ask(NAMES[0], held)
        torch.cuda.synchronize()
        assert made.calls == 1
        assert torch.equal(held[2], wanted(held))
        (rung,) = dropin_start.active().report().rungs
        assert rung.name in {"cluster-2", "one-cta", "many-ctas"}


@pytest.mark.parametrize("name", NAMES)
def test_a_shape_that_never_ran_is_captured_without_a_question_or_an_allocation(
    monkeypatch, pairs, name
):
    """One eager call of another shape is enough, in another thread too, whole and in pairs."""
    with dropped_in(monkeypatch, "always") as made:
        for stream in (torch.cuda.Stream(), pairs):
            with torch.cuda.stream(stream):
                ask(name, data(3))
            for rows in (1, 8, 33, 64):
                held = data(rows, seed=rows)
                right = wanted(held)
                _captured(name, held, stream, threaded=rows == 8)
                assert torch.equal(held[2], right), rows
        told = dropin_start.active().report()
        assert (made.calls, told.falls, told.captured) == (0, (), 8)


def _captured(name, held, stream, *, threaded):
    grown = []

    def capture():
        if threaded:  # This thread's own workspace comes with its first call.
            with torch.cuda.stream(stream):
                ask(name, data(3))
            torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            before = torch.cuda.memory_stats()["allocation.all.allocated"]
            ask(name, held)
            grown.append(torch.cuda.memory_stats()["allocation.all.allocated"] - before)
        for _ in range(3):
            held[2].fill_(-7)
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()

    if threaded:
        thread = threading.Thread(target=capture)
        thread.start()
        thread.join()
    else:
        capture()
    assert grown == [0]


def test_check_counts_the_replays_of_a_graph(monkeypatch):
    """One eager call and four replays of 5 rows are 25 rows, none of them different."""
    with dropped_in(monkeypatch, "check") as made:
        held = data(5)
        ask(NAMES[1], held)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ask(NAMES[1], held)
        for _ in range(4):
            graph.replay()
        torch.cuda.synchronize()
        told = dropin_start.active().report().check
        assert (told.rows, told.different, told.unread) == (25, 0, "")
        assert made.calls == 2


def test_always_gives_the_same_bits_wherever_it_runs(monkeypatch, pairs):
    """Ties in masses: eager, in a partition, and by either operator, one order."""
    with dropped_in(monkeypatch, "always"):
        held = data(20)
        held[0].round_()
        right = wanted(held)
        for stream in (torch.cuda.current_stream(), pairs):
            for name in NAMES:
                held[2].fill_(-7)
                torch.cuda.synchronize()
                with torch.cuda.stream(stream):
                    ask(name, held)
                torch.cuda.synchronize()
                assert torch.equal(held[2], right)
