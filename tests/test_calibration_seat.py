# SPDX-License-Identifier: Apache-2.0
"""A calibration's launches of single choices, played with host memory."""

import ctypes
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from thorprobe.bench.calibrate import GpuStream
from thorprobe.bench.plan import BenchShape
from thorprobe.bench.run import load
from thorprobe.driver.stopwatch import Timing
from thorprobe.errors import ThorprobeError
from thorprobe.topk.ladder import choices

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
CPU = torch.device("cpu")
SHAPE = BenchShape(rows=3, columns=64, k=8, dtype="float32", distribution="normal")


class _PlayedLaunch:
    """Takes the place of the ladder's launch; selects when the last of a choice is launched."""

    made: tuple = ()

    def __init__(self, device, variant, dtype, *, strided, rows, ctas, clustered, stream, k):
        assert (device, dtype, strided, stream) == (0, "float32", False, 7)
        self.variant, self.rows, self.ctas, self.clustered, self.k = (
            variant,
            rows,
            ctas,
            clustered,
            k,
        )
        self.words = (k, ctas)
        self.code = 0
        type(self).made += (self,)

    def set_words(self, *, k, ctas):
        self.words = (k, ctas)

    def set_shape(self, columns, column_stride, k, flags):
        assert (column_stride, k, flags) == (1, self.k, 0)
        self.columns = columns

    def slots(self):
        return 20

    def __call__(self, pointers):
        scores, lengths, out, status, parts, row_stride, out_stride = pointers
        assert (status, row_stride, out_stride) == (0, self.columns, self.k)
        assert bool(parts) is (self.variant.function in ("part", "merge"))
        if self.variant.function != "part":
            made = np.ctypeslib.as_array(
                (ctypes.c_float * (self.rows * self.columns)).from_address(scores)
            ).reshape(self.rows, self.columns)
            chosen = np.ctypeslib.as_array(
                (ctypes.c_int32 * (self.rows * self.k)).from_address(out)
            ).reshape(self.rows, self.k)
            chosen[:] = np.argsort(-made, axis=1, kind="stable")[:, : self.k]
            chosen[0, 0] += self.code
        assert lengths
        return 0


@pytest.fixture
def seat(monkeypatch):
    """Return a seat on the played launches."""
    monkeypatch.setattr("thorprobe.topk.plan.Launch", _PlayedLaunch)
    monkeypatch.setattr(_PlayedLaunch, "made", ())

    def time(launch, launches, replays):
        launch()
        return Timing(us=2.0, spread_us=0.0, launches=launches * replays)

    return GpuStream("sms=8", 8, 0, 7, SimpleNamespace(time=time), lambda: None)


def test_every_choice_is_launched_as_select_launches_it(seat):
    """Clusters, single CTAs, and separate CTAs with their merge, each checked and timed."""
    data = load(SHAPE, torch, CPU)
    for choice in choices(SHAPE.columns, "float32"):
        _PlayedLaunch.made = ()
        assert seat.slots(choice, SHAPE) == (20 if choice.clustered else 20 // choice.ctas)
        _PlayedLaunch.made = ()
        assert seat.time(choice, data, BED.SMALL).us == 2.0
        first, *rest = _PlayedLaunch.made
        assert (first.variant, first.ctas, first.rows) == (choice.variant, choice.ctas, 3)
        assert first.clustered is choice.clustered
        merges = [(one.variant.function, one.ctas, one.words) for one in rest]
        assert merges == ([] if choice.clustered else [("merge", 1, (8, choice.ctas))])


def test_a_choice_with_a_wrong_row_is_not_timed(seat, monkeypatch):
    """One place off in one row is found before anything is timed."""
    made = _PlayedLaunch.__init__

    def spoiled(self, *args, **words):
        made(self, *args, **words)
        self.code = 1

    monkeypatch.setattr(_PlayedLaunch, "__init__", spoiled)
    with pytest.raises(ThorprobeError, match="1 of 3 rows are wrong at normal/"):
        seat.time(choices(SHAPE.columns, "float32")[0], load(SHAPE, torch, CPU), BED.SMALL)
