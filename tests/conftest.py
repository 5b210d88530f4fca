# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures, and the waiving of GPU tests where there is no GPU."""

import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
os.environ.setdefault("COLUMNS", "120")
os.environ["TERM"] = "dumb"
os.environ["NO_COLOR"] = "1"


_IMPORTS = re.compile(r"^(?:import|from) (?:torch|transformers)\b", re.MULTILINE)


def _needing_torch():
    """Return the test files that import torch or transformers, themselves or by what they load."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in HERE.glob("*.py")}
    direct = {stem for stem, text in texts.items() if _IMPORTS.search(text)}
    loaded = {stem for stem in direct if not stem.startswith("test_")}
    indirect = {
        stem for stem, text in texts.items() if any(f"{name}.py" in text for name in loaded)
    }
    return sorted(stem for stem in direct | indirect if stem.startswith("test_"))


_LACKING = [name for name in ("torch", "transformers") if find_spec(name) is None]
collect_ignore = [f"{stem}.py" for stem in _needing_torch()] if _LACKING else []


def _gpu_here() -> str:
    """Say why GPU tests cannot run here; empty where they can."""
    from thorprobe.run.gpu import driver_present

    if not driver_present():
        return "no CUDA driver"
    from cuda.bindings import driver

    if int(driver.cuInit(0)[0]) or not driver.cuDeviceGetCount()[1]:
        return "no CUDA device"
    return ""


def pytest_collection_modifyitems(items):
    """Waive GPU tests without a GPU; the summary counts them."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _gpu_here() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"waived: {reason}"))


def pytest_terminal_summary(terminalreporter):
    """Print how many GPU tests were waived and why, so that their absence is seen."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ").removeprefix("waived: ")
        for report in skipped
        if "gpu" in getattr(report, "keywords", ())
    )
    for reason, count in reasons.items():
        terminalreporter.write_line(f"GPU tests waived: {count} ({reason})")
    if collect_ignore:
        terminalreporter.write_line(
            f"files of tests waived: {len(collect_ignore)} (no {' and '.join(_LACKING)}; "
            "pip install '.[torch,test]')"
        )


@pytest.fixture(scope="session")
def fake_device():
    """Return the device of the fake worker."""
    return runpy.run_path(str(HERE / "fake_worker.py"), run_name="fake_worker")["DEVICE"]


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def command():
    """Run thorprobe as a user does, in a process of its own that sees no GPU.

    ``limit`` is the largest file in bytes that it may write, to play a full disk.
    """

    def run(*arguments, cwd=None, env=None, limit=None):
        def restrict():
            import resource

            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        path = {"PYTHONPATH": str(HERE.parent), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, "-m", "thorprobe", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=os.environ | path | (env or {}),
            timeout=120,
            check=False,
            preexec_fn=restrict if limit is not None else None,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def main(monkeypatch, capsys):
    """Run thorprobe's main in this process, without a GPU unless a test puts one in."""
    from thorprobe import app

    monkeypatch.setattr("thorprobe.run.gpu.driver_present", lambda: False)
    monkeypatch.delenv("THORPROBE_DEBUG", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["thorprobe", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            app.main()
        shown = capsys.readouterr()
        return Ran(int(end.value.code or 0), shown.out, shown.err)

    return run


@pytest.fixture
def fake_gpu(main, monkeypatch):
    """Put the fake worker in the place of a GPU, and return the answerer's class to subclass."""
    from thorprobe.run import gpu

    worker = (sys.executable, str(HERE / "fake_worker.py"))

    class Fake(gpu.GpuAnswerer):
        def __init__(self, ordinal, partition, *, oracle, deadline_s):
            super().__init__(
                ordinal, partition, oracle=oracle, deadline_s=deadline_s, command=worker
            )

    def use(kind):
        monkeypatch.setattr(gpu, "GpuAnswerer", kind)

    monkeypatch.setattr(gpu, "driver_present", lambda: True)
    monkeypatch.setattr("thorprobe.cli.session._count_devices", lambda: 1)
    use(Fake)
    return Fake, use


@pytest.fixture
def one_thread():
    """Keep torch to one thread: its workers spin where others use the same cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _state(tmp_path_factory, monkeypatch):
    """Keep what commands store by default out of the home directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
