# SPDX-License-Identifier: Apache-2.0
"""Puts the question of ``bench --calibrate``: times single kernels and fits the ladder's costs."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter

import msgspec

from thorprobe.answer import Evidence
from thorprobe.bench import fit as judge
from thorprobe.bench.calibrate import CalibrationSession, measure
from thorprobe.bench.calibration_plan import CalibrationOptions
from thorprobe.bench.calibration_records import CalibrationSummary, ChoiceTimes
from thorprobe.bench.fit import Grid
from thorprobe.bench.run import Progress
from thorprobe.cli.measure import now
from thorprobe.record import Origin, Status

Answer = Evidence[ChoiceTimes, CalibrationSummary]
COMMAND = "bench --calibrate"

Opener = Callable[[CalibrationOptions, str | None], AbstractContextManager[CalibrationSession]]


def inquire(
    options: CalibrationOptions,
    device: str | None = None,
    *,
    argv: Sequence[str] = (),
    progress: Progress = lambda _done, _total: None,
    opener: Opener | None = None,
) -> Answer:
    """Time every choice on the device and its partitions, and fit the costs.

    ``opener`` opens another room than a GPU's, for tests. Raises CouldNotProbeError where the
    device or a package is missing.
    """
    started, began = now(), perf_counter()
    if opener is None:
        from thorprobe.bench.calibrate import open_room

        opener = open_room
    with opener(options, device) as room:
        series = tuple(measure(options, room, progress))
    return Evidence(
        command=COMMAND,
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.MEASURED,
        device=room.device,
        software=room.software,
        inputs=room.inputs,
        options=msgspec.json.decode(msgspec.json.encode(options)),
        results=series,
        summary=summarize(
            series,
            Grid(rows=options.rows, columns=options.columns, k=options.k, dtype=options.dtype),
            k=options.k,
            dtype=options.dtype,
            device=room.device.name if room.device else "",
            when=f"{started[:10]}, driver {room.device.driver if room.device else 'unknown'}",
            notes=tuple(room.notes),
        ),
        wall_s=round(perf_counter() - began, 2),
    )


def again(answer: Answer) -> Answer:
    """Fit the costs anew to the times of a recorded calibration; nothing is launched."""
    found, device = answer.summary, answer.device
    summary = summarize(
        answer.results,
        Grid(rows=found.rows, columns=found.columns, k=found.k, dtype=found.dtype),
        k=found.k,
        dtype=found.dtype,
        device=device.name if device else "",
        when=f"{answer.started[:10]}, driver {device.driver if device else 'unknown'}",
        notes=found.notes,
    )
    return msgspec.structs.replace(answer, summary=summary)


def summarize(
    series: Sequence[ChoiceTimes],
    grid: Grid,
    *,
    k: int,
    dtype: str,
    device: str,
    when: str,
    notes: tuple[str, ...],
) -> CalibrationSummary:
    """Fit the costs, and say how far they are off and how well they choose."""
    costs = judge.fit(series, grid)
    error = judge.error(series, grid, costs)
    number = error.points if error else 0
    found = CalibrationSummary(
        finding="",
        k=k,
        dtype=dtype,
        rows=grid.rows,
        columns=grid.columns,
        device=device,
        measured=f"{when}, {number:,} points",
        costs=costs,
        error=error,
        near=judge.error(series, grid, costs, near=True),
        auto=judge.quality(series, grid, costs),
        wrong=sum(one.status is Status.ERROR for one in series),
        notes=notes,
    )
    return msgspec.structs.replace(
        found, finding=judge.finding(found), next_action=judge.next_action(found)
    )
