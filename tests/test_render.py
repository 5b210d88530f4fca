# SPDX-License-Identifier: Apache-2.0
"""Renderers: one snapshot per format and kind of document, and what each format promises."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from thorprobe.record import ArmsSummary, Document, Footer, Header, Outcome, Status, Verdict
from thorprobe.render import FORMATS
from thorprobe.render.junit import ELEMENTS
from thorprobe.render.sample import SAMPLES
from thorprobe.render.text import render as render_text
from thorprobe.render.text import show, terminal

SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = os.environ.get("THORPROBE_UPDATE_SNAPSHOTS") == "1"
SHORTENED = {"json", "jsonl", "junit"}
"""Formats that hold every outcome: their snapshots show one of each kernel, verdict and cause."""


@pytest.fixture(autouse=True)
def _no_step_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def shortened(document: Document) -> Document:
    """Keep the first outcome of each kernel, verdict, cause and assumption."""
    firsts: dict[object, Outcome] = {}
    for outcome in document.results:
        key = (outcome.spec.kernel, outcome.verdict, outcome.cause, outcome.assumes)
        firsts.setdefault(key, outcome)
    return msgspec.structs.replace(document, results=tuple(firsts.values()))


def with_statuses(document: Document) -> Document:
    """Give the first outcomes one status each, in the order of ``Status``."""
    changed = [
        msgspec.structs.replace(outcome, status=status)
        for outcome, status in zip(document.results, Status, strict=False)
    ]
    results = (*changed, *document.results[len(changed) :])
    return msgspec.structs.replace(document, results=results)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", FORMATS)
def test_snapshot(form: str, name: str) -> None:
    """Every format shows every sample exactly as its committed snapshot does."""
    document = SAMPLES[name]()
    shown = FORMATS[form](shortened(document) if form in SHORTENED else document)
    path = SNAPSHOTS / f"{name}.{form}"
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", FORMATS)
def test_same_document_same_bytes(form: str, name: str) -> None:
    """A document read back from its own JSON renders to the same bytes, in any dict order."""
    document = SAMPLES[name]()
    again = msgspec.json.decode(msgspec.json.encode(document), type=Document)
    reordered = msgspec.structs.replace(
        again,
        software=dict(reversed(again.software.items())),
        inputs=dict(reversed(again.inputs.items())),
    )
    other = again if form in {"json", "jsonl"} else reordered
    assert FORMATS[form](other) == FORMATS[form](document)


@pytest.mark.parametrize("name", SAMPLES)
def test_json_is_the_document(name: str) -> None:
    """The JSON starts with its schema and decodes to the document itself."""
    document = SAMPLES[name]()
    shown = FORMATS["json"](document)
    assert msgspec.json.decode(shown, type=Document) == document
    assert next(iter(json.loads(shown))) == "schema"


@pytest.mark.parametrize("name", SAMPLES)
def test_jsonl_is_a_finished_store(name: str) -> None:
    """JSON Lines hold one header, every outcome once and in order, and one footer."""
    document = SAMPLES[name]()
    lines = FORMATS["jsonl"](document).splitlines()
    read = [msgspec.json.decode(line, type=Header | Outcome | Footer) for line in lines]
    assert isinstance(read[0], Header)
    assert read[0].device == document.device
    assert tuple(read[1:-1]) == document.results
    assert isinstance(read[-1], Footer)
    assert read[-1].probes == len(document.results)


@pytest.mark.parametrize("name", SAMPLES)
def test_junit_totals(name: str) -> None:
    """JUnit counts each probe once, under the element of its status, in suites and in total."""
    document = with_statuses(SAMPLES[name]())
    root = ET.fromstring(FORMATS["junit"](document))
    wanted = Counter(ELEMENTS.get(outcome.status) for outcome in document.results)
    assert int(root.attrib["tests"]) == len(document.results) == len(root.findall(".//testcase"))
    for element, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(root.attrib[counted]) == wanted[element] == len(root.findall(f".//{element}"))
        assert sum(int(suite.attrib[counted]) for suite in root) == wanted[element]
    names = [case.attrib["name"] for case in root.iter("testcase")]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", ["predicted-sweep", "predicted-arms"])
def test_prediction_says_so_first(form: str, name: str) -> None:
    """The first line of a prediction says that it is one, and the page that nothing launched."""
    shown = FORMATS[form](SAMPLES[name]())
    assert "predicted" in shown.splitlines()[0].lower()
    assert "nothing was launched" in shown


def test_recording_says_so_first() -> None:
    """The first line of a replayed document says that nothing was launched now."""
    document = msgspec.structs.replace(SAMPLES["measured-sweep"](), origin="recorded")
    recorded = msgspec.json.decode(msgspec.json.encode(document), type=Document)
    assert FORMATS["text"](recorded).startswith("RECORDED earlier, nothing was launched now")


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", FORMATS)
def test_nothing_was_probed(form: str, name: str) -> None:
    """A document without results still renders: a run may have been stopped before the first."""
    document = SAMPLES[name]()
    emptied = {"arms": ()} if isinstance(document.summary, ArmsSummary) else {}
    summary = msgspec.structs.replace(document.summary, probes=0, **emptied)
    empty = msgspec.structs.replace(document, results=(), summary=summary)
    assert FORMATS[form](empty).strip()


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", SAMPLES)
def test_text_fits_its_width(name: str, width: int) -> None:
    """No line of text is wider than the terminal, and no cell of a sweep is lost."""
    document = SAMPLES[name]()
    shown = render_text(document, width)
    assert max(map(len, shown.splitlines())) <= width
    if name == "measured-sweep":
        # The sizes 9 to 16 answer alike, so they share a row of six footprints.
        assert len(re.findall(r"\b912\b(?!\S| CUDA)", shown)) >= 6


def test_six_footprints_fit_100_columns() -> None:
    """A full sweep is one table, not several, where the terminal has 100 columns."""
    shown = render_text(SAMPLES["measured-sweep"](), 100)
    assert shown.count("With the non-portable opt-in") == 1


def test_no_colour_only_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coloured text without its colours is the uncoloured text, and NO_COLOR takes them away."""
    document = SAMPLES["measured-sweep"]()
    coloured = StringIO()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    show(document, Console(file=coloured, width=100, force_terminal=True, color_system="standard"))
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue())
    assert "\x1b[31m" in coloured.getvalue()
    assert [line.rstrip() for line in bare.splitlines()] == render_text(document).splitlines()
    monkeypatch.setenv("NO_COLOR", "1")
    quiet = StringIO()
    show(document, Console(file=quiet, width=100, force_terminal=True, color_system="standard"))
    assert "\x1b[31m" not in quiet.getvalue()


