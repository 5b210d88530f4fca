# SPDX-License-Identifier: Apache-2.0
"""Public reports of failing launches, explained by their facts alone.

``data/launch_cases.jsonl`` holds facts and figures of public reports, each with its source. No text
and no id is given to ``explain``: only the facts.
"""

import json
from pathlib import Path

import msgspec
import pytest

from devices import H200
from test_cause import TABLE, outcome
from thorprobe.explain.answer import explain
from thorprobe.explain.asked import Asked
from thorprobe.explain.evidence_file import told_of
from thorprobe.explain.weigh import OPEN, weigh
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.judge.cause import CODE_NAMES, judge

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data/launch_cases.jsonl").read_text().splitlines()
]


def _named(case):
    return f"{case['source'].rsplit('/', 3)[-3:]}-{case['cause']}-{len(case['given'])}"


@pytest.mark.parametrize("case", CASES, ids=_named)
def test_a_public_report_is_explained_by_its_facts(case):
    """The settled cause where the facts settle it, else undetermined with the missing fact."""
    found = explain("", msgspec.convert(case["given"], Asked)).summary
    assert found.cause == case["cause"], found
    assert set(case.get("candidates", ())) <= set(found.candidates), found
    assert set(case.get("missing", ())) <= set(found.missing), found
    assert not set(case.get("never", ())) & {found.cause, *found.candidates}
    assert found.missing or found.cause != OPEN


def test_the_cases_are_the_public_ones():
    """Every report stands for itself, and both answers occur: settled, and what is missing."""
    assert len({case["source"] for case in CASES}) >= 70
    causes = [case["cause"] for case in CASES]
    assert {cause for cause in causes if cause} <= set(BY_KEY)
    assert causes.count(OPEN) >= 10
    assert len(set(causes)) >= 15


def test_advice_for_a_device_without_clusters_speaks_of_none():
    """Too large a cooperative grid on cc 8.9 is about CTAs and SMs."""
    asked = Asked(capability="8.9", sms=76, cooperative=True, grid="2,82,1", cluster="0", code=720)
    assert "cluster" not in explain("", asked).summary.next_action


def test_the_most_threads_of_a_kernel_are_told():
    """156 registers a thread leave 384 threads, the number that mends the launch."""
    asked = Asked(capability="12.0", block="1024", registers=156, code=701)
    assert "384" in explain("", asked).summary.finding


@pytest.mark.parametrize("name", TABLE)
def test_what_an_h200_answered_is_explained_from_its_record(name):
    """Each measured misconfiguration has the cause that the judge gives it, from its facts."""
    asked, seen, said, key = TABLE[name][:4]
    one = outcome(asked, (said,) if said else (), **seen)
    assert judge(one, H200).cause == key
    assert weigh(told_of(one, H200)).cause == key


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name][1].get("launch_code")])
def test_what_an_h200_answered_is_explained_from_its_text(name):
    """The code's name with the launch's numbers gives the same cause as the record."""
    asked, seen, _said, key = TABLE[name][:4]
    code = seen["launch_code"]
    given = Asked(
        grid=",".join(map(str, asked.grid)),
        block=",".join(map(str, asked.block)),
        cluster=",".join(map(str, asked.cluster)) if asked.cluster_attribute else "0",
        compiled_cluster=f"1,{asked.compiled_cluster},1" if asked.compiled_cluster else "0",
        smem=asked.dynamic_smem,
        static_smem=0,
        non_portable=asked.non_portable,
        setter_limit=asked.dynamic_smem if asked.smem_opt_in else None,
        cooperative=asked.cooperative,
        max_active=seen.get("max_active"),
        profile="h200",
    )
    text = f"RuntimeError: cuLaunchKernelEx failed: {CODE_NAMES.get(code, code)}"
    told = explain(text, given).summary
    assert key in (told.cause, *told.candidates)
    if told.cause != key:
        assert told.cause == OPEN
        assert told.missing
