# SPDX-License-Identifier: Apache-2.0
"""Shipped kernels as peers of a bench, on a played driver that selects in NumPy."""

import ctypes
import hashlib
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from thorprobe.bench.candidates import NotTakenError
from thorprobe.bench.plan import BenchShape
from thorprobe.bench.run import load
from thorprobe.bench.shipped_peer import peers, upstream
from thorprobe.driver.stopwatch import Stopwatch
from thorprobe.errors import ThorprobeError, UsageError
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.run.shipped import Shipped

PLAYED = runpy.run_path(str(Path(__file__).parent / "played_driver.py"))
CPU = torch.device("cpu")
FIELDS = ("logits", "output", "lengths", "workspace", "rows", "stride")
SHAPE = BenchShape(rows=3, columns=64, k=8, dtype="float32", distribution="normal")


@pytest.fixture
def played(monkeypatch):
    """Put the played driver in the place of the real one."""
    return PLAYED["play"](monkeypatch)


@pytest.fixture
def watch(played):
    """Return a stopwatch on the played driver."""
    return Stopwatch(1)


@pytest.fixture
def shipped(tmp_path, played):
    """Return a file with a kernel at 4 and 8 CTAs, another without a layout and one of other k."""
    image = tmp_path / "image.cubin"
    image.write_bytes(b"code")
    digest = hashlib.sha256(b"code").hexdigest()

    def entry(size):
        return ShippedFunction(
            symbol=f"cs{size}",
            name="entry",
            cluster=(1, size, 1),
            threads=1024,
            dynamic_smem=1000,
        )

    kernel = ShippedKernel(
        label=f"entry@{digest[:12]}",
        image=digest,
        target="sm_90",
        functions=(entry(4), entry(8)),
        layout="made",
        policy="0.33.0",
        k=8,
        parameters=FIELDS,
        workspace_bytes=16,
        row_limit=64,
        stride_multiple=4,
    )
    played.run = select_for(kernel)
    others = (
        ShippedKernel(label="other@0", image=digest, target="sm_90", functions=(entry(2),), k=8),
        ShippedKernel(
            label="twin@0",
            image=digest,
            target="sm_90",
            functions=(entry(2),),
            k=8,
            parameters=FIELDS,
        ),
    )
    return Shipped(file="f.whl", kernels=(kernel, *others), images={digest: image}, inputs={})


def select_for(kernel):
    """Return what selects from the parameter block, in an order of its own."""

    def run(_config, _function, parameters):
        (block,), _ = parameters
        size = block.rows * block.stride
        scores = np.ctypeslib.as_array((ctypes.c_float * size).from_address(block.logits))
        chosen = np.ctypeslib.as_array(
            (ctypes.c_int32 * (block.rows * kernel.k)).from_address(block.output)
        ).reshape(block.rows, kernel.k)
        order = np.argsort(-scores.reshape(block.rows, block.stride), axis=1)
        chosen[:] = order[:, : kernel.k][:, ::-1]
        lengths = (ctypes.c_int32 * block.rows).from_address(block.lengths)
        assert set(lengths) == {block.stride}
        ctypes.memset(block.workspace, 1, block.rows * kernel.workspace_bytes)

    return run


def test_a_shipped_kernel_is_launched_as_it_was_shipped(played, shipped, watch):
    """Grid, block and block of parameters are the layout's, and the result is checked as a set."""
    found, remarks = peers(shipped, 8, 1)
    assert [peer.name for peer in found] == ["shipped-4", "shipped-8"]
    assert remarks == ["twin@0 of f.whl is not timed: one kernel is"]
    data = load(SHAPE, torch, CPU)
    for peer in found:
        ready = peer.prepare(data)
        assert data.expected.wrong_rows(ready.chosen()) == 0
        assert data.expected.other_rows(ready.chosen()) == 3
        assert watch.time(ready.launch, 5, 3).us == played.each_us
    assert set(played.launched) == {(b"cs4", 3, 4, 1024), (b"cs8", 3, 8, 1024)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": 65}, "takes at most 64"),
        ({"columns": 66}, "multiples of 4"),
        ({"k": 4}, "k 8"),
        ({"dtype": "bfloat16"}, "float32"),
    ],
)
def test_a_shape_that_the_host_code_refuses_is_not_launched(played, shipped, change, reason):
    """The reason is the host code's own; no launch is tried."""
    shape = BenchShape(**{name: getattr(SHAPE, name) for name in SHAPE.__struct_fields__} | change)
    peer = peers(shipped, 8, 1)[0][0]
    with pytest.raises(NotTakenError, match=reason):
        peer.prepare(load(shape, torch, CPU))
    assert played.launched == []


def test_a_cluster_that_does_not_fit_is_not_launched(played, shipped):
    """max_active_clusters 0 is a refusal, with the code of the call that failed, if one did."""
    peer = peers(shipped, 8, 1)[0][0]
    played.active = 0
    with pytest.raises(NotTakenError, match=r"max_active_clusters is 0$"):
        peer.prepare(load(SHAPE, torch, CPU))
    played.codes["cuFuncSetAttribute"] = 1
    with pytest.raises(
        NotTakenError, match=r"0: cuFuncSetAttribute MAX_DYNAMIC.*answered 1 CODE_1"
    ):
        peer.prepare(load(SHAPE, torch, CPU))
    assert played.launched == []


def test_a_refused_launch_is_an_error_of_its_call(played, shipped):
    """The driver's code is told."""
    played.codes["cuLaunchKernelEx"] = 912
    with pytest.raises(ThorprobeError, match="cuLaunchKernelEx answered 912 CODE_912"):
        peers(shipped, 8, 1)[0][0].prepare(load(SHAPE, torch, CPU))


def test_a_file_without_a_kernel_to_time_is_refused(shipped):
    """Another k, or no layout: nothing is launched by guess."""
    with pytest.raises(UsageError, match="no kernel with k 512 whose launch is known"):
        peers(shipped, 512, 1)


def test_upstreams_choice_is_that_of_its_rows():
    """The dispatch goes by rows alone; where its gate is shut there is no choice."""
    kernel = ShippedKernel(label="x@0", image="", target="", functions=(), policy="0.33.0")

    def chosen(rows, columns=64, capability=(9, 0)):
        shape = BenchShape(rows=rows, columns=columns, k=8, dtype="float32", distribution="normal")
        return upstream(kernel, capability)(shape)

    assert [chosen(rows) for rows in (1, 8, 9, 33, 34, 64)] == [
        *("shipped-8", "shipped-8", "shipped-4", "shipped-4", "shipped-2", "shipped-2"),
    ]
    assert chosen(4, capability=(11, 0)) == "shipped-16"
    assert chosen(65) == chosen(4, columns=66) == chosen(4, capability=(12, 0)) == ""
