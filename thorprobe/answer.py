# SPDX-License-Identifier: Apache-2.0
"""One answer as one JSON file: the envelope that the commands without a store share.

``cluster-sweep`` and ``topk-arms`` keep JSON Lines, because a launch can kill them half-way; every
other command writes its whole answer at the end. Files are untrusted: size and schema are checked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from thorprobe import __version__
from thorprobe.errors import UsageError
from thorprobe.record import SCHEMA_NAME, SCHEMA_VERSION, Device, Origin, Record, SchemaTag, Tool

R = TypeVar("R")
S = TypeVar("S")

MAX_BYTES = 64 * 2**20
_HINT = "evidence is what `--json --output FILE` wrote; `thorprobe report FILE` renders it"


class Evidence(Record, Generic[R, S], frozen=True, kw_only=True):
    """One whole answer: ``results`` of type R and a ``summary`` of type S.

    ``device`` is None for an answer about files or about other evidence. ``inputs`` maps what the
    answer rests on to its SHA-256.
    """

    schema: SchemaTag = SchemaTag()
    tool: Tool = Tool(version=__version__)
    command: str
    argv: tuple[str, ...] = ()
    started: str
    ended: str = ""
    origin: Origin
    device: Device | None = None
    software: dict[str, str] = msgspec.field(default_factory=dict)
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    results: tuple[R, ...] = ()
    summary: S
    wall_s: float = 0.0
    exit_code: int = 0


@dataclass(frozen=True)
class Kind:
    """How one command's evidence is read and shown.

    ``type`` is the concrete ``Evidence[...]``; ``sheet`` makes a ``render.sheet.Sheet`` of it.
    """

    type: Any
    sheet: Callable[[Any], Any]


_KINDS: dict[str, str] = {
    "audit": "thorprobe.audit.page:KIND",
    "bench": "thorprobe.bench.page:KIND",
    "bench --calibrate": "thorprobe.bench.calibration_page:KIND",
    "bench --verify": "thorprobe.bench.verify_page:KIND",
    "claims": "thorprobe.render.claims:KIND",
    "explain": "thorprobe.explain.page:KIND",
    "inspect": "thorprobe.inspect.page:KIND",
    "model-topk": "thorprobe.qwen4exp.page:KIND",
    "model-topk --engine": "thorprobe.vllm.engine_page:KIND",
    "oracle": "thorprobe.oracle.page:KIND",
    "report": "thorprobe.oracle.closing_report_page:KIND",
    "topk-arms --through-model": "thorprobe.qwen4exp.through_page:KIND",
}
"""Where the ``Kind`` of each command is: ``module:attribute``, imported when it is needed."""


def kind(command: str) -> Kind:
    """Return how a command's evidence is read and shown. Raises UsageError for an unknown one."""
    if command not in _KINDS:
        raise UsageError(
            f"the evidence is of `{command}`, which is no command of this thorprobe",
            f"the commands with evidence files are {', '.join(sorted(_KINDS))}",
        )
    module, _, attribute = _KINDS[command].partition(":")
    found: Kind = getattr(import_module(module), attribute)
    return found


def is_evidence(path: Path) -> bool:
    """Say whether a file looks like one JSON answer, rather than a store of JSON Lines."""
    try:
        with path.open("rb") as file:
            return file.readline(4096).strip() == b"{"
    except OSError:
        return False


def read(path: Path) -> Any:
    """Read and check one answer.

    Raises UsageError, naming the file, for a missing, foreign, oversized or broken one, and for one
    written by a newer schema.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(
                f"`{path}` has {size:,} B; evidence has at most {MAX_BYTES:,} B", _HINT
            )
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"`{path}` cannot be read: {reason}", _HINT) from error
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.schema.name != SCHEMA_NAME:
            raise UsageError(f"`{path}` is no evidence of thorprobe", _HINT)
        if head.schema.version > SCHEMA_VERSION:
            raise UsageError(
                f"`{path}` has schema {head.schema.version}, this thorprobe reads up to "
                f"{SCHEMA_VERSION}",
                "install a newer thorprobe",
            )
        return msgspec.json.decode(data, type=kind(head.command).type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"`{path}` is no evidence of thorprobe: {error}", _HINT) from error


class _Head(Record, frozen=True, kw_only=True):
    schema: SchemaTag
    command: str


def sheets(documents: Sequence[Any]) -> list[Any]:
    """Return the sheet of each answer."""
    return [kind(document.command).sheet(document) for document in documents]
