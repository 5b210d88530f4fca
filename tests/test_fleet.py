# SPDX-License-Identifier: Apache-2.0
"""Fleet files: what ships loads, and what is no fleet is refused in one sentence."""

from pathlib import Path

import pytest

from thorprobe.errors import UsageError
from thorprobe.oracle import fleet
from thorprobe.plan import gate

SHIPPED = Path(fleet.__file__).parent / "fleets" / "thor-h200-gb10.toml"
STEPS_DOWN = next(name for name in gate.names() if gate.load(name).steps_down)
TEXT = SHIPPED.read_text(encoding="utf-8")


def test_every_shipped_fleet_loads_and_holds_no_status():
    """A fleet declares; statuses are not among its words."""
    for name in fleet.names():
        found = fleet.load(name)
        assert found.name == name
        assert found.device(found.row.subject)
    for status in ("runs", "blocked", "not established", "not probed"):
        assert f'"{status}"' not in TEXT


def test_the_committed_fleet_is_the_one_of_the_row():
    """Thor and GB10 have a profile, the H200 has none, and the candidates are in their roles."""
    found = fleet.load(fleet.of_row("MODEL-MM-QWEN4-EXP"))
    profiles = {device.name: device.profile for device in found.devices}
    assert profiles == {"thor": "thor", "h200": "", "gb10": "gb10", "cpu": ""}
    roles = {candidate.oracle: candidate.role for candidate in found.candidates}
    assert roles["transformers"] == "algorithm"
    assert roles["llama-cpp-qwen4exp"] == "secondary"
    assert roles["vllm-0.33.0"] == "optimized path"
    with pytest.raises(UsageError, match="no shipped fleet is of that row"):
        fleet.of_row("NOPE")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('pin = "0.33.0"', 'pin = "9.9.9"', "the policies are"),
        ('gate = "occupancy"', 'gate = "nope"', "the gates are"),
        ('gate = "occupancy"', f'gate = "{STEPS_DOWN}"', "steps down"),
        ('gate = "occupancy"', 'gate = "e126687a9a"', "is of policy e126687a9a"),
        ('subject = "thor"', 'subject = "b300"', "no such device"),
        ('name = "gb10"', 'name = "thor"', "occurs twice"),
        ('oracle = "transformers"', 'oracle = "vllm-0.33.0"', "occurs twice"),
        ('at_least = "5.16.0"', 'at_least = "five"', "at_least"),
        ('at_least = "5.16.0"', 'at_least = "5.16.0"\ngate = "occupancy"', "only vllm has one"),
        ("host = true", "", "either a host or"),
        ("exposes_gpu = false", "exposes_gpu = true", "exposes no GPU"),
        ("k = 512", "k = 0", "k"),
        ('role = "secondary"', 'role = "secondary"\nstatus = "runs"', "status"),
        ('[row]\nname = "MODEL-MM-QWEN4-EXP"', '[row]\nname = "a b"', "name"),
        ("[[device]]", "[[device", "schema"),
    ],
)
def test_a_file_that_is_no_fleet_is_refused(tmp_path, old, new, named):
    """The sentence names the file and what is wrong in it; nobody can type a status in."""
    assert old in TEXT
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(UsageError, match=named) as caught:
        fleet.load(str(path))
    assert "mine.toml" in caught.value.sentence
    assert caught.value.hint


def test_a_fleet_that_cannot_be_read_is_refused(tmp_path):
    """Unknown name, missing file, folder, too many bytes, no UTF-8."""
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "large.toml").write_bytes(b"#" * 70_000)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    for name in ("nope", "none.toml", "folder.toml", "large.toml", "latin.toml"):
        place = str(tmp_path / name) if name.endswith(".toml") else name
        with pytest.raises(UsageError, match=name.removesuffix(".toml")):
            fleet.load(place)
