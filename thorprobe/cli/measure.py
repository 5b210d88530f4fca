# SPDX-License-Identifier: Apache-2.0
"""Puts a question to an answerer, stores each outcome as it arrives, and makes the document."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from thorprobe import STARTED, __version__
from thorprobe.cli.study import Study, of_header, plan_digest
from thorprobe.driver import compile as kernels
from thorprobe.errors import ExitCode, UsageError
from thorprobe.judge.cause import judge
from thorprobe.plan.operator import is_operator
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import (
    Device,
    Footer,
    Header,
    LaunchSpec,
    Origin,
    Outcome,
    Status,
    Tool,
    Verdict,
)
from thorprobe.run.store import Recording, Store
from thorprobe.summary import Document

Progress = Callable[[int, int], None]


class Answerer(Protocol):
    """A device, a model of one, or a recording."""

    device: Device
    software: dict[str, str]
    inputs: dict[str, str]

    @property
    def origin(self) -> Origin:
        """Where the answers come from."""
        ...

    def ask(self, specs: Sequence[LaunchSpec]) -> Iterator[Outcome]:
        """Answer each launch."""
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


def now() -> str:
    """Return the time in UTC to the second, ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def process_age() -> float:
    """Return the seconds since this process started; the interpreter's start counts.

    The seconds since thorprobe was imported where /proc does not tell, or tells of more time than
    an interpreter takes to start: a shell may replace itself by its last command, whose process is
    then as old as the shell.
    """
    imported = time.monotonic() - STARTED
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return imported
    age = uptime - ticks / os.sysconf("SC_CLK_TCK")
    return age if age - imported <= _INTERPRETER_START_S else imported


_INTERPRETER_START_S = 1.0
# Seconds from the start of a process to the import of thorprobe: 0.05 to 0.3 where it was seen.


def measure(
    question: Study,
    answerer: Answerer,
    *,
    argv: Sequence[str] = (),
    store_path: Path | None = None,
    kept: Recording | None = None,
    progress: Progress = lambda _done, _total: None,
    started_s: Callable[[], float] = process_age,
) -> Document:
    """Ask everything the question calls for and return the judged document.

    With ``store_path`` each outcome is written as it arrives; with ``kept`` (a recording of the
    same question on the same device) what it holds is not asked again, and a finished one is left
    as it is.

    Raises UsageError where ``kept`` belongs to another question or device, StoreError where the
    store cannot be written any further.
    """
    first = question.first()
    inputs = dict(answerer.inputs)
    if answerer.origin is not Origin.RECORDED:
        # What fits is asked for thorprobe's own kernel where an operator is called.
        named = ("topk" if is_operator(spec.kernel) else spec.kernel for spec in first)
        inputs |= kernels.hashes(name for name in named if not is_shipped(name))
    header = Header(
        tool=Tool(version=__version__),
        command=question.command,
        argv=tuple(argv),
        started=kept.header.started if kept else now(),
        origin=answerer.origin,
        device=answerer.device,
        software=answerer.software,
        inputs=inputs,
        options=question.options,
        plan=plan_digest(first),
    )
    held: dict[str, Outcome] = {}
    if kept is not None:
        _same_run(kept.header, header)
        header = kept.header
        held = {o.id: judge(o, header.device) for o in kept.outcomes}
        if kept.footer is not None:
            return of_recording(kept)
    store = Store(store_path, header, kept) if store_path else None
    try:
        results = list(held.values())
        asked: Sequence[LaunchSpec] = first
        total = 0
        while asked:
            total += len(asked)
            done = total - len(asked) + sum(spec.id in held for spec in asked)
            progress(done, total)
            for outcome in _answers(answerer, asked, held):
                judged = judge(outcome, answerer.device)
                if judged.id in held:
                    continue
                held[judged.id] = judged
                results.append(judged)
                if store:
                    store.write(judged)
                done += not judged.assumes
                progress(done, total)
            asked = question.more(results)
        # How long the part before the kill took is not known, so a resumed run has no time.
        wall_s = 0.0 if kept else started_s()
        document = assemble(header, results, question, ended=now(), wall_s=wall_s)
        # The compiler is known once the first launch was answered.
        document = _with_provenance(document, answerer)
        if store:
            store.write(
                Footer(
                    ended=document.ended,
                    exit_code=document.exit_code,
                    probes=len(results),
                    wall_s=document.wall_s,
                    software=document.software,
                    inputs=document.inputs,
                )
            )
        return document
    finally:
        if store:
            store.__exit__(None, None, None)


