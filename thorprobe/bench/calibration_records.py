# SPDX-License-Identifier: Apache-2.0
"""The words of ``bench --calibrate``: times of single kernels, and the costs fitted to them."""

import msgspec

from thorprobe.record import Origin, Record, Status


class ChoiceTimes(Record, frozen=True, kw_only=True):
    """One kernel with its CTAs a row, in one partition: microseconds over rows and columns.

    ``choice`` is its name in a file of costs, ``capacity`` the scores that one of its ``ctas`` CTAs
    holds at once, ``slots`` the rows that the ``sms`` SMs run at once (0: refused, nothing timed).
    ``us`` maps a number of columns, as text, to a time for each of the calibration's rows; null
    where none was taken. ``spread`` is the median over the shapes of the largest less the least
    replay, as a part of the time. ``note`` says what is missing and why.
    """

    id: str
    status: Status
    origin: Origin
    partition: str
    sms: int
    choice: str
    rung: str
    ctas: int
    capacity: int
    slots: int
    us: dict[str, tuple[float | None, ...]] = msgspec.field(default_factory=dict)
    spread: float = 0.0
    note: str = ""


class FittedCost(Record, frozen=True, kw_only=True):
    """Factors of one choice in microseconds, as a file of costs holds them.

    For a launch, a wave's first batch, each further batch of a wave, and a MB (10^6 B) that each SM
    reads. ``points`` times were fitted, with this median relative error.
    """

    launch: float
    wave: float
    batch: float
    megabyte: float
    points: int = 0
    error: float = 0.0


class FitError(Record, frozen=True, kw_only=True):
    """How far predictions are from times, relative to the times."""

    points: int
    median: float
    percentile_90: float
    worst: float
    worst_at: str


class AutoQuality(Record, frozen=True, kw_only=True):
    """Measured time of the choice that the costs prefer over that of the best, in one partition."""

    partition: str
    sms: int
    shapes: int
    median: float
    percentile_90: float
    worst: float
    worst_at: str


class CalibrationSummary(Record, frozen=True, kw_only=True):
    """What a calibration came to; ``rows`` are those of every series, in order.

    ``error`` is over all times, ``near`` over those up to 1.5 times the best of their shape, which
    decide. ``measured`` is the line of that file that says when and with which driver.
    """

    finding: str
    next_action: str = ""
    k: int
    dtype: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    device: str
    measured: str
    costs: dict[str, FittedCost]
    error: FitError | None
    near: FitError | None = None
    auto: tuple[AutoQuality, ...]
    wrong: int = 0
    notes: tuple[str, ...] = ()
