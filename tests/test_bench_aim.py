# SPDX-License-Identifier: Apache-2.0
"""Groups and aims of a bench: whose shapes they are, and what they come to."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thorprobe.answer import kind
from thorprobe.bench.aim_judge import aims
from thorprobe.bench.aims import AIMS, Aim, Goal
from thorprobe.bench.answer import inquire
from thorprobe.bench.group import groups, neighbour_ratios
from thorprobe.bench.judge import summarize
from thorprobe.bench.plan import DISTRIBUTIONS, EXACT_PATH, BenchOptions, aligned, neighbour, shapes
from thorprobe.bench.records import BenchPoint, BenchTime, Floor, HostCost
from thorprobe.record import Origin, Status
from thorprobe.render.sheet import render_markdown

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
AIM = Aim(
    name="two shapes",
    against="the best peer",
    goals=(Goal(measure="geometric mean", value=2.0), Goal(measure="least", value=1.5)),
    rows=(1, 8),
    columns=(4096,),
    peers=("vllm",),
)


def timed(contender, us, *, peer=True):
    """Return a time of a peer, or of the ladder."""
    return BenchTime(
        contender=contender,
        peer=peer,
        ties="" if peer else "lowest",
        status=Status.PASS if us else Status.ERROR,
        us=us,
    )


def point(rows=1, columns=4096, *, auto=1.0, floor=0.5, host=None, **change):
    """Return a shape with a time of auto and of the peers in ``peers``."""
    peers = change.pop("peers", {"vllm": 2.0})
    facts = {"k": 512, "dtype": "float32", "distribution": "normal"} | change
    return BenchPoint(
        id="{distribution}/{dtype}/k{k}".format(**facts) + f"/r{rows}n{columns}",
        status=Status.PASS,
        origin=Origin.MEASURED,
        rows=rows,
        columns=columns,
        seed=0,
        floor=Floor(bytes=1, copy_us=0.1, cluster=1, empty_us=None, us=floor),
        times=(timed("auto", auto, peer=False), *(timed(n, us) for n, us in peers.items())),
        host=host,
        **facts,
    )


def made(options, **change):
    """Return a point of every shape of some options."""
    return [
        point(s.rows, s.columns, k=s.k, dtype=s.dtype, distribution=s.distribution, **change)
        for s in shapes(options)
    ]


@given(st.integers(1, 2**20), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_a_neighbour_is_aligned_whatever_the_type_and_near(columns, dtype):
    """Its rows start at 16 B, it is at most 4 columns off (7 below 4), and its own neighbour."""
    found = neighbour(columns)
    assert aligned(found, dtype)
    assert neighbour(found) == found
    assert abs(found - columns) <= (4 if columns >= 4 else 7)


def test_unaligned_columns_bring_their_neighbours():
    """4,095, 65,537 and 100,003 are timed beside 4,096, 65,536 and 100,000; aligned ones alone."""
    asked = shapes(BenchOptions(rows=(1,), columns=(4095, 65537, 100003)))
    assert [s.columns for s in asked] == [4095, 4096, 65536, 65537, 100000, 100003]
    assert [s.aligned for s in asked] == [False, True, True, False, True, False]
    # 4,100 fp32 scores are whole 16 B, and as many of 16 bits are not.
    assert [s.columns for s in shapes(BenchOptions(rows=(1,), columns=(4100,)))] == [4100]
    half = BenchOptions(rows=(1,), columns=(4100,), dtypes=("float32", "float16"))
    assert [(s.columns, s.dtype) for s in shapes(half)] == [
        (4100, "float32"),
        (4100, "float16"),
        (4104, "float32"),
        (4104, "float16"),
    ]


def test_a_group_holds_the_shapes_of_one_kind():
    """k, type, alignment and path part the shapes; each shape is in one group."""
    points = [
        point(1, 4096, auto=2.0, peers={"vllm": 3.0, "torch.topk": 9.0}),
        point(8, 4096, auto=4.0, peers={"vllm": 2.0}),
        point(1, 4095, auto=2.5, peers={}),
        point(1, 4096, k=1024),
        point(1, 4096, dtype="float16", peers={"flashinfer": 1.5}),
        point(1, 4096, distribution="nan-inf", auto=5.0),
    ]
    found = groups(points, "sms=8")
    assert sum(group.shapes for group in found) == len(points)
    assert {group.partition for group in found} == {"sms=8"}
    first, odd, large, half, exact = found
    assert (first.k, first.dtype, first.aligned, first.path) == (512, "float32", True, "usual")
    assert (first.shapes, first.compared, first.slower) == (2, 2, 1)
    assert first.geometric_mean == pytest.approx((1.5 * 0.5) ** 0.5, abs=0.001)
    assert (first.least, first.least_at) == (0.5, "normal/float32/k512/r8n4096")
    assert first.over_floor == pytest.approx((4 * 8) ** 0.5, abs=0.001)
    assert (odd.aligned, odd.compared, odd.geometric_mean) == (False, 0, None)
    assert odd.over_neighbour == odd.over_neighbour_most == 1.25
    assert odd.over_neighbour_most_at == "normal/float32/k512/r1n4095"
    assert (large.k, half.dtype, exact.path) == (1024, "float16", "exact")
    assert first.over_neighbour is None


def test_a_shape_is_held_against_its_own_neighbour():
    """Rows, k, type and distribution of the neighbour are the same, or there is none."""
    odd = point(8, 4095, auto=3.0)
    for other in (
        point(1, 4096),
        point(8, 4096, k=1024),
        point(8, 4096, dtype="float16"),
        point(8, 4096, distribution="uniform"),
        point(8, 4104),
    ):
        assert neighbour_ratios([odd], [odd, other]) == []
    assert neighbour_ratios([odd], [odd, point(8, 4096, auto=2.0)]) == [(odd, 1.5)]


def test_an_aim_is_met_or_missed_by_so_much():
    """The geometric mean and the least of the ratios are held against their goals."""
    points = [point(1, peers={"vllm": 4.0}), point(8, peers={"vllm": 1.0, "torch.topk": 3.0})]
    mean, least = aims(points, table=(AIM,))
    assert (mean.verdict, mean.found, mean.missed_by, mean.shapes) == ("met", 2.0, 0.0, 2)
    assert (least.verdict, least.found, least.missed_by) == ("missed", 1.0, 0.5)
    assert least.found_at == "normal/float32/k512/r8n4096"


def test_an_aim_of_shapes_that_were_not_timed_is_not_stated():
    """A missing shape, another type or a partition leaves the aim out rather than judging it."""
    both = [point(1), point(8)]
    assert len(aims(both, table=(AIM,))) == 2
    assert aims(both, "sms=8", table=(AIM,)) == ()
    for lacking in (both[:1], [point(1), point(8, k=1024)], [point(1), point(8, 4095)], []):
        assert aims(lacking, table=(AIM,)) == ()


@pytest.mark.parametrize("peers", [{}, {"torch.topk": 9.0}, {"vllm": None}])
def test_without_the_peer_that_it_names_an_aim_stays_open(peers):
    """torch.topk is easily beaten: an aim that names vLLM is not met by that."""
    found = aims([point(1), point(8, peers=peers)], table=(AIM,))
    assert {(one.verdict, one.found) for one in found} == {("open", None)}
    assert "vllm has no time on 1 of 2 shapes" in found[0].note


@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=2),
    st.sampled_from(["geometric mean", "least", "most"]),
    st.floats(0.1, 10),
)
def test_a_verdict_follows_from_its_number(ratios, measure, goal):
    """Met exactly where the number is on the right side of the goal, and missed by the rest."""
    table = (msgspec.structs.replace(AIM, goals=(Goal(measure=measure, value=goal),)),)
    points = [point(rows, peers={"vllm": us}) for rows, us in zip((1, 8), ratios, strict=True)]
    (found,) = aims(points, table=table)
    assert min(ratios) - 0.001 <= found.found <= max(ratios) + 0.001
    assert found.at_least is (measure != "most")
    short = goal - found.found if found.at_least else found.found - goal
    assert abs(found.missed_by - max(short, 0)) <= 0.0011
    assert (found.verdict == "missed") >= (found.missed_by > 0)


def test_the_exact_path_is_held_against_flashinfer_alone():
    """The aim takes FlashInfer's time, also where another peer is faster."""
    points = [
        point(8, 131_072, distribution=name, peers={"flashinfer": 1.2, "vllm": 0.5})
        for name in EXACT_PATH
    ]
    (found,) = aims(points)
    assert (found.verdict, found.found, found.against) == ("met", 1.2, "flashinfer")


