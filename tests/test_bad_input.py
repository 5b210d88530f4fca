# SPDX-License-Identifier: Apache-2.0
"""Bad input: one sentence, a hint, the right exit code, and nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from thorprobe.cli import output as output_file
from thorprobe.plan.arms import DISTRIBUTIONS
from thorprobe.record import Workload
from thorprobe.run.workload import scores

needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs /dev/full to play a full disk"
)


def refused(ran, code=2):
    """Check the form of a refusal and return its sentence."""
    assert ran.code == code, ran.err
    assert ran.out == ""
    lines = ran.err.rstrip("\n").split("\n")
    assert len(lines) == 3, ran.err
    sentence, blank, hint = lines
    assert sentence.startswith("error: ")
    assert not sentence.endswith(".")
    assert blank == ""
    assert hint.startswith("hint: ")
    assert len(hint) > len("hint: ")
    assert "internal error" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--profile", "nope"], "nope"),
        (["--profile", "./none.toml"], "none.toml"),
        (["--sizes", "0"], "0 is not a cluster size"),
        (["--sizes", "17"], "17 is not a cluster size"),
        (["--sizes", "x"], "`x`"),
        (["--sizes", ""], "not a cluster size"),
        (["--sizes", "8-4"], "backwards"),
        (["--kernel", "nope"], "nope"),
        (["--kernel", "hang"], "hang"),
        (["--partition", "sms=0"], "sms=0"),
        (["--partition", "x"], "`sms=N`"),
        (["--partition", "sms=8"], "no GPU to partition"),
        (["--profile", "thor", "--partition", "sms=8"], "does not model it"),
        (["--device", "x"], "`--device x`"),
        (["--device=-1"], "`--device -1`"),
        (["--profile", "thor", "--replay", "f"], "both given"),
        (["--profile", "thor", "--device", "0"], "both given"),
        (["--replay", "none.jsonl"], "no such file"),
        (["--resume", "none.jsonl"], "no such file"),
        (["--resume", "none.jsonl", "--store", "g"], "both given"),
        (["--fail-on", "changed"], "without anything to compare"),
        (["--fail-on", "changed", "--baseline", "none.jsonl"], "no such file"),
        (["--fail-on", "nope"], "nope"),
        (["--format", "nope"], "nope"),
        (["--deadline", "0"], "--deadline"),
        (["--deadline", "nan"], "--deadline"),
        (["--nope"], "--nope"),
        (["extra"], "extra"),
    ],
)
def test_a_sweep_refuses_bad_arguments(main, tmp_path, monkeypatch, arguments, named):
    """A bad argument of cluster-sweep is named in one sentence, before anything is asked."""
    monkeypatch.chdir(tmp_path)
    assert named in refused(main("cluster-sweep", *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rows=-1"], "'-1'"),
        (["--rows", "-1"], "'-1'"),
        (["--rows", "0"], "0 rows"),
        (["--rows", "65536"], "65,536"),
        (["--rows", "1,x"], "'x'"),
        (["--k", "7"], "k 7"),
        (["--k", "x"], "--k"),
        (["--policy", "nope"], "nope"),
        (["--policy", "../policies/0.33.0"], "unknown Policy"),
        (["--distribution", "nope"], "nope"),
        (["--oracle", "nope"], "nope"),
        (["--as-capability", "x"], "`--as-capability x`"),
        (["--columns", "0"], "0 columns"),
        (["--columns", "99999999999"], "32 bits"),
        (["--stride", "8"], "Stride 8"),
        (["--lengths", "70000"], "Length 70,000"),
        (["--lengths=-1"], "--lengths"),
        (["--repeats=-1"], "-1 repeats"),
        (["--repeats", "1000000000"], "1,000,000,000 repeats"),
        (["--requests", "0"], "requests 0"),
        (["--requests", "1", "--rows", "4"], "`--rows` was given together"),
        (["--requests", "1", "--capture-sizes", "x"], "--capture-sizes"),
        (["--speculative-tokens", "3"], "without `--requests`"),
        (["--prefill-tokens=-1"], "prefill tokens -1"),
        (["--reach", "5"], "cluster of 5"),
        (["--reach", "8", "--json"], "in text"),
        (["--reach", "8", "--profile", "nope"], "nope"),
    ],
)
def test_a_drive_refuses_bad_arguments(main, tmp_path, arguments, named):
    """A bad argument of topk-arms is named in one sentence, before anything is asked or kept."""
    store = tmp_path / "run.jsonl"
    assert named in refused(main("topk-arms", *arguments, "--store", store))
    assert not store.exists()


def test_a_command_that_does_not_exist_is_refused_in_the_same_form(main):
    """Typer's own findings come in thorprobe's form: sentence, hint, exit code 2."""
    assert "nope" in refused(main("nope"))
    assert "--nope" in refused(main("--nope"))
    assert "FILE" in refused(main("report"))


@pytest.mark.parametrize("device", ["0", "7", "all"])
def test_a_device_that_is_not_here_could_not_be_probed(main, device):
    """Asking for a device on a machine without one is exit code 3, never a prediction."""
    assert "no CUDA" in refused(main("cluster-sweep", "--device", device), code=3)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello\n", id="text"),
        pytest.param(b'{"results": []}\n', id="json"),
        pytest.param(b"\x7fELF\x02\x01\n\xff", id="binary"),
        pytest.param(b'{"type":"header","schema":{"name":"thor', id="cut header"),
    ],
)
def test_foreign_evidence_is_refused_by_every_command_that_reads_it(main, tmp_path, content):
    """A file that is no store is refused, and is afterwards what it was before."""
    path = tmp_path / "foreign.jsonl"
    path.write_bytes(content)
    for arguments in (
        ["report"],
        ["cluster-sweep", "--replay"],
        ["cluster-sweep", "--resume"],
        ["cluster-sweep", "--fail-on", "changed", "--baseline"],
    ):
        assert "foreign.jsonl" in refused(main(*arguments, path))
    assert path.read_bytes() == content


def test_evidence_damaged_in_the_middle_is_refused_with_its_line(main, tmp_path):
    """A store with a damaged record names the line, for reading and for resuming."""
    path = tmp_path / "run.jsonl"
    assert main("cluster-sweep", "--sizes", "8", "--store", path).code == 0
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:-30]
    path.write_bytes(b"\n".join(lines))
    for arguments in (["report"], ["cluster-sweep", "--resume"], ["cluster-sweep", "--replay"]):
        assert "line 3" in refused(main(*arguments, path))


def test_a_store_is_resumed_by_its_own_command_and_profile_only(main, tmp_path):
    """Another command, another device or another profile file is refused; the store stays."""
    mine = tmp_path / "mine.toml"
    shipped = Path(__file__).parents[1] / "thorprobe" / "model" / "profiles" / "thor.toml"
    mine.write_bytes(shipped.read_bytes() + b"\n# mine\n")
    path = tmp_path / "run.jsonl"
    begun = main("cluster-sweep", "--sizes", "8,16", "--profile", mine, "--store", path)
    assert begun.code == 0
    before = path.read_bytes()
    assert "`cluster-sweep`" in refused(main("topk-arms", "--resume", path))
    assert "another profile thor" in refused(main("cluster-sweep", "--resume", path))
    other = main("cluster-sweep", "--resume", path, "--profile", "h200")
    assert "NVIDIA H200" in refused(other)
    assert path.read_bytes() == before
    again = main("cluster-sweep", "--resume", path, "--profile", mine)
    assert (again.code, again.out) == (0, begun.out)


def test_a_replayed_store_is_not_resumed_on_a_device(main, fake_gpu, tmp_path):
    """What a recording answered cannot be finished by measuring: the two would be mixed."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    arguments = ["cluster-sweep", "--kernel", "trivial", "--sizes", "8"]
    assert main(*arguments, "--store", first).code == 0
    assert main(*arguments, "--replay", first, "--store", second).code == 0
    before = second.read_bytes()
    assert "from a recording" in refused(main("cluster-sweep", "--resume", second))
    assert second.read_bytes() == before


