# SPDX-License-Identifier: Apache-2.0
"""The oracle and the report that closes a row: from files to page, and what measuring changes."""

import json
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from thorprobe import answer as evidence
from thorprobe.cli.measure import of_recording
from thorprobe.oracle import closing_report
from thorprobe.oracle import table as oracle
from thorprobe.oracle.evidence_file import EvidenceFile
from thorprobe.oracle.fleet import load
from thorprobe.record import Origin, Verdict
from thorprobe.render import github
from thorprobe.render.sheet import render_markdown, render_text
from thorprobe.run.store import read

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "reports"
ROW = "MODEL-MM-QWEN4-EXP"
FLEET = load("thor-h200-gb10")
_MADE = runpy.run_path(str(Path(__file__).parent / "exhibits.py"))
arms, model, REFUSED = _MADE["arms"], _MADE["model"], _MADE["REFUSED"]
BOTH = ("0.33.0", "e126687a9a")
CLAIM = {"largest-cluster-8": Verdict.LAUNCHES}
PREDICTED = arms(
    policies=BOTH,
    by_cluster={16: REFUSED, 8: Verdict.UNDETERMINED, 4: Verdict.UNDETERMINED},
    claims=CLAIM,
    name="thor.jsonl",
)
STANDS_IN = arms(
    "NVIDIA H200",
    BOTH,
    origin=Origin.MEASURED,
    dispatched=(11, 0),
    partition="sms=24",
    by_cluster={16: REFUSED},
    time_us=42.7,
    name="sms24.jsonl",
)


def closing(*exhibits):
    """Return the closing report of the row from made-up exhibits."""
    cells = oracle.cells(FLEET, exhibits)
    return closing_report.summarize(
        FLEET, exhibits, cells, oracle.summarize(FLEET, exhibits, cells)
    )


def test_the_failing_size_is_told_with_its_origin():
    """A prediction stays one, and what stood in is named beside it."""
    found = closing(PREDICTED, STANDS_IN)
    assert found.failing == (16,)
    assert found.finding.startswith(
        "The failing cluster size is 16, predicted for thor, and measured on NVIDIA H200 (sms=24) "
        "as cc 11.0; where thor is the only GPU: no vLLM oracle on this fleet, by prediction"
    )
    assert found.owed[1].origin is Origin.PREDICTED
    assert found.next_action
    assert "thor was not measured" in found.open[0]
    assert any(
        "rows 5-33: undetermined" in text and "largest-cluster-8" in text for text in found.open
    )


def test_a_measurement_takes_the_predictions_place():
    """Once the owner's stores are there, the report is measured and asks for nothing more."""
    seen = arms(policies=BOTH, origin=Origin.MEASURED, by_cluster={16: REFUSED}, name="seen.jsonl")
    found = closing(PREDICTED, STANDS_IN, seen)
    assert found.finding.startswith("The failing cluster size is 16, measured for thor")
    assert "by prediction" not in found.finding
    assert found.owed[1].origin is Origin.MEASURED
    assert found.next_action == ""
    assert {who.evidence for who in found.who} == {seen.line.id, STANDS_IN.line.id}


def test_a_device_that_refuses_nothing_is_told_so():
    """No size is called failing where every arm launched."""
    found = closing(arms(policies=BOTH, origin=Origin.MEASURED, name="seen.jsonl"))
    assert found.failing == ()
    assert found.finding.startswith("No arm is refused on thor (measured)")


def test_without_evidence_nothing_is_established():
    """An empty report says so in each thing owed, and invents no device."""
    found = closing()
    assert found.finding.startswith("The failing cluster size on thor is not established")
    assert [owed.origin for owed in found.owed] == [None, None, None]
    assert found.owed[0].answers == ("not established: no evidence answers it",)
    assert found.evidence == ()


def test_a_proposed_gate_loses_the_arms_that_are_not_refused():
    """Excluding the family costs every arm but the refused one; a gate that asks costs none."""
    losses = {loss.oracle: loss for loss in closing(PREDICTED, STANDS_IN).losses}
    lost = losses["vllm-0.33.0-no-110"].arms
    assert [arm.rows for arm in lost] == [(5, 8), (9, 33), (34, 64)]
    assert losses["vllm-0.33.0-occupancy"].arms == ()
    answer = lost[0].answers[STANDS_IN.line.id]
    assert (answer.verdict, answer.time_us) == (Verdict.LAUNCHES, 42.7)
    assert lost[0].answers[PREDICTED.line.id].verdict is Verdict.UNDETERMINED