def test_the_hosts_aim_takes_the_cheaper_kind_of_call():
    """A prepared call counts where there is one; else `select` does."""
    cost = HostCost(rung="one-cta", calls=8, auto_us=9.0, named_us=9.0)
    (alone,) = aims([point(host=cost)])
    assert (alone.verdict, alone.found, alone.found_at) == ("missed", 9.0, "select")
    assert alone.missed_by == 1.5
    cheaper = msgspec.structs.replace(cost, prepared_us=6.5)
    (prepared,) = aims([point(host=cheaper)])
    assert (prepared.verdict, prepared.found, prepared.found_at) == ("met", 6.5, "prepared")
    assert aims([point()]) == ()


def test_every_aim_is_reached_by_a_run_of_its_shapes():
    """No aim asks for shapes, distributions or types that no bench can be asked for."""
    for aim in AIMS:
        if not aim.columns:
            continue
        options = BenchOptions(
            rows=aim.rows,
            columns=aim.columns,
            k=aim.k or (512,),
            dtypes=aim.dtypes,
            distributions=aim.distributions,
        )
        assert set(aim.distributions) <= set(DISTRIBUTIONS)
        found = aims(made(options, peers={"vllm": 9.0, "flashinfer": 9.0}), table=(aim,))
        assert [one.verdict for one in found] == ["met"] * len(aim.goals), aim.name


