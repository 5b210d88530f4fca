# SPDX-License-Identifier: Apache-2.0
"""Puts the question of ``model-topk --engine vllm``: the reference, then engines wave by wave.

Each engine has a process of its own. Those of a wave start at once and run their untimed cases at
once; timed cases run one after the other, with nothing else at work on the device. The whole answer
is written anew after each case, so that a kill loses the case in flight at most.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from time import perf_counter

import msgspec

from thorprobe.answer import Evidence
from thorprobe.cli.measure import now
from thorprobe.driver.torch_device import open_device
from thorprobe.errors import CouldNotProbeError
from thorprobe.qwen4exp.model import enough_memory
from thorprobe.record import Device, Origin
from thorprobe.vllm import engine_judge as judge
from thorprobe.vllm.engine_likeness import likeness, read_rows, selections
from thorprobe.vllm.engine_plan import Case, Engine, Suite
from thorprobe.vllm.engine_process import COMMAND, EngineProcess
from thorprobe.vllm.engine_reference import Reference, answer, make, told
from thorprobe.vllm.engine_wire import Build, Done
from thorprobe.vllm.engine_words import CaseRun, EngineModel, EngineRun, EngineSummary

Answer = Evidence[EngineRun, EngineSummary]
COMMAND_NAME = "model-topk --engine"
Progress = Callable[[int, int], None]
Keep = Callable[[Answer], None]

_INSTALL = "`pip install vllm` into this environment; its version decides what is measured"


@dataclass
class _Model:
    """A model's weights and its reference answers, by case."""

    folder: Path
    answers: dict[str, Reference] = field(default_factory=dict)


@dataclass
class _Inquiry:
    """What is known so far."""

    suite: Suite
    argv: Sequence[str]
    keep: Keep
    progress: Progress
    started: str
    began: float
    runs: dict[str, EngineRun]
    models: dict[str, EngineModel]
    known: dict[str, _Model] = field(default_factory=dict)
    device: Device | None = None
    software: dict[str, str] = field(default_factory=dict)
    spent_s: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def evidence(self) -> Answer:
        """Return the answer as it stands."""
        order = [engine.name for engine in self.suite.engines]
        runs = tuple(self.runs[name] for name in order if name in self.runs)
        return Answer(
            command=COMMAND_NAME,
            argv=tuple(self.argv),
            started=self.started,
            ended=now(),
            origin=Origin.MEASURED,
            device=self.device,
            software=self.software,
            options={"suite": msgspec.to_builtins(self.suite)},
            results=runs,
            summary=judge.summarize(runs, tuple(self.models.values()), self.suite),
            wall_s=round(self.spent_s + perf_counter() - self.began, 2),
        )

    def note(self, run: EngineRun) -> None:
        """Take a run as it stands now, and write everything."""
        with self.lock:
            capability = self.device.capability if self.device else None
            self.runs[run.engine] = judge.with_arm(run, capability)
            self.keep(self.evidence())
            self.progress(
                sum(len(r.cases) for r in self.runs.values()),
                sum(len(engine.cases) for engine in self.suite.engines),
            )


def ask(
    suite: Suite,
    device: str | None = None,
    *,
    argv: Sequence[str] = (),
    before: Answer | None = None,
    keep: Keep = lambda _: None,
    progress: Progress = lambda _done, _total: None,
    command: Sequence[str] = COMMAND,
) -> Answer:
    """Start the suite's engines, run their cases, and judge what they did.

    ``before`` is an answer to go on with: cases that it holds are not run again. ``keep`` is handed
    the answer after each case. ``command`` starts another engine process, for tests.

    Raises CouldNotProbeError where vLLM, transformers, torch or the device is missing.
    """
    if tuple(command) == COMMAND and importlib.util.find_spec("vllm") is None:
        raise CouldNotProbeError(
            "`--engine vllm` was asked for, and no vLLM is installed here", _INSTALL
        )
    inquiry = _Inquiry(
        suite=suite,
        argv=argv,
        keep=keep,
        progress=progress,
        started=before.started if before else now(),
        began=perf_counter(),
        runs={run.engine: run for run in before.results} if before else {},
        models={model.model: model for model in before.summary.models} if before else {},
        software=dict(before.software) if before else {},
        device=before.device if before else None,
        spent_s=before.wall_s if before else 0.0,
    )
    open_waves = [
        wave for wave in ([e for e in w if _left(inquiry, e)] for w in suite.waves()) if wave
    ]
    with tempfile.TemporaryDirectory(prefix="thorprobe-engine-") as place_of:
        for wave in open_waves:
            _wave(inquiry, wave, device, Path(place_of), command)
    return inquiry.evidence()


def _left(inquiry: _Inquiry, engine: Engine) -> tuple[Case, ...]:
    """Return the cases of an engine that are still to be run; none of one that died."""
    run = inquiry.runs.get(engine.name)
    if run is None:
        return inquiry.suite.of(engine)
    if run.death is not None:
        return ()
    done = {case.case for case in run.cases}
    return tuple(case for case in inquiry.suite.of(engine) if case.name not in done)


