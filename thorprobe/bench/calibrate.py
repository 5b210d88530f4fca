# SPDX-License-Identifier: Apache-2.0
"""Times every kernel that the ladder may take, one by one, over a grid of shapes.

The launches are those that ``select`` makes of a choice, without the choosing around them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from msgspec.structs import replace

from thorprobe.bench.calibration_plan import CalibrationOptions, seed
from thorprobe.bench.calibration_records import ChoiceTimes
from thorprobe.bench.candidates import Data
from thorprobe.bench.check import UNWRITTEN
from thorprobe.bench.plan import BenchShape
from thorprobe.bench.run import Progress, load
from thorprobe.driver.stopwatch import Timing, Watch
from thorprobe.errors import CouldNotProbeError, ThorprobeError
from thorprobe.record import Device, Origin, Status
from thorprobe.topk import kernel
from thorprobe.topk.contract import SelectOptions
from thorprobe.topk.ladder import Config, choices
from thorprobe.topk.plan import Shape, launch, step


class Stream(Protocol):
    """A device or a partition of it, on which single choices run."""

    @property
    def partition(self) -> str:
        """As ``--partition`` takes it, empty for the whole device."""
        ...

    @property
    def sms(self) -> int:
        """SMs that it has."""
        ...

    def slots(self, choice: Config, shape: BenchShape) -> int:
        """Return how many rows run at once. Raises ThorprobeError where it does not load."""
        ...

    def time(self, choice: Config, data: Data, options: CalibrationOptions) -> Timing:
        """Run a choice, check its result, and time it. Raises ThorprobeError for a wrong one."""
        ...


@dataclass(frozen=True)
class GpuStream:
    """One stream of a device: its own, or a green context's."""

    partition: str
    sms: int
    ordinal: int
    stream: int
    watch: Watch
    settle: Callable[[], None]

    def slots(self, choice: Config, shape: BenchShape) -> int:
        """Ask the driver."""
        asked = launch(choice, self._shape(choice, shape), self.ordinal, self.stream)
        return choice.rows_at_once(asked.slots())

    def time(self, choice: Config, data: Data, options: CalibrationOptions) -> Timing:
        """Launch once, hold the result against the expected one, and time it in a graph."""
        shape, torch, where = data.shape, data.torch, data.scores.device
        asked = self._shape(choice, shape)
        made = step(choice, asked, self.ordinal, self.stream)
        parts = None
        if made.parts_bytes:
            parts = torch.empty(made.parts_bytes, dtype=torch.uint8, device=where)
        for one in made.launches:
            one.set_shape(shape.columns, 1, shape.k, asked.wish.flags)
        out = torch.full((shape.rows, shape.k), UNWRITTEN, dtype=torch.int32, device=where)
        pointers = (
            *(data.scores.data_ptr(), data.lengths.data_ptr(), out.data_ptr(), 0),
            *(parts.data_ptr() if parts is not None else 0, shape.columns, shape.k),
        )

        def run() -> None:
            for one in made.launches:
                code = one(pointers)
                if code:
                    raise ThorprobeError(f"the launch answered {code}")

        # The buffers were filled on torch's stream, which this one does not wait for.
        self.settle()
        run()
        self.settle()
        wrong = data.expected.other_rows(out)
        if wrong:
            raise ThorprobeError(f"{wrong} of {shape.rows} rows are wrong at {shape.id}")
        return self.watch.time(run, options.launches, options.replays)

    def _shape(self, choice: Config, shape: BenchShape) -> Shape:
        return Shape(
            rows=shape.rows,
            columns=shape.columns,
            dtype=shape.dtype,
            strided=False,
            wish=SelectOptions(k=shape.k),
            rung=choice.rung,
        )


@dataclass
class _Series:
    """What is gathered of one choice on one seat."""

    slots: int
    us: dict[str, list[float | None]] = field(default_factory=dict)
    spreads: list[float] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)


