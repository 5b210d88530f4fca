# SPDX-License-Identifier: Apache-2.0
"""What doctor says of a machine without a GPU, and of one where packages are missing."""

import json
import sys
from importlib import metadata

import pytest

from thorprobe.commands import environment
from thorprobe.errors import CouldNotProbeError


@pytest.fixture
def bare(monkeypatch):
    """Take the driver away from the survey."""
    monkeypatch.setattr(environment, "driver_present", lambda: False)


def facts():
    """Return the facts by name."""
    return {fact.name: fact for fact in environment.survey()}


def test_doctor_without_a_gpu_names_what_is_missing_and_what_mends_it(main, bare):
    """Exit code 0, driver and GPU marked, the mending line under each, the count on stderr."""
    ran = main("doctor")
    assert ran.code == 0
    lines = ran.out.splitlines()
    marked = [number for number, line in enumerate(lines) if line.startswith("!")]
    assert [lines[number].split("  ")[0] for number in marked] == ["! CUDA driver", "! GPU"]
    assert all(lines[number + 1].strip().startswith("hint: ") for number in marked)
    assert "thorprobe cluster-sweep --profile thor" in ran.out
    assert "2 missing" in ran.err
    assert "NVRTC" in ran.out


def test_the_line_that_doctor_gives_for_a_missing_gpu_works(main, bare):
    """The mending line of the GPU is a command that answers here."""
    mend = facts()["GPU"].mend
    assert mend.split()[0] == "thorprobe"
    ran = main(*mend.split()[1:], "--sizes", "16")
    assert ran.code == 0
    assert ran.out.startswith("PREDICTED")


def test_doctor_as_json_is_the_same_facts(main, bare, tmp_path):
    """`--json` carries schema, command and every fact; `--output` puts it into a file."""
    ran = main("doctor", "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["schema"]["name"] == "thorprobe"
    assert document["command"] == "doctor"
    by_name = {fact["name"]: fact for fact in document["facts"]}
    assert by_name.keys() == facts().keys() | {"gate", "drop-in"}
    assert by_name["CUDA driver"]["found"] is by_name["GPU"]["found"] is False
    assert by_name["numpy"]["value"] == metadata.version("numpy")
    page = tmp_path / "doctor.txt"
    assert main("doctor", "--output", page).code == 0
    assert page.read_text() == main("doctor").out


def test_a_missing_package_is_named_with_its_install_line(monkeypatch, bare):
    """A needed package is missing, an optional one is merely not installed; both say how."""

    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(environment.metadata, "version", none)
    found = facts()
    assert not found["cupy-cuda13x"].found
    assert found["cupy-cuda13x"].mend == "pip install cupy-cuda13x"
    assert found["torch"].found
    assert "thorprobe[torch]" in found["torch"].mend


def test_a_compiler_that_does_not_load_is_named(monkeypatch, bare):
    """Where NVRTC does not load, its own sentence and hint are shown."""

    def missing():
        raise CouldNotProbeError("NVRTC cannot be loaded", "pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr("thorprobe.driver.compile.nvrtc_version", missing)
    fact = facts()["NVRTC"]
    assert (fact.found, fact.value) == (False, "NVRTC cannot be loaded")
    assert fact.mend == "pip install nvidia-cuda-nvrtc"


def test_a_driver_without_bindings_is_a_fact_not_an_error(monkeypatch):
    """Where there is a driver but cuda-bindings does not import, doctor says what to install."""
    monkeypatch.setattr(environment, "driver_present", lambda: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setattr("thorprobe.driver.compile.nvrtc_version", lambda: "13.0")
    fact = facts()["GPU"]
    assert not fact.found
    assert fact.mend == "pip install cuda-python"


def test_only_harmless_variables_are_shown(monkeypatch, bare):
    """A variable that changes measurements is shown; any other could be a secret and is not."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("SOME_API_TOKEN", "hunter2")
    found = environment.survey()
    assert {f.name: f.value for f in found}["CUDA_VISIBLE_DEVICES"] == "1"
    assert not any("hunter2" in f.value or "TOKEN" in f.name for f in found)
