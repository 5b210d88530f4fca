# SPDX-License-Identifier: Apache-2.0
"""``thorprobe bench`` as a user meets it: what it refuses, what it writes, and its exit codes."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from thorprobe.bench import answer as bench_answer
from thorprobe.bench import calibration_answer

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
BAD = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "test_bad_input.py")))
SHORT = ("--rows", "1,2", "--columns", "64", "--k", "8", "--host-calls", "8")


@pytest.fixture
def bed(monkeypatch):
    """Put the played bed and room where the GPU's would be opened; ``change`` makes them odd."""
    change = {}

    def play(module, opener):
        inquire = module.inquire

        def played(*args, **words):
            return inquire(*args, **(words | {"opener": opener(**change)}))

        monkeypatch.setattr(module, "inquire", played)

    play(bench_answer, lambda **ladder: BED.opener(BED.PlayedLadder(**ladder)))
    play(calibration_answer, BED.room_opener)
    monkeypatch.setattr(
        "thorprobe.bench.calibration_plan.CalibrationOptions", lambda **_: BED.SMALL
    )
    return change


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rows", "x"], "`--rows x`"),
        (["--columns", "4096,"], "`--columns 4096,`"),
        (["--rows", "0"], "rows of 0"),
        (["--k", "4096"], "`--k 4096`"),
        (["--k", "512,x"], "`--k 512,x`"),
        (["--k", "512,4096"], "`--k 4096`"),
        (["--dtype", "float16,int8"], "`--dtype int8`"),
        (["--dtype", "float16,"], "`--dtype `"),
        (["--peer", "vllm:"], "`--peer vllm:`"),
        (["--peer", "vllm:none.whl"], "no such file"),
        (["--peer", "vllm", "--peer", "vllm:test_bench.py"], "loads one vLLM"),
        (["--k", "512,1024", "--peer", "shipped:test_bench.py"], "2 values of k"),
        (["--dtype", "int8"], "`--dtype int8`"),
        (["--distribution", "cauchy"], "`--distribution cauchy`"),
        (["--rung", "cluster-3"], "`--rung cluster-3`"),
        (["--peer", "cub"], "`--peer cub`"),
        (["--peer", "shipped:"], "`--peer shipped:`"),
        (["--peer", "shipped:none.whl"], "no such file"),
        (["--peer", "none", "--peer", "torch"], "beside another"),
        (["--ties", "most"], "`--ties most`"),
        (["--launches", "0"], "launches of 0"),
        (["--partition", "eight"], "`--partition eight`"),
        (["--fail-on", "refused"], "only `wrong`"),
        (["--costs", "f"], "without `--calibrate`"),
        (["--calibrate", "--rows", "1", "--peer", "torch"], "`--rows`, `--peer` was given"),
        (["--calibrate", "--k", "64", "--dtype", "float16"], "`--dtype` was given"),
        (["--calibrate", "--k", "64,512"], "measures one k"),
        (["--calibrate", "--launches", "9", "--ties", "any"], "`--ties`, `--launches` was given"),
        (["--replay", "none.json"], "no such file"),
        (["--replay", "none.json", "--rows", "1", "--k", "64"], "`--rows`, `--k` was given with"),
        (["--replay", "none.json", "--device", "0"], "`--device` was given with `--replay`"),
        (["--calibrate", "--replay", "none.json", "--ties", "any"], "given with `--replay`"),
        (["--replay", "../reports/claims.json"], "an answer of `claims`"),
        (["--calibrate", "--replay", "../reports/claims.json"], "`bench --calibrate` was asked"),
    ],
)
def test_bad_arguments_end_in_one_sentence(main, monkeypatch, arguments, named):
    """Each names what was asked, and hints; exit code 2, before any device is touched."""
    monkeypatch.chdir(Path(__file__).parent)
    assert named in BAD.refused(main("bench", *arguments))


@pytest.mark.parametrize("more", [(), ("--device", "0"), ("--device", "cpu"), ("--calibrate",)])
def test_without_a_gpu_there_is_nothing_to_time(main, more):
    """Exit code 3; the hint says that `select` is right on the CPU all the same."""
    ran = main("bench", *more)
    assert "was asked to be timed" in BAD.refused(ran, 3)
    assert "right on CPU tensors too, but there is nothing to time there" in ran.err


