# SPDX-License-Identifier: Apache-2.0
"""Reads evidence files for questions about evidence: stores of launches, and single answers.

Files are untrusted. Stores are judged anew: a verdict that was written into a file counts nothing.
"""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from thorprobe import answer as evidence
from thorprobe.errors import UsageError
from thorprobe.oracle.evidence_file import (
    AUDIT,
    ENGINE,
    MODEL,
    THROUGH_MODEL,
    EngineFacts,
    EvidenceFile,
    EvidenceLine,
    ModelFacts,
)
from thorprobe.plan.qwen4exp import TINY
from thorprobe.record import Device, Origin, Record
from thorprobe.summary import ArmsSummary, SweepSummary

ANSWERS = (AUDIT, ENGINE, MODEL, THROUGH_MODEL)
"""Commands whose single answers bear on a row, besides the stores of launches."""

MAX_FILES = 1_000
_HINT = "evidence is what `--store FILE` or `--json --output FILE` wrote"


class _Head(Record, frozen=True, kw_only=True):
    command: str = ""


def read_all(places: Iterable[Path]) -> tuple[EvidenceFile, ...]:
    """Read files, and of folders every .json and .jsonl file, in order of their names.

    Answers that do not bear on an oracle are passed over. Raises UsageError for a place that is not
    there, a file that is no evidence, and two files of one name that differ.
    """
    found: dict[str, EvidenceFile] = {}
    for path in _files(places):
        exhibit = _read(path)
        if exhibit is None:
            continue
        held = found.setdefault(exhibit.line.name, exhibit)
        if held.line.sha256 != exhibit.line.sha256:
            raise UsageError(
                f"two files named `{path.name}` were given, and they differ: evidence is named by "
                "its file",
                "rename one of them",
            )
    return tuple(sorted(found.values(), key=lambda exhibit: exhibit.line.name))


def _files(places: Iterable[Path]) -> list[Path]:
    paths: list[Path] = []
    for place in places:
        if place.is_dir():
            paths += sorted(p for p in place.iterdir() if p.suffix in {".json", ".jsonl"})
        else:
            paths.append(place)
    if len(paths) > MAX_FILES:
        raise UsageError(
            f"{len(paths):,} evidence files were given; one answer rests on at most {MAX_FILES:,}",
            "name the files, or a folder with fewer",
        )
    return paths


def _read(path: Path) -> EvidenceFile | None:
    if path.exists() and not path.is_file():  # A pipe or device has no size to bound.
        raise UsageError(f"`{path}` is no regular file, and evidence is one", _HINT)
    if not evidence.is_evidence(path):
        return _of_store(path)
    return _of_answer(path) if _command(path) in ANSWERS else None


def _command(path: Path) -> str:
    try:
        if path.stat().st_size > evidence.MAX_BYTES:
            evidence.read(path)  # Refuses it, with the sizes.
        return msgspec.json.decode(path.read_bytes(), type=_Head).command
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"`{path}` is no evidence of thorprobe: {error}", _HINT) from error


def _of_store(path: Path) -> EvidenceFile:
    from thorprobe.cli.measure import of_recording
    from thorprobe.run.store import read

    document = of_recording(read(path))
    device, summary = document.device, document.summary
    arms = summary if isinstance(summary, ArmsSummary) else None
    return EvidenceFile(
        line=_line(path, document.command, document.origin, device, summary.finding),
        device=device.name,
        profile=device.profile,
        partition=device.partition,
        capability=device.capability,
        dispatched=arms.capability if arms else device.capability,
        wall_s=document.wall_s,
        sweep=summary if isinstance(summary, SweepSummary) else None,
        arms=arms,
    )


def _of_answer(path: Path) -> EvidenceFile:
    answer = evidence.read(path)
    device: Device | None = answer.device
    finding = str(getattr(answer.summary, "finding", ""))
    # An answer about a CPU has no device, or one without a compute capability.
    gpu = device if device is not None and device.capability != (0, 0) else None
    return EvidenceFile(
        line=_line(path, answer.command, answer.origin, device, finding),
        device=gpu.name if gpu else "",
        profile=gpu.profile if gpu else "",
        partition=gpu.partition if gpu else "",
        capability=gpu.capability if gpu else (0, 0),
        wall_s=answer.wall_s,
        model=_model(answer) if answer.command == MODEL else None,
        engines=tuple(map(_engine, answer.results)) if answer.command == ENGINE else (),
    )


def _model(answer: Any) -> ModelFacts:
    """Take the facts by the names that the JSON contract gives them."""
    summary, options = answer.summary, answer.options
    agreement = getattr(summary, "agreement", None)
    return ModelFacts(
        context_tokens=summary.context_tokens,
        tiny=options.get("size") == TINY.name and not options.get("checkpoint"),
        past_budget=getattr(agreement, "past_budget", None),
        wrong_rows=getattr(summary, "wrong_rows", 0),
        rungs=dict(summary.rungs),
        falls=getattr(summary, "falls", 0),
        sets_equal=summary.sets_equal,
        tokens_equal=summary.tokens_equal,
        transformers=answer.software.get("transformers", ""),
    )


def _engine(run: Any) -> EngineFacts:
    """Take the facts of one engine by the names that the JSON contract gives them."""
    untimed = [case for case in run.cases if case.times is None]
    checks = [check for case in untimed for check in case.checks.values()]
    alike = [case.likeness for case in untimed if case.likeness is not None]
    repeats = [case.repeats for case in untimed if case.repeats is not None]
    death = run.death
    died = ""
    # An end outside of the selection says nothing of it.
    if death is not None and death.last is not None:
        rows = f"{death.last.rows:,} row{'' if death.last.rows == 1 else 's'}"
        died = f"in {death.last.op} of {rows}: {death.text}"
    return EngineFacts(
        version=run.versions.get("vllm", ""),
        drop_in=run.drop_in,
        graphs=run.graphs,
        partition=run.partition,
        prompts=tuple(sorted({case.prompt_tokens for case in untimed})),
        rows=sum(check.rows for check in checks),
        wrong_rows=sum(check.wrong_rows for check in checks),
        positions=sum(one.positions for one in alike),
        ties=sum(one.ties for one in alike),
        other_tokens=sum(one.other for one in alike),
        wrong_sets=sum(one.prefill.wrong + one.decode.wrong for one in alike),
        runs=max((one.runs for one in repeats), default=0),
        sequences=max((one.sequences for one in repeats), default=0),
        traces=max((one.traces for one in repeats), default=0),
        died=died,
    )


def _line(
    path: Path, command: str, origin: Origin, device: Device | None, finding: str
) -> EvidenceLine:
    digest = sha256(path.read_bytes()).hexdigest()
    partition = f" ({device.partition})" if device and device.partition else ""
    nobody = "several devices" if command == AUDIT else "CPU"
    return EvidenceLine(
        id=f"{path.name}@{digest[:12]}",
        name=path.name,
        sha256=digest,
        command=command,
        origin=origin,
        device=f"{device.name}{partition}" if device else nobody,
        finding=finding,
    )
