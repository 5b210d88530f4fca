# SPDX-License-Identifier: Apache-2.0
"""Puts the question of ``bench``: times every contender, judges the times, and makes the answer."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

import msgspec

from thorprobe.answer import Evidence
from thorprobe.bench import plan as plans
from thorprobe.bench.judge import summarize
from thorprobe.bench.plan import FILE_PREFIXES, BenchOptions
from thorprobe.bench.records import BenchPoint, BenchSummary
from thorprobe.bench.run import DeviceSession, Progress, measure
from thorprobe.cli.measure import now
from thorprobe.record import Origin

Answer = Evidence[BenchPoint, BenchSummary]
COMMAND = "bench"

Opener = Callable[[BenchOptions, str | None, Progress], AbstractContextManager[DeviceSession]]


def inquire(
    options: BenchOptions,
    device: str | None = None,
    *,
    argv: Sequence[str] = (),
    svg: str = "",
    progress: Progress = lambda _done, _total: None,
    opener: Opener | None = None,
) -> Answer:
    """Time the ladder and its peers on a device; ``svg`` is the picture's file name.

    ``opener`` opens another bed than a GPU's, for tests. Raises UsageError for bad options,
    CouldNotProbeError where the device or a package is missing.
    """
    plans.check(options)
    started, began = now(), perf_counter()
    if opener is None:
        from thorprobe.bench.device import open_session

        opener = open_session
    with opener(options, device, progress) as bed:
        points = tuple(measure(options, bed, progress))
        bed.place.settle()
    return Evidence(
        command=COMMAND,
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.MEASURED,
        device=bed.place.device,
        software=bed.software,
        inputs=bed.inputs,
        options=public(options) | {"svg": svg},
        results=points,
        summary=summarize(points, bed.rates, bed.notes, options.partition),
        wall_s=round(perf_counter() - began, 2),
    )


def public(options: BenchOptions) -> dict[str, Any]:
    """Return the options as JSON: ``k`` and ``dtype`` alone or as lists, files without folders."""
    told: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(options))
    told["k"] = _alone(told["k"])
    told["dtype"] = _alone(told.pop("dtypes"))
    told["peers"] = [_named(peer) for peer in options.peers]
    return told


def _alone(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _named(peer: str) -> str:
    for prefix in FILE_PREFIXES:
        if peer.startswith(prefix):
            return prefix + peer.rpartition("/")[2]
    return peer
