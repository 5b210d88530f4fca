# SPDX-License-Identifier: Apache-2.0
"""What thorprobe says of itself, and how little that loads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from thorprobe import __version__

ROOT = Path(__file__).parents[1]


def test_list_describes_everything_in_one_sentence(main):
    """Probes, footprints, profiles, policies, scenarios and causes each have a description."""
    groups = json.loads(main("list", "--json").out)
    assert set(groups) == {
        *("probes", "kernels", "footprints", "profiles", "policies", "gates", "claims"),
        *("scenarios", "causes"),
    }
    assert set(groups["probes"]) == {"cluster-sweep", "topk-arms"}
    assert len(groups["footprints"]) == 6
    assert {"thor", "h200", "gb10"} <= set(groups["profiles"])
    assert {"e126687a9a", "0.33.0"} <= set(groups["policies"])
    assert {"0.33.0", "pr-56084", "pr-56102", "occupancy"} <= set(groups["gates"])
    assert {"largest-cluster-8", "clusters-of-8"} <= set(groups["claims"])
    assert {"thor-report", "h200-full", "h200-sms8"} <= set(groups["scenarios"])
    assert {"larger-than-any-gpc", "undetermined"} <= set(groups["causes"])
    text = main("list").out
    for entries in groups.values():
        for name, sentence in entries.items():
            assert sentence
            assert f"  {name}" in text
            assert sentence in text


def test_version_and_help_name_the_exit_codes(main):
    """`--version` is one line; `--help` lists the commands and every exit code."""
    assert main("--version").out == f"thorprobe {__version__}\n"
    text = " ".join(main("--help").out.split())
    for name in ("doctor", "cluster-sweep", "topk-arms", "run", "report", "list"):
        assert name in text
    for code in ("0 the measurement", "1 an expectation", "2 usage", "3 could", "4 int", "5 a pr"):
        assert code in text
    bare = main()
    assert bare.code == 2
    assert "Usage" in bare.out


def test_help_and_import_load_no_heavy_package():
    """Importing thorprobe, and --help of everything, need no driver, CUDA, NumPy or torch."""
    program = (
        "import sys, thorprobe\n"
        "from thorprobe.app import main\n"
        "for words in ([], ['topk-arms'], ['run'], ['doctor']):\n"
        "    sys.argv = ['thorprobe', *words, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "heavy = {'numpy', 'cuda', 'cupy', 'torch', 'elftools', 'msgspec', 'transformers'}\n"
        "print(sorted(roots & heavy), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=True,
    )
    assert done.stderr == "[]\n"


def test_help_takes_at_most_twice_a_bare_application(tmp_path):
    """The median of five `--help` is within twice that of a Typer application of six commands."""
    bare = tmp_path / "bare.py"
    commands = "".join(f"@app.command()\ndef c{n}(): 'A command'\n" for n in range(6))
    bare.write_text(f"import typer\napp = typer.Typer()\n{commands}app()\n")
    taken = {"bare": [], "thorprobe": []}
    for _ in range(5):
        for name, words in (("bare", [str(bare)]), ("thorprobe", ["-m", "thorprobe"])):
            began = perf_counter()
            subprocess.run(
                [sys.executable, *words, "--help"],
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                timeout=60,
                check=True,
            )
            taken[name].append(perf_counter() - began)
    assert median(taken["thorprobe"]) <= 2 * median(taken["bare"])
