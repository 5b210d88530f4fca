# SPDX-License-Identifier: Apache-2.0
"""The committed evidence: pages are what the tool makes of the stores, and the model agrees."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from thorprobe import answer as evidence
from thorprobe.cli.measure import of_recording
from thorprobe.record import Origin, Status
from thorprobe.render import FORMATS
from thorprobe.render.sheet import render_json, render_markdown
from thorprobe.run.model import ModelAnswerer
from thorprobe.run.shipped import recorded
from thorprobe.run.store import read

REPORTS = Path(__file__).parents[1] / "reports"
STORES = sorted(REPORTS.glob("*.jsonl"))
ANSWERS = sorted(REPORTS.glob("*.json"))
MEASURED = [path for path in STORES if path.name.startswith("h200-")]


def test_there_is_evidence():
    """Every page has its store, and the other way round; the H200 was measured."""
    assert {p.stem for p in (*STORES, *ANSWERS)} == {p.stem for p in REPORTS.glob("*.md")}
    assert len(MEASURED) >= 7


@pytest.mark.parametrize("path", STORES, ids=lambda p: p.stem)
def test_a_page_is_what_its_store_renders_to(path):
    """No page was edited: `thorprobe report STORE --output PAGE` makes it byte for byte."""
    document = of_recording(read(path))
    assert document.missing == 0
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert FORMATS["markdown"](document).rstrip("\n") == page.rstrip("\n"), (
        f"make the page anew: thorprobe report {path.name} --output {path.stem}.md"
    )


@pytest.mark.parametrize("path", ANSWERS, ids=lambda p: p.stem)
def test_a_page_is_what_its_answer_renders_to(path):
    """No page of a single answer was edited either, and the answer is written as the tool does."""
    answer = evidence.read(path)
    assert render_json(answer) == path.read_text(encoding="utf-8")
    (sheet,) = evidence.sheets([answer])
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert render_markdown(sheet, answer).rstrip("\n") == page.rstrip("\n"), (
        f"make the page anew: thorprobe report {path.name} --output {path.stem}.md"
    )


@pytest.mark.parametrize("path", MEASURED, ids=lambda p: p.stem)
def test_measured_evidence_is_whole_and_measured(path):
    """Every launch was answered and measured, and every result that came back is right."""
    outcomes = read(path).outcomes
    assert {o.origin for o in outcomes} == {Origin.MEASURED}
    assert {o.status for o in outcomes} == {Status.PASS}
    checked = [o.observed.check for o in outcomes if o.observed.check]
    assert checked
    assert sum(check.wrong_rows for check in checked) == 0


def _operator(outcome):
    return outcome.observed.operator is not msgspec.UNSET


def _footprint(outcome):
    """Return a launch; of one of vLLM's operators thorprobe's kernel with its threads and bytes."""
    if not _operator(outcome):
        return outcome.spec
    return replace(outcome.spec, kernel="topk", compiled_cluster=0, repeats=0)


@pytest.mark.parametrize("path", MEASURED, ids=lambda p: p.stem)
def test_the_model_predicts_what_was_measured(path):
    """Potential, active and launch code of every recorded launch are those of the profile."""
    recording = read(path)
    model = ModelAnswerer("h200", recording.header.device.partition)
    model.attach(recorded(recording.header.options))
    outcomes = [o for o in recording.outcomes if o.spec.cluster_attribute or not _operator(o)]
    assert outcomes
    specs = [_footprint(o) for o in outcomes]
    for seen, told in zip(outcomes, model.ask(specs), strict=True):
        for name in ("max_potential", "max_active", "launch_code"):
            assert getattr(seen.observed, name) == getattr(told.observed, name), (name, seen.id)
