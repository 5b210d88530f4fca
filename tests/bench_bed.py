# SPDX-License-Identifier: Apache-2.0
"""A bed for benches without a GPU: torch on the CPU selects, and the times are made up."""

import runpy
from contextlib import contextmanager
from pathlib import Path

import torch

from thorprobe.bench import calibrate
from thorprobe.bench.calibration_plan import CalibrationOptions
from thorprobe.bench.candidates import Ladder, NotTakenError, TorchTopk
from thorprobe.bench.check import expected
from thorprobe.bench.records import CopyRate
from thorprobe.bench.run import DeviceSession
from thorprobe.driver.stopwatch import NotTimedError, Timing
from thorprobe.driver.torch_device import TorchDevice
from thorprobe.topk.ladder import waves
from thorprobe.topk.log import Call, Fallback, active

DEVICE = runpy.run_path(str(Path(__file__).parent / "fake_worker.py"), run_name="fake_worker")[
    "DEVICE"
]
REFUSED = Fallback(rung="cluster-16", code=0, reason="max_active_clusters is 0 for long-512x4/16")
FIXED_US = {"cluster-8": 3.0, "cluster-4": 4.0, "cluster-2": 6.0, "one-cta": 8.0, "torch": 90.0}
EACH_US = {"cluster-8": 1e-5, "cluster-4": 2e-5, "cluster-2": 4e-5, "one-cta": 8e-5}


class PlayedLadder:
    """Selects like the ladder on a device that refuses 16 CTAs; ``auto`` takes the cheapest.

    ``wrong`` names a rung that swaps two places, ``dead`` one whose timing fails, ``drifts`` one
    in whose place another answers while it is timed, ``slips`` one that then selects nothing.
    """

    def __init__(self, wrong="", dead="", drifts="", slips=""):
        self.drifts = drifts
        self.slips = slips
        self.timing = False
        self.wrong = wrong
        self.dead = dead
        self.last = None

    def cost(self, rung, rows, columns):
        """Return the made-up microseconds of a rung."""
        return FIXED_US.get(rung, 20.0) + EACH_US.get(rung, 1e-4) * rows * columns

    def select(self, scores, lengths, k, *, out, workspace, rung, ties):
        """Select into ``out``, and log the call as the ladder does."""
        assert workspace.dtype == torch.uint8
        assert ties in ("lowest", "any")
        rows, columns = scores.shape
        falls = (REFUSED,) if rung == "cluster-16" else ()
        ranked = ("cluster-8", "one-cta")
        taken = {"cluster-16": "cluster-8", "auto": ranked[columns <= 1024]}.get(rung, rung)
        if lengths.any() and not (self.timing and rung == self.slips):
            out.copy_(expected(torch, scores, k).indices)
        if rung == self.wrong:
            out[0, 0], out[0, 1] = out[0, 1].clone(), out[0, 0].clone()
        if self.timing and rung == self.drifts:
            taken = "torch"
        self.last = (rung, taken, rows, columns, ties)
        for log in active():
            log.calls.append(
                Call(rung=taken, num_rows=rows, columns=columns, k=k, device="cpu", falls=falls)
            )

    def prepare(self, scores, lengths, k, *, out, workspace, ties):
        """Return a call of ``select`` that needs no arguments."""
        return lambda: self.select(
            scores, lengths, k, out=out, workspace=workspace, rung="auto", ties=ties
        )

    def time(self, launch, launches, replays):
        """Run once and make up a time; what is no rung is a peer that takes twice as long."""
        assert replays > 0
        self.last, self.timing = None, True
        try:
            launch()
        finally:
            self.timing = False
        if self.last is None:
            return Timing(us=12.0, spread_us=0.5, launches=launches)
        rung, taken, rows, columns, ties = self.last
        if rung == self.dead:
            raise NotTimedError("cuGraphInstantiate answered 912 CUDA_ERROR_INVALID_CLUSTER_SIZE")
        us = self.cost(taken, rows, columns) * (0.95 if ties == "any" else 1)
        return Timing(us=round(us, 3), spread_us=0.1, launches=launches)


