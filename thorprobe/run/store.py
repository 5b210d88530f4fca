# SPDX-License-Identifier: Apache-2.0
"""The evidence store: JSON Lines, a header, one outcome a line as it ends, a footer.

Stores that are read are untrusted: size and line length are bounded and every line is checked
against the schema. A last line without its newline is a record that was in flight when the run was
killed; it is dropped, and nothing else is.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from thorprobe.errors import StoreError, UsageError
from thorprobe.record import SCHEMA_NAME, SCHEMA_VERSION, Footer, Header, Outcome, Record

if TYPE_CHECKING:
    from io import RawIOBase

MAX_BYTES = 256 * 2**20
MAX_LINE = 4 * 2**20

_decoder = msgspec.json.Decoder(Header | Outcome | Footer)
_encoder = msgspec.json.Encoder()


class Recording(Record, frozen=True, kw_only=True):
    """What a store holds. ``footer`` is None for a run that did not finish.

    ``complete_bytes`` is the length of the part that ends in whole records, footer left out.
    """

    header: Header
    outcomes: tuple[Outcome, ...]
    footer: Footer | None
    complete_bytes: int


def read(path: Path) -> Recording:
    """Read and check a store.

    Raises UsageError, naming file and line, for a missing, foreign, oversized or broken one, and
    for one written by a newer schema.
    """
    hint = "a store is what `--store FILE` wrote; `thorprobe report` renders it"
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"`{path}` has {size:,} B; a store has at most {MAX_BYTES:,} B", hint)
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {_reason(error)}", hint) from error
    whole, newline, _ = data.rpartition(b"\n")
    header: Header | None = None
    footer: Footer | None = None
    outcomes: dict[str, Outcome] = {}
    complete = 0
    for number, line in enumerate(whole.split(b"\n") if newline else [], start=1):
        record = _decode(path, number, line, hint)
        if number == 1:
            if not isinstance(record, Header) or record.schema.name != SCHEMA_NAME:
                break
            header = record
        elif isinstance(record, Outcome):
            outcomes.setdefault(record.id, record)
        elif isinstance(record, Footer):
            footer = record
        else:
            raise UsageError(f"`{path}` line {number} is a second header", hint)
        if not isinstance(record, Footer):
            complete += len(line) + 1
    if header is None:
        raise UsageError(f"`{path}` is no thorprobe store: its first line is no header", hint)
    return Recording(
        header=header, outcomes=tuple(outcomes.values()), footer=footer, complete_bytes=complete
    )


def _decode(path: Path, number: int, line: bytes, hint: str) -> Header | Outcome | Footer:
    if len(line) > MAX_LINE:
        raise UsageError(f"`{path}` line {number} is longer than {MAX_LINE:,} B", hint)
    try:
        if number == 1:
            _check_version(path, line)
        record: Header | Outcome | Footer = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"`{path}` line {number} is no thorprobe record: {error}", hint) from error
    return record


def _check_version(path: Path, line: bytes) -> None:
    found = msgspec.json.decode(line)
    schema = found.get("schema") if isinstance(found, dict) else None
    version = schema.get("version") if isinstance(schema, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UsageError(
            f"`{path}` has schema version {version}; this thorprobe reads up to {SCHEMA_VERSION}",
            "use the thorprobe that wrote it, or a newer one",
        )


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


class Store:
    """An open store: each record is written and flushed as it arrives.

    Raises StoreError where the disk is full or the file goes away; what is written stays.
    """

    def __init__(self, path: Path, header: Header, kept: Recording | None = None) -> None:
        """Create ``path`` with a header, or go on behind the whole records of ``kept``.

        Raises UsageError where it cannot be created, or exists and is not being resumed.
        """
        self.path = path
        try:
            if kept is None:
                if path.is_dir():
                    raise UsageError(
                        f"`--store {path}` was asked for, but that is a folder",
                        f"name a file in it, such as `--store {path / 'run.jsonl'}`",
                    )
                if path.exists() and path.stat().st_size:
                    raise UsageError(
                        f"`--store {path}` was asked for, but that file exists already",
                        f"`--resume {path}` goes on with it; or choose another name",
                    )
                path.parent.mkdir(parents=True, exist_ok=True)
                # Unbuffered: closing a buffered file writes once more what a full disk refused.
                self._file: RawIOBase = path.open("wb", buffering=0)
            else:
                self._file = path.open("r+b", buffering=0)
                self._file.truncate(kept.complete_bytes)
                self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise UsageError(
                f"`{path}` cannot be written: {_reason(error)}",
                "choose a place that you may write to with `--store FILE`",
            ) from error
        if kept is None:
            self.write(header)

    def write(self, record: Header | Outcome | Footer) -> None:
        """Append one record and hand it to the operating system."""
        left = memoryview(_encoder.encode(record) + b"\n")
        try:
            while left:  # A write may be short where the disk is about to be full.
                left = left[self._file.write(left) or 0 :]
        except OSError as error:
            raise StoreError(
                f"`{self.path}` cannot be written any further: {_reason(error)}",
                f"every record before this one is kept; make room, then `--resume {self.path}`",
            ) from error

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        try:
            self._file.close()
        except OSError:
            if error is None:
                raise
