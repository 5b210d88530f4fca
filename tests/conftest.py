# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures, and the waiving of GPU tests where there is no GPU."""

import os
import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
os.environ.setdefault("COLUMNS", "120")
os.environ["TERM"] = "dumb"
os.environ["NO_COLOR"] = "1"


def _gpu_here() -> str:
    """Say why GPU tests cannot run here; empty where they can."""
    from thorprobe.run.gpu import driver_present

    if not driver_present():
        return "no CUDA driver"
    from cuda.bindings import driver

    if int(driver.cuInit(0)[0]) or not driver.cuDeviceGetCount()[1]:
        return "no CUDA device"
    return ""


def pytest_collection_modifyitems(config, items):
    """Waive GPU tests without a GPU; the summary counts them."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _gpu_here() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"waived: {reason}"))
    config.stash[_WAIVED] = (len(marked) if reason else 0, reason)


_WAIVED = pytest.StashKey[tuple[int, str]]()


def pytest_terminal_summary(terminalreporter, config):
    """Print how many GPU tests were waived, so that their absence is seen."""
    count, reason = config.stash.get(_WAIVED, (0, ""))
    if count:
        terminalreporter.write_line(f"GPU tests waived: {count} ({reason})")


@pytest.fixture(scope="session")
def fake_device():
    """Return the device of the fake worker."""
    return runpy.run_path(str(HERE / "fake_worker.py"), run_name="fake_worker")["DEVICE"]


@pytest.fixture(autouse=True)
def _state(tmp_path_factory, monkeypatch):
    """Keep what commands store by default out of the home directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
