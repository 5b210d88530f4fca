# SPDX-License-Identifier: Apache-2.0
"""The gate of an installed vLLM: where its sources are found, how they compare, and bad ones."""

import zipfile

import pytest

from thorprobe.audit import installed
from thorprobe.audit.agreement import as_gate, compare, policy_of
from thorprobe.audit.installed_records import Match, Role, SourceGate
from thorprobe.errors import CouldNotProbeError, ExitCode, UsageError
from thorprobe.plan.policy import load, names

PATH = "vllm/models/qwen4_exp/nvidia/ops/qsa_indexer.py"
GATE = """\
def select(scores, out):
    take = (
        scores.shape[0] <= {rows}
        and scores.stride(0) % 4 == 0
        and here.has_device_capability({least})
        {families}
    )
    (ops._C.cooperative_topk if take else ops._C.persistent_topk)(scores, out)
"""
WITHOUT = "and not here.is_device_capability_family({})"


def source(rows=64, least=90, families=(120,)):
    """Write a call site with the constants of vLLM in other words."""
    lines = "\n        ".join(WITHOUT.format(family) for family in families)
    return GATE.format(rows=rows, least=least, families=lines)


def metadata(version):
    """Write what a wheel says of itself."""
    return f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n"


@pytest.fixture
def folder(tmp_path):
    """Make a site-packages folder with a vLLM of a version and a call site."""

    def make(text=None, version="0.33.0", name="site-packages"):
        root = tmp_path / name
        place = root / PATH
        place.parent.mkdir(parents=True)
        place.write_text(source() if text is None else text)
        (root / "vllm/__init__.py").write_text("raise RuntimeError('imported')\n")
        info = root / f"vllm-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata(version))
        return root

    return make


@pytest.fixture
def wheel(tmp_path):
    """Make a wheel with these entries."""

    def make(entries, name="vllm-0.33.0-cp38-abi3-manylinux_2_28_aarch64.whl"):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, data in entries.items():
                archive.writestr(entry, data)
        return path

    return make


def found(sources):
    """Compare what was read with the data."""
    return compare(sources.source, sources.version, sources.gates)


def test_a_wheel_and_a_folder_hold_the_same_gate(folder, wheel):
    """A wheel, site-packages and the package itself give one gate, a version and a hash each."""
    root = folder()
    packed = wheel({PATH: source(), "vllm-0.33.0.dist-info/METADATA": metadata("0.33.0")})
    read = [installed.at(place) for place in (packed, root, root / "vllm")]
    assert {r.version for r in read} == {"0.33.0"}
    assert {r.gates for r in read} == {read[0].gates}
    assert [set(r.inputs) for r in read] == [{PATH}] * 3
    assert read[0].source == f"wheel {packed.name}"
    assert str(root) not in read[1].source
    (gate,) = read[0].gates
    assert (gate.path, gate.rows, gate.min_capability) == (PATH, 64, (9, 0))


def test_the_installed_package_is_read_and_not_imported(folder, monkeypatch):
    """`--installed` finds the package of this environment without running a line of it."""
    monkeypatch.syspath_prepend(str(folder()))
    read = installed.here()
    assert (read.version, read.source, len(read.gates)) == ("0.33.0", "this environment", 1)


def test_without_a_vllm_there_is_nothing_to_read():
    """An environment without vLLM ends in one sentence, a hint and exit code 3."""
    with pytest.raises(CouldNotProbeError, match="no vLLM in this environment") as caught:
        installed.here()
    assert caught.value.exit_code is ExitCode.COULD_NOT_PROBE
    assert "--sources" in caught.value.hint


@pytest.mark.parametrize(
    ("version", "policy"),
    [
        ("0.33.0", "0.33.0"),
        ("0.33.0+cu130", "0.33.0"),
        ("0.24.0", "0.24.0"),
        ("0.33.1", ""),
        ("0.28.1rc1.dev388+ge126687a9", "e126687a9a"),
        ("0.28.1rc1.dev388+ge126687a9.d20260901", "e126687a9a"),
        ("0.28.1rc1.dev388+g8a728663", ""),
        ("0.28.1rc1.dev388+ge1", ""),
        ("", ""),
        ("nonsense", ""),
    ],
)
def test_a_version_leads_to_its_data_or_to_none(version, policy):
    """A release is known by number, a build by commit; anything else has no data."""
    assert policy_of(version) == policy


