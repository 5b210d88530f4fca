# SPDX-License-Identifier: Apache-2.0
"""The plugin in processes of its own: off, it costs nothing; on, each worker adds to the log."""

import json
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import torch  # noqa: F401  The processes need it.

from thorprobe.vllm import dropin
from thorprobe.vllm.dropin_variable import LOG_VARIABLE, VARIABLE

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "cupy", "cuda", "numpy", "msgspec", "typer", "logging", "thorprobe.plan.operator")


def python(code, *path, **environment):
    """Run Python code in a process of its own, with folders before its path."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("THORPROBE_VLLM")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (*path, ROOT, ROOT / "tests")))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=200,
        env=env | environment,
        check=False,
    )


def entry_points():
    """Return the entry points of vLLM's plugins that the package declares."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["entry-points"]["vllm.general_plugins"]


def test_the_package_declares_the_plugin():
    """VLLM finds it under the group of its general plugins, and the name can be loaded."""
    assert entry_points() == {"thorprobe": "thorprobe.vllm.dropin:register"}
    assert callable(dropin.register)


@pytest.mark.parametrize("value", [None, "", "0", "off", " OFF "])
def test_off_the_entry_point_loads_nothing(value):
    """Neither CUDA nor torch nor a library of the package's own: two modules, which need `os`."""
    ran = python(
        f"""
        import sys
        before = set(sys.modules)
        from thorprobe.vllm.dropin import register
        register()
        new = set(sys.modules) - before
        heavy = sorted(new & set({HEAVY!r}))
        mine = sorted(name for name in new if name.startswith("thorprobe"))
        print(heavy, mine)
        """,
        **({} if value is None else {VARIABLE: value}),
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == (
        "[] ['thorprobe', 'thorprobe.vllm', 'thorprobe.vllm.dropin', "
        "'thorprobe.vllm.dropin_variable']"
    )


VLLM = {
    "vllm/__init__.py": "__version__ = '0.33.0'\n",
    "vllm/_C_stable_libtorch.py": "from dropin_bed import operators\n"
    "OPERATORS = operators(largest=8)\nMADE = OPERATORS.__enter__()\n",
    "vllm/plugins.py": """
        from importlib.metadata import entry_points
        def load_general_plugins():
            for plugin in entry_points(group="vllm.general_plugins"):
                plugin.load()()
        """,
    "vllm/engine.py": """
        import thorprobe.vllm.dropin_cuda as cuda, thorprobe.vllm.dropin_start as start
        from dropin_bed import NAMES, Host, batch, best, call, picked
        start.KEY, cuda.CudaHost = "CPU", Host
        def work(rows):
            from vllm.plugins import load_general_plugins
            load_general_plugins()
            logits, lengths = batch(rows)
            assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        """,
    "vllm-0.33.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n",
}


@pytest.fixture
def site_folder(tmp_path):
    """Write a vLLM that loads its plugins as entry points, and thorprobe's entry points beside."""
    folder = tmp_path / "site"
    points = "".join(f"{name} = {value}\n" for name, value in entry_points().items())
    files = VLLM | {
        "plugged-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: plugged\nVersion: 1\n",
        "plugged-1.dist-info/entry_points.txt": f"[vllm.general_plugins]\n{points}",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_every_worker_process_adds_its_line_to_the_log(site_folder, tmp_path, how):
    """The engine's process and two workers: three lines, each with its own calls."""
    log = tmp_path / "log.jsonl"
    program = tmp_path / "serve.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing
            from vllm.engine import work
            if __name__ == "__main__":
                work(3)
                context = multiprocessing.get_context({how!r})
                workers = [context.Process(target=work, args=(rows,)) for rows in (1, 2)]
                for worker in workers: worker.start()
                for worker in workers: worker.join()
                print("served", [worker.exitcode for worker in workers])
            """
        )
    )
    ran = python(
        f"import sys, subprocess; subprocess.call([sys.executable, {str(program)!r}])",
        site_folder,
        **{VARIABLE: "fallback", LOG_VARIABLE: str(log)},
    )
    assert ran.stdout.strip() == "served [0, 0]", ran.stderr
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({line["pid"] for line in lines}) == 3
    assert sorted(line["rungs"][0]["rows"] for line in lines) == [1, 2, 3]
    assert all(line["calls"] == 1 for line in lines)
    assert "thorprobe.vllm: THORPROBE_VLLM=fallback, vLLM 0.33.0" in ran.stderr
    assert "cannot launch on Thor" in ran.stderr


def test_a_vllm_without_the_variable_dies_as_before(site_folder):
    """The same start without THORPROBE_VLLM: the plugin is loaded and does nothing."""
    ran = python(
        "from vllm.engine import work; import vllm._C_stable_libtorch; work(1)", site_folder
    )
    assert ran.returncode == 1
    assert "cluster misconfiguration" in ran.stderr
    assert "thorprobe.vllm:" not in ran.stderr