def test_a_pipe_gets_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is no terminal gets plain text even where the environment forces colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = StringIO()
    show(SAMPLES["predicted-arms"](), terminal(stream))
    assert stream.getvalue() == render_text(SAMPLES["predicted-arms"]())
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (Verdict.WRONG, "wrong"),
        (Verdict.FAULTS, "fault"),
        (Verdict.HANGS, "hang"),
        (Verdict.UNDETERMINED, "?"),
        (Verdict.NOT_PROBED, "-"),
    ],
)
def test_every_word_has_a_legend(verdict: Verdict, word: str) -> None:
    """A cell that is not a number shows its verdict's word, and the legend explains it."""
    document = SAMPLES["measured-sweep"]()
    last = next(o for o in document.results if o.spec.cluster_size == 4 and o.spec.non_portable)
    results = tuple(
        msgspec.structs.replace(o, verdict=verdict) if o is last else o for o in document.results
    )
    table, _, legend = render_text(msgspec.structs.replace(document, results=results)).partition(
        "\nLegend"
    )
    assert re.search(rf"^ +4 +\d+ +\d+ {re.escape(word)}", table, re.MULTILINE)
    assert re.search(rf"^{re.escape(word)} +\S", legend, re.MULTILINE)


def test_opt_in_that_changes_an_answer_is_shown() -> None:
    """A size whose answer depends on the opt-in gets a row of its own instead of the summary."""
    document = SAMPLES["measured-sweep"]()
    off = next(o for o in document.results if o.spec.cluster_size == 4 and not o.spec.non_portable)
    changed = msgspec.structs.replace(off, verdict=Verdict.WRONG)
    results = tuple(changed if o is off else o for o in document.results)
    shown = render_text(msgspec.structs.replace(document, results=results))
    assert re.search(r"^4 off .*wrong", shown, re.MULTILINE)
    assert "1-3, 5-8 answer the same" in shown


def test_markdown_quotes_the_refusal() -> None:
    """The page of a refused size holds code, name, sentence and the silence of the driver's log."""
    shown = FORMATS["markdown"](SAMPLES["measured-sweep"]())
    section = shown.partition("refused, larger-than-any-gpc")[2].partition("###")[0]
    assert "| 912 | CUDA_ERROR_INVALID_CLUSTER_SIZE | a kernel launch error" in section
    assert "Driver log: silent about this launch" in section
    assert "```sh\nthorprobe cluster-sweep --partition sms=8\n```" in shown


def test_unread_log_is_not_silence() -> None:
    """A driver log that could not be read is told apart from a silent one."""
    document = SAMPLES["measured-sweep"]()
    results = tuple(msgspec.structs.replace(o, driver_log=None) for o in document.results)
    shown = FORMATS["markdown"](msgspec.structs.replace(document, results=results))
    assert "Driver log: could not be read" in shown
    assert "silent about this launch" not in shown


def test_module_shows_a_sample() -> None:
    """`python -m thorprobe.render.markdown` prints a page, and names the samples when it cannot."""
    command = [sys.executable, "-m", "thorprobe.render.markdown"]
    folder = Path(__file__).parents[1]
    page = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert page.stdout == FORMATS["markdown"](SAMPLES["measured-sweep"]())
    wrong = subprocess.run(
        [*command, "nothing"], capture_output=True, text=True, check=False, cwd=folder
    )
    assert wrong.returncode == 1
    assert "predicted-arms" in wrong.stderr
