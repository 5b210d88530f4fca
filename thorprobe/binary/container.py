# SPDX-License-Identifier: Apache-2.0
"""Where device code comes from: a wheel, a folder, or one binary; opened as untrusted input.

A wheel is never unpacked: each library in it is streamed, within bounds, to a file of the cache.
"""

import email
import hashlib
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from thorprobe.errors import UsageError

ELF = b"\x7fELF"
FATBIN = b"\x50\xed\x55\xba"
"""First bytes of a fatbin (its magic number 0xBA55ED50, little endian; made by nvcc 13.0)."""

PTX = ".ptx"
"""Suffix of a PTX text, which has no bytes of its own to begin with."""

MAX_FILE = 8 << 30
"""Largest file opened, in bytes."""

MAX_MEMBER = 2 << 30
"""Largest library taken from a wheel, in bytes unpacked."""

MAX_ENTRIES = 200_000
"""Most entries of a wheel or a folder; the vLLM 0.33.0 wheels have 5,802."""

MAX_DIRECTORY = 64 << 20
"""Largest zip directory read, in bytes."""

MAX_RATIO = 200
"""Most that a library in a wheel may be compressed: those of vLLM 0.33.0 reach 4."""

MAX_UNPACKED = 16 << 30
"""Most that all libraries of a wheel may have in all, in bytes unpacked."""

_MAX_METADATA = 4 << 20
_CHUNK = 1 << 20
_PACKED_AS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_END, _END_SIZE, _MAX_COMMENT = b"PK\x05\x06", 22, 65_535
_HINT = "give a wheel, a shared library, a cubin, a fatbin or a folder that holds such"
_DAMAGED = "the file is truncated or damaged: fetch it again"
_MADE_UP = "no wheel looks like that; nothing of it was unpacked"


@dataclass(frozen=True)
class Binary:
    """One file on disk that may hold device code; ``shown`` names it without its folder."""

    path: Path
    shown: str


@dataclass(frozen=True)
class Container:
    """What the user named. ``sha256`` is of the file, or of the names and hashes in a folder."""

    path: Path
    name: str
    sha256: str
    bytes: int
    package: str = ""
    version: str = ""
    members: tuple[str, ...] = ()
    kind: str = "binary"

    def binaries(self, folder: Path) -> Iterator[Binary]:
        """Yield each binary; one of a wheel is in ``folder`` and only until the next is asked.

        Raises UsageError for a wheel that is damaged or unpacks to more than it says.
        """
        if self.kind == "wheel":
            yield from _streamed(self.path, self.members, folder)
        elif self.kind == "folder":
            yield from (Binary(self.path / member, member) for member in self.members)
        else:
            yield Binary(self.path, self.name)


def open_container(path: Path) -> Container:
    """Look at what the user named, read its hash, and list the binaries in it.

    Raises UsageError for what is not there, is no regular file, is too large, or is none of these.
    """
    try:
        real = path.resolve(strict=True)
        status = real.stat()
        if stat.S_ISDIR(status.st_mode):
            return _folder(real)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"`{path.name}` is neither a file nor a folder", _HINT)
        if status.st_size > MAX_FILE:
            raise UsageError(
                f"`{path.name}` has {status.st_size:,} B; at most {MAX_FILE:,} B are read", _HINT
            )
        with real.open("rb") as file:
            start = file.read(4)
        if not start:
            raise UsageError(f"`{path.name}` was to be inspected, but it is empty", _HINT)
        if start in _ZIP:
            return _wheel(real, status.st_size)
        if start not in (ELF, FATBIN) and real.suffix != PTX:
            raise UsageError(
                f"`{path.name}` was to be inspected, but it begins like no wheel, library, cubin "
                "or fatbin",
                _HINT,
            )
        digest = sha256(real)
    except (OSError, RuntimeError) as error:  # A loop of links is a RuntimeError in Python 3.12.
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(
            f"`{path}` was to be inspected, but cannot be read: {reason}", _HINT
        ) from error
    return Container(path=real, name=path.name, sha256=digest, bytes=status.st_size)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _carries_code(name: str) -> bool:
    base = PurePosixPath(name).name
    return base.endswith((".so", ".cubin", ".fatbin")) or ".so." in base


