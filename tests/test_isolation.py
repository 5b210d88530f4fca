# SPDX-License-Identifier: Apache-2.0
"""Nothing that lies in the current folder is executed, whatever it is called."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FATBIN = ROOT / "tests" / "data" / "clusters.fatbin"
MODULES = (
    *("cuda", "cupy", "msgspec", "numpy", "nvidia", "pycxxfilt", "torch", "typer"),
    *("ctypes", "encodings", "importlib", "json", "pathlib", "platform", "resource", "runpy"),
    *("site", "sitecustomize", "subprocess", "threading", "typing", "usercustomize"),
)
PROGRAMS = ("c++filt", "cc", "cuobjdump", "gcc", "ld", "ldconfig", "nvcc", "objdump", "uname")
SYMBOL = "_Z4fourILj512EEvPi"

COMMANDS = (
    ("inspect", "clusters.fatbin"),
    ("inspect", "clusters.fatbin", "--kernel", "*", "--json"),
    ("inspect", "."),
    ("cluster-sweep", "--profile", "h200", "--kernel", "shipped:clusters.fatbin"),
    ("cluster-sweep", "--profile", "thor"),
    ("topk-arms", "--profile", "h200", "--kernel", "shipped:clusters.fatbin"),
    ("topk-arms", "--profile", "thor"),
    ("doctor",),
    ("audit", "--profile", "thor"),
    ("audit", "--installed"),
    ("claims", "--profile", "h200"),
    ("bench",),
    ("model-topk", "--tiny", "--device", "cpu", "--context", "60", "--decode-tokens", "2"),
    ("oracle", "."),
    ("explain", "clusters.fatbin"),
    ("explain", "cluster misconfiguration", "--profile", "thor", "--cluster", "16"),
    ("run",),
    ("report", "clusters.fatbin"),
    ("list", "profiles"),
)
"""Every command, as it runs without a GPU; those of binaries start a demangler and cuobjdump."""

LEADS_HERE = ("", ":", ".", "./", "::.", "..", "{cwd}", "{cwd}/", "{other}:", ":{other}", "{cwd}/.")
"""Search paths that name the current folder, its parent by a relative path, or an empty entry."""

PACKAGES = os.pathsep.join(
    str(Path(entry).resolve())
    for entry in (str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if entry
)
"""This tree, and packages that come by PYTHONPATH, by whole paths."""


@pytest.fixture
def planted(tmp_path):
    """Make a folder of files that say so when they are executed, and return it with its mark."""
    folder, mark = tmp_path / "downloads", tmp_path / "executed"
    (folder / "thorprobe" / "run").mkdir(parents=True)
    python = f"with open({str(mark)!r}, 'a') as file:\n    file.write(__name__ + ' ')\n"
    for package in ("thorprobe", "thorprobe/run"):
        (folder / package / "__init__.py").write_text(python)
    for name in ("worker", "demangle", "child"):
        (folder / "thorprobe" / "run" / f"{name}.py").write_text(python)
    for name in MODULES:
        (folder / f"{name}.py").write_text(python)
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        for place in (folder, folder / "bin"):
            (place / name).write_text(f"#!/bin/sh\necho {name} >> '{mark}'\n")
            (place / name).chmod(0o755)
    shutil.copy(FATBIN, folder)
    return folder, mark


def executed(mark):
    """Return what of the planted files was executed."""
    return mark.read_text().split() if mark.exists() else []


def run(folder, *arguments, **environment):
    """Run thorprobe as its installed script does, which has no current folder on its path."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "thorprobe", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": PACKAGES,
            "XDG_CACHE_HOME": str(folder.parent / "cache"),
            "XDG_STATE_HOME": str(folder.parent / "state"),
            "CUDA_VISIBLE_DEVICES": "",
        }
        | environment,
        timeout=120,
        check=False,
    )


def test_the_planted_files_would_say_so(planted):
    """The trap works: Python started in the folder takes its modules, and a shell its programs."""
    folder, mark = planted
    for command in (
        [sys.executable, "-c", "import pycxxfilt, msgspec, resource, thorprobe.run.worker"],
        ["sh", "-c", "PATH=:; cuobjdump; gcc"],
        ["sh", "-c", "PATH=bin; gcc"],
    ):
        subprocess.run(command, cwd=folder, env={"PATH": os.environ["PATH"]}, check=True)
    wanted = "pycxxfilt msgspec resource thorprobe thorprobe.run thorprobe.run.worker"
    assert [name for name in executed(mark) if name in wanted] == wanted.split()
    assert executed(mark)[-3:] == ["cuobjdump", "gcc", "gcc"]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_executes_what_lies_in_the_current_folder(planted, arguments):
    """Neither modules nor programs there are executed, with a PATH that leads there as well."""
    folder, mark = planted
    ran = run(folder, *arguments, PATH=f":.:bin:{os.environ['PATH']}")
    assert "Traceback" not in ran.stderr
    assert "internal error" not in ran.stderr
    assert not executed(mark)
    if arguments[0] == "inspect":  # The children did their work.
        assert ran.returncode == 0
        assert "four<512u>" in ran.stdout


