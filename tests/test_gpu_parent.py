# SPDX-License-Identifier: Apache-2.0
"""The parent of a worker: what a hang, a crash, a fault and a kill each cost."""

import sys
import time
from pathlib import Path

import pytest

from thorprobe.errors import CouldNotProbeError
from thorprobe.record import LaunchSpec, Status
from thorprobe.run import gpu

FAKE = (sys.executable, str(Path(__file__).parent / "fake_worker.py"))


def _spec(size: int, how: int = 0) -> LaunchSpec:
    return LaunchSpec(
        kernel="trivial",
        grid=(1, size, 1),
        block=(32, 1, 1),
        cluster=(1, size, 1),
        spin_cycles=how,
    )


def _ask(specs, deadline_s=1.0):
    answerer = gpu.GpuAnswerer(command=FAKE, deadline_s=deadline_s)
    try:
        return list(answerer.ask(specs)), answerer
    finally:
        answerer.close()


def test_every_launch_is_answered_once_and_in_order():
    """A batch comes back whole, with the kernels' hashes beside it."""
    specs = [_spec(size) for size in range(1, 17)]
    outcomes, answerer = _ask(specs)
    assert [o.id for o in outcomes] == [s.id for s in specs]
    assert [o.observed.launch_code for o in outcomes] == [0] * 8 + [912] * 8
    assert set(answerer.inputs) == {"kernels/trivial.cu"}
    assert answerer.software["compiler"] == "none"


def test_a_hang_costs_one_record_and_the_next_probe_is_right():
    """A launch past its deadline is a timeout; the ones around it are measured."""
    began = time.monotonic()
    outcomes, _ = _ask([_spec(1), _spec(2, how=1), _spec(4)])
    assert [o.status for o in outcomes] == [Status.PASS, Status.TIMEOUT, Status.PASS]
    assert "no answer within" in outcomes[1].note
    assert time.monotonic() - began < 10


def test_a_worker_that_stops_beating_is_replaced(monkeypatch):
    """Silence is a timeout of its own, in less time than the stage may take."""
    monkeypatch.setattr(gpu, "_SILENCE_S", 0.6)
    outcomes, _ = _ask([_spec(1, how=4), _spec(2)], deadline_s=0.6)
    assert [o.status for o in outcomes] == [Status.TIMEOUT, Status.PASS]


def test_a_worker_that_dies_costs_one_record():
    """The exit status of a dead worker is in the record, and the batch goes on."""
    outcomes, _ = _ask([_spec(1), _spec(2, how=2), _spec(8)])
    assert [o.status for o in outcomes] == [Status.PASS, Status.ERROR, Status.PASS]
    assert "status" in outcomes[1].note


def test_a_sticky_error_costs_one_record():
    """After a sticky error a new worker answers the rest."""
    outcomes, _ = _ask([_spec(1, how=3), _spec(2, how=3), _spec(4)])
    assert [o.observed.sync_code for o in outcomes] == [700, 700, 0]


def test_a_worker_that_cannot_start_ends_the_command():
    """A program that says nothing is no worker: the error names its status."""
    with pytest.raises(CouldNotProbeError, match="before it was ready"):
        gpu.GpuAnswerer(command=(sys.executable, "-c", "raise SystemExit(7)"))


def test_workers_that_die_before_any_answer_do_not_loop(tmp_path):
    """A device that kills every worker ends in an error, not in an endless row of workers."""
    outcomes, _ = _ask([_spec(size, how=2) for size in range(1, 7)])
    assert [o.status for o in outcomes] == [Status.ERROR] * 6


def test_asking_for_a_device_without_a_driver_is_refused(monkeypatch):
    """Without a driver the error says so and names the model."""
    monkeypatch.setattr(gpu, "driver_present", lambda: False)
    with pytest.raises(CouldNotProbeError, match="no CUDA driver") as caught:
        gpu.GpuAnswerer(3)
    assert "--profile thor" in caught.value.hint
