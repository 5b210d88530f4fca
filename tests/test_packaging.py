# SPDX-License-Identifier: Apache-2.0
"""The wheel: kernels, scenarios, profiles and policies ship in it, and it runs on its own."""

import json
import os
import subprocess
import sys
import zipfile
from email import message_from_string
from hashlib import sha256
from pathlib import Path

import pytest

from thorprobe import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel outside the source tree and return its place."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """Return the folder that holds the wheel's files, as an installation has them."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(unpacked, folder, *arguments):
    """Run the unpacked thorprobe from another folder, and check that it is that one."""
    program = (
        "import sys, thorprobe\n"
        f"assert thorprobe.__file__.startswith({str(unpacked)!r}), thorprobe.__file__\n"
        "from thorprobe.app import main\n"
        "sys.argv[0] = 'thorprobe'\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(unpacked), "CUDA_VISIBLE_DEVICES": ""},
        timeout=120,
        check=False,
    )


def test_everything_that_a_command_reads_is_in_the_wheel(unpacked):
    """Each kernel, scenario, profile and policy of the tree is in the wheel, byte for byte."""
    package = unpacked / "thorprobe"
    pairs = {
        ROOT / "kernels": (package / "kernels", "*.cu"),
        ROOT / "scenarios": (package / "scenarios", "*.toml"),
        ROOT / "thorprobe" / "model" / "profiles": (package / "model" / "profiles", "*.toml"),
        ROOT / "thorprobe" / "plan" / "policies": (package / "plan" / "policies", "*.toml"),
        ROOT / "thorprobe" / "plan" / "gates": (package / "plan" / "gates", "*.toml"),
        ROOT / "thorprobe" / "plan" / "claims": (package / "plan" / "claims", "*.toml"),
        ROOT / "thorprobe" / "plan" / "reported_runs": (
            package / "plan" / "reported_runs",
            "*.toml",
        ),
        ROOT / "thorprobe" / "audit" / "recorded": (package / "audit" / "recorded", "*.toml"),
        ROOT / "thorprobe": (package, "**/*.py"),
    }
    for source, (shipped, pattern) in pairs.items():
        names = {path.relative_to(source) for path in source.glob(pattern)}
        assert names
        for name in names:
            assert (shipped / name).read_bytes() == (source / name).read_bytes()


def test_nothing_else_is_in_the_wheel(wheel):
    """No test, report, cache or bytecode ships."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = {name.split("/")[0] for name in names}
    assert roots == {"thorprobe", f"thorprobe-{__version__}.dist-info"}
    assert not [name for name in names if name.endswith(".pyc") or "__pycache__" in name]
    assert {Path(name).suffix for name in names if name.startswith("thorprobe/")} <= {
        *(".py", ".cu", ".toml", ".typed")
    }


def test_the_metadata_says_what_is_needed(unpacked):
    """Version, entry point, licence and dependencies; torch and transformers only as an extra."""
    info = unpacked / f"thorprobe-{__version__}.dist-info"
    metadata = message_from_string((info / "METADATA").read_text())
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "thorprobe = thorprobe.app:main" in (info / "entry_points.txt").read_text()
    assert (info / "licenses" / "LICENSE").read_text().lstrip().startswith("Apache License")
    needed = metadata.get_all("Requires-Dist")
    always = {text.split(">")[0].split("<")[0].strip() for text in needed if "extra ==" not in text}
    assert always >= {"cuda-python", "cupy-cuda13x", "nvidia-cuda-nvrtc", "numpy", "typer", "rich"}
    assert not always & {"torch", "transformers", "pytest"}
    extras = [text for text in needed if "extra ==" in text and "torch" in text]
    assert any(text.startswith("torch") for text in extras)
    assert any(text.startswith("transformers") for text in extras)


def test_the_wheel_compiles_its_own_kernels(unpacked, tmp_path):
    """From another folder the shipped sources are what is compiled, and scenarios are found."""
    kernel = unpacked / "thorprobe" / "kernels" / "trivial.cu"
    before = kernel.read_bytes()
    kernel.write_bytes(before + b"// compiled from here\n")
    try:
        ran = run(unpacked, tmp_path, "cluster-sweep", "--sizes", "8,16", "--json")
    finally:
        kernel.write_bytes(before)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["origin"] == "predicted"
    digests = set(document["inputs"].values())
    assert sha256(before + b"// compiled from here\n").hexdigest() in digests
    assert sha256(before).hexdigest() not in digests
    ran = run(unpacked, tmp_path, "run", "thor-report")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(tmp_path.iterdir()) == []
