# SPDX-License-Identifier: Apache-2.0
"""How a bench is shown: page, picture, and their snapshots."""

import os
import runpy
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import msgspec
import pytest

from thorprobe import answer as evidence
from thorprobe.bench.answer import inquire
from thorprobe.bench.figure import figure
from thorprobe.bench.judge import summarize
from thorprobe.bench.page import sheet
from thorprobe.bench.plan import BenchOptions
from thorprobe.record import Origin, Status
from thorprobe.render.sheet import render_json, render_markdown, render_text
from thorprobe.render.svg import Figure, Line, Panel, Style, draw

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
SNAPSHOTS = Path(__file__).parent / "snapshots"
REPORTS = Path(__file__).parents[1] / "reports"
OPTIONS = BenchOptions(
    rows=(1, 8), columns=(1024, 4095, 65536), k=(16,), ties="both", launches=20, host_calls=8
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def answer():
    """Return a bench of made-up times, without what differs from run to run."""
    peers = (BED.TorchTopk(), BED.Choosy())
    made = inquire(
        OPTIONS,
        argv=("--k", "16"),
        svg="bench.svg",
        opener=BED.opener(BED.PlayedLadder(dead="many-ctas"), peers),
    )
    points = tuple(
        msgspec.structs.replace(
            point,
            duration_us=0.0,
            host=msgspec.structs.replace(point.host, auto_us=8.5, named_us=8.25, prepared_us=7.75),
            times=tuple(
                msgspec.structs.replace(one, host_us=7.25) if one.host_us else one
                for one in point.times
            ),
        )
        for point in made.results
    )
    summary = summarize(points, made.summary.copy_rates, made.summary.notes)
    return msgspec.structs.replace(
        made,
        started="2026-11-30T00:00:00Z",
        ended="2026-11-30T00:00:09Z",
        tool=msgspec.structs.replace(made.tool, version="0"),
        results=points,
        summary=summary,
        wall_s=9.0,
    )


@pytest.mark.parametrize("form", ["text", "markdown", "svg"])
def test_snapshot(answer, form):
    """Text, page and picture are exactly the committed ones."""
    shown = {
        "text": lambda: render_text(sheet(answer), 120),
        "markdown": lambda: render_markdown(sheet(answer), answer),
        "svg": lambda: figure(answer),
    }[form]()
    path = SNAPSHOTS / f"bench.{form}"
    if os.environ.get("THORPROBE_UPDATE_SNAPSHOTS") == "1":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def test_the_json_is_read_back_to_the_same_page(answer, tmp_path):
    """Evidence that was written, read and rendered gives the same bytes."""
    path = tmp_path / "bench.json"
    path.write_text(render_json(answer), encoding="utf-8")
    again = evidence.read(path)
    assert again == answer
    assert figure(again) == figure(answer)
    assert render_markdown(sheet(again), again) == render_markdown(sheet(answer), answer)


def test_the_fastest_of_a_table_is_marked_once_a_shape(answer):
    """Each row of a table of times has one star, at the least time."""
    for section in sheet(answer).sections:
        if section.heading not in ("Every rung", "Every peer"):
            continue
        for row in section.table.rows:
            cells = [cell for (cell,) in row[1:]]
            (starred,) = [float(cell.rstrip("*")) for cell in cells if cell.endswith("*")]
            if section.heading == "Every rung":
                cells.pop(1)  # auto with any ties is asked for less.
            assert starred == min(float(c.rstrip("*")) for c in cells if c[0].isdigit())


def test_the_picture_has_a_panel_a_row_count_and_dashed_peers(answer):
    """Rungs are solid, peers dashed, the floor is drawn, and what has no time is left out."""
    root = ET.fromstring(figure(answer))
    panels = root.findall(f"{SVG}g")
    assert [panel.find(f"{SVG}text").text for panel in panels] == ["1 row", "8 rows"]
    lines = {p.find(f"{SVG}title").text: p for p in panels[0].iter(f"{SVG}path")}
    assert {"auto", "cluster-8", "torch.topk", "floor (copy, launch)"} <= set(lines)
    assert not {"cluster-16", "many-ctas", "shipped-8"} & set(lines)
    assert "stroke-dasharray" in lines["torch.topk"].attrib
    assert "stroke-dasharray" not in lines["cluster-8"].attrib
    # Longer rows take longer: lower on the page is less.
    heights = [float(p.split()[1]) for p in lines["cluster-8"].attrib["d"][1:].split(" L")]
    assert heights == sorted(heights, reverse=True)


def test_a_picture_of_evidence_from_strangers_stays_a_picture(answer):
    """Times that no logarithm takes are left out, and markup in a name is text."""
    point = answer.results[0]
    times = tuple(
        msgspec.structs.replace(point.times[0], contender=name, peer=True, us=us)
        for name, us in (("<b>&", 3.0), ("zero", 0.0), ("minus", -1.0), ("endless", float("inf")))
    )
    odd = msgspec.structs.replace(
        answer, results=(msgspec.structs.replace(point, times=times, rows=10**9),)
    )
    drawn = figure(odd)
    titles = [t.text for t in ET.fromstring(drawn).iter(f"{SVG}title")]
    assert "<b>&" in titles
    assert not {"zero", "minus", "endless"} & set(titles)
    assert render_text(sheet(odd), 120)
    assert "](bench.svg)" in render_markdown(sheet(odd), odd)
    elsewhere = msgspec.structs.replace(odd, options={"svg": "../../x/../y.svg"})
    assert "](y.svg)" in render_markdown(sheet(elsewhere), elsewhere)


def test_an_answer_without_a_time_is_shown(answer):
    """Nothing timed, no host cost and no floor: the page says what is missing."""
    bare = msgspec.structs.replace(answer, results=(), summary=type(answer.summary)(finding="none"))
    assert ET.fromstring(figure(bare)).find(f"{SVG}title").text.startswith("Top-k on")
    assert "none" in render_text(sheet(bare), 100)
    point = answer.results[0]
    refused = msgspec.structs.replace(point.times[0], us=None, status=Status.ERROR, note="late")
    alone = msgspec.structs.replace(point, times=(refused,), floor=None, host=None)
    shown = render_text(sheet(msgspec.structs.replace(answer, results=(alone,))), 120)
    assert "1,024 x 1       error" in shown


def test_a_single_point_is_drawn_as_a_dot():
    """A line of one point would not be seen."""
    style = Style(colour="#000000")
    line = Line(label="one", points=((4096.0, 3.0),), style=style)
    drawn = draw(
        Figure(title="t", x="x", y="y", panels=(Panel(title="p", lines=(line,)),), across=3)
    )
    (dot,) = ET.fromstring(drawn).iter(f"{SVG}circle")
    assert dot.attrib["fill"] == "#000000"


def test_committed_pictures_are_those_of_their_evidence():
    """No committed picture was edited: `thorprobe bench --replay FILE --svg PICTURE` makes it."""
    for path in sorted(REPORTS.glob("topk-bench*.json")):
        held = evidence.read(path)
        assert held.origin is Origin.MEASURED
        assert {point.status for point in held.results} == {Status.PASS}
        assert held.options["svg"] == f"{path.stem}.svg"
        assert path.with_suffix(".svg").read_text(encoding="utf-8") == figure(held)
    assert {p.stem for p in REPORTS.glob("topk-bench*.svg")} == {
        p.stem for p in REPORTS.glob("topk-bench*.json")
    }