def test_the_audit_is_shown_where_it_is_and_not_missed_where_it_is_not():
    """A gate audit among the evidence gives its finding a section of its own."""
    assert closing(PREDICTED).told == ()
    line = _MADE["line"]("gate-audit.json", "", Origin.PREDICTED, "audit", "Two lose rows 5-64")
    audited = EvidenceFile(line=line)
    found = closing(PREDICTED, audited)
    assert [(told.command, told.finding) for told in found.told] == [("audit", line.finding)]
    assert line in found.evidence


def test_what_the_model_itself_selected_is_told():
    """Answers of the model, and of its calls by num_rows, are named with what they found."""
    selected = model()
    line = _MADE["line"]("calls.json", "", Origin.MEASURED, "topk-arms --through-model", "Reached")
    found = closing(PREDICTED, selected, EvidenceFile(line=line))
    assert {told.command for told in found.told} == {"model-topk", "topk-arms --through-model"}
    assert "CPU (measured): Reached" in found.owed[1].answers
    assert line.id in found.owed[1].because
    assert "transformers carries the algorithm (cpu)" in found.finding


def test_the_owners_line_is_one_line_of_commands_that_exist(main):
    """It installs, measures on the device itself, needs no vLLM, and ends in this report."""
    line = closing(PREDICTED).command
    assert "\n" not in line
    assert "vllm" not in line.lower()
    parts = [shlex.split(part) for part in line.split("&&")]
    ours = [words[1:] for words in parts if words[0].endswith("/thorprobe")]
    assert [words[0] for words in ours] == ["cluster-sweep", "topk-arms", "report"]
    for words in ours[:2]:
        assert words[1:3] == ["--device", "0"]
        ran = main(*words)
        assert ran.code == 3, "without a GPU it must not fall back to a prediction"
    assert ours[2][:3] == ["report", "--row", ROW]
    assert ours[2][-2:] == list(closing_report.STORES)


def test_the_owners_line_beside_a_vllm_has_the_engine_alone_and_with_the_drop_in(main):
    """Its commands exist; without vLLM they say so in one sentence."""
    line = closing(PREDICTED).engine_command
    assert "\n" not in line
    parts = [shlex.split(part) for part in line.split("&&")]
    assert parts[0] == ["python", "-m", "pip", "install", "-q", "."]
    engines = [words[1:] for words in parts if words[1:3] == ["model-topk", "--engine"]]
    assert [words[words.index("--store") + 1] for words in engines] == list(closing_report.ENGINES)
    assert ["--drop-in" in words for words in engines] == [False, True]
    for words in engines:
        ran = main(*words)
        assert ran.code == 3
        assert "no vLLM is installed here" in " ".join(ran.err.split())
    assert parts[-1] == ["thorprobe", "report", "--row", ROW, "reports", *closing_report.ENGINES]


def test_oracle_answers_from_named_files(main, tmp_path):
    """The JSON has the contract's keys; every cell's evidence is an input with its hash."""
    out = tmp_path / "oracle.json"
    ran = main("oracle", FLEET.name, "--evidence", REPORTS, "--json", "--output", out)
    assert ran.code == 0, ran.err
    answer = json.loads(out.read_text())
    assert answer["command"] == "oracle"
    entries = answer["summary"]["rows"][ROW]
    assert entries["vllm-0.33.0"].keys() >= {"status", "because", "weight", "gateable", "pin"}
    assert entries["llama-cpp-qwen4exp"]["status"] == "not probed"
    named = {name for cell in answer["results"] for name in cell["because"]}
    known = {f"{name}@{digest[:12]}" for name, digest in answer["inputs"].items()}
    assert named
    assert named <= known
    assert f"fleet {FLEET.name}" in answer["inputs"]
    assert str(tmp_path) not in out.read_text()
    text = main("report", out, "--format", "text").out
    assert "blocked (predicted)" in text
    assert "rows 1-4 (16 CTAs)" in text


def test_the_same_evidence_gives_the_same_page(tmp_path, main):
    """Text, markdown and JSON of the closing report are made from its file alone."""
    out = tmp_path / "row.json"
    assert main("report", "--row", ROW, REPORTS, "--json", "--output", out).code == 0
    answer = evidence.read(out)
    (sheet,) = evidence.sheets([answer])
    page = main("report", out).out
    assert page == render_markdown(sheet, answer)
    for owed in answer.summary.owed:
        assert owed.question in page
    assert answer.summary.command in page
    assert all(line.rstrip() == line for line in render_text(sheet).splitlines())


