# SPDX-License-Identifier: Apache-2.0
"""What a calibration of the ladder's costs measures."""

from thorprobe.errors import UsageError
from thorprobe.record import Record

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
COLUMNS = tuple(2**power for power in range(10, 19))
PARTITIONS = ("", "sms=24", "sms=8")
"""The whole device, and parts small enough that rows wait for each other: waves have a cost."""


class CalibrationOptions(Record, frozen=True, kw_only=True):
    """The grid of shapes and how often each is repeated.

    A time is the median of ``replays`` replays of a graph of ``launches`` launches of one kernel.
    """

    rows: tuple[int, ...] = ROWS
    columns: tuple[int, ...] = COLUMNS
    partitions: tuple[str, ...] = PARTITIONS
    k: int = 512
    dtype: str = "float32"
    launches: int = 10
    replays: int = 5


def seed(columns: int) -> int:
    """Return the seed of the scores of a row length: all rows of it are drawn at once."""
    return columns


def check(given: tuple[str, ...]) -> None:
    """Raise UsageError for options of ``bench`` that a calibration does not take."""
    if given:
        names = ", ".join(f"`{name}`" for name in given)
        raise UsageError(
            f"{names} was given with `--calibrate`, which measures a grid of its own",
            "leave it out: a calibration covers the whole device, 24 SMs and 8 SMs",
        )


def one_k(k: tuple[int, ...]) -> int:
    """Return the k of a calibration. Raises UsageError for several: each has costs of its own."""
    if len(k) != 1:
        raise UsageError(
            f"`--k {','.join(map(str, k))}` was given with `--calibrate`, which measures one k",
            "calibrate each k by itself: the costs of each are a file",
        )
    return k[0]