@dataclass
class CalibrationSession:
    """Where a calibration is made: torch, a device, its seats; a test puts its own together."""

    torch: Any
    where: Any
    seats: Sequence[Stream]
    device: Device | None = None
    software: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(
    options: CalibrationOptions, room: CalibrationSession, progress: Progress
) -> list[ChoiceTimes]:
    """Time every choice at every shape on every seat; ``progress`` hears of the shapes."""
    found: dict[tuple[int, str], tuple[Config, _Series]] = {}
    total, done = len(options.columns) * len(options.rows), 0
    progress(done, total)
    for columns in options.columns:
        tallest = _load(columns, max(options.rows), options, room)
        for number, rows in enumerate(options.rows):
            data = _first(tallest, rows)
            for place, seat in enumerate(room.seats):
                for choice in choices(columns, options.dtype):
                    _, series = found.setdefault((place, choice.name), (choice, _Series(0)))
                    times = series.us.setdefault(str(columns), [None] * len(options.rows))
                    times[number] = _timed(seat, choice, data, options, series)
            done += 1
            progress(done, total)
    return [
        _words(room.seats[place], choice, series) for (place, _), (choice, series) in found.items()
    ]


def _timed(
    seat: Stream, choice: Config, data: Data, options: CalibrationOptions, series: _Series
) -> float | None:
    try:
        before, series.slots = series.slots, seat.slots(choice, data.shape)
        if before not in (0, series.slots):
            series.notes[f"max_active_clusters was {before} before"] = None
        if not series.slots:
            series.notes["max_active_clusters is 0"] = None
            return None
        timing = seat.time(choice, data, options)
    except ThorprobeError as error:
        series.notes[error.sentence] = None
        return None
    series.spreads.append(timing.spread_us / timing.us if timing.us else 0.0)
    return timing.us


def _words(seat: Stream, choice: Config, series: _Series) -> ChoiceTimes:
    refused = not series.slots
    return ChoiceTimes(
        id=f"{seat.partition or 'whole'}/{choice.name}",
        status=Status.WAIVED if refused else Status.ERROR if series.notes else Status.PASS,
        origin=Origin.MEASURED,
        partition=seat.partition,
        sms=seat.sms,
        choice=choice.name,
        rung=choice.rung,
        ctas=choice.ctas,
        capacity=choice.variant.capacity,
        slots=series.slots,
        us={} if refused else {columns: tuple(times) for columns, times in series.us.items()},
        spread=round(median(series.spreads), 4) if series.spreads else 0.0,
        note="; ".join(series.notes),
    )


def _load(columns: int, rows: int, options: CalibrationOptions, room: CalibrationSession) -> Data:
    shape = BenchShape(
        rows=rows, columns=columns, k=options.k, dtype=options.dtype, distribution="normal"
    )
    return load(shape, room.torch, room.where, seed(columns))


def _first(data: Data, rows: int) -> Data:
    """Return the first rows of an input."""
    shape = replace(data.shape, rows=rows)
    return Data(
        data.torch, shape, data.scores[:rows], data.lengths[:rows], data.expected.first(rows)
    )


@contextmanager
def open_room(options: CalibrationOptions, device: str | None) -> Iterator[CalibrationSession]:
    """Open the device and its partitions; one that cannot be made is left out with a note.

    Raises CouldNotProbeError where there is no GPU.
    """
    from thorprobe.bench.device import gpu
    from thorprobe.driver import torch_device
    from thorprobe.driver.compile import hashes
    from thorprobe.driver.context import Context
    from thorprobe.driver.stopwatch import Stopwatch

    torch, ordinal = gpu(device)
    with torch_device.open_device(str(ordinal)) as place:
        where = place.torch_device
        room = CalibrationSession(
            torch,
            where,
            [],
            device=place.device,
            software=place.software,
            inputs=hashes(("select",)),
        )

        def settle() -> None:
            torch.cuda.synchronize(where)

        seats: list[Stream] = []
        for partition in options.partitions:
            try:
                context = Context(ordinal, partition)
            except CouldNotProbeError as error:
                room.notes.append(f"{partition} is left out: {error.sentence}")
                continue
            stream = int(context.stream)
            sms = kernel.sms(ordinal, stream)
            seats.append(GpuStream(partition, sms, ordinal, stream, Stopwatch(stream), settle))
        room.seats = seats
        yield room
        settle()
