# SPDX-License-Identifier: Apache-2.0
"""Runs a bench: each contender on each shape, its result checked before and after it is timed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from thorprobe.bench import plan as plans
from thorprobe.bench.candidates import Candidate, Data, Ladder, NotTakenError
from thorprobe.bench.check import UNWRITTEN, expected
from thorprobe.bench.host_cost import call_cost, host_cost
from thorprobe.bench.inputs import scores
from thorprobe.bench.plan import AUTO, BenchOptions, BenchShape
from thorprobe.bench.records import BenchPoint, BenchTime, CopyRate, Floor
from thorprobe.driver.stopwatch import Watch
from thorprobe.driver.torch_device import TorchDevice
from thorprobe.errors import ThorprobeError
from thorprobe.record import Origin, Status
from thorprobe.run.workload import Floats

Progress = Callable[[int, int], None]

_PEER_CALLS = 800
# A peer may keep the device busy for 50 us a call: blocks of 100 calls end before a stream is full.


@dataclass(frozen=True, kw_only=True)
class DeviceSession:
    """What a bench runs on; a test puts its own together.

    ``contenders`` are timed in this order. ``prepare`` prepares a call of ``select``, None to leave
    its cost out. ``empty`` times an empty launch, ``rate`` is the copy
    rate of the floor, None for no floor. ``upstream`` names the contender that upstream's host code
    takes for a shape. ``inputs`` are SHA-256 of what was run.
    """

    torch: Any
    place: TorchDevice
    watch: Watch
    select: Callable[..., Any]
    prepare: Callable[..., Any] | None = None
    contenders: tuple[Candidate, ...]
    empty: Callable[[int, int], float | None] = lambda _rows, _cluster: None
    rates: tuple[CopyRate, ...] = ()
    rate: CopyRate | None = None
    upstream: Callable[[BenchShape], str] = lambda _shape: ""
    notes: tuple[str, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)


def measure(options: BenchOptions, bed: DeviceSession, progress: Progress) -> Iterator[BenchPoint]:
    """Yield the point of each shape; ``progress`` hears how many of how many are done."""
    asked = plans.shapes(options)
    progress(0, len(asked))
    drawn = _Drawn()
    for done, shape in enumerate(asked, 1):
        yield _point(shape, options, bed, drawn)
        progress(done, len(asked))


class _Drawn:
    """The last scores that were drawn: shapes that differ in k or type alone share them."""

    def __init__(self) -> None:
        self._key: tuple[int, int, str, int] | None = None
        self._scores: Floats | None = None

    def of(self, shape: BenchShape) -> Floats:
        """Return float32 [rows, columns]."""
        key = (shape.rows, shape.columns, shape.distribution, shape.seed)
        if self._scores is None or key != self._key:
            self._scores = None  # Two inputs of 4 GiB need not be held at once.
            self._key, self._scores = key, scores(*key)
        return self._scores


def _point(
    shape: BenchShape, options: BenchOptions, bed: DeviceSession, drawn: _Drawn
) -> BenchPoint:
    began = perf_counter()
    data = put(shape, drawn.of(shape), bed.torch, bed.place.torch_device)
    times = tuple(_timed(one, data, options, bed) for one in bed.contenders)
    wrong = any(one.status is Status.FAIL and not one.peer for one in times)
    asked = [ties for rung, ties in options.contenders if rung == AUTO]
    host = None
    if options.host_calls and asked and not wrong:
        calls = options.host_calls
        host = host_cost(data, asked[0], calls, bed.select, bed.place.settle, prepare=bed.prepare)
    return BenchPoint(
        id=shape.id,
        status=Status.FAIL if wrong else Status.PASS,
        origin=Origin.MEASURED,
        rows=shape.rows,
        columns=shape.columns,
        k=shape.k,
        dtype=shape.dtype,
        distribution=shape.distribution,
        seed=shape.seed,
        floor=_floor(shape, times, bed),
        upstream=bed.upstream(shape),
        times=times,
        host=host,
        duration_us=round((perf_counter() - began) * 1e6, 1),
    )


def load(shape: BenchShape, torch: Any, where: Any, seed: int | None = None) -> Data:
    """Draw the scores of a shape, put them on the device, and select them by a stable sort.

    ``seed`` is another one than the shape's own.
    """
    number = shape.seed if seed is None else seed
    return put(shape, scores(shape.rows, shape.columns, shape.distribution, number), torch, where)


def put(shape: BenchShape, drawn: Floats, torch: Any, where: Any) -> Data:
    """Put scores float32 [rows, columns] on the device in the shape's type, and select them."""
    made = torch.from_numpy(drawn).to(where).to(getattr(torch, shape.dtype))
    lengths = torch.full((shape.rows,), shape.columns, dtype=torch.int32, device=where)
    return Data(torch, shape, made, lengths, expected(torch, made, shape.k))


def _timed(
    contender: Candidate, data: Data, options: BenchOptions, bed: DeviceSession
) -> BenchTime:
    line = BenchTime(
        contender=contender.name,
        peer=not isinstance(contender, Ladder),
        ties=contender.ties,
        status=Status.PASS,
    )
    try:
        ready = contender.prepare(data)
        line = replace(line, rung=ready.rung, choice=ready.choice)
        if wrong := _wrong_rows(contender, data, ready.chosen()):
            return _failed(line, data, wrong)
        # A library may take another algorithm once it is captured: what was timed is checked too,
        # and no result of before may stand in for it.
        ready.chosen().fill_(UNWRITTEN)
        timing = bed.watch.time(ready.launch, options.launches, options.replays)
        if wrong := _wrong_rows(contender, data, ready.chosen()):
            return _failed(line, data, wrong, " when timed")
        if ready.call is not None and options.host_calls:
            calls = min(options.host_calls, _PEER_CALLS)
            line = replace(line, host_us=call_cost(ready.call, calls, bed.place.settle))
    except NotTakenError as error:
        return replace(line, status=Status.WAIVED, note=error.sentence)
    except Exception as error:  # noqa: BLE001  a contender costs one line, whatever it does
        return replace(line, status=Status.ERROR, note=_said(error))
    return replace(line, us=timing.us, spread_us=timing.spread_us, launches=timing.launches)


def _failed(line: BenchTime, data: Data, wrong: int, when: str = "") -> BenchTime:
    note = f"{wrong} of {data.shape.rows} rows are wrong{when}"
    return replace(line, status=Status.FAIL, note=note)


def _wrong_rows(contender: Candidate, data: Data, chosen: Any) -> int:
    if contender.ties == "lowest":
        return data.expected.other_rows(chosen)
    return data.expected.wrong_rows(chosen)


def _said(error: Exception) -> str:
    if isinstance(error, ThorprobeError):
        return error.sentence
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]


def _floor(shape: BenchShape, times: tuple[BenchTime, ...], bed: DeviceSession) -> Floor | None:
    if bed.rate is None:
        return None
    copy = shape.bytes / bed.rate.gb_per_s / 1e3
    ours = [(one.us, one.rung) for one in times if one.us is not None and not one.peer]
    _, _, size = min(ours)[1].partition("cluster-") if ours else ("", "", "")
    cluster = int(size or 1)
    empty = bed.empty(shape.rows, cluster)
    return Floor(
        bytes=shape.bytes,
        copy_us=round(copy, 3),
        cluster=cluster,
        empty_us=empty,
        us=round(copy + (empty or 0.0), 3),
    )
