# SPDX-License-Identifier: Apache-2.0
"""The parent of a worker: what a hang, a crash, a fault and a kill each cost."""

import queue
import sys
import time
from pathlib import Path
from types import SimpleNamespace

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
    """A batch comes back whole, in the order asked."""
    specs = [_spec(size) for size in range(1, 17)]
    outcomes, answerer = _ask(specs)
    assert [o.id for o in outcomes] == [s.id for s in specs]
    assert [o.observed.launch_code for o in outcomes] == [0] * 8 + [912] * 8
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


def test_a_device_that_kills_every_worker_ends_the_run():
    """Four lost workers in a row end in an error; what was measured before is given out."""
    answerer = gpu.GpuAnswerer(command=FAKE, deadline_s=1)
    specs = [_spec(1), *(_spec(size, how=2) for size in range(2, 13))]
    outcomes = []
    with pytest.raises(CouldNotProbeError, match="4 workers in a row were lost"):
        outcomes.extend(answerer.ask(specs))
    answerer.close()
    assert [o.status for o in outcomes] == [Status.PASS] + [Status.ERROR] * 4


def test_a_launch_that_met_a_finished_context_is_made_again():
    """A context that was finished before a launch does not cost that launch its record."""
    outcomes, _ = _ask([_spec(1), _spec(2, how=6), _spec(4)])
    assert [o.status for o in outcomes] == [Status.PASS] * 3


def test_a_parent_that_slept_does_not_blame_the_worker(monkeypatch):
    """When this process was stopped past the deadline, the worker gets another chance."""
    monkeypatch.setattr(gpu, "_ASLEEP_S", 0.2)
    answerer = gpu.GpuAnswerer(command=FAKE, deadline_s=0.5)
    queued = answerer._worker.messages
    slept = []

    def get(timeout):
        if not slept:
            slept.append(True)
            time.sleep(1)
            raise queue.Empty
        return queued.get(timeout=timeout)

    monkeypatch.setattr(answerer._worker, "messages", SimpleNamespace(get=get, put=queued.put))
    try:
        [outcome] = answerer.ask([_spec(2)])
    finally:
        answerer.close()
    assert outcome.status is Status.PASS


def test_asking_for_a_device_without_a_driver_is_refused(monkeypatch):
    """Without a driver the error says so and names the model."""
    monkeypatch.setattr(gpu, "driver_present", lambda: False)
    with pytest.raises(CouldNotProbeError, match="no CUDA driver") as caught:
        gpu.GpuAnswerer(3)
    assert "--profile thor" in caught.value.hint
