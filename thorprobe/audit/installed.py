# SPDX-License-Identifier: Apache-2.0
"""The Python sources of a vLLM: of this environment, of a wheel, or of a folder that holds them.

Nothing is imported, run or unpacked. Every file is untrusted: names, numbers and sizes are bounded.
"""

import hashlib
import importlib.util
import os
import zipfile
import zlib
from collections.abc import Iterator
from email.parser import Parser
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Protocol

from thorprobe.audit.gate_source import OPERATOR, read_gates
from thorprobe.audit.installed_records import SourceGate
from thorprobe.binary.container import check_directory
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.record import Record

PACKAGE = "vllm"

MAX_SOURCE = 2 << 20
"""Largest source file read, in bytes; vLLM's largest has about 170,000."""

MAX_TOTAL = 256 << 20
"""Most bytes of source read of one version, uncompressed."""

MAX_FILES = 50_000
"""Most files looked at; the vLLM 0.33.0 wheel has 5,802."""

_HINT = "give a vLLM wheel, an unpacked one, a site-packages folder or a source tree"


class Sources(Record, frozen=True, kw_only=True):
    """What was read: the gates, and the SHA-256 of each file that holds one.

    ``source`` names the wheel or says what was read, without its folder.
    """

    source: str
    version: str
    gates: tuple[SourceGate, ...]
    inputs: dict[str, str]


class _Tree(Protocol):
    """Where files of a package are, by their path relative to the package's parent."""

    source: str

    def version(self) -> str:
        """Return the version that the metadata beside it states, empty without."""
        ...

    def paths(self) -> Iterator[str]:
        """Yield the package's Python files."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a file, None where there is none."""
        ...


def here() -> Sources:
    """Read the vLLM that is installed in this environment.

    Raises CouldNotProbeError where there is none, UsageError for sources that are no Python.
    """
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        version = ""
    found = importlib.util.find_spec(PACKAGE)  # Finds a package without importing it.
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise CouldNotProbeError(
            "`--installed` was asked for, but there is no vLLM in this environment",
            "install thorprobe into the environment of the vLLM, or name it: `--sources WHEEL`",
        )
    return _read(_FolderTree(Path(places[0]).parent, "this environment", version))


def at(path: Path) -> Sources:
    """Read the vLLM at ``path``: a wheel, or a folder that holds ``vllm`` or is it.

    Raises UsageError for anything else, for a broken or oversized wheel, and for sources that are
    no Python.
    """
    if path.is_dir():
        root = path.parent if path.name == PACKAGE and not (path / PACKAGE).is_dir() else path
        if not (root / PACKAGE).is_dir():
            raise UsageError(f"`--sources {path}` was given, but that folder holds no vllm", _HINT)
        return _read(_FolderTree(root, "a folder", ""))
    try:
        if zipfile.is_zipfile(path):
            check_directory(path, path.stat().st_size)
        with zipfile.ZipFile(path) as archive:
            return _read(_WheelTree(archive, path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"`--sources {path}` cannot be read: {reason}", _HINT) from error
    # zipfile raises RuntimeError for an entry that is encrypted or packed by an unknown method.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"`--sources {path}` is no wheel that can be read: {str(error) or 'broken archive'}",
            _HINT,
        ) from error


def _read(tree: _Tree) -> Sources:
    def fetch(path: str) -> str | None:
        if not path.startswith(f"{PACKAGE}/"):
            return None
        data = tree.read(path)
        return None if data is None else _text(path, data)

    gates: list[SourceGate] = []
    inputs: dict[str, str] = {}
    total = 0
    for number, path in enumerate(tree.paths()):
        if number >= MAX_FILES:
            raise UsageError(f"{tree.source} has more than {MAX_FILES:,} source files", _HINT)
        data = tree.read(path) or b""
        total += len(data)
        if total > MAX_TOTAL:
            raise UsageError(f"{tree.source} has more than {MAX_TOTAL:,} B of sources", _HINT)
        if OPERATOR.encode() not in data:
            continue
        found = read_gates(path, _text(path, data), fetch)
        if found:
            gates += found
            inputs[path] = hashlib.sha256(data).hexdigest()
    return Sources(source=tree.source, version=tree.version(), gates=tuple(gates), inputs=inputs)


def _text(path: str, data: bytes) -> str:
    if len(data) > MAX_SOURCE:
        raise UsageError(f"`{path}` has more than {MAX_SOURCE:,} B, too many for a source", _HINT)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is no Python: it is not UTF-8", _HINT) from error


class _FolderTree:
    """A folder with ``vllm`` in it. Links to folders are not followed."""

    def __init__(self, root: Path, source: str, version: str) -> None:
        self._root = root
        self.source = source
        self._version = version

    def version(self) -> str:
        """Return the version that was given, or that of the one metadata folder beside it."""
        found = sorted(self._root.glob(f"{PACKAGE}-*.dist-info/METADATA"))
        if self._version or len(found) != 1:
            return self._version
        return _version(_head(found[0]))

    def paths(self) -> Iterator[str]:
        """Yield the Python files below ``vllm``, sorted folder by folder."""
        for folder, folders, names in os.walk(self._root / PACKAGE, followlinks=False):
            folders.sort()
            for name in sorted(names):
                if name.endswith(".py"):
                    yield (Path(folder) / name).relative_to(self._root).as_posix()

    def read(self, path: str) -> bytes | None:
        """Return a regular file inside the folder, cut one byte after what is too large."""
        place = self._root / path
        inside = place.resolve().is_relative_to(self._root.resolve())
        return _head(place) if inside and place.is_file() else None


def _head(place: Path) -> bytes:
    try:
        with place.open("rb") as file:
            return file.read(MAX_SOURCE + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"`{place.name}` cannot be read: {reason}", _HINT) from error


class _WheelTree:
    """A wheel, read where it is."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        entries = archive.infolist()
        if len(entries) > MAX_FILES:
            raise UsageError(f"`{path.name}` has more than {MAX_FILES:,} entries", _HINT)
        self._archive = archive
        self._entries = {entry.filename: entry for entry in entries}
        self.source = f"wheel {path.name}"
        if not any(name.startswith(f"{PACKAGE}/") for name in self._entries):
            raise UsageError(f"`{path.name}` is no vLLM wheel: it holds no vllm package", _HINT)

    def version(self) -> str:
        """Return the version of the wheel's metadata."""
        for name in self._entries:
            parts = PurePosixPath(name).parts
            if len(parts) == 2 and parts[0].startswith(f"{PACKAGE}-") and parts[1] == "METADATA":
                return _version(self.read(name) or b"")
        return ""

    def paths(self) -> Iterator[str]:
        """Yield the Python files of the package, sorted."""
        return (
            name
            for name in sorted(self._entries)
            if name.startswith(f"{PACKAGE}/") and name.endswith(".py")
        )

    def read(self, path: str) -> bytes | None:
        """Return an entry, cut one byte after what is too large, whatever size it states."""
        entry = self._entries.get(path)
        if entry is None:
            return None
        with self._archive.open(entry) as file:
            return file.read(MAX_SOURCE + 1)


def _version(text: bytes) -> str:
    found = Parser().parsestr(text.decode(errors="replace"), headersonly=True)
    return (found.get("Version") or "").strip()[:100]