def test_a_finding_is_an_annotation_and_the_page_the_step_summary(tmp_path, monkeypatch, main):
    """--format github of a single answer prints one notice, and appends the page."""
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ran = main("report", "--row", ROW, REPORTS, "--format", "github")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("::notice title=thorprobe report::RECORDED")
    assert ran.out.count("\n") == 1
    assert summary.read_text().startswith(f"# Row {ROW}")
    monkeypatch.setattr(github, "SUMMARY_LIMIT", summary.stat().st_size * 2 - 1)
    ran = main("report", "--row", ROW, REPORTS, "--format", "github")
    assert "a shorter page" in ran.out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["oracle", "nope"], "nope"),
        (["oracle", "thor-h200-gb10"], "no evidence was named"),
        (["oracle", "thor-h200-gb10", "--evidence", "none.jsonl"], "none.jsonl"),
        (["oracle", "thor-h200-gb10", "--evidence", "bad.json"], "bad.json"),
        (["oracle", "thor-h200-gb10", "--format", "junit", "--evidence", "."], "junit"),
        (["report"], "no FILE was named"),
        (["report", "--fleet", "thor-h200-gb10"], "without a row"),
        (["report", "--row", "NOPE"], "no shipped fleet"),
        (["report", "--row", "NOPE", "--fleet", "thor-h200-gb10"], "is of row"),
        (["report", "--row", ROW], "no evidence was named"),
        (["report", "--row", ROW, "--fleet", "none.toml", "."], "none.toml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence(main, tmp_path, monkeypatch, words, named):
    """What was asked and what is wrong, a hint, exit code 2, and no traceback."""
    monkeypatch.chdir(tmp_path)
    if "." in words:
        shutil.copy(REPORTS / "gb10-predicted-arms.jsonl", tmp_path)
    (tmp_path / "bad.json").write_text("{\n") if "bad.json" in words else None
    ran = main(*words)
    assert ran.code == 2
    assert ran.out == ""
    sentence, blank, hint = ran.err.rstrip("\n").split("\n")
    assert sentence.startswith("error: ")
    assert named in sentence
    assert blank == ""
    assert hint.startswith("hint: ")


def test_an_edited_answer_is_still_only_text(tmp_path, main):
    """A page of an answer with hostile names and no row stays a page."""
    out = tmp_path / "oracle.json"
    assert main("oracle", FLEET.name, "--evidence", REPORTS, "--json", "--output", out).code == 0
    answer = json.loads(out.read_text())
    answer["summary"]["rows"] = {}
    answer["results"][0]["reason"] = "<script>\u001b[31m|x|"
    answer["results"][0]["because"] = ["gone@0"]
    out.write_text(json.dumps(answer, indent=2))
    page = main("report", out).out
    assert "<script>" not in page
    assert "\u001b" not in page
    assert "gone&#64;0" in page


@pytest.mark.parametrize("name", ["oracle.json", "row-MODEL-MM-QWEN4-EXP.json"])
def test_the_committed_answer_follows_from_the_committed_evidence(name):
    """Asked again of the files that it names, the answer is the same: none of it was typed in."""
    answer = evidence.read(REPORTS / name)
    from thorprobe.oracle.evidence import read_all

    files = [key for key in answer.inputs if not key.startswith("fleet ")]
    exhibits = read_all([REPORTS / file for file in files])
    now = {x.line.name: x.line.sha256 for x in exhibits}
    assert now == {key: answer.inputs[key] for key in files}, "scripts/closing-report.sh"
    cells = oracle.cells(FLEET, exhibits)
    table = oracle.summarize(FLEET, exhibits, cells)
    whole = (
        table if name == "oracle.json" else closing_report.summarize(FLEET, exhibits, cells, table)
    )
    assert answer.results == cells, "make it anew: scripts/closing-report.sh"
    assert answer.summary == whole, "make it anew: scripts/closing-report.sh"


def test_the_committed_measurements_are_of_the_h200():
    """What the report calls measured was: no committed store of a Thor or GB10 says so."""
    for path in sorted(REPORTS.glob("*.jsonl")):
        document = of_recording(read(path))
        if document.origin is Origin.MEASURED:
            assert "H200" in document.device.name
