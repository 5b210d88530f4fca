# SPDX-License-Identifier: Apache-2.0
"""Where vLLM's library is: installed, in a wheel, in an unpacked folder, or a file of its own.

Nothing is imported or loaded here, and torch is not needed. Every file is untrusted.
"""

import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import struct
import sys
import zipfile
import zlib
from dataclasses import dataclass
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

import msgspec

from thorprobe.binary import cache
from thorprobe.binary.container import ELF, MAX_MEMBER, MAX_RATIO, open_container, sha256
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.record import Record

PACKAGE = "vllm"
FILE = "_C_stable_libtorch.abi3.so"
MEMBER = f"{PACKAGE}/{FILE}"
SIDECAR = ".origin.json"

_MACHINES = {62: "x86_64", 183: "aarch64"}
# e_machine of an ELF header (System V ABI, EM_X86_64 and EM_AARCH64).
_MAX_TEXT = 4 << 20
_CHUNK = 1 << 20
_HINT = f"give a vLLM wheel, or its library `{FILE}`"


class Origin(Record, frozen=True, kw_only=True):
    """What a file beside a library says of it: ``NAME.origin.json``.

    ``sha256`` is that of the library in ``wheel``, and ``pruned`` what this copy lacks.
    """

    wheel: str = ""
    sha256: str = ""
    pruned: str = ""


@dataclass(frozen=True)
class LibraryFile:
    """A library on disk. ``version`` is vLLM's, '' where nothing states it.

    ``sha256`` is of this file; ``of`` that of the original where a sidecar says that this is a copy
    which lacks something (``pruned``). ``wheel`` and its SHA-256 name where it was taken from.
    """

    path: Path
    version: str
    sha256: str
    of: str = ""
    pruned: str = ""
    wheel: str = ""
    wheel_sha256: str = ""

    @property
    def inputs(self) -> dict[str, str]:
        """Return what is to be recorded: names without folders, and SHA-256."""
        found = {FILE: self.sha256}
        if self.of:
            found[f"{FILE} as released (this copy: {self.pruned})"] = self.of
        if self.wheel and self.wheel_sha256:
            found[self.wheel] = self.wheel_sha256
        return found


def find(source: str) -> LibraryFile:
    """Find the library: of the installed vLLM where ``source`` is '', else at that path.

    Raises CouldNotProbeError where no vLLM is installed, UsageError for a path that is not there,
    is no wheel or library, is damaged, holds none, or is built for another machine.
    """
    if not source:
        return _installed()
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            return _in_folder(path)
        if not path.is_file():
            raise UsageError(f"`{path.name}` was asked for, but there is no such file", _HINT)
        with path.open("rb") as file:
            start = file.read(20)
        return _alone(path.resolve()) if start[:4] == ELF else _from_wheel(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"`{path.name}` cannot be read: {reason}", _HINT) from error


def _installed() -> LibraryFile:
    package = _package()
    library = package / FILE if package is not None else None
    if library is None:
        raise CouldNotProbeError(
            "vLLM's own op was asked for, but there is no vLLM in this environment",
            "install thorprobe into the environment of the vLLM, or name a wheel or its library",
        )
    if not library.is_file():
        raise CouldNotProbeError(
            f"vLLM's own op was asked for, but the vLLM of this environment has no `{FILE}`",
            "it is a build without CUDA, or of a version that keeps its ops elsewhere: name a "
            "wheel of 0.29 or later",
        )
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        version = ""
    return _known(library.resolve(), version)


def _package() -> Path | None:
    """Return the folder of the installed package, found without importing it.

    What lies in the current folder is not installed: people run thorprobe in folders of strangers'
    files, and a library that is loaded is run.
    """
    here = Path.cwd().resolve()
    away = [entry for entry in sys.path if entry and Path(entry).resolve() != here]
    try:
        found = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        found = None
    for spec in (found, importlib.machinery.PathFinder.find_spec(PACKAGE, away)):
        # A folder that is only named vllm is found too, and has no origin.
        places = list(spec.submodule_search_locations or ()) if spec and spec.origin else []
        if places and Path(places[0]).resolve().parent != here:
            return Path(places[0])
    return None