def test_an_existing_store_is_left_alone(main, tmp_path):
    """`--store` never overwrites, and takes no folder; the hint says how to go on."""
    path = tmp_path / "run.jsonl"
    path.write_text("mine\n")
    ran = main("cluster-sweep", "--store", path)
    assert "exists already" in refused(ran)
    assert f"--resume {path}" in ran.err
    assert path.read_text() == "mine\n"
    assert "is a folder" in refused(main("cluster-sweep", "--store", tmp_path))


def test_output_that_cannot_be_written_leaves_what_was_there(main, tmp_path):
    """A folder, a place under a file and a place nobody can make are refused; the rest stays."""
    file = tmp_path / "page.md"
    file.write_text("before\n")
    for place in (tmp_path, file / "page.md", "/proc/none/page.md", "", "/"):
        ran = main("cluster-sweep", "--sizes", "16", "--output", place)
        assert "cannot be written" in refused(ran)
    assert file.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_output_to_a_stream_is_written_to_it_and_never_replaces_it(tmp_path):
    """A name of a stream stays one, also where a regular file is behind it."""
    assert output_file._in_place(Path("/dev/stdout"))
    page = tmp_path / "page.txt"
    words = ["topk-arms", "--reach", "16", "--output", "/proc/self/fd/1"]
    with page.open("w") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "thorprobe", *words],
            stdout=stream,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert page.read_text().startswith("e126687a9a, cc 11.0, 16 CTAs:")


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_distribution_that_is_taken_can_be_drawn(distribution):
    """What the plan accepts the worker can make: scores of that shape, NaN beyond the length."""
    made = scores(
        Workload(rows=2, columns=64, stride=64, length=48, k=512, distribution=distribution)
    )
    assert made.shape == (2, 64)
    assert not np.isnan(made[:, :48]).any()
    assert np.isnan(made[:, 48:]).all()


