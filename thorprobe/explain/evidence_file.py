# SPDX-License-Identifier: Apache-2.0
"""Takes a launch out of a file: a cubin's kernel, or the worst launch of a store."""

from pathlib import Path

import msgspec

from thorprobe.binary.cubin import KernelFacts, contents
from thorprobe.errors import UsageError
from thorprobe.explain.records import Told
from thorprobe.judge.catalogue import FAILING, SEVERITY, cause
from thorprobe.judge.cause import judge, settled
from thorprobe.judge.cause_refused import launch_facts
from thorprobe.record import Device, Outcome
from thorprobe.run.store import read

MAX_TEXT = 8 << 20
"""Most bytes of a log that are read: its last part, where the error is."""

_ELF = b"\x7fELF"
_STORE = b'{"type":'


def is_cubin(data: bytes) -> bool:
    """Say whether a file is an ELF file, by its first bytes."""
    return data.startswith(_ELF)


def is_store(data: bytes) -> bool:
    """Say whether a file is a store of records."""
    return data.lstrip().replace(b" ", b"").startswith(_STORE)


def head(path: Path) -> bytes:
    """Return the first bytes of a file. Raises UsageError for one that cannot be read."""
    return _read(path, 4_096, last=False)


def log(path: Path) -> str:
    """Return the text of a log, its last part of a long one. Raises UsageError."""
    return _read(path, MAX_TEXT, last=True).decode("utf-8", "replace")


def kernel(path: Path, name: str) -> KernelFacts:
    """Return what a cubin says of the kernel whose symbol holds ``name``.

    Raises UsageError where none or several do; ThorprobeError for a cubin that is broken.
    """
    _, found = contents(path.read_bytes())
    fitting = [k for k in found if name == k.function] or [k for k in found if name in k.function]
    if len(fitting) == 1:
        return fitting[0]
    told = ", ".join(k.function for k in (fitting or found)[:8]) or "none"
    raise UsageError(
        f"`{path.name}` holds {len(fitting)} kernels of the name {name!r}"
        if name
        else f"`{path.name}` holds {len(found)} kernels and none was named",
        f"name one with `--kernel NAME`; it holds {told}",
    )


def worst(path: Path) -> tuple[Told, str | None]:
    """Return the worst launch of a store and the cause that it is judged to have.

    Raises UsageError for a store that cannot be read.
    """
    recording = read(path)
    device = recording.header.device
    judged = [judge(outcome, device) for outcome in recording.outcomes]
    failed = [one for one in judged if settled(one) in FAILING or one.cause is not None]
    if not failed:
        return Told(capability=device.capability), None
    found = max(failed, key=_rank)
    return told_of(found, device), found.cause


def told_of(outcome: Outcome, device: Device) -> Told:
    """Return what an outcome tells of its launch."""
    seen, facts = outcome.observed, launch_facts(outcome, device)
    hosted = seen.max_active_range
    if seen.max_active is not None and (facts.size or 1) > 1:
        hosted = (seen.max_active, seen.max_active)
    return Told(
        launch=msgspec.structs.replace(facts, hosted=hosted, sms=device.available_sms),
        capability=device.capability,
        code=seen.launch_code or next((c.code for c in outcome.calls if c.code), seen.launch_code),
        sync_code=seen.sync_code,
        observed_cluster=seen.cluster_seen,
        wrong_rows=seen.check.wrong_rows if seen.check else None,
        said=tuple(f"{c.call}: {c.code} {c.name}" for c in outcome.calls if c.code),
        remarks=(f"launch {outcome.id}", *((outcome.note,) if outcome.note else ())),
    )


def _rank(outcome: Outcome) -> tuple[int, int]:
    number = cause(outcome.cause or "undetermined").number
    return SEVERITY.index(settled(outcome)), -number


def _read(path: Path, most: int, *, last: bool) -> bytes:
    try:
        with path.open("rb") as file:
            if last:
                file.seek(max(0, path.stat().st_size - most))
            return file.read(most)
    except OSError as error:
        raise UsageError(
            f"`{path}` cannot be read: {(error.strerror or str(error)).lower()}",
            "give an error in quotes, a file, or `-` for standard input",
        ) from error
