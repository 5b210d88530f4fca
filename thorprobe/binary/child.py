# SPDX-License-Identifier: Apache-2.0
"""How a child process is started: isolated from the folder that the user happens to be in.

People run thorprobe in folders of strangers' files. A module, program or library there that bears
the name of one that a child looks for must not be taken for it. So a Python child never looks for
modules in the current folder, and no child inherits a search path that leads there.

This file is also the program of every Python child (``python -P child.py MODULE``). As such it
needs the standard library alone: it takes the thorprobe that it lies in, whatever else the search
path holds, and calls ``main`` of the module.
"""

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeAlias

Process: TypeAlias = "subprocess.Popen[bytes]"
Output: TypeAlias = "int | IO[bytes] | None"

_HERE = Path(__file__).absolute()
_PACKAGE = _HERE.parents[1]
_SEARCHED = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH")


def python(module: str) -> tuple[str, ...]:
    """Return the command that calls ``main`` of one of thorprobe's modules, isolated.

    ``-P`` and not ``-I``: packages may lie in the user's own site folder, or come by PYTHONPATH.
    """
    return (sys.executable, "-P", str(_HERE), module)


def environment() -> dict[str, str]:
    """Return this process's environment without the ways that lead to the current folder.

    Of each search path only whole paths to other folders stay: an empty entry, as in
    ``PYTHONPATH=$PYTHONPATH:/opt``, names the current folder, and a relative one a part of it.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _SEARCHED}
    for name in _SEARCHED:
        entries = [entry for entry in os.environ.get(name, "").split(os.pathsep) if _away(entry)]
        if entries:
            kept[name] = os.pathsep.join(entries)
    return kept


def left_out() -> tuple[str, ...]:
    """Return the entries of PYTHONPATH that no child gets, for whoever wonders what it lacks."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return tuple(entry for entry in entries if entry and not _away(entry))


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: Output = subprocess.DEVNULL,
    stdout: Output = subprocess.DEVNULL,
    stderr: Output = subprocess.DEVNULL,
    cwd: Path | None = None,
) -> Process:
    """Start a child and return at once; raises OSError where it cannot be started.

    The environment is never inherited unasked, and the program is named by its whole path: the
    search for a bare name would go by a PATH that was not looked at.
    """
    if not Path(command[0]).is_absolute():
        raise FileNotFoundError(2, "no whole path to the program", command[0])
    return subprocess.Popen(
        command, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd
    )


def finish(
    command: Sequence[str], *, env: Mapping[str, str], given: bytes = b"", timeout_s: float
) -> tuple[int, bytes]:
    """Run a child to its end and return its exit status and standard output.

    Raises subprocess.TimeoutExpired, after the child was killed, and OSError as ``start`` does.
    """
    with start(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            told, _ = process.communicate(given, timeout=timeout_s)
        finally:
            process.kill()
    return process.returncode, told


def _away(entry: str) -> bool:
    """Say whether an entry of a search path leads to a folder that is not the current one."""
    folder = Path(entry)
    try:
        return folder.is_absolute() and not folder.samefile(Path.cwd())
    except OSError:  # One of them is not there, or not to be seen.
        return True


def main() -> None:
    """Call ``main`` of the module that the first argument names, of this very thorprobe."""
    module = sys.argv.pop(1)
    # Last of all, and only for an environment that is one folder beside thorprobe, as
    # `pip install --target` makes: nothing there can take the place of what is installed.
    sys.path.append(str(_PACKAGE.parent))
    spec = importlib.util.spec_from_file_location(_PACKAGE.name, _PACKAGE / "__init__.py")
    if spec is None or spec.loader is None:
        sys.exit(f"{_PACKAGE} is no package")
    package = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = package
    spec.loader.exec_module(package)
    called: Callable[[], None] = importlib.import_module(module).main
    called()


if __name__ == "__main__":
    main()