def test_the_page_says_what_is_missed_and_no_sentence_is_long():
    """Finding and table have the shortfall; a page of many slow shapes stays readable."""
    answer = inquire(
        BenchOptions(
            rows=(1, 8),
            columns=(1024, 2047),
            k=(8, 16),
            dtypes=("float32", "float16"),
            distributions=("normal", "nan-inf"),
            host_calls=8,
            ties="both",
        ),
        opener=BED.opener(BED.PlayedLadder()),
    )
    host = HostCost(rung="one-cta", calls=8, auto_us=9.0, named_us=9.0)
    points = tuple(
        msgspec.structs.replace(p, host=host, times=tuple(_slow(t) for t in p.times))
        for p in answer.results
    )
    answer = msgspec.structs.replace(answer, results=points, summary=summarize(points))
    assert len(answer.summary.groups) == 16
    assert len(answer.summary.compared("the best peer").slower) == len(points)
    missed = "Missed are host cost of a call, by `select` or prepared, by 1.50 us"
    assert missed in answer.summary.finding
    page = render_markdown(kind("bench").sheet(answer), answer)
    assert "| missed by 1.50 (select) |" in page
    assert "k 16, float16, unaligned, exact path" in page
    assert "## k 8, float16" in page
    assert "| nan-inf 2,047 x 8 |" in page
    prose = [line for line in page.splitlines() if not line.startswith(("|", "thorprobe"))]
    sentences = [part for line in prose for part in re.split(r"(?<=[.;])\s", line)]
    assert max(map(len, sentences)) <= 300


def _slow(time):
    return msgspec.structs.replace(time, us=1.0) if time.peer else time


def test_evidence_of_strangers_is_judged_without_a_traceback():
    """A type that nobody knows, a floor of 0 and no time are no error."""
    points = [
        point(dtype="int4", floor=0.0),
        point(k=7, auto=0.0),
        point(1, 4095, auto=None),
    ]
    found = summarize(points)
    assert len(found.groups) == 3
    assert found.groups[0].over_floor is None