def _folder(root: Path) -> Container:
    """Find the binaries below a folder; links are not followed, so that none can lead around."""
    found: dict[str, str] = {}
    size = seen = 0
    for where, folders, files in os.walk(root):
        folders.sort()
        seen += len(folders) + len(files)
        if seen > MAX_ENTRIES:
            raise UsageError(
                f"`{root.name}` holds more than {MAX_ENTRIES:,} entries", "name a folder below it"
            )
        for name in sorted(files):
            path = Path(where) / name
            status = path.lstat()
            if not (_carries_code(name) and stat.S_ISREG(status.st_mode)):
                continue
            if status.st_size > MAX_FILE or not _begins_well(path):
                continue
            found[path.relative_to(root).as_posix()] = sha256(path)
            size += status.st_size
    if not found:
        raise UsageError(
            f"`{root.name}` was to be inspected, but no library, cubin or fatbin is in it", _HINT
        )
    listed = "\n".join(f"{digest}  {name}" for name, digest in sorted(found.items()))
    return Container(
        path=root,
        name=root.name,
        sha256=hashlib.sha256(listed.encode()).hexdigest(),
        bytes=size,
        members=tuple(sorted(found)),
        kind="folder",
    )


def _begins_well(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in (ELF, FATBIN)


def _wheel(path: Path, size: int) -> Container:
    check_directory(path, size)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            _check_entries(path.name, entries)
            package, version = _metadata(archive, entries)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError) as error:
        raise _broken(path.name, error) from error
    members = tuple(e.filename for e in entries if _carries_code(e.filename) and not e.is_dir())
    if not members:
        raise UsageError(
            f"`{path.name}` was to be inspected, but no library, cubin or fatbin is in it", _HINT
        )
    return Container(
        path=path,
        name=path.name,
        sha256=sha256(path),
        bytes=size,
        package=package,
        version=version,
        members=members,
        kind="wheel",
    )


def _broken(name: str, error: Exception) -> UsageError:
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return UsageError(f"wheel `{name}` was to be inspected, but it is damaged: {reason}", _DAMAGED)


def check_directory(path: Path, size: int) -> None:
    """Bound the directory before the zip library reads it whole.

    Raises UsageError for one that claims more than the file or the bound has, or has no end.
    """
    with path.open("rb") as file:
        file.seek(max(0, size - _END_SIZE - _MAX_COMMENT))
        tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        raise UsageError(
            f"wheel `{path.name}` was to be inspected, but its end is missing", _DAMAGED
        )
    claimed = int.from_bytes(tail[at + 12 : at + 16], "little")
    if claimed > min(size, MAX_DIRECTORY):
        raise UsageError(
            f"wheel `{path.name}` was to be inspected, but its directory claims {claimed:,} B",
            _DAMAGED,
        )


def _check_entries(name: str, entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise UsageError(f"wheel `{name}` has {len(entries):,} entries", _MADE_UP)
    unpacked = 0
    for entry in entries:
        inside = entry.filename
        parts = PurePosixPath(inside).parts
        if inside.startswith("/") or ".." in parts or "\\" in inside or ":" in inside[:3]:
            raise UsageError(
                f"wheel `{name}` holds an entry that leads out of it: {inside!r:.100}", _MADE_UP
            )
        if not _carries_code(inside):
            continue
        if entry.flag_bits & 1 or entry.compress_type not in _PACKED_AS:
            raise UsageError(
                f"wheel `{name}` holds `{inside}`, packed in a way that no wheel is", _MADE_UP
            )
        unpacked += entry.file_size
        ratio = entry.file_size // max(1, entry.compress_size)
        if entry.file_size > MAX_MEMBER or ratio > MAX_RATIO or unpacked > MAX_UNPACKED:
            raise UsageError(
                f"wheel `{name}` holds `{inside}`, which unpacks from {entry.compress_size:,} to "
                f"{entry.file_size:,} B",
                f"a library may have {MAX_MEMBER:,} B and {MAX_RATIO} times its packed size, and "
                f"all of them {MAX_UNPACKED:,} B",
            )


def _metadata(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> tuple[str, str]:
    """Read name and version of the package; empty where the wheel states none."""
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "METADATA":
            with archive.open(entry) as file:
                fields = email.message_from_bytes(file.read(_MAX_METADATA))
            return str(fields.get("Name", ""))[:100], str(fields.get("Version", ""))[:100]
    return "", ""


def _streamed(path: Path, members: tuple[str, ...], folder: Path) -> Iterator[Binary]:
    target = folder / "member"
    try:
        with zipfile.ZipFile(path) as archive:
            for member in members:
                with archive.open(member) as packed, target.open("wb") as plain:
                    shutil.copyfileobj(packed, plain, _CHUNK)
                yield Binary(target, member)
                target.unlink()
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError) as error:
        raise _broken(path.name, error) from error
