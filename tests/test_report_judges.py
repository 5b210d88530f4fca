# SPDX-License-Identifier: Apache-2.0
"""``report`` and ``explain`` judge what they are given: one launch of a public report a store.

The stores in ``data/launches`` were written by hand after public reports; no device was asked.
"""

import json
from pathlib import Path

import msgspec
import pytest

from binaries import hungry_cubin, most_threads
from thorprobe.binary import cubin as cubins

LAUNCHES = Path(__file__).parent / "data/launches"
RIGHT = {
    "limit_lowered": "smem-limit-lowered",
    "setter_refused": "smem-over-optin",
    "cooperative_78_sms": "cooperative-too-large",
    "cooperative_no_clusters": "cooperative-too-large",
    "early_exit": "kernel-fault",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_store_is_judged_alike_by_report_and_explain(name, main):
    """Both find the cause in the record."""
    path = LAUNCHES / f"{name}.jsonl"
    document = json.loads(main("report", path, "--json").out)
    assert [one["cause"] for one in document["results"]] == [RIGHT[name]]
    explained = json.loads(main("explain", path, "--json").out)
    assert explained["summary"]["cause"] == RIGHT[name]
    assert document["summary"]["next_action"]


@pytest.mark.parametrize("name", ["cooperative_78_sms", "cooperative_no_clusters"])
def test_a_cooperative_grid_without_a_cluster_is_about_ctas(name, main):
    """The advice counts CTAs per SM x SMs, and no 0 active clusters are shown."""
    shown = main("report", LAUNCHES / f"{name}.jsonl", "--format", "text").out
    advice = " ".join(shown.split("Next")[1].split("Without")[0].split())
    assert "CTAs per SM x SMs" in advice
    assert "cluster" not in advice
    assert " 0 720" not in shown


def test_a_fault_inside_a_cluster_names_early_exit(main):
    """CTAs that leave a cluster early are a candidate, in the advice and among the candidates."""
    path = LAUNCHES / "early_exit.jsonl"
    assert "left early" in " ".join(main("report", path, "--format", "text").out.split())
    explained = json.loads(main("explain", path, "--json").out)
    assert explained["summary"]["candidates"] == ["early-exit"]


def test_a_kernel_of_a_cubin_with_its_block(main, tmp_path):
    """Registers are read in the cubin itself, and leave fewer threads than the block has."""
    cubin = tmp_path / "hungry.cubin"
    cubin.write_bytes(hungry_cubin())
    (found,) = cubins.contents(cubin.read_bytes())[1]
    for words in ((cubin,), ("--cubin", cubin)):
        told = main("explain", *words, "--block", "1024", "--json")
        summary = json.loads(told.out)["summary"]
        assert summary["cause"] == "out-of-resources"
        assert str(most_threads(found.registers)) in summary["finding"]
    assert main("explain", cubin, "--kernel", "nope", "--block", "1024").code == 2


def _changed(tmp_path, **changes):
    lines = (LAUNCHES / "early_exit.jsonl").read_text().splitlines()
    outcome = json.loads(lines[1])
    outcome |= {key: value for key, value in changes.items() if key != "observed"}
    outcome["observed"] = changes.get("observed", outcome["observed"])
    path = tmp_path / "changed.jsonl"
    path.write_text("\n".join((lines[0], msgspec.json.encode(outcome).decode(), *lines[2:])) + "\n")
    return path


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_an_ignored_cluster_is_shown_with_what_the_kernel_saw(form, main, tmp_path):
    """The observed cluster size stands on the page."""
    seen = {"launch_code": 0, "sync_code": 0, "cluster_seen": 1}
    shown = main("report", _changed(tmp_path, observed=seen), "--format", form).out
    assert "the kernel saw a cluster of 1, not 8" in " ".join(shown.split())


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_wrong_result_is_shown_with_the_detail_of_its_check(form, main, tmp_path):
    """Where rows differ, the page says of what the comparison found."""
    check = {"oracle": "sort", "rows": 4, "wrong_rows": 2, "detail": "row 3 misses index 17"}
    seen = {"launch_code": 0, "sync_code": 0, "cluster_seen": 8, "check": check}
    shown = main("report", _changed(tmp_path, observed=seen), "--format", form).out
    assert "2 of 4 rows differ from sort: row 3 misses index 17" in " ".join(shown.split())


def test_an_error_from_before_the_launch_is_no_dash(main, tmp_path):
    """A code that was seen before the launch is shown as such, with what to do."""
    sync = {"call": "cuStreamSynchronize", "code": 700, "name": "X", "sentence": "", "detail": ""}
    path = _changed(tmp_path, calls=[sync], observed={})
    shown = main("report", path, "--format", "text").out
    assert "prior" in shown
    assert "Ask again in a new process" in shown
