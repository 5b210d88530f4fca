# SPDX-License-Identifier: Apache-2.0
"""Prepared calls and warmed shapes on a GPU: exact, in graphs, partitions and off a boundary."""

import runpy
from pathlib import Path

import pytest
import torch

from thorprobe import topk
from thorprobe.driver.context import Context
from thorprobe.topk import plan
from thorprobe.topk.contract import RUNGS
from thorprobe.topk.plans import plans

pytestmark = pytest.mark.gpu

scores = runpy.run_path(str(Path(__file__).parent / "topk_cases.py"))["scores"]
K = 512


@pytest.fixture
def forgotten():
    """Begin and end with no plan and no answer of the device."""
    plans.by_key.clear()
    plan._ANSWERS.clear()
    yield
    plans.by_key.clear()
    plan._ANSWERS.clear()


def _input(rows=9, columns=50_000, name="normal", seed=0):
    logits = scores(name, (rows, columns), torch.float32, "cuda", seed)
    lengths = torch.randint(columns // 2, columns + 1, (rows,), dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    return logits, lengths


def _wanted(logits, lengths):
    found = topk.select(logits, lengths, K, rung="torch")
    torch.cuda.synchronize()
    return found


@pytest.mark.parametrize("rung", ["auto", *RUNGS])
def test_a_prepared_call_is_exact_eager_and_in_a_graph(rung):
    """Whatever the arrays hold then; what was prepared is captured without a call before."""
    logits, lengths = _input()
    made = topk.prepare(logits, lengths, K, rung=rung)
    graph = torch.cuda.CUDAGraph()
    if rung != "torch":
        with torch.cuda.graph(graph):
            made()
    for seed, name in enumerate(("normal", "equal", "nan-and-inf", "up")):
        new, many = _input(name=name, seed=seed)
        logits.copy_(new)
        lengths.copy_(many)
        wanted = _wanted(new, many)
        assert torch.equal(made(), wanted)
        if rung != "torch":
            made.out.fill_(77)
            graph.replay()
            assert torch.equal(made.out, wanted)


def test_a_prepared_call_follows_the_stream_into_parts_of_the_device(forgotten):
    """One call on the whole device, in 24 SMs and in 8, in turns: exact, by a rung that fits."""
    contexts = [Context(0, f"sms={sms}") for sms in (24, 8)]
    streams = [torch.cuda.ExternalStream(int(one.stream)) for one in contexts]
    logits, lengths = _input()
    made, wanted = topk.prepare(logits, lengths, K, rung="cluster-16"), _wanted(logits, lengths)
    for stream in (torch.cuda.Stream(), *streams, torch.cuda.Stream(), *streams):
        made.out.fill_(77)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            made()
        stream.synchronize()
        assert torch.equal(made.out, wanted)
        assert made.rung == ("cluster-8" if stream in streams else "cluster-16")


@pytest.mark.parametrize("columns", [4_094, 4_095, 8_190, 8_191, 20_001])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_warmed_rows_off_a_boundary_are_captured_and_exact(forgotten, columns, dtype):
    """Rows that start anywhere, met first inside a capture after ``warm``: none loses a score."""
    kind, rows = getattr(torch, dtype), 9
    topk.warm(rows, columns, K, dtype=dtype)
    for offset in range(16 // torch.empty(0, dtype=kind).element_size()):
        memory = torch.empty(rows * columns + offset, dtype=kind, device="cuda")
        logits = memory[offset:].view(rows, columns)
        # The best scores are the last ones.
        logits.copy_(torch.arange(columns, device="cuda").float().expand(rows, columns) / 64)
        lengths = torch.full((rows,), columns, dtype=torch.int32, device="cuda")
        out = torch.empty((rows, K), dtype=torch.int32, device="cuda")
        size = topk.workspace_bytes(rows, K)
        workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with topk.record() as log, torch.cuda.graph(graph):
            topk.select(logits, lengths, K, out=out, workspace=workspace)
        graph.replay()
        torch.cuda.synchronize()
        assert "torch" not in log.rungs
        assert torch.equal(out, _wanted(logits, lengths))
