# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's cuobjdump, asked for the images of one binary, within bounds of time, memory and disk.

The binaries are untrusted and so is what the tool makes of them: it runs in a folder of its own,
under limits of the kernel, and is ended when it does not finish.
"""

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

from thorprobe.binary import child
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.record import Record

INSTALL_LINE = 'pip install "nvidia-cuda-cuobjdump>=13"'

DEADLINE_S = 120.0
"""Longest that one call may take; the largest library of the vLLM 0.33.0 wheels takes 5 s."""

MEMORY = 896 << 20
"""Address space of the tool in bytes. It holds every image of a call unpacked: 790 MB for that
library in one call, 244 MB an architecture. With this process it stays below 1 GB."""

MAX_FILE = 256 << 20
"""Largest file that the tool may write, in bytes."""

MAX_WRITTEN = 4 << 30
"""Most that one call may write in all, in bytes."""

MAX_OUTPUT = 64 << 20
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}
_POLL_S = 0.02
_BLOCK = re.compile(
    r"^Fatbin (elf|ptx) code:\s*\n=+\s*\narch = (\w+)\s*\ncode version = \[(\d+),(\d+)\]",
    re.MULTILINE,
)
_KNOWN = re.compile(r"'(sm_\d+)[af]?'")
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)")
_NO_CODE = "does not contain device code"
_NO_MEMORY = "Memory allocation failure"
_NOTHING_FOUND = re.compile(r"No (ELF|PTX) file found")


class Listed(Record, frozen=True, kw_only=True):
    """One image as cuobjdump lists it: ``arch`` such as ``sm_110f``, ``isa`` of PTX."""

    ptx: bool
    arch: str
    isa: str = ""


class NoDeviceCodeError(UsageError):
    """The binary holds no device code at all, or for ``why`` none that can be read."""

    def __init__(self, shown: str, why: str = "it holds no device code") -> None:
        """Name what the user gave."""
        super().__init__(
            f"`{shown}` was to be inspected, but {why}",
            "give a library, cubin or fatbin built for CUDA, or the wheel that carries it",
        )


class _OutOfMemoryError(UsageError):
    """The tool did not get the memory that it asked for."""


@lru_cache(maxsize=1)
def tool() -> Path:
    """Return where cuobjdump is: a wheel's, a conda environment's or a CUDA toolkit's.

    Raises CouldNotProbeError, with the line that installs it, where there is none.
    """
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:  # Older than 1.4, or not here.
        found = shutil.which("cuobjdump", path=child.environment().get("PATH", os.defpath))
    else:
        found = find_nvidia_binary_utility("cuobjdump")
    if found is None:
        raise CouldNotProbeError(
            "the images in a library are read with NVIDIA's cuobjdump, which is not here",
            f"`{INSTALL_LINE}`, on x86-64 and aarch64 (Jetson included), or set CUDA_HOME",
        )
    return Path(found).resolve()


@lru_cache(maxsize=1)
def version() -> str:
    """Return the tool's version, such as ``13.5.37``; raises as ``tool`` does."""
    said = _said("--version")
    found = _RELEASE.search(said)
    return found[1] if found else "unknown"


def listing(binary: Path, shown: str, folder: Path) -> tuple[Listed, ...]:
    """List the images of a binary, in its order; ``shown`` is what the user calls it.

    Where listing them together needs too much memory, each architecture that the tool knows is
    listed alone. Raises NoDeviceCodeError for a binary without any, UsageError for a broken one.
    """
    try:
        return _parsed(_run([], binary, shown, folder))
    except _OutOfMemoryError:
        pass
    images: list[Listed] = []
    for arch in _known_architectures():
        images += _parsed(_run(["--gpu-architecture", arch], binary, shown, folder))
    return tuple(images)


def extract(binary: Path, shown: str, folder: Path, image: Listed) -> Iterator[Path]:
    """Extract the images of the listed one's kind and architecture number into ``folder``.

    Yields each file; whoever takes it may delete it. An architecture that this cuobjdump does not
    know yields nothing.
    """
    number = re.sub(r"[af]$", "", image.arch)
    if number not in _known_architectures():
        return
    what = "--extract-ptx" if image.ptx else "--extract-elf"
    _run(["--gpu-architecture", number, what, "all"], binary, shown, folder)
    suffix = ".ptx" if image.ptx else ".cubin"
    for path in sorted(folder.iterdir()):
        if path.suffix == suffix and path.is_file() and not path.is_symlink():
            yield path