def _answers(
    answerer: Answerer, asked: Sequence[LaunchSpec], held: dict[str, Outcome]
) -> Iterator[Outcome]:
    # A prediction has more outcomes than launches (one a claim) and costs nothing to repeat.
    predicted = answerer.origin is Origin.PREDICTED
    return answerer.ask([spec for spec in asked if predicted or spec.id not in held])


def _same_run(old: Header, new: Header) -> None:
    if old.plan != new.plan or old.command != new.command:
        raise UsageError(
            "the store to resume was planned by another thorprobe, so its launches do not match",
            "start a new store with `--store FILE`",
        )
    for name, digest in old.inputs.items():
        if new.inputs.get(name, digest) != digest:
            raise UsageError(
                f"the store to resume was recorded with another {name} than this one",
                "start a new store with `--store FILE`, or name the file with `--profile FILE`",
            )
    before, after = old.device, new.device
    if before.driver != after.driver:
        raise UsageError(
            f"the store to resume was recorded with driver {before.driver}, "
            f"and this is {after.driver}",
            "one run has one driver: start a new store with `--store FILE`",
        )
    if (before.name, before.capability, before.sms, before.partition, before.profile) != (
        after.name,
        after.capability,
        after.sms,
        after.partition,
        after.profile,
    ):
        raise UsageError(
            f"the store to resume was recorded on {before.name} with {before.sms} SMs, "
            f"and this is {after.name} with {after.sms} SMs",
            "resume on the same device, or start a new store with `--store FILE`",
        )


def assemble(
    header: Header,
    results: Sequence[Outcome],
    question: Study,
    *,
    ended: str,
    wall_s: float,
    missing: int = 0,
) -> Document:
    """Make the document of judged outcomes; ``missing`` planned launches have no record."""
    origin = header.origin
    return Document(
        schema=header.schema,
        tool=header.tool,
        command=header.command,
        argv=header.argv,
        started=header.started,
        ended=ended,
        origin=origin,
        device=header.device,
        software=header.software,
        inputs=header.inputs,
        options=header.options,
        results=tuple(results),
        summary=question.summary(results, header.device),
        missing=missing,
        wall_s=round(wall_s, 2),
        exit_code=int(exit_code(results)),
    )


def _with_provenance(document: Document, answerer: Answerer) -> Document:
    return msgspec.structs.replace(
        document,
        software=document.software | answerer.software,
        inputs=document.inputs | answerer.inputs,
    )


def exit_code(results: Sequence[Outcome]) -> ExitCode:
    """Return the exit code of judged outcomes: done, hung, or nothing could be probed."""
    if any(o.verdict is Verdict.HANGS for o in results):
        return ExitCode.HUNG
    nothing = {Status.WAIVED, Status.ERROR, Status.TIMEOUT}
    if results and all(o.status in nothing for o in results):
        return ExitCode.COULD_NOT_PROBE
    return ExitCode.DONE


def of_recording(recording: Recording) -> Document:
    """Judge a recording anew and make its document; bisected launches included.

    The origin stays what the header says: the page of a measurement shows a measurement.
    """
    question = of_header(recording.header)
    results = [judge(o, recording.header.device) for o in recording.outcomes]
    known = {o.spec.id for o in results}
    planned = [spec.id for spec in question.first()]
    while added := question.more(results):
        planned += [spec.id for spec in added]
        if not known.issuperset(planned):
            break
    footer = recording.footer
    document = assemble(
        recording.header,
        results,
        question,
        ended=footer.ended if footer else "",
        wall_s=footer.wall_s if footer else 0.0,
        missing=len(set(planned) - known),
    )
    if footer is None:
        return document
    return msgspec.structs.replace(
        document,
        software=document.software | footer.software,
        inputs=document.inputs | footer.inputs,
    )