def test_every_command_is_run_among_planted_files():
    """A new command joins the list above."""
    from thorprobe.app import app

    named = {command.name for command in app.registered_commands}
    assert named == {arguments[0] for arguments in COMMANDS}


@pytest.mark.parametrize("path", LEADS_HERE)
def test_the_demangler_takes_nothing_from_the_current_folder(planted, monkeypatch, path):
    """Whatever the PYTHONPATH says, names come from the installed demangler."""
    from thorprobe.binary import demangle

    folder, mark = planted
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", _path(path, folder))
    assert demangle.names([SYMBOL]) == {SYMBOL: "four<512u>"}
    assert not executed(mark)


@pytest.mark.parametrize("path", LEADS_HERE)
def test_the_worker_takes_nothing_from_the_current_folder(planted, monkeypatch, path):
    """The worker is this thorprobe's: it starts, or says in its own words why it cannot measure."""
    from thorprobe.errors import CouldNotProbeError
    from thorprobe.run import gpu

    folder, mark = planted
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", _path(path, folder))
    monkeypatch.setattr(gpu, "driver_present", lambda: True)
    try:
        gpu.GpuAnswerer().close()
    except CouldNotProbeError as error:
        assert "ended with status" not in error.sentence  # noqa: PT017  where there is a GPU it starts
    assert not executed(mark)


def test_a_worker_that_lacks_packages_says_what_it_was_not_given(tmp_path, monkeypatch):
    """Relative entries of PYTHONPATH are named where a worker ends before it is ready."""
    from thorprobe.errors import CouldNotProbeError
    from thorprobe.run import gpu

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"site:{PACKAGES}")
    with pytest.raises(CouldNotProbeError, match="before it was ready") as caught:
        gpu.GpuAnswerer(command=(sys.executable, "-c", "raise SystemExit(1)"))
    assert caught.value.hint.endswith("; it does not get `site` of PYTHONPATH")


def test_a_driver_is_looked_for_without_starting_anything(planted, monkeypatch):
    """To look for libcuda, no compiler or linker of the PATH is asked."""
    from thorprobe.run import gpu

    folder, mark = planted
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f":{folder}:bin")
    gpu.driver_present()
    assert not executed(mark)


def test_a_tool_on_a_path_that_leads_here_is_not_taken(planted, monkeypatch):
    """Without cuda-pathfinder, cuobjdump is looked for in whole paths alone."""
    from thorprobe.binary import cuobjdump
    from thorprobe.errors import CouldNotProbeError

    folder, mark = planted
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setenv("PATH", ":.:bin:/nowhere")
    cuobjdump.tool.cache_clear()
    try:
        with pytest.raises(CouldNotProbeError, match="which is not here"):
            cuobjdump.tool()
    finally:
        cuobjdump.tool.cache_clear()
    assert not executed(mark)


@pytest.mark.parametrize("name", ["PYTHONPATH", "PATH", "LD_LIBRARY_PATH"])
def test_a_search_path_keeps_whole_paths_to_other_folders(tmp_path, monkeypatch, name):
    """Packages and libraries that the user named by whole paths stay, in their order."""
    from thorprobe.binary import child

    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(here)
    monkeypatch.chdir(here)
    given = (other, "", ".", "lib", "../other", here, f"{here}/", tmp_path / "link", "/nowhere")
    monkeypatch.setenv(name, os.pathsep.join(map(str, given)))
    assert child.environment()[name] == f"{other}{os.pathsep}/nowhere"
    monkeypatch.setenv(name, f":.:{here}")
    assert name not in child.environment()
    monkeypatch.setenv("CUDA_CACHE_PATH", "kept")
    assert child.environment()["CUDA_CACHE_PATH"] == "kept"


