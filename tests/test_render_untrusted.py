# SPDX-License-Identifier: Apache-2.0
"""Renderers and untrusted text: no document may steer a terminal, a page or a workflow."""

import re
import runpy
import unicodedata
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe.record import Status
from thorprobe.render import EXPECTATION_FORMATS, FORMATS
from thorprobe.render.escape import code, command_line, fenced, markdown, plain
from thorprobe.render.expectation import Line
from thorprobe.summary import ArmsSummary, Document

SAMPLES = runpy.run_path(str(Path(__file__).parent / "samples.py"))["SAMPLES"]
ATTACKS = (
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://example.org\x07link\x1b]8;;\x07",
    "\x9b2J",
    "a\r\n::error::injected",
    "<script>alert(1)</script>",
    "<img src=x onerror=y>",
    "| a | b |\n|---|",
    "```\n# heading",
    "`code`",
    "[x](javascript:y)",
    "\u202egnp.exe",
    "\x00\x07\x08\x7f",
    "]]>",
    "[bold red]x[/]",
    "%0A::warning::y",
    "</details>",
)

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from(ATTACKS),
        st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12),
    ),
    max_size=4,
).map("".join)


@pytest.fixture(autouse=True)
def _no_step_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def small(name: str) -> Document:
    """Return a sample cut to what has every section: sizes 4 and 16, the trivial kernel at most."""
    document = SAMPLES[name]()
    kept = [o for o in document.results if o.spec.cluster_size in {4, 16}]
    return msgspec.structs.replace(document, results=tuple(kept[:24]))


BASES = {name: small(name) for name in SAMPLES}


def poisoned(document: Document, text: str) -> Document:
    """Put ``text`` into every place of a document that a stranger could fill."""
    replace = msgspec.structs.replace
    calls = [call for outcome in document.results for call in outcome.calls]
    bad_calls = tuple(
        replace(call, call=text, name=text, sentence=text, detail=text) for call in calls[:1]
    )
    results = tuple(
        replace(
            outcome,
            id=f"{index}{text}",
            calls=bad_calls if outcome.calls else (),
            driver_log=(text, text),
            note=text,
            cause=outcome.cause and outcome.cause + text,
        )
        for index, outcome in enumerate(document.results)
    )
    claims = tuple(replace(c, statement=text, source=text) for c in document.device.claims)
    device = replace(document.device, name=text, driver=text, basis=text, claims=claims)
    summary = replace(
        document.summary, finding=text, ruled_out=(text,), settles=text, next_action=text
    )
    if isinstance(summary, ArmsSummary):
        arms = tuple(replace(a, note=text, gate_reason=text, policy=text) for a in summary.arms)
        summary = replace(summary, arms=arms, gates={text: next(iter(summary.gates.values()))})
    return replace(
        document,
        argv=(text,),
        started=text,
        software={text: text},
        inputs={text: text},
        device=device,
        results=results,
        summary=summary,
    )


def controls(text: str) -> set[str]:
    """Return the characters of ``text`` that show nothing, line feeds aside."""
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {char for char in text if char != "\n" and unicodedata.category(char) in hidden}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", SAMPLES)
@given(text=HOSTILE)
@settings(max_examples=15, deadline=None)
def test_no_control_character_leaks(form: str, name: str, text: str) -> None:
    """Whatever a document holds, no renderer prints a control, escape or invisible character."""
    assert controls(FORMATS[form](poisoned(BASES[name], text))) == set()


