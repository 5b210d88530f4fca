# SPDX-License-Identifier: Apache-2.0
"""GitHub Actions: which outcome gets which annotation, and what reaches the step summary."""

import runpy
from pathlib import Path

import msgspec
import pytest

from thorprobe.record import Status, Verdict
from thorprobe.render import EXPECTATION_FORMATS, FORMATS
from thorprobe.render.expectation import Line
from thorprobe.render.github import SUMMARY_LIMIT
from thorprobe.render.text import render_expectations
from thorprobe.summary import Document

SAMPLES = runpy.run_path(str(Path(__file__).parent / "samples.py"))["SAMPLES"]
LINES = [
    Line("thor-report", "expected 16 refused, observed refused", Status.PASS),
    Line("thor-report", "expected 8 to launch, observed refused", Status.FAIL),
    Line("h200-full", "needs an NVIDIA H200", Status.WAIVED),
]


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a step summary that does not exist yet."""
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def document() -> Document:
    """Return the measured sweep."""
    return SAMPLES["measured-sweep"]()


def test_page_is_appended(summary: Path) -> None:
    """The evidence page goes behind what the step summary holds already."""
    summary.write_text("before\n", encoding="utf-8")
    FORMATS["github"](document())
    assert summary.read_text(encoding="utf-8") == "before\n" + FORMATS["markdown"](document())


@pytest.mark.parametrize("room", [0, 100, 5_000])
def test_summary_keeps_its_limit(summary: Path, room: int) -> None:
    """A summary that is nearly full gets a shorter page or none, never one byte too many."""
    summary.write_bytes(b"x" * (SUMMARY_LIMIT - room))
    shown = FORMATS["github"](document())
    added = summary.stat().st_size - (SUMMARY_LIMIT - room)
    assert added <= room
    assert (added > 0) == (room == 5_000)
    assert ("holds a shorter page" if added else "the step summary is full") in shown


def test_unwritable_summary_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary that cannot be written costs a warning, not the annotations."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    shown = FORMATS["github"](document())
    assert shown.startswith("::notice title=thorprobe cluster-sweep::")
    assert "::warning title=thorprobe::the step summary cannot be written" in shown


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({"verdict": Verdict.WRONG}, "error"),
        ({"verdict": Verdict.HANGS, "status": Status.TIMEOUT}, "error"),
        ({"verdict": Verdict.NOT_PROBED, "status": Status.ERROR}, "error"),
        ({"verdict": Verdict.UNDETERMINED}, "warning"),
        ({"verdict": Verdict.NOT_PROBED, "status": Status.WAIVED}, "notice"),
    ],
)
def test_level_follows_the_outcome(
    change: dict[str, object], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went wrong is an error, what stays open a warning, what was waived a notice."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    first, *rest = document().results
    changed = msgspec.structs.replace(first, **change)
    shown = FORMATS["github"](msgspec.structs.replace(document(), results=(changed, *rest)))
    assert f"::{level} title=thorprobe trivial::1 probe at cluster size 1: " in shown


def test_refusal_is_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused sizes alone raise neither an error nor a warning."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert FORMATS["github"](document()).count("::notice") == 1
    assert "::error" not in FORMATS["github"](document())


def test_expectations(summary: Path) -> None:
    """Each expectation that does not hold is annotated, and all are in the summary's table."""
    shown = EXPECTATION_FORMATS["github"](LINES)
    assert "::error title=thorprobe run thor-report::expected 8 to launch" in shown
    assert "::notice title=thorprobe run h200-full::needs an NVIDIA H200" in shown
    assert "expected 16" not in shown
    table = summary.read_text(encoding="utf-8")
    assert table.count("\n| ") == 1 + len(LINES)
    assert "3 expectations of 2 scenarios: 1 pass, 1 fail, 1 waived" in table


@pytest.mark.parametrize("form", ["verbose text", "json", "junit"])
def test_expectations_hold_every_sentence(form: str) -> None:
    """Every format of the expectations names each scenario, sentence and status."""
    if form == "verbose text":
        shown = render_expectations(LINES, verbose=True)
    else:
        shown = EXPECTATION_FORMATS[form](LINES)
    assert all(line.scenario in shown and line.sentence in shown for line in LINES)
    assert shown.count("thor-report") >= 1
    if form == "junit":
        assert 'tests="3" failures="1" errors="0" skipped="1"' in shown
    else:
        assert all(line.status.value in shown for line in LINES)


def test_failures_come_first_and_what_holds_takes_a_line() -> None:
    """Text names each failure, then counts each scenario's passes and waivers, with the reason."""
    waived = "expected 16 refused; waived: no CUDA driver"
    lines = [
        Line("thor", "16 refused", Status.PASS),
        Line("thor", "8 open", Status.PASS),
        Line("h200", waived, Status.WAIVED),
        Line("h200", waived.replace("16", "9"), Status.WAIVED),
        Line("gb10", "smem", Status.PASS),
        Line("gb10", "expected 2 to launch; observed refused", Status.FAIL),
    ]
    shown = EXPECTATION_FORMATS["text"](lines)
    assert [" ".join(line.split()) for line in shown.splitlines()[:-1]] == [
        "fail gb10 expected 2 to launch; observed refused",
        "pass thor 2 expectations",
        "waived h200 2 expectations: no CUDA driver",
        "pass gb10 1 of 2 expectations",
    ]
    assert shown.endswith("6 expectations of 3 scenarios: 3 pass, 1 fail, 2 waived\n")
    every = render_expectations(lines, verbose=True)
    assert every.splitlines()[0] == shown.splitlines()[0]
    assert all(line.sentence in every for line in lines)


def test_waivers_of_several_reasons_are_all_told() -> None:
    """Two results waived for different reasons are not one line with one of them."""
    lines = [Line("h200", f"x; waived: {why}", Status.WAIVED) for why in ("no part", "no driver")]
    shown = EXPECTATION_FORMATS["text"](lines)
    assert "no part" in shown
    assert "no driver" in shown