def _in_folder(folder: Path) -> LibraryFile:
    for library in (folder / MEMBER, folder / FILE):
        if library.is_file():
            return _alone(library.resolve())
    raise UsageError(f"folder `{folder.name}` was named, but no `{FILE}` is in it", _HINT)


def _alone(path: Path) -> LibraryFile:
    stated = sorted(path.parent.parent.glob(f"{PACKAGE}-*.dist-info/METADATA"))
    version = ""
    if path.parent.name == PACKAGE and len(stated) == 1:
        with stated[0].open("rb") as file:
            version = _version(file.read(_MAX_TEXT))
    return _known(path, version)


def _known(path: Path, version: str) -> LibraryFile:
    """Return a library with what its sidecar says of it."""
    _check_machine(path)
    origin = _origin(path)
    parts = Path(origin.wheel).name.split("-")
    named = parts[1] if len(parts) > 2 and parts[0] == PACKAGE else ""
    return LibraryFile(
        path=path,
        version=version or named,
        sha256=sha256(path),
        of=origin.sha256,
        pruned=origin.pruned,
        wheel=Path(origin.wheel).name,
    )


def _origin(path: Path) -> Origin:
    beside = path.with_name(path.name + SIDECAR)
    if not beside.is_file():
        return Origin()
    with beside.open("rb") as file:
        text = file.read(_MAX_TEXT)
    try:
        return msgspec.json.decode(text, type=Origin)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"`{beside.name}` should say where `{path.name}` comes from, but cannot be read: "
            f"{error}",
            "remove it, or write it anew",
        ) from error


def _check_machine(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(20)
    if len(header) < 20 or header[:4] != ELF:
        raise UsageError(f"`{path.name}` was to be loaded, but it is no library", _HINT)
    built = _MACHINES.get(struct.unpack_from("<H", header, 18)[0], "another machine")
    if built != platform.machine():
        raise UsageError(
            f"`{path.name}` was to be loaded, but it is built for {built} and this is "
            f"{platform.machine()}",
            "name the wheel of this machine; `thorprobe inspect FILE` reads any",
        )


def _from_wheel(path: Path) -> LibraryFile:
    container = open_container(path)  # Bounds the archive, and refuses what is none.
    if MEMBER not in container.members:
        raise UsageError(
            f"`{path.name}` was named, but it holds no `{MEMBER}`",
            "name the vLLM wheel of a release from 0.29 on, built for CUDA",
        )
    try:
        with zipfile.ZipFile(container.path) as archive, archive.open(MEMBER) as packed:
            held, digest = _placed(packed)  # type: ignore[arg-type]
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UsageError(
            f"wheel `{path.name}` was to be opened, but it is damaged: {error}", "fetch it again"
        ) from error
    _check_machine(held)
    return LibraryFile(
        path=held,
        version=container.version,
        sha256=digest,
        wheel=path.name,
        wheel_sha256=container.sha256,
    )


def _placed(packed: BinaryIO) -> tuple[Path, str]:
    """Stream a library into the cache, under its own hash, and return both."""
    digest, size = hashlib.sha256(), 0
    with cache.workspace() as folder:
        plain = folder / "library"
        with plain.open("wb") as file:
            while part := packed.read(_CHUNK):
                size += len(part)
                if size > MAX_MEMBER:
                    raise UsageError(
                        f"the library unpacks to more than {MAX_MEMBER:,} B",
                        f"at most {MAX_MEMBER:,} B and {MAX_RATIO} times its packed size are taken",
                    )
                digest.update(part)
                file.write(part)
        name = digest.hexdigest()
        kept = cache.path(f"library-{name}.so")
        if not (kept.is_file() and sha256(kept) == name):
            os.replace(plain, kept)  # noqa: PTH105  one step, so that no reader sees half of it
    return kept, name


def _version(text: bytes) -> str:
    found = Parser().parsestr(text.decode(errors="replace"), headersonly=True)
    return (found.get("Version") or "").strip()[:100]
