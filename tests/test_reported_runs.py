# SPDX-License-Identifier: Apache-2.0
"""Reported runs: what others saw on a device, and a measurement that contradicts one of them."""

from importlib import resources
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from test_claims import as_if_measured
from thorprobe.app import app
from thorprobe.commands import claims_check
from thorprobe.errors import UsageError
from thorprobe.judge.claim import weigh_reported
from thorprobe.judge.claim_records import Standing
from thorprobe.plan import reported as reported_runs
from thorprobe.plan.claim import by_id
from thorprobe.plan.datafile import Folder
from thorprobe.plan.reported import ReportedRun, Sureness, reported
from thorprobe.record import Footer, Origin
from thorprobe.render.claim_remarks import remarks
from thorprobe.run.store import Store, read

REPORTS = Path(__file__).parents[1] / "reports"
RUNS = {run.id: run for run in reported()}
PROFILE = (resources.files("thorprobe.model") / "profiles" / "thor.toml").read_text()


@pytest.fixture(scope="module")
def groups_of_4(tmp_path_factory):
    """Return a Thor as if measured whose largest group has 4 SMs; made up, no measurement."""
    path = tmp_path_factory.mktemp("profile") / "groups-of-4.toml"
    text = PROFILE.replace('claims = ["largest-cluster-8"]', "")
    text = text.replace("max_gpcs = { value = 3", "max_gpcs = { value = 5")
    text = text.replace("max_sms_per_gpc = { value = 8", "max_sms_per_gpc = { value = 4")
    path.write_text(text.replace('value = true, origin = "rec', 'value = false, origin = "rec'))
    return as_if_measured(str(path))


class _OneFile(Folder):
    """The folder of reported runs as if it held one file."""

    def __init__(self, path):
        super().__init__("Reported runs", "plan", "reported_runs")
        self.path = path

    def names(self):
        """One name; what it stands for is the file."""
        return ("one",)

    def load(self, name, kind):
        """Read that file under any name."""
        return super().load(self.path, kind)


def stored(document, path):
    """Write a document as the store of a whole device's sweep, beside the H200's options."""
    header = read(REPORTS / "h200-full.jsonl").header
    header = msgspec.structs.replace(header, device=document.device)
    with Store(path, header) as store:
        for outcome in document.results:
            store.write(outcome)
        store.write(
            Footer(ended=header.started, exit_code=0, probes=len(document.results), wall_s=1)
        )
    return path


def standings(document):
    """Return how a document stands to each reported run on such a device."""
    return {r.run: r.standing for r in weigh_reported(reported(), "run", document)}


def test_the_thors_that_ran_are_there():
    """Each run names its source and hardware, and less than high sureness says why."""
    assert {"thor-runs-4", "thor-runs-8", "thor-vllm-runs", "thor-14-sms"} <= set(RUNS)
    assert all(run.source and run.hardware and run.read for run in RUNS.values())
    assert all(bool(run.doubt) == (run.sure is not Sureness.HIGH) for run in RUNS.values())
    assert by_id(*RUNS["thor-runs-4"].contradicts).disputed_by


@pytest.mark.parametrize(
    "change",
    [{"sure": "medium"}, {"doubt": "why"}, {"date": "yesterday"}, {"read": ""}, {"more": 1}],
)
def test_a_run_that_says_too_little_is_no_run(change):
    """A doubt without grounds, grounds without a doubt, and a day that is none are rejected."""
    good = msgspec.to_builtins(RUNS["thor-runs-4"])
    assert msgspec.convert(good, ReportedRun, strict=False) == RUNS["thor-runs-4"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(good | change, ReportedRun, strict=False)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "thor-runs-4"', 'id = "thor-16-refused"', "have one id"),
        ('id = "thor-runs-4"', 'id = "thor-runs-8"', "have one id"),
        ('["thor-no-clusters"]', '["no-such-claim"]', "claim that is not there"),
    ],
)
def test_the_register_of_runs_is_checked(tmp_path, monkeypatch, old, new, message):
    """An id is of one run and of no claim, and what a run contradicts is a claim."""
    text = reported_runs._FOLDER.read("thor").decode()
    assert old in text
    bad = tmp_path / "bad.toml"
    bad.write_text(text.replace(old, new, 1))
    monkeypatch.setattr(reported_runs, "_FOLDER", _OneFile(str(bad)))
    with pytest.raises(UsageError, match=message):
        reported.__wrapped__()


def test_a_thor_as_published_confirms_what_others_ran():
    """With groups of 8 every reported run holds, and a prediction confirms none."""
    thor = as_if_measured("thor", "largest-cluster-8")
    found = standings(thor)
    assert set(found.values()) == {Standing.CONFIRMED}
    assert set(found) == {
        run.id for run in RUNS.values() if run.says and run.device.fits(thor.device)
    }
    predicted = msgspec.structs.replace(thor, origin=Origin.PREDICTED)
    assert set(standings(predicted).values()) == {Standing.OPEN}


def test_a_thor_that_refuses_8_contradicts_a_reported_run(groups_of_4):
    """The contradicted run comes first, and those of 2 and 4 hold."""
    found = standings(groups_of_4)
    assert next(iter(found.items())) == ("thor-runs-8", Standing.CONTRADICTED)
    assert found["thor-runs-4"] is found["thor-refuses-16"] is Standing.CONFIRMED


def test_a_contradiction_is_the_first_finding(groups_of_4, tmp_path):
    """`claims` names the run, its source and what was seen instead before anything else."""
    path = stored(groups_of_4, tmp_path / "thor.jsonl")
    finding = claims_check.check([path]).summary.finding
    assert finding.startswith(
        "NVIDIA Thor, thor.jsonl (recorded) contradicts the reported run thor-runs-8 "
        "(mlc-ai TIRx-kernels PR #169, 2026-09-07): a cluster of 8 is refused. "
    )
    page = CliRunner().invoke(app, ["claims", str(path), "--format", "markdown"])
    assert page.exit_code == 0
    assert "| thor | thor-runs-8 | contradicted | a cluster of 8 is refused |" in page.stdout


def test_a_device_of_which_nobody_told_is_held_against_no_run():
    """The H200's page has no table of reported runs, and its finding stays what it was."""
    held = claims_check.check([REPORTS / "h200-full.jsonl"]).summary
    assert held.against_reported == ()
    assert len(held.reported) == len(reported())
    assert "reported run" not in held.finding


def test_a_prediction_names_the_runs_that_speak_of_each_size():
    """Beside a prediction stands what others saw, by size, with the run."""
    thor = as_if_measured("thor", "largest-cluster-8")
    told = dict(remarks(msgspec.structs.replace(thor, origin=Origin.PREDICTED)))
    assert list(told) == [f"Reported at {size}" for size in (2, 4, 8, 16)]
    assert told["Reported at 8"].startswith("launches (thor-runs-8: mlc-ai TIRx-kernels PR #169")
    assert told["Reported at 16"].startswith("is refused (thor-refuses-16: ")
    assert all(len(text) <= 300 for text in told.values())
    h200 = msgspec.structs.replace(thor.device, capability=(9, 0), name="NVIDIA H200")
    assert remarks(msgspec.structs.replace(thor, device=h200, origin=Origin.PREDICTED)) == []
