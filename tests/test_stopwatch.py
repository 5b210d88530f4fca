# SPDX-License-Identifier: Apache-2.0
"""Times on a played driver: graphs, their replays, and what a bench is held against."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from thorprobe.bench import floor
from thorprobe.bench.floor import EmptyLaunches, copy_rates
from thorprobe.driver.stopwatch import NotTimedError, Stopwatch, Timing
from thorprobe.errors import ThorprobeError

PLAYED = runpy.run_path(str(Path(__file__).parent / "played_driver.py"))
CPU = torch.device("cpu")


@pytest.fixture
def played(monkeypatch):
    """Put the played driver in the place of the real one."""
    return PLAYED["play"](monkeypatch)


@pytest.fixture
def watch(played):
    """Return a stopwatch on the played driver."""
    return Stopwatch(1)


def closed(driver):
    """Say whether nothing was left open: no capture, no graph, no event."""
    return driver.capturing is None and not driver.open_graphs and not driver.events


def test_a_time_is_the_median_of_the_replays_by_launch(played, watch):
    """Launches are captured once and replayed; warm-ups are left out; nothing stays open."""
    slow = iter((9.0, 5.0, 5.0, 3.0, 4.0, 8.0))

    def replayed(graph, _stream, launched=played.cuGraphLaunch):
        played.each_us = next(slow)
        return launched(graph, _stream)

    played.cuGraphLaunch = replayed
    found = watch.time(played.work, 40, 4)
    # Two warm-ups, then 5, 3, 4 and 8.
    assert found == Timing(us=4.5, spread_us=5.0, launches=40)
    assert played.captured == 40
    assert closed(played)


@pytest.mark.parametrize(
    ("each_us", "asked", "launches"),
    [(3.0, 40, 40), (1_000.0, 40, 4), (50_000.0, 40, 3), (50_000.0, 2, 2), (0.0, 7, 7)],
)
def test_a_slow_launch_gets_fewer_launches_a_replay(played, watch, each_us, asked, launches):
    """A replay is kept to about 4 ms, at least 3 launches and never more than were asked."""
    played.each_us = each_us
    found = watch.time(played.work, asked, 3)
    assert (found.us, found.launches) == (each_us, launches)


@pytest.mark.parametrize(
    "call",
    [
        "cuStreamBeginCapture",
        "cuStreamEndCapture",
        "cuGraphInstantiate",
        "cuGraphLaunch",
        "cuEventSynchronize",
    ],
)
def test_a_graph_that_does_not_run_is_not_timed(played, watch, call):
    """The call that failed is named with the driver's code."""
    played.codes[call] = 912
    with pytest.raises(NotTimedError, match=f"{call} answered 912 CODE_912: code 912"):
        watch.time(played.work, 4, 3)
    assert not played.events


def test_a_launch_that_raises_leaves_the_capture(played, watch):
    """The stream is not capturing any more, and what was raised comes through."""

    def raises():
        played.work()
        if played.capturing == 3:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        watch.time(raises, 4, 3)
    assert closed(played)


def test_copy_rates_count_read_and_written_bytes(played, watch, monkeypatch):
    """The kernel's rate and the driver's are told, in bytes over the time of one copy."""
    monkeypatch.setattr(floor, "_SCORES", 2**10)

    def time(copy, launches, replays):
        # A copy by torch is made on the CPU here, and takes the played device a launch.
        return watch.time(lambda: (copy(), played.work()), launches, replays)

    kernel, driver = copy_rates(torch, CPU, 1, SimpleNamespace(time=time))
    assert (kernel.how, driver.how) == ("torch.neg", "cuMemcpyDtoDAsync")
    assert (kernel.us, driver.us) == (played.each_us, 2 * played.each_us)
    assert kernel.bytes == driver.bytes == 2 * 4 * 2**10
    assert kernel.gb_per_s == round(8 * 2**10 / played.each_us / 1e3, 1)
    played.codes["cuMemcpyDtoDAsync"] = 1
    with pytest.raises(ThorprobeError, match="cuMemcpyDtoDAsync answered 1 CODE_1"):
        copy_rates(torch, CPU, 1, SimpleNamespace(time=time))


def test_an_empty_launch_is_timed_once_for_each_geometry(played, watch):
    """Rows become clusters of the size asked; what is refused has no time."""
    seen = []

    def run(config, function, parameters):
        values, kinds = parameters
        assert len(values) == len(kinds) == 4
        dim = config.attrs[0].value.clusterDim
        seen.append((function, config.gridDimX, config.gridDimY, dim.y))

    played.run = run
    empty = EmptyLaunches(torch, CPU, "sm_90", 1, watch)
    assert empty(4, 8) == empty(4, 8) == played.each_us
    assert set(seen) == {(b"cluster_trivial", 4, 8, 8)}
    before = len(seen)
    assert empty(4, 8) == played.each_us
    assert len(seen) == before
    played.active = 0
    assert empty(4, 16) is None
    assert len(seen) == before
    played.codes["cuModuleLoadData"] = 209
    with pytest.raises(ThorprobeError, match="cluster_trivial does not load: 209"):
        EmptyLaunches(torch, CPU, "sm_90", 1, watch)
