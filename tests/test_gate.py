# SPDX-License-Identifier: Apache-2.0
"""The gates as data: what ships, what each does to its policy, and bad files."""

import pytest

from thorprobe.errors import UsageError
from thorprobe.plan import gate as gates
from thorprobe.plan.policy import gate as decide
from thorprobe.plan.policy import load as load_policy

OWN = """\
name = "own"
title = "a gate of my own"
status = "proposed"
policy = "0.33.0"
also_excluded_families = [90]
source = "this test"
"""


@pytest.fixture
def written(tmp_path):
    """Write a gate file and return its path as text."""

    def write(text):
        path = tmp_path / "own.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", gates.names())
def test_every_gate_names_itself_and_its_source(name):
    """Each gate loads under its own name, with a source, over a policy that exists."""
    gate = gates.load(name)
    assert (gate.name, load_policy(gate.policy).name) == (name, gate.policy)
    assert len(gate.source) > 10
    assert gate.effective().gate.source == gate.source


def test_the_gates_of_an_audit_ship():
    """The two read gates, the two proposed fixes and thorprobe's own are audited by default."""
    assert set(gates.DEFAULT) <= set(gates.names())
    statuses = {name: gates.load(name).status for name in gates.DEFAULT}
    assert statuses == {
        "e126687a9a": "shipped",
        "0.33.0": "shipped",
        "pr-56084": "proposed",
        "pr-56102": "proposed",
        "occupancy": "thorprobe",
        "step-down": "thorprobe",
    }


@pytest.mark.parametrize(
    ("name", "capability", "is_open"),
    [
        ("0.33.0", (11, 0), True),
        ("0.33.0", (12, 1), False),
        ("0.33.0", (8, 9), False),
        ("pr-56084", (11, 0), False),
        ("pr-56084", (10, 3), True),
        ("pr-56102", (11, 0), False),
        ("e126687a9a", (11, 0), True),
        ("e126687a9a", (12, 1), True),
        ("occupancy", (12, 1), True),
        ("occupancy", (8, 9), True),
        ("step-down", (11, 0), True),
    ],
)
def test_a_gate_excludes_what_its_source_does(name, capability, is_open):
    """A fix excludes family 110 too; a gate that asks the device excludes no capability."""
    policy = gates.load(name).effective()
    assert decide(policy, 4, 65_536, capability)[0] is is_open


def test_a_shipped_gate_is_its_policys():
    """Without changes the conditions are the policy's own: there is one source of truth."""
    for name in ("0.29.0", "0.33.0", "e126687a9a"):
        gate = gates.load(name).effective().gate
        own = load_policy(name).gate
        assert (gate.rows, gate.stride_multiple, gate.min_capability, gate.excluded_families) == (
            *(own.rows, own.stride_multiple, own.min_capability, own.excluded_families),
        )


def test_a_gate_is_loaded_from_a_path(written):
    """A file given by its path is a gate like any other."""
    gate = gates.load(written(OWN))
    assert decide(gate.effective(), 4, 65_536, (9, 0))[0] is False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OWN.replace('policy = "0.33.0"', 'policy = "9.9"'), "9.9"),
        (OWN.replace('status = "proposed"', 'status = "wished"'), "wished"),
        (OWN + "steps_down = true\n", "steps_down needs asks_occupancy"),
        (OWN + "future = 1\n", "future"),
        (OWN.replace("[90]", '["Hopper"]'), "also_excluded_families"),
        ("name = ", "does not fit the schema"),
        ("#" * 70_000, "more than 65,536 bytes"),
        ("x = " + "[" * 6_000, "does not fit the schema"),
    ],
)
def test_a_bad_gate_file_is_told_in_one_sentence(written, text, told):
    """An unknown policy, status or field and text that is no TOML are named, with a hint."""
    with pytest.raises(UsageError) as caught:
        gates.load(written(text))
    assert told in caught.value.sentence
    assert "\n" not in caught.value.sentence
    assert caught.value.hint


def test_an_unknown_gate_lists_the_known(tmp_path):
    """A name without a gate and a path without a file each end in a usage error."""
    with pytest.raises(UsageError, match="unknown Gate `ocupancy`") as caught:
        gates.load("ocupancy")
    assert "occupancy" in caught.value.hint
    with pytest.raises(UsageError, match="cannot be read"):
        gates.load(str(tmp_path / "none.toml"))
