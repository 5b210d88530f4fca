# SPDX-License-Identifier: Apache-2.0
"""What a selection is held against: the rate of a copy, and a launch that does nothing."""

import ctypes
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver

from thorprobe.bench.ready_launch import ReadyLaunch
from thorprobe.bench.records import CopyRate
from thorprobe.driver.compile import KERNELS, compile_cubin
from thorprobe.driver.context import answer, describe
from thorprobe.driver.stopwatch import Watch
from thorprobe.errors import ThorprobeError
from thorprobe.record import PORTABLE_CLUSTER, LaunchSpec

_SCORES = 2**27
# 512 MiB read and as much written: several times the L2 of any GPU.
_COPIES, _REPLAYS = 4, 7
_THREADS = 32
_REPORT_BYTES = 32
# What a CTA of the trivial kernel writes.

Empty = Callable[[int, int], float | None]
"""Rows and CTAs per cluster to microseconds, None where it was not timed."""


def copy_rates(torch: Any, where: Any, stream: int, watch: Watch) -> tuple[CopyRate, ...]:
    """Time a large copy on the stream: by a kernel, and by the driver's own copy.

    A partition bounds both: in 8 SMs of an H200 they moved 774 and 217 GB/s, on the whole device
    4,223 and 2,700 (in a graph, driver 580.159.04, 2026-11-30).
    """
    source = torch.rand(_SCORES, device=where)
    target = torch.empty_like(source)
    size = 4 * _SCORES

    def by_driver() -> None:
        addresses = target.data_ptr(), source.data_ptr()
        code, _ = answer(driver.cuMemcpyDtoDAsync(*addresses, size, driver.CUstream(stream)))
        if code:
            raise ThorprobeError(f"cuMemcpyDtoDAsync answered {code} {' '.join(describe(code))}")

    def by_kernel() -> None:
        torch.neg(source, out=target)

    ways = {"torch.neg": by_kernel, "cuMemcpyDtoDAsync": by_driver}
    found = []
    for how, copy in ways.items():
        copy()
        timing = watch.time(copy, _COPIES, _REPLAYS)
        rate = 2 * size / timing.us / 1e3
        found.append(CopyRate(how=how, bytes=2 * size, us=timing.us, gb_per_s=round(rate, 1)))
    return tuple(found)


class EmptyLaunches:
    """Times launches of the trivial kernel: each cluster meets twice and reads a word of each CTA.

    32 threads a CTA and no dynamic shared memory, so that a launch of it is as cheap as any.
    """

    def __init__(self, torch: Any, where: Any, target: str, stream: int, watch: Watch) -> None:
        """Load the kernel for a compile target, onto the torch device ``where``.

        Raises ThorprobeError where it does not load.
        """
        code, module = answer(driver.cuModuleLoadData(compile_cubin("trivial", target)))
        name = KERNELS["trivial"].function
        if not code:
            code, function = answer(driver.cuModuleGetFunction(module, name.encode()))
        if code:
            raise ThorprobeError(f"{name} does not load: {code} {' '.join(describe(code))}")
        self._function = function
        self._torch = torch
        self._where = where
        self._stream = stream
        self._watch = watch
        self._known: dict[tuple[int, int], float | None] = {}

    def __call__(self, rows: int, cluster: int) -> float | None:
        """Return the microseconds of ``rows`` clusters of ``cluster`` CTAs, timed once."""
        if (rows, cluster) not in self._known:
            try:
                self._known[rows, cluster] = self._timed(rows, cluster)
            except ThorprobeError:
                self._known[rows, cluster] = None
        return self._known[rows, cluster]

    def _timed(self, rows: int, cluster: int) -> float:
        spec = LaunchSpec(
            kernel="trivial",
            grid=(rows, cluster, 1),
            block=(_THREADS, 1, 1),
            cluster=(1, cluster, 1),
            non_portable=cluster > PORTABLE_CLUSTER,
        )
        stream = driver.CUstream(self._stream)
        launch = ReadyLaunch(spec, self._function, stream, lambda _stage: None, 0).ready()
        report = self._torch.empty(
            rows * cluster * _REPORT_BYTES, dtype=self._torch.uint8, device=self._where
        )
        launch.parameters = (
            (report.data_ptr(), 1, 0, 0),
            (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64),
        )
        launch()
        return self._watch.time(launch, 40, 15).us
