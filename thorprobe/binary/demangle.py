# SPDX-License-Identifier: Apache-2.0
"""Names of kernels as people read them, demangled by LLVM in a process that may fail.

A symbol of 300 bytes can name a type of gigabytes through its substitutions, so symbols of
untrusted files are demangled within bounds, and one that does not fit is shown as it is.
"""

import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec

from thorprobe.binary import child
from thorprobe.errors import CouldNotProbeError

INSTALL_LINE = 'pip install "pycxxfilt>=1.2"'

DEADLINE_S = 60.0
MEMORY = 512 << 20
"""Address space of the demangling process, in bytes."""

MAX_NAME = 16_384
"""Longest demangled name that is used, in characters."""

_MAX_IN_ALL = 256 << 20
_TRIES = 4
_NOT_INSTALLED = 3


def names(symbols: Iterable[str]) -> dict[str, str]:
    """Return the name of each symbol without return type and parameters.

    A symbol that is not mangled, or cannot be demangled within bounds, is its own name.

    Raises CouldNotProbeError where the demangler is not installed.
    """
    if find_spec("pycxxfilt") is None:
        raise _missing()
    asked = tuple(dict.fromkeys(symbols))
    wanted = [s for s in asked if s.startswith("_Z") and s.isprintable()]
    found: dict[str, str] = {}
    for _ in range(_TRIES):
        if not wanted:
            break
        told = _demangled(wanted)
        found |= dict(zip(wanted, map(short, told), strict=False))
        # The process ends at a symbol that it cannot hold: that one is left out, the rest goes on.
        wanted = wanted[len(told) + 1 :]
    return {symbol: found.get(symbol, symbol) for symbol in asked}


def short(name: str) -> str:
    """Cut parameters and return type off a demangled function name."""
    head = name.strip()
    if head.endswith(")"):
        depth = 0
        for at in range(len(head) - 1, -1, -1):
            depth += (head[at] == ")") - (head[at] == "(")
            if depth == 0:
                head = head[:at]
                break
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += (head[at] in ")>") - (head[at] in "(<")
        if head[at] == " " and depth == 0:
            return head[at + 1 :] or name
    return head or name


def _missing() -> CouldNotProbeError:
    return CouldNotProbeError(
        "kernels are named with pycxxfilt, which is not installed", f"`{INSTALL_LINE}`"
    )


def _demangled(symbols: list[str]) -> list[str]:
    try:
        status, told = child.finish(
            child.python(__name__),
            env=child.environment(),
            given=("\n".join(symbols) + "\n").encode(errors="replace"),
            timeout_s=DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return []
    # Seen from the current folder and not by a child: it is no package of this environment.
    if status == _NOT_INSTALLED:
        raise _missing()
    return told.decode(errors="replace").split("\n")[:-1]


def main() -> None:
    """Demangle each line of standard input; a line that is no symbol comes back as it is."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        import pycxxfilt
    except ImportError:
        sys.exit(_NOT_INSTALLED)

    left = _MAX_IN_ALL
    for line in sys.stdin:
        symbol = line.rstrip("\n")
        try:
            told = (pycxxfilt.demangle(symbol) if left > 0 else None) or symbol
        except (ValueError, MemoryError):
            told = symbol
        if len(told) > MAX_NAME or not told.isprintable():
            told = symbol
        left -= len(told)
        sys.stdout.write(told + "\n")
        sys.stdout.flush()
