# SPDX-License-Identifier: Apache-2.0
"""The words of ``bench --verify``: how many calls were held against the sort, and each failure."""

from collections import Counter

import msgspec

from thorprobe.record import Device, Record, Status


class Failure(Record, frozen=True, kw_only=True):
    """A wrong call: the line that repeats it, and the smallest one that is wrong too.

    ``ran`` is the rung that answered, ``detail`` says what is wrong in the smallest case, or what
    was raised. ``smallest`` is empty where the case was not tried again.
    """

    status: Status = Status.FAIL
    line: str
    ran: str = ""
    smallest: str = ""
    tries: int = 0
    detail: str = ""


class Tally(Record, frozen=True, kw_only=True):
    """What one process held against the sort in ``seconds``; the counts are of calls.

    ``ran`` counts by the rung that answered, ``asked`` by what was asked: a rung, ``auto``, or one
    kernel.
    """

    calls: int = 0
    wrong: int = 0
    inputs: int = 0
    groups: int = 0
    seconds: float = 0.0
    ran: dict[str, int] = msgspec.field(default_factory=dict)
    asked: dict[str, int] = msgspec.field(default_factory=dict)
    partitions: dict[str, int] = msgspec.field(default_factory=dict)
    dtypes: dict[str, int] = msgspec.field(default_factory=dict)
    modes: dict[str, int] = msgspec.field(default_factory=dict)
    distributions: dict[str, int] = msgspec.field(default_factory=dict)
    failures: tuple[Failure, ...] = ()


COUNTS = ("ran", "asked", "partitions", "dtypes", "modes", "distributions")
"""The counts of a tally that say what its calls were."""


class Report(Record, frozen=True, kw_only=True):
    """What one process tells at its end, with what it ran on."""

    tally: Tally
    device: Device | None = None
    software: dict[str, str] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kernel: str = ""
    nvrtc: str = ""


class VerifySummary(Record, frozen=True, kw_only=True):
    """What a verification came to.

    ``seconds`` is the longest that a process held calls, start-up left out; ``kernel`` the SHA-256
    of kernels/select.cu and ``nvrtc`` the compiler, both empty where no kernel ran. ``by_ran`` and
    the others count calls.
    """

    finding: str
    next_action: str = ""
    calls: int = 0
    wrong: int = 0
    seconds: float = 0.0
    seed: int = 0
    kernel: str = ""
    nvrtc: str = ""
    processes: int = 1
    inputs: int = 0
    shapes: int = 0
    by_ran: dict[str, int] = msgspec.field(default_factory=dict)
    by_asked: dict[str, int] = msgspec.field(default_factory=dict)
    by_partition: dict[str, int] = msgspec.field(default_factory=dict)
    by_dtype: dict[str, int] = msgspec.field(default_factory=dict)
    by_mode: dict[str, int] = msgspec.field(default_factory=dict)
    by_distribution: dict[str, int] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def together(tallies: "list[Tally]") -> Tally:
    """Return the sum of tallies; their time is that of the longest."""
    counts = {name: Counter[str]() for name in COUNTS}
    for tally in tallies:
        for name in COUNTS:
            counts[name].update(getattr(tally, name))
    return Tally(
        calls=sum(tally.calls for tally in tallies),
        wrong=sum(tally.wrong for tally in tallies),
        inputs=sum(tally.inputs for tally in tallies),
        groups=sum(tally.groups for tally in tallies),
        seconds=max((tally.seconds for tally in tallies), default=0.0),
        failures=tuple(one for tally in tallies for one in tally.failures),
        **{name: dict(sorted(counts[name].items())) for name in COUNTS},
    )
