# SPDX-License-Identifier: Apache-2.0
"""A scenario whose profile is a file is judged: red stays red, and paths start at the scenario."""

from importlib.resources import files

import pytest

SCENARIO = """
name = "own-device"
description = "A device of one's own"
source = "this test"

[device]
profile = "{profile}"

[[probe]]
command = "cluster-sweep"
sizes = [1, 16]
kernels = ["trivial"]

[[expect]]
command = "cluster-sweep"
kernel = "trivial"
size = 16
verdict = "{verdict}"
"""


def _written(folder, profile, verdict):
    folder.mkdir(exist_ok=True)
    thor = files("thorprobe.model").joinpath("profiles/thor.toml").read_text(encoding="utf-8")
    (folder / "mine.toml").write_text(thor.replace('name = "thor"', 'name = "mine"'))
    path = folder / "scenario.toml"
    path.write_text(SCENARIO.format(profile=profile, verdict=verdict))
    return path


@pytest.mark.parametrize("profile", ["./mine.toml", "mine.toml", "../scenarios/mine.toml"])
def test_a_profile_file_is_judged(profile, main, tmp_path, monkeypatch):
    """What holds is green and what does not is red, from whichever folder it is run."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for verdict, code in (("refused", 0), ("launches", 1)):
        path = _written(tmp_path / "scenarios", profile, verdict)
        told = main("run", path, "--no-progress")
        assert told.code == code, told.out + told.err
        assert "waived" not in told.out


def test_a_profile_file_by_its_whole_path_is_judged(main, tmp_path):
    """An absolute path is taken as it is."""
    mine = (tmp_path / "scenarios" / "mine.toml").as_posix()
    told = main("run", _written(tmp_path / "scenarios", mine, "launches"), "--no-progress")
    assert told.code == 1


def test_a_profile_file_that_is_not_there_is_named(main, tmp_path):
    """A missing file is a usage error, and nothing is waived."""
    told = main("run", _written(tmp_path / "scenarios", "./other.toml", "refused"), "--no-progress")
    assert told.code == 2
    assert "other.toml" in told.err