class Broken:
    """A peer that raises something of its own."""

    name, ties = "flashinfer", ""

    def prepare(self, _data):
        """Raise."""
        raise OSError(2, "no compiler\nsecond line")


class Choosy:
    """A peer that takes no shape."""

    name, ties = "shipped-8", ""

    def prepare(self, _data):
        """Refuse."""
        raise NotTakenError("it takes float32 scores and k 1024")


def cpu_place():
    """Return a place on the CPU that says it is a GPU."""
    return TorchDevice(
        torch_device=torch.device("cpu"),
        settle=lambda: None,
        free_bytes=lambda: None,
        peak_bytes=lambda: 0,
        device=DEVICE,
    )


def opener(ladder, peers=None):
    """Return what opens a bed on which ``ladder`` plays the ladder and the watch."""

    @contextmanager
    def opened(options, _device, _progress):
        asked = (TorchTopk(),) if "torch" in options.peers else ()
        rate = CopyRate(how="torch.neg", bytes=2**30, us=268.4, gb_per_s=4000.0)
        yield DeviceSession(
            torch=torch,
            place=cpu_place(),
            watch=ladder,
            select=ladder.select,
            prepare=ladder.prepare,
            contenders=(
                *(
                    Ladder(rung, ties, ladder.select, lambda _shape, rung, _ties: f"kernel/{rung}")
                    for rung, ties in options.contenders
                ),
                *(asked if peers is None else peers),
            ),
            empty=lambda rows, cluster: 1.0 + 0.01 * cluster + 0.001 * rows,
            rates=(rate,),
            rate=rate,
            upstream=lambda shape: "torch.topk" if shape.rows > 1 else "",
            inputs={"kernels/select.cu": "0" * 64},
            software={"torch": "0"},
        )

    return opened


class PlayedSeat:
    """A seat whose times follow the cost model exactly, with factors that a test knows."""

    def __init__(self, partition, sms, factors, wrong=""):
        self.partition = partition
        self.sms = sms
        self.factors = factors
        self.wrong = wrong

    def slots(self, choice, _shape):
        """Return the rows at once: groups of 8 SMs, a CTA an SM; no cluster of 16 in a part."""
        if choice.ctas == 16 and self.partition:
            return 0
        return max(1, self.sms // choice.ctas)

    def time(self, choice, data, options):
        """Return the model's own time."""
        if choice.name == self.wrong:
            raise NotTimedError("1 of 4 rows are wrong")
        rows, columns = data.shape.rows, data.shape.columns
        assert data.scores.shape == (rows, columns)
        assert data.expected.indices.shape == (rows, options.k)
        launch, wave, batch, megabyte = self.factors(choice)
        slots = self.slots(choice, data.shape)
        many = waves(rows, slots=slots, ctas=choice.ctas, sms=self.sms)
        batches = -(-columns // (choice.ctas * choice.variant.capacity))
        us = launch + many * (wave + batch * (batches - 1))
        return Timing(us=us + megabyte * 4e-6 * rows * columns / self.sms, spread_us=0, launches=1)


def factors(choice):
    """Return the factors of a choice, all of them different from its neighbours'."""
    return (
        1.5 + choice.ctas / 16,
        2.0 + choice.variant.scores / 32,
        0.25 * choice.variant.scores,
        8.0,
    )


SMALL = CalibrationOptions(rows=(1, 4, 64), columns=(1024, 8192, 65536), k=16)


def room_opener(wrong="", notes=()):
    """Return what opens a room with a whole device and a part of it."""

    @contextmanager
    def opened(_options, _device):
        seats = [PlayedSeat("", 132, factors, wrong), PlayedSeat("sms=8", 8, factors, wrong)]
        yield calibrate.CalibrationSession(
            torch, torch.device("cpu"), seats, device=DEVICE, notes=list(notes)
        )

    return opened