def test_the_shipped_constants_agree_with_the_data(folder):
    """The constants of 0.33.0 are those of its policy, each named."""
    told = found(installed.at(folder()))
    assert {c.match for c in told.compared} == {Match.AGREES}
    assert [c.constant for c in told.compared] == [
        *("row limit", "stride multiple", "least capability", "excluded families")
    ]
    assert told.finding == ("vLLM 0.33.0: the constants of its gate (line 8) are those of the data")
    assert as_gate(told) is None


@pytest.mark.parametrize(
    ("text", "constant", "in_source", "in_data"),
    [
        (source(families=(120, 110)), "excluded families", "110, 120", "120"),
        (source(families=()), "excluded families", "none", "120"),
        (source(rows=32), "row limit", "32", "64"),
        (source(least=100), "least capability", "10.0", "9.0"),
    ],
)
def test_a_patched_installation_is_a_mismatch(folder, text, constant, in_source, in_data):
    """One changed constant is told with both values, and the gate as read can be audited."""
    told = found(installed.at(folder(text)))
    (other,) = told.mismatches
    assert (other.constant, other.in_source, other.in_data) == (constant, in_source, in_data)
    assert told.finding.startswith("MISMATCH: vLLM 0.33.0")
    gate, bounds = as_gate(told)
    assert (gate.name, gate.status, gate.policy) == ("installed", "installed", "0.33.0")
    assert bounds.rows == (32 if constant == "row limit" else 64)


def test_an_unknown_version_is_reported_and_nothing_is_assumed(folder):
    """Without data the constants are there, no comparison and no gate to audit."""
    told = found(installed.at(folder(version="0.40.0")))
    assert (told.policy, told.compared, len(told.sites)) == ("", (), 1)
    assert "nothing is assumed" in told.finding
    assert as_gate(told) is None


def test_what_the_data_leaves_open_is_filled_in_by_no_guess(folder):
    """A constant not established of a version is shown beside `not established`."""
    told = found(installed.at(folder(source(rows=32), version="0.29.0")))
    by_name = {c.constant: c for c in told.compared}
    assert by_name["row limit"].match is Match.AGREES
    assert by_name["excluded families"].match is Match.NEW
    assert by_name["excluded families"].in_data == "not established"
    assert not told.mismatches


def test_a_condition_that_was_not_understood_is_no_mismatch(folder):
    """Where a line could not be read, a missing constant may be in it."""
    text = source(families=()).replace("has_device_capability(90)", "suits()")
    told = found(installed.at(folder(text)))
    by_name = {c.constant: c.match for c in told.compared}
    assert by_name["least capability"] is Match.MISSING
    assert by_name["excluded families"] is Match.MISSING
    assert by_name["row limit"] is Match.AGREES
    assert "not compared: least capability, excluded families" in told.finding


def test_the_data_is_held_against_its_own_call_site():
    """Other call sites are reported; a version whose site is not found is not compared."""
    generic = SourceGate(path="vllm/x/indexer_topk.py", function="f", line=1, role=Role.GENERIC)
    told = compare("a folder", "0.33.0", [generic])
    assert told.compared == ()
    assert "was not found" in told.finding
    assert compare("a folder", "0.24.0", [generic]).compared
    assert "no source takes" in compare("a folder", "0.33.0", []).finding


def test_the_line_told_is_that_of_the_call_site_that_the_data_is_about():
    """Where the data is about the generic indexer its line is told, and not another site's."""
    bounds = load("0.24.0").gate
    site = SourceGate(
        path="vllm/x/indexer_topk.py",
        function="f",
        line=41,
        role=Role.GENERIC,
        rows=bounds.rows,
        stride_multiple=bounds.stride_multiple,
        min_capability=bounds.min_capability,
        excluded_families=bounds.excluded_families,
    )
    other = SourceGate(path=PATH, function="g", line=8, role=Role.QSA)
    assert " of its gate (line 41) are " in compare("a folder", "0.24.0", [site, other]).finding


