# SPDX-License-Identifier: Apache-2.0
"""Puts the question of ``bench --verify``: which generated calls a stable sort agrees with."""

from collections.abc import Callable, Sequence
from time import perf_counter

from msgspec.structs import replace

from thorprobe.answer import Evidence
from thorprobe.bench.verify_case import line, parse
from thorprobe.bench.verify_record import Failure, Report, VerifySummary, together
from thorprobe.bench.verify_worker import Task
from thorprobe.cli.measure import now
from thorprobe.errors import UsageError
from thorprobe.record import Device, Origin

Answer = Evidence[Failure, VerifySummary]
COMMAND = "bench --verify"

MAX_SECONDS = 86_400.0
MAX_PROCESSES = 64

Progress = Callable[[int, int], None]
Verifier = Callable[[list[Task]], list[Report]]


def inquire(
    seconds: float,
    device: str | None = None,
    *,
    seed: int = 0,
    processes: int = 1,
    case: str = "",
    argv: Sequence[str] = (),
    progress: Progress = lambda _done, _total: None,
    verifier: Verifier | None = None,
) -> Answer:
    """Hold calls against the sort for so many seconds, or repeat the case of a line.

    ``verifier`` runs the tasks in the place of processes, for tests. Raises UsageError for bad
    options, CouldNotProbeError where the device or a package is missing.
    """
    check(seconds, seed, processes)
    text = line(parse(case)) if case else ""
    started, began = now(), perf_counter()
    if text:
        tasks = [Task(device=device, line=text)]
    else:
        seeds = [f"{seed}/{number}" for number in range(processes)]
        tasks = [Task(device=device, seconds=seconds, seed=one) for one in seeds]
    reports = (verifier or _processes(device, progress))(tasks)
    told = next((report for report in reports if report.software), reports[0])
    return Evidence(
        command=COMMAND,
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.MEASURED,
        device=_alone(told.device, processes),
        software=told.software,
        inputs={"kernels/select.cu": told.kernel} if told.kernel else {},
        options={"seconds": seconds, "seed": seed, "processes": processes, "case": text},
        results=_distinct(reports),
        summary=summarize(reports, seed, repeated=bool(text)),
        wall_s=round(perf_counter() - began, 2),
    )


def _alone(device: Device | None, processes: int) -> Device | None:
    """Leave out how many other processes there are, where they may be those of this very answer."""
    if device is None or processes == 1:
        return device
    return replace(device, other_processes=None)


def _distinct(reports: Sequence[Report]) -> tuple[Failure, ...]:
    """Return the failures, each once: processes that meet one fault shrink it to the same case."""
    failures = together([report.tally for report in reports]).failures
    return tuple({(one.smallest or one.line): one for one in reversed(failures)}.values())[::-1]


def _processes(device: str | None, progress: Progress) -> Verifier:
    """Return what runs tasks in processes; the kernels are compiled once, before they start."""

    def run(tasks: list[Task]) -> list[Report]:
        from thorprobe.bench.verify_bed import gpu
        from thorprobe.bench.verify_workers import verify

        if device != "cpu":
            _, ordinal = gpu(device)
            from thorprobe.bench.verify_gpu import compile_all

            compile_all(ordinal)
        groups = 0

        def heard() -> None:
            nonlocal groups
            groups += 1
            progress(groups, 0)

        return verify(tasks, heard)

    return run


def check(seconds: float, seed: int, processes: int) -> None:
    """Raise UsageError for options that cannot be served."""
    if not 0 <= seconds <= MAX_SECONDS:
        raise UsageError(
            f"`--verify {seconds:g}` was asked for, but it takes 0 to {MAX_SECONDS:,.0f} seconds",
            "`--verify 60` holds some hundred thousand calls against the sort",
        )
    if not 0 <= seed < 2**62:
        raise UsageError(f"`--seed {seed}` was asked for, but a seed is 0 to 2^62", "`--seed 1`")
    if not 1 <= processes <= MAX_PROCESSES:
        raise UsageError(
            f"`--processes {processes}` was asked for, but there are 1 to {MAX_PROCESSES}",
            "one for each core but two is a good number",
        )


def summarize(reports: Sequence[Report], seed: int, *, repeated: bool = False) -> VerifySummary:
    """Add up what the processes told, and say what it came to."""
    found = together([report.tally for report in reports])
    told = next((report for report in reports if report.software), reports[0])
    return VerifySummary(
        finding=_finding(found.calls, found.wrong, repeated=repeated),
        next_action=_next(_distinct(reports)),
        calls=found.calls,
        wrong=found.wrong,
        seconds=found.seconds,
        seed=seed,
        kernel=told.kernel,
        nvrtc=told.nvrtc,
        processes=len(reports),
        inputs=found.inputs,
        shapes=found.groups,
        by_ran=found.ran,
        by_asked=found.asked,
        by_partition=found.partitions,
        by_dtype=found.dtypes,
        by_mode=found.modes,
        by_distribution=found.distributions,
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
    )


def _finding(calls: int, wrong: int, *, repeated: bool) -> str:
    what = "of the case" if repeated else "of generated inputs"
    many = f"{calls:,} call{'' if calls == 1 else 's'} {what}"
    if wrong:
        return f"{wrong:,} of {many} are WRONG: not as a stable sort has them"
    return f"all of {many} are right: the indices are those of a stable sort"


def _next(failures: Sequence[Failure]) -> str:
    smallest = next((one.smallest or one.line for one in failures), "")
    return f"repeat the smallest: `thorprobe bench --verify-case '{smallest}'`" if smallest else ""