def test_without_torch_the_missing_package_is_named(main, monkeypatch):
    """Exit code 3, and the line that mends it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    ran = main("bench")
    assert "needs torch" in BAD.refused(ran, 3)
    assert "pip install torch" in ran.err


@pytest.mark.usefixtures("bed")
def test_a_bench_is_written_and_shown_again(main, tmp_path, monkeypatch):
    """Evidence and picture are written; `--replay` and `report` make them again from the file."""
    monkeypatch.chdir(tmp_path)
    svg = tmp_path / "a.svg"
    ran = main("bench", *SHORT, "--json", "--output", "a.json", "--svg", svg, "--ties", "both")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    made = json.loads(Path("a.json").read_text())
    assert made["command"] == "bench"
    assert made["options"]["svg"] == "a.svg"
    assert str(tmp_path) not in Path("a.json").read_text()
    assert [point["id"] for point in made["results"]] == [
        "normal/float32/k8/r1n64",
        "normal/float32/k8/r2n64",
    ]
    assert made["summary"]["host_us"] > 0
    again = main("bench", "--replay", "a.json", "--svg", "b.svg", "--format", "markdown")
    assert again.code == 0
    assert Path("b.svg").read_bytes() == svg.read_bytes()
    assert main("report", "a.json").out == again.out
    assert "![Times against columns](a.svg)" in again.out
    assert "Every rung" in main("bench", "--replay", "a.json").out


@pytest.mark.usefixtures("bed")
def test_several_k_and_types_are_one_answer(main):
    """Lists of k and types are timed in one run; an option alone stays what it was in the JSON."""
    lists = ("--k", "16,8", "--dtype", "float16,float32", "--columns", "63", "--rows", "1")
    made = json.loads(main("bench", *lists, "--host-calls", "8", "--json").out)
    assert [point["id"] for point in made["results"]] == [
        f"normal/{dtype}/k{k}/r1n{columns}"
        for columns in (63, 64)
        for dtype in ("float16", "float32")
        for k in (8, 16)
    ]
    assert (made["options"]["k"], made["options"]["dtype"]) == ([8, 16], ["float16", "float32"])
    assert len(made["summary"]["groups"]) == 8
    alone = json.loads(main("bench", *SHORT, "--json").out)["options"]
    assert (alone["k"], alone["dtype"]) == (8, "float32")


@pytest.mark.usefixtures("bed")
def test_all_distributions_and_no_peer_can_be_asked(main):
    """`all` stands for every distribution, `none` for no peer, and --rung picks rungs."""
    ran = main(
        "bench", *SHORT, "--distribution", "all", "--peer", "none", "--rung", "auto", "--json"
    )
    made = json.loads(ran.out)
    assert len(made["results"]) == 2 * 10
    assert {t["contender"] for p in made["results"] for t in p["times"]} == {"auto"}
    assert made["summary"]["against"] == []


def test_a_wrong_result_fails_only_where_it_was_asked_for(main, bed):
    """The measurement is complete, exit code 0; with --fail-on wrong it is 1."""
    bed["wrong"] = "auto"
    assert main("bench", *SHORT).code == 0
    ran = main("bench", *SHORT, "--fail-on", "wrong")
    assert ran.code == 1
    assert "failed: WRONG results of the ladder" in ran.err


def test_a_calibration_writes_its_costs_and_again_from_its_evidence(
    main, bed, tmp_path, monkeypatch
):
    """The file of costs is the same whether it was just measured or is fitted anew."""
    monkeypatch.chdir(tmp_path)
    ran = main("bench", "--calibrate", "--json", "--output", "c.json", "--costs", "one.toml")
    assert (ran.code, ran.err) == (0, "")
    again = main("bench", "--calibrate", "--replay", "c.json", "--costs", "two.toml")
    assert again.code == 0
    assert Path("one.toml").read_bytes() == Path("two.toml").read_bytes()
    assert 'device = "Fake GPU"' in Path("one.toml").read_text()
    assert "Costs in microseconds" in again.out
    assert "Calibration of the ladder" in main("report", "c.json").out
    bed["wrong"] = "long-512x8/4"
    assert main("bench", "--calibrate", "--fail-on", "wrong").code == 1


@pytest.mark.usefixtures("bed")
@pytest.mark.parametrize("option", ["--svg", "--costs"])
def test_a_file_that_cannot_be_written_is_named_by_its_option(main, tmp_path, option):
    """The sentence names the option, and the hint how to write it again."""
    more = ("--calibrate",) if option == "--costs" else SHORT
    ran = main("bench", *more, "--output", tmp_path / "shown.txt", option, tmp_path)
    assert ran.code == 2
    assert f"`{option} " in ran.err
    assert "--replay" in ran.err
    assert (tmp_path / "shown.txt").exists()