def test_every_policy_names_a_call_site_that_is_read():
    """Each policy's gate is of one of the two call sites."""
    assert {load(name).gate.site for name in names()} == {"qsa", "generic"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no wheel that can be read"),
        (b"PK\x03\x04 and then nothing", "no wheel that can be read"),
        (b"#!/bin/sh\n" * 100, "no wheel that can be read"),
    ],
)
def test_a_broken_wheel_is_told_in_one_sentence(tmp_path, data, told):
    """A file that is no archive is a usage error that names it."""
    path = tmp_path / "vllm-0.33.0.whl"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"vllm-0\.33\.0\.whl") as caught:
        installed.at(path)
    assert told in caught.value.sentence
    assert caught.value.hint


def test_other_bad_places_are_told(tmp_path, wheel, folder):
    """A missing file, a foreign wheel, a folder without vllm, foreign and oversized sources."""
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        installed.at(tmp_path / "none.whl")
    with pytest.raises(UsageError, match="holds no vllm"):
        installed.at(wheel({"torch/__init__.py": ""}, "torch-1-py3-none-any.whl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no vllm"):
        installed.at(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"qsa_indexer\.py` line 1 is no Python"):
        installed.at(folder("def cooperative_topk(:\n", name="broken"))
    with pytest.raises(UsageError, match="not UTF-8"):
        installed.at(wheel({PATH: b"# cooperative_topk \xff\n"}))
    big = wheel({PATH: b"# cooperative_topk\n" + b"\n" * installed.MAX_SOURCE}, "big.whl")
    with pytest.raises(UsageError, match="too many for a source"):
        installed.at(big)


def test_bounds_hold_whatever_an_archive_says(wheel, monkeypatch):
    """Too many entries, and too many bytes in all, end the reading."""
    monkeypatch.setattr(installed, "MAX_FILES", 3)
    with pytest.raises(UsageError, match="more than 3 entries"):
        installed.at(wheel({f"vllm/{n}.py": "" for n in range(4)}))
    monkeypatch.setattr(installed, "MAX_FILES", 100)
    monkeypatch.setattr(installed, "MAX_TOTAL", 1_000)
    with pytest.raises(UsageError, match=r"more than 1,000 B of sources"):
        installed.at(wheel({f"vllm/{n}.py": "#" * 400 for n in range(4)}, "total.whl"))


def test_links_lead_nowhere(folder, tmp_path):
    """A link to a folder is not walked, and one out of the tree is not read."""
    outside = tmp_path / "outside.py"
    outside.write_text(source(rows=1))
    root = folder()
    (root / "vllm" / "loop").symlink_to(root / "vllm")
    (root / "vllm" / "out.py").symlink_to(outside)
    read = installed.at(root)
    assert [gate.rows for gate in read.gates] == [64]


def test_a_lying_archive_is_a_usage_error(wheel):
    """An entry whose bytes were changed is told as a broken archive."""
    path = wheel({PATH: source()})
    data = path.read_bytes()
    start = data.index(PATH.encode()) + len(PATH) + 20
    path.write_bytes(
        data[:start] + bytes(b ^ 0x55 for b in data[start : start + 40]) + data[start + 40 :]
    )
    with pytest.raises(UsageError, match="no wheel that can be read"):
        installed.at(path)


def test_a_wheel_whose_directory_claims_more_than_it_has_is_not_read(wheel):
    """The zip library reads a directory whole, so its size is bounded before."""
    packed = wheel({PATH: source()})
    data = bytearray(packed.read_bytes())
    end = data.rfind(b"PK\x05\x06")
    data[end + 12 : end + 16] = (2**31).to_bytes(4, "little")
    packed.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        installed.at(packed)
    assert "2,147,483,648 B" in caught.value.sentence or "no wheel" in caught.value.sentence