@needs_full
def test_a_full_disk_is_one_sentence_wherever_it_is_met(main, command):
    """Output, store and standard output on a full disk: the reason, a hint, exit code 2."""
    for option in ("--output", "--store"):
        ran = main("cluster-sweep", "--sizes", "16", option, "/dev/full")
        assert "no space left on device" in refused(ran)
    root = str(Path(__file__).parents[1])
    for words in (["list"], ["cluster-sweep", "--sizes", "16"], ["cluster-sweep", "--json"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "thorprobe", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": root, "CUDA_VISIBLE_DEVICES": ""},
                timeout=60,
                check=False,
            )
        assert done.returncode == 2
        assert done.stderr.startswith("error: standard output cannot be written: no space left")
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr


def test_output_is_written_whole_or_not_at_all(command, tmp_path):
    """A disk that fills up while a page is written leaves the earlier page and no leftovers."""
    page = tmp_path / "page.md"
    page.write_text("before\n")
    arguments = ["cluster-sweep", "--sizes", "16", "--format", "markdown", "--output", page]
    assert "cannot be written" in refused(command(*arguments, limit=1_000))
    assert page.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [page]
    link = tmp_path / "link.md"
    link.symlink_to(page)
    assert command(*arguments[:-1], link).code == 0
    assert link.is_symlink()
    assert page.read_text().startswith("# ")


def test_a_disk_that_fills_up_keeps_every_record_before(command, main, tmp_path):
    """A store cut off by a full disk holds whole records, and resuming completes it."""
    path, whole = tmp_path / "run.jsonl", tmp_path / "whole.jsonl"
    arguments = ["cluster-sweep", "--sizes", "4,8,16", "--store"]
    ran = command(*arguments, path, limit=30_000)
    sentence = refused(ran)
    assert str(path) in sentence
    assert "any further" in sentence
    assert "--resume" in ran.err
    kept = path.read_bytes()
    assert 20_000 < len(kept) <= 30_000
    assert main("cluster-sweep", "--resume", path).code == 0
    assert path.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    assert main(*arguments, whole).code == 0
    results = [read.read_bytes().split(b"\n")[1:-2] for read in (path, whole)]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("name = ", "broken.toml"),
        ('name = "x"\n', "broken.toml"),
        ("\x00\x01", "broken.toml"),
    ],
)
def test_a_broken_scenario_file_is_refused(main, tmp_path, content, named):
    """A scenario outside the schema is named with what is wrong; no scenario of the call runs."""
    path = tmp_path / "broken.toml"
    path.write_text(content)
    assert named in refused(main("run", "thor-report", path))


def test_an_unknown_scenario_is_refused_with_the_known_ones(main, tmp_path):
    """A name that is no scenario, a file that is not there and a format that is none."""
    ran = main("run", "nope")
    assert "'nope'" in refused(ran)
    assert "thor-report" in ran.err
    assert "no such file" in refused(main("run", tmp_path / "none.toml")).lower()
    assert "markdown" in refused(main("run", "thor-report", "--format", "markdown"))
