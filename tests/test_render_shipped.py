# SPDX-License-Identifier: Apache-2.0
"""Pages about shipped kernels: a row per entry point, named once, and nothing cut."""

import re
from pathlib import Path

import msgspec
import pytest

from thorprobe.cli.measure import of_recording
from thorprobe.judge.kernel_name import kernels_text, natural
from thorprobe.render import FORMATS
from thorprobe.render.shipped import kernels
from thorprobe.render.text import render
from thorprobe.run.store import read

REPORTS = Path(__file__).parents[1] / "reports"


@pytest.fixture(scope="module")
def sweep():
    """Return the sweep of a shipped kernel in 8 SMs."""
    return of_recording(read(REPORTS / "h200-sms8-shipped.jsonl"))


@pytest.fixture(scope="module")
def arms():
    """Return the drive of a shipped kernel in 8 SMs, three k."""
    return of_recording(read(REPORTS / "h200-sms8-shipped-arms-as-11.0.jsonl"))


def test_each_entry_point_has_one_row_with_its_own_bytes(sweep):
    """Twelve rows in natural order; a size that a kernel is not compiled for is no cell."""
    found = re.findall(
        r"^(cooperative_topk<\d+>) +(\d+) +1,024 +(\S+) ", render(sweep), re.MULTILINE
    )
    assert found == [
        (f"cooperative_topk<{k}>", size, memory)
        for k in (512, 1024, 2048)
        for size, memory in (
            ("2", "221,952"),
            ("4", "221,952"),
            ("8", "156,416"),
            ("16", "156,416"),
        )
    ]


def test_the_finding_names_the_kernels_and_their_sizes_once(sweep):
    """One clause for all sizes, although two of them ask for other bytes than the others."""
    assert sweep.summary.finding.startswith(
        "Shipped cooperative_topk<512>, <1024> and <2048>: launches 2, 4 and 8 CTAs; "
        "16 is refused: 912"
    )


def test_the_page_says_whose_kernels_and_how_they_were_asked(sweep):
    """Target, image and layout are named; without the options what the labels say is left."""
    told = kernels(sweep)
    assert "sm_90a image 4fea76bea9df" in told
    assert "layout vllm-0.33.0" in told
    spoiled = msgspec.structs.replace(sweep, options={"shipped": [{"label": 3}]})
    assert "image 4fea76bea9df" in kernels(spoiled)


def test_the_same_answers_are_printed_once(sweep, arms):
    """Kernels whose calls and log are equal share one table of calls."""
    for document, tables in ((sweep, 2), (arms, 1)):
        page = FORMATS["markdown"](document)
        assert page.count("| # | call |") == tables
        assert "and &lt;2048&gt;, 1024 thr 156,416 B, cluster 16: refused" in page


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_word_of_a_table_is_cut(arms, width):
    """A cause that is wider than its column is folded, and its letters are all there."""
    shown = render(arms, width)
    assert "…" not in shown
    if width == 100:
        assert "refused 912  larger-than-any-gpc" in shown


def test_names_of_several_kernels_share_what_they_share():
    """Template arguments are listed; of two images the hash tells the kernels apart."""
    one = ["topk<1024>@aa", "topk<512>@aa", "other@aa"]
    assert kernels_text(one) == "shipped other, topk<512> and <1024>"
    assert kernels_text(["topk", "trivial"]) == "trivial and topk"
    assert kernels_text(["topk<512>@aa", "topk<512>@bb"]) == ("shipped topk<512>@aa and <512>@bb")
    assert kernels_text(f"f{n}@aa" for n in range(9)) == "9 shipped kernels"
    assert sorted(["cs16", "cs2"], key=natural) == ["cs2", "cs16"]
