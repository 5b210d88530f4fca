# SPDX-License-Identifier: Apache-2.0
"""Evidence files as exhibits: judged anew, named by hash, refused where they are none."""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

import devices
from thorprobe import answer as evidence
from thorprobe.answer import Evidence, Kind
from thorprobe.errors import UsageError
from thorprobe.oracle.evidence import read_all
from thorprobe.record import Origin, Record, Verdict

REPORTS = Path(__file__).parents[1] / "reports"
ARMS = REPORTS / "thor-predicted-arms.jsonl"


class Agreement(Record, frozen=True, kw_only=True):
    """The part of an agreement that an oracle reads."""

    past_budget: int = 5


class Model(Record, frozen=True, kw_only=True):
    """The summary fields of model-topk that the JSON contract names."""

    finding: str = "sets equal"
    context_tokens: int = 2_300
    rungs: dict[str, int] = msgspec.field(default_factory=lambda: {"torch": 4})
    sets_equal: bool = True
    max_logit_difference: float | None = 0.0
    tokens_equal: bool = True
    tokens_per_second: float = 1.0


class WithMore(Model, frozen=True, kw_only=True):
    """The same with what a newer answer may add."""

    falls: int = 2
    wrong_rows: int = 1
    agreement: Agreement = Agreement()


H200 = msgspec.structs.replace(devices.H200, partition="sms=24")


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Write a model-topk answer and return its path."""

    def write(summary=None, name="model.json", **fields):
        summary = summary or Model()
        kind = Kind(type=Evidence[dict, type(summary)], sheet=None)
        monkeypatch.setattr(evidence, "kind", lambda _command: kind)
        made = Evidence(
            command="model-topk",
            started="2026-11-30T12:00:00Z",
            origin=Origin.MEASURED,
            software={"transformers": "5.24.0"},
            summary=summary,
            **fields,
        )
        path = tmp_path / name
        path.write_bytes(msgspec.json.format(msgspec.json.encode(made)))
        return path

    return write


def test_a_store_is_judged_anew_and_named_by_its_hash(tmp_path):
    """Verdicts written into a file count nothing, and the id changes with the bytes."""
    (whole,) = read_all([ARMS])
    digest = sha256(ARMS.read_bytes()).hexdigest()
    assert whole.line.id == f"{ARMS.name}@{digest[:12]}"
    assert whole.line.sha256 == digest
    assert (whole.profile, whole.capability, whole.line.origin.value) == (
        *("thor", (11, 0), "predicted"),
    )
    edited = tmp_path / ARMS.name
    edited.write_text(ARMS.read_text().replace('"verdict":"refused"', '"verdict":"launches"'))
    (other,) = read_all([edited])
    assert other.line.sha256 != digest
    verdicts = {arm.verdict for arm in other.arms.arms if arm.cluster == 16}
    assert verdicts == {Verdict.REFUSED}


def test_an_answer_of_the_model_is_read_by_the_contracts_names(answer):
    """A CPU has no device; what an older answer lacks is not made up."""
    (found,) = read_all([answer()])
    assert (found.device, found.line.device) == ("", "CPU")
    assert found.model.context_tokens == 2_300
    assert (found.model.falls, found.model.past_budget, found.model.tiny) == (0, None, False)
    assert found.model.transformers == "5.24.0"
    (newer,) = read_all([answer(WithMore(), options={"size": "tiny"}, device=H200)])
    assert (newer.model.falls, newer.model.wrong_rows, newer.model.past_budget) == (2, 1, 5)
    assert newer.model.tiny
    assert (newer.device, newer.partition) == ("NVIDIA H200", "sms=24")
    (real,) = read_all([answer(options={"size": "tiny", "checkpoint": "model"})])
    assert not real.model.tiny


def test_a_folder_gives_what_bears_on_an_oracle(tmp_path, answer):
    """Pages and answers of other commands are passed over; the order is that of the names."""
    shutil.copy(ARMS, tmp_path)
    (tmp_path / "page.md").write_text("# a page")
    answer()
    other = json.loads((tmp_path / "model.json").read_text()) | {"command": "inspect"}
    (tmp_path / "other.json").write_text(json.dumps(other, indent=2))
    assert [x.line.name for x in read_all([tmp_path])] == ["model.json", ARMS.name]
    assert len(read_all([tmp_path, ARMS])) == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no header"),
        ("{\n", "no evidence"),
        ('{\n"command": 7}', "no evidence"),
        ("not json\n", "line 1"),
        ("[" * 100_000 + "\n", "line 1"),
    ],
    ids=["empty", "cut", "wrong type", "no json", "deep"],
)
def test_a_file_that_is_no_evidence_is_named(tmp_path, text, named):
    """One sentence names the file, with a hint."""
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=named) as caught:
        read_all([path])
    assert "bad.json" in caught.value.sentence
    assert caught.value.hint


def test_places_that_are_not_there_and_names_that_clash_are_refused(tmp_path):
    """A missing file, a device, too large a file, and two files of one name that differ."""
    with pytest.raises(UsageError, match="no regular file"):
        read_all([Path("/dev/zero")])
    large = tmp_path / "large.json"
    large.write_text("{\n")
    os.truncate(large, evidence.MAX_BYTES + 1)
    with pytest.raises(UsageError, match="evidence has at most"):
        read_all([large])
    large.unlink()
    with pytest.raises(UsageError, match="no such file"):
        read_all([tmp_path / "none.jsonl"])
    shutil.copy(REPORTS / "gb10-predicted-arms.jsonl", tmp_path / ARMS.name)
    with pytest.raises(UsageError, match="two files named"):
        read_all([ARMS, tmp_path / ARMS.name])