@lru_cache(maxsize=1)
def _known_architectures() -> tuple[str, ...]:
    said = _said("--help")
    return tuple(dict.fromkeys(_KNOWN.findall(said)))


def _parsed(text: str) -> tuple[Listed, ...]:
    return tuple(
        Listed(ptx=kind == "ptx", arch=arch, isa=f"{major}.{minor}" if kind == "ptx" else "")
        for kind, arch, major, minor in _BLOCK.findall(text)
    )


def _run(arguments: Sequence[str], binary: Path, shown: str, folder: Path) -> str:
    """Run the tool in ``folder`` and return what it printed; '' where it found nothing.

    The binary goes by a fixed name there, so that no name of the user's reaches the tool.
    """
    subject = folder / "subject"
    if not subject.is_symlink():
        subject.symlink_to(binary.resolve())
    log = folder / "output.txt"
    with log.open("wb") as output:
        process = _started([str(tool()), *arguments, subject.name], folder, output)
        try:
            _limit(process.pid)
            _wait(process, shown, folder)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    with log.open("rb") as written:
        text = written.read(MAX_OUTPUT).decode(errors="replace")
    _check(process.returncode, text, shown)
    return text


def _said(option: str) -> str:
    """Return what the tool says of itself."""
    command = [str(tool()), option]
    _, told = child.finish(command, env=_ENVIRONMENT, timeout_s=DEADLINE_S)
    return told.decode(errors="replace")


def _started(command: Sequence[str], folder: Path, output: IO[bytes]) -> child.Process:
    try:
        return child.start(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT | {"TMPDIR": str(folder)},
        )
    except OSError as error:
        raise CouldNotProbeError(
            f"cuobjdump is here and cannot be started: {(error.strerror or str(error)).lower()}",
            f"`{INSTALL_LINE}` fetches the one for this machine",
        ) from error


def _limit(pid: int) -> None:
    """Bound the tool from outside: it is single-threaded, and has read nothing yet."""
    limits = ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, MAX_FILE))
    for kind, most in limits:
        try:
            resource.prlimit(pid, kind, (most, most))
        except ProcessLookupError:
            return


def _wait(process: child.Process, shown: str, folder: Path) -> None:
    began = time.monotonic()
    looked = began
    while process.poll() is None:
        now = time.monotonic()
        if now - began > DEADLINE_S:
            raise UsageError(
                f"`{shown}` was given to cuobjdump, which did not finish within {DEADLINE_S:.0f} s",
                "the file may be made to stall it; inspect the library alone, not the whole wheel",
            )
        if now - looked > 10 * _POLL_S:
            looked = now
            if _written(folder) > MAX_WRITTEN:
                raise UsageError(
                    f"`{shown}` was given to cuobjdump, which unpacks more than {MAX_WRITTEN:,} B "
                    "of it",
                    "that is no sound library; nothing of it was kept",
                )
        time.sleep(_POLL_S)


def _written(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def _check(status: int, text: str, shown: str) -> None:
    """Raise for a failure; the tool ends with 255 where it only found nothing."""
    if status == 0 or _NOTHING_FOUND.search(text):
        return
    if _NO_CODE in text:
        raise NoDeviceCodeError(shown)
    if _NO_MEMORY in text:
        raise _OutOfMemoryError(
            f"`{shown}` was given to cuobjdump, which needs more than {MEMORY:,} B for it",
            "inspect a cubin extracted from it: `cuobjdump -arch sm_90 -xelf all FILE`",
        )
    last = text.strip().splitlines()[-1:]
    said = re.sub(r"\s+in '.*'", "", last[0].partition(":")[2]).strip() if last else ""
    how = f"signal {-status}" if status < 0 else f"status {status}"
    raise UsageError(
        f"`{shown}` was given to cuobjdump, which ended with {how}"
        + (f": {said.rstrip('.')}" if said else ""),
        "the file may be truncated or damaged: fetch it again",
    )
