# SPDX-License-Identifier: Apache-2.0
"""One process of a verification: groups until the time is over, then the wrong calls shrunk."""

from collections.abc import Callable, Iterator
from time import perf_counter

from msgspec.structs import replace

from thorprobe.bench.verify_bed import Bed
from thorprobe.bench.verify_case import Case, line
from thorprobe.bench.verify_draw import Group, draw
from thorprobe.bench.verify_record import Failure, Tally, together
from thorprobe.bench.verify_run import Held, alone, count, run
from thorprobe.bench.verify_shrink import shrink
from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Status

_MOST = 8
# Failures that are kept of a process; each is another kernel or type.
_SHRUNK = 3
# Failures that are made smaller.
_FOLDED = 64
# Tallies that are added up at once.


def verify(
    bed: Bed, seconds: float, seed: str, told: Callable[[str], None] = lambda _line: None
) -> Tally:
    """Hold groups of calls against the sort for so many seconds, then shrink what was wrong.

    ``told`` hears of the first case of each group before it runs: should a kernel never end, that
    is where it was. An error that a group raises counts as a wrong call, and ends it all: a device
    that met one answers nothing more.
    """
    began = perf_counter()
    tallies: list[Tally] = []
    wrong: dict[tuple[str, str], tuple[Case, str]] = {}
    broken: tuple[Failure, ...] = ()
    for group in _until(began + seconds, draw(seed, tuple(bed.lanes), bed.rungs)):
        first = line(group.case(0, 0))
        told(first)
        try:
            held = run(group, bed)
        except Exception as error:  # noqa: BLE001  torch's and the driver's errors alike
            broken = (failed(first, error),)
            break
        tallies.append(count(held))
        _note(wrong, held)
        if len(tallies) >= _FOLDED:
            tallies = [together(tallies)]
    took = round(perf_counter() - began, 2)
    found = together(tallies)
    failures = tuple(
        _failure(bed, case, ran, shrunk=number < _SHRUNK and not broken)
        for number, (case, ran) in enumerate(wrong.values())
    )
    return replace(
        found, wrong=found.wrong + len(broken), seconds=took, failures=(*failures, *broken)
    )


def failed(first: str, error: Exception) -> Failure:
    """Return the failure of a group that raised; ``first`` is its first case."""
    told = " ".join(str(error).split("\n", 1)[0].split())
    detail = f"the group that begins with this case raised {type(error).__name__}: {told}"
    return Failure(status=Status.ERROR, line=first, detail=detail)


def _until(end: float, groups: Iterator[Group]) -> Iterator[Group]:
    """Yield groups until the time is over, one at least."""
    yield next(groups)
    while perf_counter() < end:
        yield next(groups)


def _note(wrong: dict[tuple[str, str], tuple[Case, str]], held: Held) -> None:
    """Keep the first wrong call of each rung and type."""
    for number, call in held.wrong:
        key = held.ran[call], held.group.inputs[0].dtype
        if key not in wrong and len(wrong) < _MOST:
            wrong[key] = held.group.case(number, call), held.ran[call]


def _failure(bed: Bed, case: Case, ran: str, *, shrunk: bool) -> Failure:
    if not shrunk:
        return Failure(line=line(case), ran=ran)
    if not repeated(bed, case).wrong:
        return Failure(line=line(case), ran=ran, detail="by itself it is right: not repeated")
    smallest, tries = shrink(case, lambda one: bool(run(alone(one), bed).wrong))
    return Failure(
        line=line(case),
        ran=ran,
        smallest=line(smallest),
        tries=tries,
        detail=repeated(bed, smallest).detail,
    )


def repeated(bed: Bed, case: Case) -> Held:
    """Run one case by itself, a few times.

    Raises CouldNotProbeError where the device has no such partition, or refuses the kernel.
    """
    held = run(alone(case), bed, tell=True)
    if not held.calls:
        places = ", ".join(bed.lanes)
        raise CouldNotProbeError(
            f"`kernel={case.kernel} partition={case.partition}` does not run here",
            f"the partitions here are {places}; `kernel=auto` runs everywhere",
        )
    return held
