# SPDX-License-Identifier: Apache-2.0
"""Renderers: one snapshot per format and kind of document, and what each format promises."""

import json
import os
import re
import runpy
from collections import Counter
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from thorprobe.record import Footer, Header, Observed, Outcome, Status, Verdict
from thorprobe.render import FORMATS
from thorprobe.render.junit import ELEMENTS
from thorprobe.render.text import render as render_text
from thorprobe.render.text import show, terminal
from thorprobe.summary import ArmsSummary, Document

SAMPLES = runpy.run_path(str(Path(__file__).parent / "samples.py"))["SAMPLES"]
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


def incomplete(name: str) -> Document:
    """Return a sample of which 16 planned launches have no record."""
    return msgspec.structs.replace(SAMPLES[name](), missing=16)


@pytest.mark.parametrize("name", ["measured-sweep", "measured-arms"])
def test_a_cut_run_says_so_before_its_finding(name: str) -> None:
    """Missing records are told right after the device, in text, markdown and as a warning."""
    said = "INCOMPLETE: 16 planned launches have no record; `--resume FILE` goes on"
    document = incomplete(name)
    assert render_text(document).splitlines()[1] == said
    page = FORMATS["markdown"](document)
    assert page.index("INCOMPLETE: 16 planned") < page.index("**Finding:**")
    assert f"::warning title=thorprobe {document.command}::{said}" in FORMATS["github"](document)
    assert "INCOMPLETE" not in render_text(SAMPLES[name]())
    one = msgspec.structs.replace(document, missing=1)
    assert render_text(one).splitlines()[1].startswith("INCOMPLETE: 1 planned launch has no record")


def test_a_cut_run_is_no_finished_store() -> None:
    """JSON Lines of a document with missing records have no footer, so that it can be resumed."""
    last = FORMATS["jsonl"](incomplete("measured-sweep")).splitlines()[-1]
    assert isinstance(msgspec.json.decode(last, type=Header | Outcome | Footer), Outcome)


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", ["measured-arms", "predicted-arms"])
def test_whose_kernel_it_was_is_said_once(form: str, name: str) -> None:
    """The page of the arms says near its top that only launch or refusal is upstream's as well."""
    shown = " ".join(FORMATS[form](SAMPLES[name]()).replace("\\", "").split())
    assert shown.count("thorprobe's cluster_topk with upstream's grid") == 1
    assert shown.index("results and times are its own") < shown.index(" at k 512, fp32")


def test_times_and_checks_say_what_they_are_of() -> None:
    """The legend names the kernel, how a time was taken, and how many results a cluster made."""
    text = " ".join(render_text(SAMPLES["measured-arms"]()).split())
    assert "best cluster size at which thorprobe's kernel was fastest" in text
    assert "median of 7 graph replays, inputs warm in cache where they fit, largest length" in text
    found = re.search(
        r"([\d,]+) of ([\d,]+) results, each launch once, took the cluster path", text
    )
    assert found is not None
    whole, compared = (int(group.replace(",", "")) for group in found.groups())
    # Four lengths are asked at each row, and one of them is over 16,384.
    assert compared == 4 * whole
    assert f"({compared:,} results checked against" in text


def test_the_dispatched_capability_is_in_the_title_where_it_is_not_the_devices() -> None:
    """An H200 driven as cc 11.0 says so above the table, a Thor by its own does not."""
    assert "Arms dispatched as cc 11.0 at k 512, fp32" in render_text(SAMPLES["measured-arms"]())
    assert "\nArms at k 512, fp32" in render_text(SAMPLES["predicted-arms"]())


def test_the_persistent_row_shows_nothing_of_the_stand_in() -> None:
    """Bytes, gate, results and times are dashes, and what the stand-in did is a note."""
    shown = render_text(SAMPLES["measured-arms"]())
    row = re.search(r"^0\.33\.0 +65\+ +none +(.*)$", shown, re.MULTILINE)
    assert row is not None
    assert row[1].split() == ["-", "-", "not", "probed", "-", "-", "-", "-"]
    text = " ".join(shown.split())
    assert "persistent_topk was not launched; stand-in without a cluster launched, 260 of" in text
    assert "Shut for" not in shown


