# SPDX-License-Identifier: Apache-2.0
"""Device profiles: what they hold, and what happens to a bad one."""

from importlib import resources
from pathlib import Path

import pytest

from thorprobe.errors import ExitCode, UsageError
from thorprobe.model import profile
from thorprobe.plan.claim import by_id

OWN = 'id = "of-12", statement = "12 run", source = "a report"'
THOR = (resources.files("thorprobe.model") / "profiles" / "thor.toml").read_text()


@pytest.mark.parametrize("name", profile.names())
def test_every_profile_names_itself_and_its_basis(name: str) -> None:
    """Each profile loads under its own name, and its device says what a prediction rests on."""
    loaded = profile.load(name)
    device = loaded.device()
    assert (loaded.name, device.profile) == (name, name)
    assert f"{device.sms} SMs" in device.basis
    assert len(loaded.sha256) == 64


def test_the_named_profiles_exist() -> None:
    """thor, h200 and gb10 come with the package."""
    assert {"thor", "h200", "gb10"} <= set(profile.names())


def test_thor_has_the_published_limits() -> None:
    """The Thor profile gives 20 SMs, 1,536 threads per SM and 232,448 B with the opt-in."""
    device = profile.load("thor").device()
    assert device.capability == (11, 0)
    assert (device.sms, device.limits.max_threads_per_sm) == (20, 1_536)
    assert device.limits.max_smem_per_block_optin == 232_448
    (claim,) = device.claims
    assert (claim.id, claim.largest_cluster, claim.at_least) == ("largest-cluster-8", 8, False)
    assert "vLLM PR #56102" in claim.source


def test_a_profile_is_loaded_from_a_path(tmp_path: Path) -> None:
    """A file given by its path is a profile like any other."""
    path = tmp_path / "mine.toml"
    path.write_text(THOR.replace('name = "thor"', 'name = "mine"'))
    assert profile.load(str(path)).device().profile == "mine"


def test_a_profile_names_claims_of_the_register_or_states_its_own(tmp_path: Path) -> None:
    """An id takes what the register says; a table in the file is a claim of the file's own."""
    registered = by_id("largest-cluster-8")
    (claim,) = profile.load("thor").claims
    assert (claim.statement, claim.source) == (registered.statement, registered.source)
    path = tmp_path / "own.toml"
    own = f'["largest-cluster-8", {{ {OWN.replace("12", "6")}, largest_cluster = 6 }}]'
    path.write_text(THOR.replace('["largest-cluster-8"]', own))
    assert [c.largest_cluster for c in profile.load(str(path)).claims] == [8, 6]


def test_an_unknown_profile_is_a_usage_error_that_lists_the_known() -> None:
    """An unknown name is refused with the names there are and a hint."""
    with pytest.raises(UsageError) as caught:
        profile.load("thro")
    assert "gb10, h200, thor" in caught.value.sentence
    assert caught.value.hint
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (', source = "tvm" }', " }", "source"),
        ('source = "tvm"', 'source = "nobody"', "`nobody`"),
        ('origin = "published", source = "tvm"', 'origin = "guessed", source = "tvm"', "guessed"),
        ("value = 232448", 'value = "many"', "max_smem_per_block_optin"),
        ("value = 232448", "value = -1", "max_smem_per_block_optin"),
        ("sms = { value = 20", "sms = { value = 21", "21 SMs"),
        ("sms = { value = 20", "sms = { value = 40", "no layout of 40 SMs"),
        ('["largest-cluster-8"]', f"[{{ {OWN}, largest_cluster = 12 }}]", "`of-12`"),
        ('["largest-cluster-8"]', '["largest-cluster-80"]', "`largest-cluster-80`"),
        ('["largest-cluster-8"]', '["thor-20-sms"]', "`thor-20-sms` says nothing of the largest"),
        ('["largest-cluster-8"]', "8", "claims"),
        ("[layout]", "[layout]\nfuture = 1", "future"),
        ("[limits]", "[limits", "not TOML"),
    ],
)
def test_a_bad_profile_is_told_in_one_sentence(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    """A missing or unknown source, a bad number, a contradiction: each is named, with a hint."""
    path = tmp_path / "bad.toml"
    assert old in THOR
    path.write_text(THOR.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        profile.load(str(path))
    assert told in caught.value.sentence
    assert str(path) in caught.value.sentence
    assert caught.value.hint


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a = " + b"[" * 60_000, b"x" * (300 << 10)])
def test_foreign_bytes_are_a_usage_error(tmp_path: Path, data: bytes) -> None:
    """Binary, deeply nested and oversized files are refused, not crashed on."""
    path = tmp_path / "foreign.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError):
        profile.load(str(path))


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    """A path without a file says that it cannot be read."""
    with pytest.raises(UsageError, match="cannot be read"):
        profile.load(str(tmp_path / "none.toml"))


def test_unmeasured_partitions_are_not_modelled() -> None:
    """Only the partitions measured on the H200 have a model; flags=0 is the default spelt out."""
    h200 = profile.load("h200")
    assert h200.device("sms=8,flags=0") == h200.device("sms=8")
    assert h200.device("sms=8").available_sms == 8
    for loaded, partition in ((h200, "sms=10"), (profile.load("thor"), "sms=8")):
        with pytest.raises(UsageError, match="does not model"):
            loaded.device(partition)


def test_a_layout_can_be_taken_out() -> None:
    """Without its layout Thor keeps its SMs, TPCs, limits and claims, and nothing bounds a GPC."""
    bare = profile.load("thor").without_layout()
    assert bare.admissible().largest(16) == (2, 16)
    assert bare.admissible().count == 42
    assert "no published layout" in bare.device().basis
    assert bare.device().claims == profile.load("thor").device().claims


def test_a_thor_of_14_sms_refuses_what_the_larger_one_refuses():
    """It differs from the AGX Thor in its SMs alone, and 16 fits no group of any layout."""
    small, large = (profile.load(name) for name in ("thor-14-sms", "thor"))
    assert (small.sms.value, large.sms.value) == (14, 20)
    assert small.limits == large.limits
    assert small.layout == large.layout
    maps = small.admissible()
    assert maps.exists
    assert maps.hosted(16) == (0, 0)
    assert maps.hosted(2) == (7, 7)
    assert large.admissible().hosted(16) == (0, 0)
