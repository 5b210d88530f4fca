# SPDX-License-Identifier: Apache-2.0
"""What is kept between runs: entries with their digest, written whole or not at all.

The folder is the user's own, and still nothing in it is trusted: an entry whose digest does not
match counts as missing.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from thorprobe.driver.compile import cache_folder
from thorprobe.errors import UsageError

_WORK = ".work-"
_STALE_S = 86_400.0
_DIGEST = hashlib.sha256().digest_size


def path(name: str) -> Path:
    """Return where an entry is, or would be."""
    return cache_folder() / name


def load(name: str) -> bytes | None:
    """Return the contents of an entry, None where there is none or it is damaged."""
    try:
        data = path(name).read_bytes()
    except OSError:
        return None
    digest, contents = data[:_DIGEST], data[_DIGEST:]
    return contents if hashlib.sha256(contents).digest() == digest else None


def store(name: str, contents: bytes) -> None:
    """Keep an entry in one step, so that no reader sees half of it; no room is no error."""
    with contextlib.suppress(OSError):
        _replace(name, hashlib.sha256(contents).digest() + contents)


def place(name: str, contents: bytes) -> Path:
    """Put a plain file into the cache for another process to read, and return its path.

    Raises UsageError where the folder cannot be written.
    """
    try:
        return _replace(name, contents)
    except OSError as error:
        raise _unwritable(error) from error


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """Make an empty folder inside the cache, and remove it with all it holds.

    Raises UsageError where the cache cannot be written: nothing is extracted anywhere else.
    """
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=cache_folder(), prefix=_WORK)
    except OSError as error:
        raise _unwritable(error) from error
    with folder as name:
        _sweep(cache_folder())
        yield Path(name)


def _sweep(folder: Path) -> None:
    """Remove workspaces that a killed run left a day ago or longer."""
    for left in folder.glob(f"{_WORK}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)


def _replace(name: str, data: bytes) -> Path:
    entry = path(name)
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=entry.parent, prefix=f".{entry.stem[:40]}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(beside).replace(entry)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise
    return entry


def _unwritable(error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    return UsageError(
        f"the cache folder `{cache_folder()}` cannot be written: {reason}",
        "name another with XDG_CACHE_HOME, or make room: code is extracted there and nowhere else",
    )