def _wave(
    inquiry: _Inquiry,
    wave: Sequence[Engine],
    device: str | None,
    folder: Path,
    command: Sequence[str],
) -> None:
    ordinal = int(device) if device and device.isdigit() else 0
    processes: list[EngineProcess] = []
    try:
        processes += [EngineProcess(engine, ordinal, folder, command) for engine in wave]
        for name in dict.fromkeys(engine.model for engine in wave):
            _saved(inquiry, name, device, folder)
        _together(processes, EngineProcess.imported)
        failed = [process.failed for process in processes if process.failed is not None]
        if len(failed) == len(processes):
            raise failed[0]
        inquiry.device = inquiry.device or next((p.device for p in processes if p.device), None)
        for process in processes:
            process.build(_build(inquiry, process.engine))
        _together(processes, partial(_started, inquiry))
        alive = sum(not process.dead for process in processes)
        for process in processes:
            process.run = msgspec.structs.replace(process.run, beside=max(alive, 1))
        _together(processes, partial(_untimed, inquiry, folder))
        for process in processes:
            for case in _left(inquiry, process.engine):
                if case.timed:
                    _case(inquiry, process, case, folder)
        _together(processes, EngineProcess.close)
        for process in processes:
            inquiry.note(process.run)
    finally:
        for process in processes:
            with suppress(OSError):
                process.close()


def _together(processes: Sequence[EngineProcess], work: Callable[[EngineProcess], None]) -> None:
    """Do one thing with every engine at once; the first error is raised when all are done."""
    with ThreadPoolExecutor(max_workers=max(1, len(processes))) as pool:
        waiting = [pool.submit(work, process) for process in processes]
    for one in waiting:
        one.result()


def _saved(inquiry: _Inquiry, name: str, device: str | None, folder: Path) -> None:
    """Make and save a model's weights once, and keep the reference's answers."""
    if name in inquiry.known:
        return
    suite = inquiry.suite
    with open_device(device) as where, enough_memory():
        model, digest = make(name, folder / name, where, suite.seed, suite.scale)
        earlier = inquiry.models.get(name)
        if earlier is not None and earlier.weights != digest:
            raise CouldNotProbeError(
                f"the answer to go on with ran on other weights of `{name}` than are made here",
                "run the suite anew, without `--resume`",
            )
        known = _Model(folder / name)
        for case in suite.forced(name):
            known.answers[f"{case.prompt}/{case.tokens}"] = answer(model, case, suite.seed)
        inquiry.software |= where.software
        inquiry.models[name] = told(name, model, digest, known.answers)
    inquiry.known[name] = known


def _build(inquiry: _Inquiry, engine: Engine) -> Build:
    cases = inquiry.suite.of(engine)
    return Build(
        folder=str(inquiry.known[engine.model].folder),
        max_tokens=max((case.prompt + case.tokens for case in cases), default=1),
        max_requests=max((case.requests for case in cases), default=1),
        seed=inquiry.suite.seed,
    )


def _started(inquiry: _Inquiry, process: EngineProcess) -> None:
    earlier = inquiry.runs.get(process.engine.name)
    process.started()
    if earlier is not None:
        process.run = msgspec.structs.replace(process.run, cases=earlier.cases)
    inquiry.note(process.run)


def _untimed(inquiry: _Inquiry, folder: Path, process: EngineProcess) -> None:
    for case in _left(inquiry, process.engine):
        if not case.timed:
            _case(inquiry, process, case, folder)


def _case(inquiry: _Inquiry, process: EngineProcess, case: Case, folder: Path) -> None:
    reference = None
    if case.forced:
        known = inquiry.known[process.engine.model]
        reference = known.answers.get(f"{case.prompt}/{case.tokens}")
    kept = folder / f"{process.engine.name}.{case.name}.npz"
    done = process.ask(case, reference.tokens if reference else (), kept if reference else None)
    if done is not None:
        made = _compared(process.engine, case, done, reference, kept)
        process.run = msgspec.structs.replace(process.run, cases=(*process.run.cases, made))
    inquiry.note(process.run)


def _compared(
    engine: Engine, case: Case, done: Done, reference: Reference | None, kept: Path
) -> CaseRun:
    if reference is None:
        return done.case
    alike = likeness(
        done.best,
        reference.tokens,
        reference.logprobs,
        forced=done.was_forced,
        emitted=done.emitted,
    )
    rows = read_rows(kept)
    kept.unlink(missing_ok=True)
    if not done.was_forced:
        # After another token the two decode different texts.
        end = case.prompt + max(alike.positions - 1, 0)
        rows = {key: pair for key, pair in rows.items() if key[1] < end}
    prefill, decode = selections(engine.model, reference.rows, rows, case.prompt)
    return msgspec.structs.replace(
        done.case, likeness=msgspec.structs.replace(alike, prefill=prefill, decode=decode)
    )