def test_a_child_is_of_the_thorprobe_that_started_it(tmp_path):
    """Another thorprobe that the search path finds first is not taken, nor are its modules."""
    from thorprobe.binary import child

    (tmp_path / "thorprobe").mkdir()
    (tmp_path / "thorprobe" / "__init__.py").write_text("raise SystemExit('another thorprobe')")
    status, told = child.finish(
        child.python("thorprobe.binary.demangle"),
        env=child.environment() | {"PYTHONPATH": str(tmp_path)},
        given=f"{SYMBOL}\n".encode(),
        timeout_s=60,
    )
    assert (status, told) == (0, b"void four<512u>(int*)\n")


def test_a_demangler_that_only_the_parent_finds_is_told(planted, monkeypatch):
    """A package that lies in the current folder alone counts as not installed."""
    from thorprobe.binary import child, demangle
    from thorprobe.errors import CouldNotProbeError

    folder, mark = planted
    bare = folder.parent / "bare.py"
    bare.write_text(
        "import runpy, sys\nsys.modules['pycxxfilt'] = None\n"
        f"runpy.run_path({child.__file__!r}, run_name='__main__')\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", _path("", folder))
    monkeypatch.setattr(child, "python", lambda name: (sys.executable, "-P", str(bare), name))
    with pytest.raises(CouldNotProbeError, match="not installed") as caught:
        demangle.names([SYMBOL])
    assert "pip install" in caught.value.hint
    assert not executed(mark)


def test_a_program_is_named_by_its_whole_path(tmp_path, monkeypatch):
    """A bare or relative name is refused: it would be searched for."""
    from thorprobe.binary import child

    monkeypatch.chdir(tmp_path)
    for name in ("cuobjdump", "./cuobjdump", "bin/cuobjdump"):
        with pytest.raises(FileNotFoundError, match="no whole path"):
            child.start([name], env={})


STARTERS = {
    "os": "execl execle execlp execlpe execv execve execvp execvpe fork forkpty popen posix_spawn "
    "posix_spawnp spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe system",
    "subprocess": "Popen call check_call check_output getoutput getstatusoutput run",
    "ctypes.util": "find_library",  # Starts ldconfig, gcc, ld and objdump of the PATH.
    "platform": "architecture processor",  # Start file and uname of the PATH.
    "pty": "fork spawn",
}
NEVER = {"asyncio.subprocess", "multiprocessing", "concurrent.futures.process", "pexpect", "pty"}
ALLOWED = {"thorprobe/binary/child.py": "how a child is started"}
"""Files that may start a process, and why."""


def names_of(tree):
    """Map what a module calls its imports to what they are, such as ``run`` to subprocess.run."""
    called = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                called[alias.asname or first] = alias.name if alias.asname else first
        if isinstance(node, ast.ImportFrom) and node.module:
            called |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return called


def starts(tree):
    """Yield each way of starting a process that a module names, whatever it calls the library."""
    called = names_of(tree)
    used = set(called.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first, _, rest = ast.unparse(node.func).partition(".")
            used.add(f"{called.get(first, first)}.{rest}")
    for name in used:
        library, _, function = name.rpartition(".")
        # What is called at the end of a process starts none.
        never = any(f"{name}.".startswith(f"{one}.") for one in NEVER) and ".util" not in name
        if never or function in STARTERS.get(library, "").split():
            yield name


def test_every_child_is_started_in_one_place():
    """Nothing else in the package starts a process, or a library call that starts one."""
    files = sorted((ROOT / "thorprobe").rglob("*.py"))
    assert len(files) > 100
    found = {
        path.relative_to(ROOT).as_posix(): sorted(set(starts(ast.parse(path.read_text()))))
        for path in files
    }
    started = {path: how for path, how in found.items() if how}
    assert set(started) == set(ALLOWED), f"start children with thorprobe.binary.child: {started}"


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\nsubprocess.run(['ls'])",
        "import subprocess as s\ns.Popen(['ls'])",
        "from subprocess import check_output",
        "import os\nos.system('ls')",
        "import ctypes.util\nctypes.util.find_library('cuda')",
        "from ctypes import util\nutil.find_library('cuda')",
        "from ctypes.util import find_library",
        "import multiprocessing.pool",
        "from concurrent.futures import process",
    ],
)
def test_the_search_for_children_finds_them(text):
    """The walk knows the ways by which a module may name a starter."""
    assert list(starts(ast.parse(text)))


def _path(pattern, folder):
    """Return a PYTHONPATH that leads to the folder first, and to the packages that there are."""
    leads = pattern.format(cwd=folder, other=folder.parent / "other")
    return f"{leads}{os.pathsep}{PACKAGES}"
