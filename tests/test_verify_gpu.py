# SPDX-License-Identifier: Apache-2.0
"""Generated calls on a GPU: every rung, partition and mode against a stable sort."""

import pytest
import torch

from thorprobe.bench import verify_session
from thorprobe.bench.verify_answer import inquire
from thorprobe.bench.verify_bed import PARTITIONS
from thorprobe.bench.verify_case import MODES, WHOLE, parse
from thorprobe.bench.verify_draw import Group
from thorprobe.bench.verify_gpu import compile_all, open_bed
from thorprobe.bench.verify_run import run
from thorprobe.topk.contract import DTYPES, RUNGS

pytestmark = pytest.mark.gpu

SEED = 1

FOUND = (
    "rows=64 columns=4095 k=512",
    "rows=3 columns=8191 k=1024",
    "rows=9 columns=4096 k=512 offset=1",
    "rows=9 columns=4094 k=512 offset=1",
    "rows=9 columns=8190 k=512 offset=1",
    "rows=9 columns=8191 k=512 offset=1",
    "rows=130 columns=8192 k=512 dtype=bfloat16 offset=1",
    "rows=130 columns=8192 k=512 dtype=bfloat16 offset=3",
)
"""Cases in which short kernels dropped the last columns of rows that start off 16 bytes."""


@pytest.fixture(scope="module")
def bed():
    """Open the GPU with its partitions and streams."""
    compile_all(0)
    with open_bed("0") as opened:
        yield opened


def test_ten_seconds_of_generated_calls_find_nothing():
    """Tens of thousands of calls, in a process of their own: none is wrong."""
    answer = inquire(10.0, "0", seed=SEED)
    found = answer.summary
    assert answer.results == ()
    assert found.wrong == 0
    assert found.calls > 20_000
    assert found.kernel
    assert found.nvrtc
    assert set(found.by_dtype) == set(DTYPES)
    assert set(found.by_mode) == set(MODES)
    assert set(found.by_partition) <= {WHOLE, *PARTITIONS}
    assert len(found.by_partition) + len(found.notes) == 1 + len(PARTITIONS)
    assert set(RUNGS) <= set(found.by_ran)


@pytest.mark.parametrize("text", FOUND)
@pytest.mark.parametrize("kernel", ["auto", "one-cta", "cluster-2", "many-ctas"])
def test_the_last_columns_of_unaligned_short_rows_are_selected(bed, text, kernel):
    """The reported cases, the last columns best, in every mode."""
    for distribution in ("ascending", "normal"):
        for mode in MODES:
            case = parse(f"{text} distribution={distribution} kernel={kernel} mode={mode}")
            assert not verify_session.repeated(bed, case).wrong, case


def _swapped(out):
    if out.numel():
        out[:, :2] = out[:, :2].flip(1)


def test_a_wrong_result_is_seen_on_the_device(bed, monkeypatch):
    """Two places exchanged are caught in every mode, once prepared too: the check is no formality.

    Prepared calls do not go through ``select``: they have a fault of their own.
    """
    select, prepare = bed.select, bed.prepare

    def broken(*arguments, out, **options):
        select(*arguments, out=out, **options)
        _swapped(out)

    def broken_once_prepared(*arguments, out, **options):
        made = prepare(*arguments, out=out, **options)
        return lambda: _swapped(made())

    monkeypatch.setattr(bed, "select", broken)
    monkeypatch.setattr(bed, "prepare", broken_once_prepared)
    for mode in MODES:
        case = parse(f"rows=5 columns=9000 k=64 mode={mode}")
        held = verify_session.repeated(bed, case)
        assert len(held.wrong) == held.calls, mode
    monkeypatch.undo()
    for mode in MODES:
        case = parse(f"rows=5 columns=9000 k=64 mode={mode}")
        assert not verify_session.repeated(bed, case).wrong, mode


def test_every_kernel_runs_in_every_partition_or_is_refused(bed):
    """Kernels that are named run by themselves; in a part of groups of 2 larger clusters do not."""
    case = parse("rows=3 columns=4090 k=512 lengths=mixed distribution=normal")
    for place in bed.lanes:
        names = [f"long-512x16/{ctas}" for ctas in (1, 2, 4, 8, 16)]
        group = Group((case,), tuple((name, place) for name in (*names, "part-512x16/4")))
        held = run(group, bed, tell=True)
        assert not held.wrong, held.detail
        assert held.calls >= 3, place
    torch.cuda.synchronize()