def test_refused_sizes_are_told_apart_from_worse_ones() -> None:
    """A size that gives a wrong result is not among the refused ones."""
    document = SAMPLES["measured-arms"]()
    wide = render_text(document, 200)
    assert re.search(r"^Refused sizes \(arms and alternatives\) +16$", wide, re.MULTILINE)
    assert "Wrong, faulting" not in wide
    results = tuple(
        msgspec.structs.replace(o, verdict=Verdict.WRONG) if o.spec.cluster_size == 4 else o
        for o in document.results
    )
    wide = render_text(msgspec.structs.replace(document, results=results), 200)
    assert re.search(r"^Wrong, faulting or hanging sizes +4$", wide, re.MULTILINE)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", ["text", "markdown"])
def test_what_to_do_next_follows_the_finding(form: str, name: str) -> None:
    """The advice on the worst cause stands before the tables, on every page with a refusal."""
    document = SAMPLES[name]()
    advice = document.summary.next_action
    shown = " ".join(FORMATS[form](document).replace("\\", "").split())
    assert advice
    assert shown.index(advice) < shown.index("non-portable opt-in" if "sweep" in name else " at k ")
    assert shown.count(advice) == (1 if form == "text" else 2)  # The JSON at the end has it too.


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", ["predicted-sweep", "predicted-arms"])
def test_a_prediction_says_each_thing_once(form: str, name: str) -> None:
    """That nothing was launched, and the claim's text and source, are not repeated."""
    shown = FORMATS[form](SAMPLES[name]()).partition("Summary as JSON")[0]
    text = " ".join(shown.replace("\\", "").split())
    for once in ("nothing was launched", "The largest cluster is 8", "without raw output"):
        assert text.count(once) == 1
    assert "Ruled out" not in text
    assert "ruled out" not in text
    assert "Excluded by the launch itself" in text


def test_a_missing_opt_in_beside_another_refusal_gets_no_row() -> None:
    """Rows without the opt-in are judged a column at a time: memory in one, the opt-in in another.

    As on a part where the large footprints are refused for shared memory at every size.
    """
    document = SAMPLES["measured-sweep"]()

    def over_memory(outcome: Outcome) -> Outcome:
        if not outcome.spec.dynamic_smem:
            return outcome
        seen = Observed(launch_code=1)
        return msgspec.structs.replace(
            outcome, observed=seen, verdict=Verdict.REFUSED, cause="smem-over-optin", calls=()
        )

    results = tuple(map(over_memory, document.results))
    shown = render_text(msgspec.structs.replace(document, results=results))
    assert not re.search(r"^ *\S+ off ", shown, re.MULTILINE)
    text = " ".join(shown.split())
    assert "9-16 refused: 912, non-portable-not-enabled, or answer the same" in text
    assert "9-16 refused: 912, non-portable-not-enabled GPC map" in " ".join(
        render_text(document).split()
    )


def test_an_unknown_time_is_not_zero() -> None:
    """A run that was resumed has no time of its own, and none is shown."""
    document = msgspec.structs.replace(SAMPLES["measured-sweep"](), wall_s=0.0)
    assert re.fullmatch(r"\d+ probes", render_text(document).splitlines()[-1])


def test_a_lost_probe_is_no_hang() -> None:
    """A worker lost while it compiled leaves an error in the table, not a hang."""
    document = SAMPLES["measured-sweep"]()
    first = document.results[0]
    lost = msgspec.structs.replace(
        first, status=Status.TIMEOUT, verdict=Verdict.NOT_PROBED, cause="could-not-run"
    )
    results = tuple(lost if o is first else o for o in document.results if o.spec.cluster_size == 1)
    shown = render_text(msgspec.structs.replace(document, results=results))
    assert re.search(r"\berr\b", shown.partition("\nLegend")[0])
    assert not re.search(r"\bhang\b", shown.partition("\nLegend")[0])
