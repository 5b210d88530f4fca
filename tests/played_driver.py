# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102, D105, N802  the driver spells its functions so, and describes them
"""A driver for benches without a GPU: a clock, graphs that count launches, and host memory."""

from cuda.bindings import driver as real

from thorprobe.bench import floor, ready_launch
from thorprobe.driver import launch, stopwatch
from thorprobe.run import shipped_module


class PlayedDriver:
    """Keeps a clock of microseconds, graphs as lists of launches, and selects where asked.

    ``codes`` gives the answer of a call by its name, 0 where it does not say.
    """

    def __init__(self):
        self.now = 0.0
        self.events = {}
        self.capturing = None
        self.graphs = []
        self.open_graphs = set()
        self.launched = []
        self.captured = 0
        self.each_us = 3.0
        self.active = 5
        self.codes = {}
        self.run = lambda _config, _function, _parameters: None

    def __getattr__(self, name):
        return getattr(real, name)

    def answer(self, name, *values):
        return (self.codes.get(name, 0), *values)

    def cuEventCreate(self, _flags):
        self.events[len(self.events)] = None
        return self.answer("cuEventCreate", len(self.events) - 1)

    def cuEventDestroy(self, event):
        del self.events[event]
        return (0,)

    def cuEventRecord(self, event, _stream):
        self.events[event] = self.now
        return (0,)

    def cuEventSynchronize(self, _event):
        return self.answer("cuEventSynchronize")

    def cuEventElapsedTime(self, first, last):
        return 0, (self.events[last] - self.events[first]) / 1e3

    def cuStreamBeginCapture(self, _stream, mode):
        assert mode == real.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        assert self.capturing is None
        self.capturing = 0
        return self.answer("cuStreamBeginCapture")

    def cuStreamEndCapture(self, _stream):
        self.graphs.append(self.capturing)
        self.capturing = None
        name = len(self.graphs) - 1
        self.open_graphs.add(name)
        return self.answer("cuStreamEndCapture", name)

    def cuGraphInstantiate(self, graph, _flags):
        if self.codes.get("cuGraphInstantiate"):
            return self.answer("cuGraphInstantiate", None)
        self.open_graphs.add(("ready", graph))
        return 0, ("ready", graph)

    def cuGraphDestroy(self, graph):
        self.open_graphs.remove(graph)
        return (0,)

    def cuGraphExecDestroy(self, graph):
        return self.cuGraphDestroy(graph)

    def cuGraphLaunch(self, graph, _stream):
        self.now += self.graphs[graph[1]] * self.each_us
        return self.answer("cuGraphLaunch")

    def work(self):
        """Put one launch into the stream."""
        if self.capturing is None:
            self.now += self.each_us
        else:
            self.capturing += 1
            self.captured += 1

    def cuLaunchKernelEx(self, config, function, parameters, _extra):
        self.work()
        self.launched.append((function, config.gridDimX, config.gridDimY, config.blockDimX))
        self.run(config, function, parameters)
        return self.answer("cuLaunchKernelEx")

    def cuMemcpyDtoDAsync(self, target, source, size, _stream):
        assert target != source
        assert size == 4 * floor._SCORES
        self.work()
        return self.answer("cuMemcpyDtoDAsync")

    def cuModuleLoadData(self, _data):
        return self.answer("cuModuleLoadData", "module")

    def cuModuleGetFunction(self, _module, name):
        return self.answer("cuModuleGetFunction", name)

    def cuFuncSetAttribute(self, _function, _which, _value):
        return self.answer("cuFuncSetAttribute")

    def cuOccupancyMaxPotentialClusterSize(self, _function, _config):
        return 0, 8

    def cuOccupancyMaxActiveClusters(self, _function, _config):
        return self.answer("cuOccupancyMaxActiveClusters", self.active)


def play(monkeypatch):
    """Put a played driver in the place of the real one, and return it."""
    driver = PlayedDriver()
    for module in (stopwatch, floor, launch, ready_launch, shipped_module):
        monkeypatch.setattr(module, "driver", driver)
    for module in (stopwatch, floor, launch, ready_launch, shipped_module):
        if hasattr(module, "describe"):
            monkeypatch.setattr(module, "describe", lambda code: (f"CODE_{code}", f"code {code}"))
    monkeypatch.setattr(launch, "_CACHE", {})
    return driver
