# SPDX-License-Identifier: Apache-2.0
"""The command line without a GPU: predictions that say so, the JSON contract, the exit codes."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from thorprobe import __version__
from thorprobe.record import SCHEMA_VERSION
from thorprobe.summary import Document

ROOT = Path(__file__).parents[1]
CLAIM = "largest-cluster-8"


@pytest.fixture(scope="module")
def sweep(command, tmp_path_factory):
    """Return a whole predicted sweep: the command with every way to name a place, its document."""
    folder = tmp_path_factory.mktemp("sweep")
    store = folder / "run.jsonl"
    output = folder / "sweep.json"
    ran = command("cluster-sweep", "--json", "--store", store, f"-o{output}")
    assert ran.code == 0, ran.err
    assert ran.out == ""
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def drive(command):
    """Return a predicted drive of every arm: what its command printed, and the document."""
    ran = command("topk-arms", "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_without_a_gpu_a_sweep_predicts_and_says_so_first(command):
    """The first line says that nothing was launched; finding, claim and what settles it follow."""
    ran = command("cluster-sweep")
    assert ran.code == 0
    assert ran.err == ""
    first = ran.out.split("\n", 1)[0]
    assert first.startswith("PREDICTED from profile thor, nothing was launched")
    text = " ".join(ran.out.split())
    assert (
        "9 to 16 are refused on every admissible map: 912 CUDA_ERROR_INVALID_CLUSTER_SIZE" in text
    )
    assert "3 to 8 are undetermined by the layout" in text
    assert "source: vLLM PR #56102, JAX PR #33720, Warp documentation" in text
    assert re.search(r"To settle it .*cuOccupancyMax\w+", text)
    assert "yes predicted to launch; nothing ran" in text
    assert max(map(len, ran.out.splitlines())) <= 120


def test_a_predicted_sweep_holds_what_the_layout_and_the_claim_say(sweep):
    """16 is refused by the layout, 8 is left open by it, and the claim makes 8, 4 and 2 launch."""
    assert sweep["origin"] == "predicted"
    assert {r["origin"] for r in sweep["results"]} == {"predicted"}
    assert len([r for r in sweep["results"] if not r["assumes"]]) == 16 * 2 * 6
    summary = sweep["summary"]
    assert set(summary["kernels"]) == {"trivial", "topk"}
    (under,) = summary["under_claims"]
    assert under["claim"]["id"] == CLAIM
    assert under["claim"]["source"]
    for kernel in ("trivial", "topk"):
        found = summary["kernels"][kernel]
        assert set(found["refused"]) == {str(size) for size in range(9, 17)}
        assert found["refused"]["16"] == {
            "code": 912,
            "name": "CUDA_ERROR_INVALID_CLUSTER_SIZE",
            "cause": "larger-than-any-gpc",
        }
        assert (found["launches"], found["largest"]) == ([1, 2], 2)
        assert found["undetermined"] == [3, 4, 5, 6, 7, 8]
        claimed = under["kernels"][kernel]
        assert {2, 4, 8} <= set(claimed["launches"])
        assert claimed["largest"] == 8
        assert claimed["refused"]["16"] == found["refused"]["16"]
    assert summary["gpc_map"]["measured"] is summary["gpc_map"]["solved"] is None
    assert re.search(r"cuOccupancyMax\w+", summary["settles"])


def test_a_predicted_drive_refuses_rows_1_to_4_alone_under_the_claim(drive):
    """Rows 1 to 4 take 16 CTAs and are refused; the other clusters launch under the claim."""
    assert drive["origin"] == "predicted"
    assert {r["origin"] for r in drive["results"]} == {"predicted"}
    arms = drive["summary"]["arms"]
    assert {arm["policy"] for arm in arms} == {"e126687a9a", "0.33.0"}
    for arm in arms:
        refused = arm["rows"] == [1, 4]
        assert (arm["cluster"] == 16) is refused
        assert (arm["verdict"] == "refused") is refused
        assert arm["cause"] == "larger-than-any-gpc" or not refused
        if arm["path"] == "cooperative":
            assert arm["under_claims"] == {CLAIM: "refused" if refused else "launches"}
    assert drive["summary"]["failing_cluster_sizes"] == [16]
    for gate in drive["summary"]["gates"].values():
        assert gate["false_accepts"] == [[1, 4]]
        assert gate["false_rejects"] == []


def test_a_predicted_drive_says_so_first(main):
    """The page of topk-arms begins with the origin too, and names the claim and its source."""
    ran = main("topk-arms")
    assert ran.code == 0
    assert ran.out.startswith("PREDICTED from profile thor, nothing was launched")
    text = " ".join(ran.out.split())
    assert "rows 1-4 take 16 ctas and are refused" in text.lower()
    assert f"Claim {CLAIM}" in text
    assert "vLLM PR #56102" in text
    assert "To settle it" in text


@pytest.mark.parametrize("name", ["sweep", "drive"])
def test_the_document_keeps_the_contract(name, request):
    """Every key that other programs read is there, and the document decodes by the schema."""
    document = request.getfixturevalue(name)
    assert document["schema"] == {"name": "thorprobe", "version": SCHEMA_VERSION}
    assert document["tool"] == {"name": "thorprobe", "version": __version__}
    assert set(document) >= {
        *("schema", "tool", "argv", "started", "ended", "origin", "device", "software"),
        *("inputs", "results", "summary", "exit_code"),
    }
    assert document["exit_code"] == 0
    assert document["ended"] >= document["started"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["started"])
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in document["inputs"].values())
    assert document["software"]
    for result in document["results"]:
        wanted = ("id", "spec", "status", "origin", "observed", "calls", "cause", "duration_us")
        assert set(result) >= set(wanted)
        seen = ("max_potential", "max_active", "launch_code", "cluster_seen")
        assert set(result["observed"]) >= set(seen)
        assert result["calls"]
    assert len({result["id"] for result in document["results"]}) == len(document["results"])
    summary = document["summary"]
    if name == "sweep":
        for kernel in summary["kernels"].values():
            assert set(kernel) >= {"launches", "refused", "largest"}
        assert set(summary["gpc_map"]) >= {"measured", "solved"}
    else:
        for arm in summary["arms"]:
            assert set(arm) >= {
                *("policy", "rows", "k", "dtype", "path", "cluster", "dynamic_smem"),
                *("verdict", "cause", "fastest"),
            }
        for gate in summary["gates"].values():
            assert set(gate) >= {"false_accepts", "false_rejects"}
    assert msgspec.json.decode(json.dumps(document), type=Document).command == document["command"]


@pytest.mark.parametrize("name", ["sweep", "drive"])
def test_the_document_says_nothing_of_this_machine(name, request):
    """No hostname, home, working folder, absolute path or UUID gets into a document."""
    text = json.dumps(request.getfixturevalue(name))
    for private in (socket.gethostname(), str(Path.cwd()), str(Path.home()), str(ROOT)):
        assert len(private) < 4 or private not in text
    assert not re.search(r"(?<![\w.:/])/(home|tmp|root|usr|var|opt|work|mnt|private)\b", text)
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-", text)


def test_places_are_cut_to_their_last_part(sweep):
    """An absolute place in the arguments stays as a name, however it was attached."""
    assert sweep["argv"] == ["cluster-sweep", "--json", "--store", "run.jsonl", "-osweep.json"]


def test_standard_output_is_data_in_every_format(main, tmp_path):
    """Each format is printed alone on standard output, and goes whole into a file."""
    store = tmp_path / "run.jsonl"
    assert main("cluster-sweep", "--sizes", "8,16", "--store", store).code == 0
    shown = {}
    for form in ("text", "json", "jsonl", "markdown", "junit", "github"):
        ran = main("report", store, "--format", form)
        assert ran.code == 0, ran.err
        assert ran.err == ""
        shown[form] = ran.out
        page = tmp_path / f"page.{form}"
        written = main("report", store, "--format", form, "--output", page)
        assert written == (0, "", "")
        assert page.read_text() == ran.out
    assert json.loads(shown["json"])["command"] == "cluster-sweep"
    assert shown["json"] == main("report", store, "--json").out
    kinds = [json.loads(line)["type"] for line in shown["jsonl"].splitlines()]
    assert kinds == ["header", *["outcome"] * 48, "footer"]
    assert ET.fromstring(shown["junit"]).tag == "testsuites"
    assert shown["markdown"].startswith("# ")
    assert shown["github"].startswith("::")
    assert shown["text"].startswith("PREDICTED")


def test_several_stores_still_make_one_document(main, tmp_path):
    """JSON of two stores is an array, JUnit one root with the sums, markdown two pages."""
    stores = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for store, sizes in zip(stores, ("8", "4,16"), strict=True):
        assert main("cluster-sweep", "--sizes", sizes, "--store", store).code == 0
    found = json.loads(main("report", *stores, "--json").out)
    assert [d["options"]["sizes"] for d in found] == [[8], [4, 16]]
    root = ET.fromstring(main("report", *stores, "--format", "junit").out)
    assert root.get("tests") == str(24 + 48) == str(len(root.findall(".//testcase")))
    pages = main("report", *stores).out
    assert pages == "".join(main("report", store).out for store in stores)


def test_a_reader_that_stops_early_is_no_failure(command):
    """A pipe closed by its reader ends a command quietly with exit code 0."""
    for words in (["list"], ["cluster-sweep", "--json"], ["cluster-sweep"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "thorprobe", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        )
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(timeout=60), said) == (0, b"")


def test_a_measured_run_is_stored_and_replayed_as_recorded(main, fake_gpu, tmp_path):
    """A measurement says measured; its replay says first what it is, and judges alike."""
    store = tmp_path / "run.jsonl"
    measured = main("cluster-sweep", "--kernel", "trivial", "--store", store, "--json")
    assert measured.code == 0
    assert f"records in {store}" in measured.err
    document = json.loads(measured.out)
    assert {r["origin"] for r in document["results"]} == {"measured"}
    found = document["summary"]["kernels"]["trivial"]
    assert (found["launches"], found["largest"]) == (list(range(1, 9)), 8)
    assert found["refused"]["16"]["code"] == 912
    assert document["summary"]["gpc_map"]["solved"] == [8]
    replayed = main("cluster-sweep", "--kernel", "trivial", "--replay", store)
    assert replayed.code == 0
    assert replayed.out.startswith("RECORDED earlier, nothing was launched now: Fake GPU")
    again = json.loads(
        main("cluster-sweep", "--kernel", "trivial", "--replay", store, "--json").out
    )
    assert {r["origin"] for r in again["results"]} == {"recorded"}
    assert again["summary"]["kernels"] == document["summary"]["kernels"]


def test_a_measurement_is_kept_without_being_asked(main, fake_gpu):
    """Where no store is named, the records go to the state folder, and the place is said."""
    ran = main("cluster-sweep", "--kernel", "trivial", "--sizes", "8")
    assert ran.code == 0
    assert "measured" in ran.out.split("\n", 1)[0]
    place = Path(ran.err.strip().partition(" records in ")[2])
    assert place.is_relative_to(os.environ["XDG_STATE_HOME"])
    assert main("report", place, "--format", "text").out == ran.out


def test_a_report_is_the_same_bytes_every_time(command, main, fake_gpu, tmp_path):
    """Markdown of one store has equal bytes in two processes and from two folders."""
    store = tmp_path / "run.jsonl"
    assert main("cluster-sweep", "--kernel", "trivial", "--store", store).code == 0
    first = command("report", store, env={"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"})
    second = command("report", "run.jsonl", cwd=tmp_path, env={"PYTHONHASHSEED": "2"})
    assert first.code == second.code == 0
    assert first.out == second.out
    assert "UTC" in first.out


def test_a_change_from_the_baseline_is_exit_code_1(main, tmp_path):
    """An unchanged run is 0; a changed, missing or new launch is 1 and is named."""
    store = tmp_path / "before.jsonl"
    arguments = ["cluster-sweep", "--sizes", "8,16", "--fail-on", "changed", "--baseline", store]
    assert main("cluster-sweep", "--sizes", "8,16", "--store", store).code == 0
    same = main(*arguments)
    assert (same.code, same.err) == (0, "")
    lines = store.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if '"verdict":"refused"' in line)
    changed = json.loads(lines[number])
    lines[number] = json.dumps(changed | {"verdict": "launches"})
    store.write_text("\n".join(lines) + "\n")
    ran = main(*arguments)
    assert ran.code == 1
    assert ran.err.startswith(f"failed: `{changed['id']}` was launches")
    assert ran.out.startswith("PREDICTED")
    fewer = main("cluster-sweep", "--sizes", "8", *arguments[3:])
    assert fewer.code == 1
    assert "only in the baseline" in fewer.err


def test_a_refused_size_is_a_failure_only_where_asked(main):
    """`--fail-on refused` turns a refusal by the layout into 1; without a refusal it stays 0."""
    ran = main("cluster-sweep", "--profile", "thor", "--sizes", "16", "--fail-on", "refused")
    assert ran.code == 1
    assert "larger-than-any-gpc" in ran.err
    assert "PREDICTED" in ran.out
    ran = main("cluster-sweep", "--profile", "h200", "--sizes", "16", "--fail-on", "refused")
    assert (ran.code, ran.err) == (0, "")


def test_a_scenario_that_holds_is_green_and_a_changed_one_red(main, tmp_path):
    """The Thor report passes as shipped; with one expectation changed it is 1 and names it."""
    green = main("run", "thor-report", "thor-without-layout", "sm12x-shared-memory")
    assert green.code == 0, green.out
    assert "fail" not in green.out.splitlines()[-1]
    shipped = (ROOT / "scenarios" / "thor-report.toml").read_text()
    path = tmp_path / "changed.toml"
    path.write_text(shipped.replace("failing_cluster_sizes = [16]", "failing_cluster_sizes = [8]"))
    red = main("run", path, "--json")
    assert red.code == 1
    failed = [line for line in json.loads(red.out) if line["status"] == "fail"]
    assert len(failed) == 1
    assert "thor-report" in failed[0]["scenario"]
    assert "8" in failed[0]["sentence"]
    assert "16" in failed[0]["sentence"]


def test_scenarios_of_a_gpu_are_waived_without_one(main):
    """Where everything is waived the exit code is 3, with the reason; a pass beside it is 0."""
    ran = main("run", "h200-full", "--format", "junit")
    assert ran.code == 3
    root = ET.fromstring(ran.out)
    assert int(root.get("skipped")) == int(root.get("tests")) > 0
    assert "no CUDA driver" in ran.out
    assert main("run", "h200-full", "h200-profile").code == 0


def test_an_internal_error_is_exit_code_4(main, monkeypatch):
    """A defect is said in one sentence with the way to the traceback, which --debug then shows."""

    def broken(_self):
        raise RuntimeError("boom")

    monkeypatch.setattr("thorprobe.cli.study.SweepStudy.first", broken)
    ran = main("cluster-sweep")
    assert ran.code == 4
    assert ran.err.startswith("error: internal error: RuntimeError: boom\n\nhint: ")
    assert "--debug" in ran.err
    monkeypatch.setenv("THORPROBE_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        main("cluster-sweep")


def test_a_probe_that_hangs_is_exit_code_5(main, fake_gpu, tmp_path):
    """One hanging launch costs one record; the sweep is complete and the exit code says it."""
    fake, use = fake_gpu

    class Hanging(fake):
        def ask(self, specs):
            asked = [msgspec.structs.replace(specs[0], spin_cycles=1), *specs[1:]]
            for spec, outcome in zip(specs, super().ask(asked), strict=True):
                yield msgspec.structs.replace(outcome, id=spec.id, spec=spec)

    use(Hanging)
    arguments = ["--kernel", "trivial", "--sizes", "4,8", "--compiled-dims", "--json"]
    ran = main("cluster-sweep", *arguments, "--deadline", "0.5", "--store", tmp_path / "s.jsonl")
    assert ran.code == 5
    document = json.loads(ran.out)
    assert document["exit_code"] == 5
    assert [r["status"] for r in document["results"]] == ["timeout"] + ["pass"] * 15
    assert document["results"][0]["verdict"] == "hangs"
    assert document["results"][0]["cause"] == "hang"


def test_an_interrupt_says_how_to_go_on(main, monkeypatch):
    """Ctrl-C ends a command with exit code 130 and names --resume."""

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("thorprobe.cli.measure.measure", interrupted)
    ran = main("cluster-sweep")
    assert ran.code == 130
    assert ran.err.startswith("error: interrupted\n\nhint: ")
    assert "--resume" in ran.err


def test_settings_of_vllm_are_told_the_arm_they_reach(main, tmp_path):
    """Requests and speculative tokens become rows, and the page says which arm they reach."""
    ran = main("topk-arms", "--requests", "1", "--speculative-tokens", "3", "--repeats", "0")
    assert ran.code == 0
    assert "e126687a9a: 4 rows -> 16 CTAs" in " ".join(ran.out.split())
    reached = main("topk-arms", "--reach", "16", "--policy", "e126687a9a")
    assert reached.code == 0
    assert reached.out.startswith("e126687a9a, cc 11.0, 16 CTAs:\n")
    assert "1-4 requests, 0 speculative tokens" in reached.out
    page = tmp_path / "reach.txt"
    written = main("topk-arms", "--reach", "16", "--policy", "e126687a9a", "--output", page)
    assert written == (0, "", "")
    assert page.read_text() == reached.out


def test_the_time_is_the_commands_own():
    """A shell that becomes its last command lends it no time: 3 s of sleep are not its own."""
    asked = [sys.executable, "-m", "thorprobe", "cluster-sweep", "--profile", "thor", "--json"]
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", f"sleep 3 && exec {shlex.join(asked)}"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        timeout=120,
    )
    elapsed = time.monotonic() - began
    assert 0 < json.loads(done.stdout)["wall_s"] < elapsed - 2.9