@pytest.mark.parametrize("name", SAMPLES)
@given(text=HOSTILE)
@settings(max_examples=15, deadline=None)
def test_hostile_text_survives_json(name: str, text: str) -> None:
    """JSON and JUnit stay well formed, and JSON still decodes to the very same document."""
    document = poisoned(BASES[name], text)
    assert msgspec.json.decode(FORMATS["json"](document), type=Document) == document
    root = ET.fromstring(FORMATS["junit"](document))
    assert int(root.attrib["tests"]) == len(document.results)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_markdown_shows_attacks_as_text(name: str, attack: str) -> None:
    """No tag, table cell, heading or fence of a stranger's text takes effect on the page."""
    page = FORMATS["markdown"](poisoned(BASES[name], f"text{attack}"))
    tags = re.findall(r"<[^>]*>", outside_fences(page))
    assert set(tags) <= {"<details>", "</details>", "<summary>", "</summary>"}
    assert outside_fences(page).count("</details>") == 2
    honest = FORMATS["markdown"](poisoned(BASES[name], "text"))
    assert headings(page) == headings(honest)
    assert table_shape(page) == table_shape(honest)


@pytest.mark.parametrize("attack", ATTACKS)
def test_github_starts_no_foreign_command(attack: str) -> None:
    """Every line of the GitHub format is a command of ours, and holds no raw percent sign."""
    lines = FORMATS["github"](poisoned(BASES["predicted-sweep"], attack)).splitlines()
    own = re.compile(r"::(notice|warning|error) title=thorprobe[^:,]*::")
    assert all(own.match(line) for line in lines)
    assert not any(re.search("%(?!25|3A|2C)", line) for line in lines)


@pytest.mark.parametrize("form", EXPECTATION_FORMATS)
@given(text=HOSTILE)
@settings(max_examples=20, deadline=None)
def test_expectations_leak_nothing(form: str, text: str) -> None:
    """Scenario names and sentences print without control characters in every format."""
    lines = [Line(text, text, Status.FAIL), Line("b", text, Status.PASS)]
    assert controls(EXPECTATION_FORMATS[form](lines)) == set()


@given(text=HOSTILE)
def test_plain_is_one_printable_line(text: str) -> None:
    """Plain text has no control character, and making it plain again changes nothing."""
    once = plain(text)
    assert controls(once) == set()
    assert "\n" not in once
    assert plain(once) == once


def test_markdown_keeps_driver_names() -> None:
    """Underscores inside a driver's name stay as they are; markup characters are escaped."""
    assert markdown("CUDA_ERROR_INVALID_CLUSTER_SIZE") == "CUDA_ERROR_INVALID_CLUSTER_SIZE"
    assert markdown("a|b <c> *d* _e_ @f") == r"a\|b &lt;c&gt; \*d\* \_e\_ &#64;f"


def test_code_and_fences_cannot_be_closed() -> None:
    """A code span or block uses a longer fence than anything inside it."""
    assert code("a`b") == "``a`b``"
    assert fenced("```\nx").startswith("````\n")


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("cluster-sweep", "--partition", "sms=8"), "thorprobe cluster-sweep --partition sms=8"),
        (("/home/me/bin/thorprobe", "run", "a b"), "thorprobe run 'a b'"),
        (("run", "--output", "/home/me/x.jsonl"), "thorprobe run --output x.jsonl"),
        (("run", "--output=/home/me/x.jsonl"), "thorprobe run --output=x.jsonl"),
        (("run", r"C:\Users\me\x.toml"), "thorprobe run x.toml"),
        ((), "thorprobe topk-arms"),
    ],
)
def test_command_line_shows_no_local_path(argv: tuple[str, ...], shown: str) -> None:
    """The command to paste keeps every argument, its paths cut to their last part."""
    assert command_line("topk-arms", argv) == shown


def outside_fences(page: str) -> str:
    """Return the page without fenced blocks and code spans, where HTML has no effect."""
    kept: list[str] = []
    fence = ""
    for line in page.splitlines():
        opened = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif opened:
            fence = opened.group(0)
        else:
            kept.append(re.sub(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    return "\n".join(kept)


def headings(page: str) -> int:
    """Count headings outside fences."""
    return len(re.findall(r"^ {0,3}#{1,6} ", outside_fences(page), re.MULTILINE))


def table_shape(page: str) -> list[int]:
    """Return the number of unescaped pipes of each table row, in order."""
    rows = [line for line in outside_fences(page).splitlines() if line.startswith("|")]
    return [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
