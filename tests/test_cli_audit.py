# SPDX-License-Identifier: Apache-2.0
"""`thorprobe audit` and `thorprobe claims` as a user runs them."""

import json
import zipfile
from pathlib import Path

import pytest

from thorprobe import answer as evidence

REPORTS = Path(__file__).parents[1] / "reports"
SMS8 = REPORTS / "h200-sms8-arms-as-11.0.jsonl"
QSA = "vllm/models/qwen4_exp/nvidia/ops/qsa_indexer.py"
PATCHED = (
    "def select(scores):\n"
    "    if (\n        scores.shape[0] <= 64\n        and scores.stride(0) % 4 == 0\n"
    "        and here.has_device_capability(90)\n"
    "        and not here.is_device_capability_family(120)\n"
    "        and not here.is_device_capability_family(110)\n    ):\n"
    "        ops._C.cooperative_topk(scores)\n"
)


@pytest.fixture
def patched(tmp_path):
    """Return a wheel of 0.33.0 whose gate excludes family 110 as well."""
    path = tmp_path / "vllm-0.33.0-cp38-abi3-linux_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(QSA, PATCHED)
        archive.writestr("vllm-0.33.0.dist-info/METADATA", "Name: vllm\nVersion: 0.33.0\n")
    return path


def test_without_arguments_the_profiles_are_audited(main):
    """thor, h200 and gb10 answer by the model, and the first line says so."""
    ran = main("audit")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("PREDICTED, nothing was launched: thor, h200 and gb10 (predicted)")
    text = " ".join(ran.out.split())
    assert "0.33.0: on thor (predicted) lets rows 1-4 through" in text
    assert "keeps rows 34-64 (5-64 if the published claim largest-cluster-8 holds)" in text
    assert "def resident_cluster(wanted, k):" in ran.out
    assert "smem-over-optin" in ran.out


def test_a_store_is_audited_alone_and_written_as_evidence(main, tmp_path):
    """`--json --output` keeps the answer; `report` makes its page, the same each time."""
    kept = tmp_path / "audit.json"
    ran = main("audit", SMS8, "--json", "--output", kept)
    assert ran.code == 0, ran.err
    answer = json.loads(kept.read_text())
    assert (answer["command"], answer["origin"]) == ("audit", "recorded")
    assert answer["argv"] == ["audit", SMS8.name, "--json", "--output", "audit.json"]
    on = answer["summary"]["on"][SMS8.stem]
    assert on["pr-56084"]["false_rejects"] == [[5, 64]]
    assert answer["inputs"].keys() == {f"store {SMS8.name}"}
    assert evidence.read(kept).summary.gates[0].name == "e126687a9a"
    page = main("report", kept)
    assert page.out.startswith("# Audit of the gates\n")
    assert page.out == main("report", kept).out
    assert str(tmp_path) not in page.out + kept.read_text()


def test_one_gate_and_a_gate_file(main, tmp_path):
    """`--gate` takes a name or a file, and only those are audited."""
    own = tmp_path / "own.toml"
    own.write_text(
        'name = "own"\ntitle = "mine"\nstatus = "proposed"\npolicy = "0.33.0"\nsource = "here"\n'
        "also_excluded_families = [90]\n"
    )
    ran = main("audit", "--profile", "h200", "--gate", own, "--gate", "0.29.0", "--json")
    assert ran.code == 0, ran.err
    on = json.loads(ran.out)["summary"]["on"]["h200"]
    assert set(on) == {"own", "0.29.0"}
    assert on["own"]["false_rejects"] == [[1, 64]]


def test_a_patched_wheel_is_a_mismatch_and_is_audited_as_read(main, patched):
    """The mismatch comes first, the gate as read is judged, and `--fail-on` turns it red."""
    ran = main("audit", SMS8, "--sources", patched, "--json", "--fail-on", "mismatch")
    assert ran.code == 1
    assert "failed: MISMATCH" in ran.err
    answer = json.loads(ran.out)
    assert answer["summary"]["finding"].startswith("MISMATCH: vLLM 0.33.0")
    assert answer["exit_code"] == 1
    assert answer["summary"]["on"][SMS8.stem]["installed"]["false_rejects"] == [[5, 64]]
    assert QSA in answer["inputs"]
    text = main("audit", SMS8, "--sources", patched).out
    assert "excluded families  110, 120" in text


@pytest.mark.parametrize(
    ("gate", "wanted", "code"),
    [
        ("0.33.0", "false-accept", 1),
        ("0.33.0", "false-reject", 0),
        ("pr-56084", "false-accept", 0),
        ("pr-56084", "false-reject", 1),
        ("occupancy", "false-accept", 0),
        ("occupancy", "mismatch", 0),
    ],
)
def test_fail_on_turns_a_wrong_decision_red(main, gate, wanted, code):
    """Only what was asked for, of the gates that were asked for, ends in exit code 1."""
    ran = main("audit", SMS8, "--gate", gate, "--fail-on", wanted)
    assert ran.code == code
    assert ("failed:" in ran.err) == bool(code)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--profile", "thro"], 2, "`--profile thro`"),
        (["--gate", "nobody"], 2, "unknown Gate `nobody`"),
        (["none.jsonl"], 2, "`none.jsonl` cannot be read"),
        ([REPORTS / "h200-full.jsonl"], 2, "holds a `cluster-sweep`"),
        (["--sources", "none.whl"], 2, "`--sources none.whl` cannot be read"),
        (["--installed"], 3, "no vLLM in this environment"),
        (["--installed", "--sources", "x"], 2, "were both given"),
        (["--fail-on", "rain"], 2, "rain"),
        (["--profile", "gb10", "--format", "junit"], 2, "this answer has text, json, markdown"),
    ],
)
def test_bad_arguments_end_in_one_sentence(main, arguments, code, told):
    """Each bad argument has one sentence, a hint and its exit code, and no traceback."""
    ran = main("audit", *arguments)
    assert ran.code == code
    assert told in ran.err
    assert "\nhint: " in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_claims_list_the_register_and_hold_runs_against_it(main, tmp_path):
    """Without a store the register, with one what it confirms and leaves open."""
    alone = main("claims")
    assert alone.code == 0, alone.err
    assert alone.out.startswith("Held against no run\n")
    assert "largest-cluster-8" in alone.out
    kept = tmp_path / "claims.json"
    assert main("claims", REPORTS / "h200-full.jsonl", "--json", "-o", kept).code == 0
    standings = json.loads(kept.read_text())["summary"]["standings"]["h200-full"]
    assert standings["confirmed"] == ["portable-8", "opt-in-above-8"]
    assert standings["contradicted"] == []
    assert "portable-8" in main("report", kept).out
    ran = main("claims", tmp_path / "none.jsonl")
    assert (ran.code, "Traceback" in ran.err) == (2, False)


def test_the_doctor_names_the_gate_of_an_installed_vllm(main, tmp_path, monkeypatch, patched):
    """Without vLLM one line says so; with one a mismatch of its constants is marked."""
    assert "no vLLM in this environment" in main("doctor").out
    with zipfile.ZipFile(patched) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site/vllm/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    text = main("doctor").out
    assert "MISMATCH: vLLM 0.33.0" in text
    assert "hint: thorprobe audit --installed" in text
