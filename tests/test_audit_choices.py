# SPDX-License-Identifier: Apache-2.0
"""What each gate's choice takes: told against persistent_topk wherever that was timed."""

import hashlib

import msgspec
import pytest

from thorprobe.audit import answer as auditing
from thorprobe.audit.choice_text import reject
from thorprobe.audit.page import sheet
from thorprobe.audit.records import Audit
from thorprobe.cli.measure import assemble
from thorprobe.cli.study import ArmsStudy
from thorprobe.judge.cause import judge
from thorprobe.model.profile import load as load_profile
from thorprobe.plan import gate as gates
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.operator import PERSISTENT, OperatorLibrary, operator_of
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.record import (
    Header,
    Observed,
    OperatorCall,
    Origin,
    Outcome,
    Status,
)
from thorprobe.run.store import Store

LIBRARY = OperatorLibrary(version="0.33.0", policy="0.33.0", sha256="a" * 64)
ROWS = (1, 5, 8, 16, 33, 64, 65)
COLUMNS = 65_536
DIGEST = hashlib.sha256(b"image").hexdigest()
CROSSING = 20
"""Rows from which the persistent operator is made the faster one."""


def shipped_kernel():
    """Return the twelve launches of one k as a wheel's kernel has them."""
    functions = tuple(
        ShippedFunction(
            symbol=f"cs{size}",
            name=f"cooperative_topk_cs{size}<512>",
            cluster=(1, size, 1),
            threads=1024,
            dynamic_smem=156_416 if size > 4 else 221_952,
        )
        for size in (2, 4, 8, 16)
    )
    return ShippedKernel(
        label=f"cooperative_topk<512>@{DIGEST[:12]}",
        image=DIGEST,
        target="sm_90a",
        functions=functions,
        policy="0.33.0",
        k=512,
        row_limit=64,
        stride_multiple=4,
    )


def cooperative_us(rows, size):
    """Return a made-up time: smaller clusters are faster, and every row costs."""
    return 10.0 + rows + size / 4


def persistent_us(rows):
    """Return a made-up time that meets that of the arm at CROSSING rows."""
    return 10.0 + CROSSING + 0.05 * (rows - CROSSING)


def outcome(spec, largest):
    """Answer one launch: refused above the largest cluster, else right and timed."""
    rows, size = spec.workload.rows, spec.cluster_size
    persistent = operator_of(spec.kernel) == PERSISTENT
    refused = spec.cluster_attribute and size > largest
    us = persistent_us(rows) if persistent else cooperative_us(rows, size)
    seen = Observed(
        max_active=None if persistent else int(not refused),
        launch_code=912 if refused else 0,
        sync_code=0,
        verified=None if refused else True,
        time_us=us if spec.repeats and not refused else None,
    )
    if "::" in spec.kernel:
        call = OperatorCall(operator=operator_of(spec.kernel))
        seen = msgspec.structs.replace(seen, operator=call)
    return Outcome(id=spec.id, spec=spec, status=Status.PASS, origin=Origin.MEASURED, observed=seen)


def drive(folder, name, partition, **changes):
    """Record a drive of the arms in a partition of an H200, and return the store."""
    device = load_profile("h200").device(partition)
    device = msgspec.structs.replace(device, basis="", profile="", driver="580.159")
    options = ArmsOptions(
        **{
            "capability": (9, 0),
            "columns": COLUMNS,
            "lengths": (COLUMNS,),
            "rows": ROWS,
            "repeats": 2,
            "partition": partition,
        }
        | changes
    )
    question = ArmsStudy(options)
    largest = 2 if "groups-of=2" in partition else 8 if partition else 16
    results = [judge(outcome(spec, largest), device) for spec in question.first()]
    header = Header(
        command="topk-arms",
        started="2026-12-01T04:00:00Z",
        origin=Origin.MEASURED,
        device=device,
        options=question.options,
    )
    assert assemble(header, results, question, ended="", wall_s=1.0).missing == 0
    path = folder / f"{name}.jsonl"
    with Store(path, header) as store:
        for one in results:
            store.write(one)
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Record vLLM's operators in four places, and the shipped kernels in one, as for Thor."""
    folder = tmp_path_factory.mktemp("stores")
    places = {
        "full": "",
        "sms24": "sms=24",
        "sms8": "sms=8",
        "pairs": "sms=8,groups-of=2",
    }
    made = {
        name: drive(folder, name, part, library=LIBRARY, policies=("e126687a9a", "0.33.0"))
        for name, part in places.items()
    }
    made["shipped"] = drive(
        folder,
        "shipped",
        "sms=24",
        capability=(11, 0),
        shipped=(shipped_kernel(),),
        policies=("0.33.0",),
        rows=tuple(rows for rows in ROWS if rows < 65),
    )
    return made


def audited(stores, *names):
    """Audit the default gates on these stores."""
    parties = [auditing.of_store(stores[name]) for name in names]
    return auditing.audit(parties, gates.DEFAULT)


def choices(stores, *names):
    """Return the choices by subject and rows."""
    found = audited(stores, *names).summary.choices
    return {(choice.subject, choice.rows): choice for choice in found}


def test_a_reject_costs_below_the_crossing_and_gains_above_it(stores):
    """The difference is that of the two times that were measured at the same input."""
    found = choices(stores, "sms24", "full", "sms8")
    for (_, rows), choice in found.items():
        lost = reject(choice)
        assert lost == pytest.approx(persistent_us(rows) - cooperative_us(rows, choice.cluster))
        assert (lost > 0) == (rows + choice.cluster / 4 < CROSSING + 0.05 * (rows - CROSSING))
    assert {subject for subject, _ in found} == {"sms24", "full", "sms8"}
    assert max(rows for _, rows in found) == 64


def test_each_gate_is_told_by_what_it_takes(stores):
    """Behind the gate of e126687a9a rows from 33 on take the persistent operator."""
    choice = choices(stores, "sms24")["sms24", 33]
    assert choice.took["e126687a9a"].cluster == 0
    assert choice.took["e126687a9a"].us == persistent_us(33)
    assert choice.took["0.33.0"].cluster == 4
    assert choice.took["0.33.0"].us == cooperative_us(33, 4)
    assert (choice.best_cluster, choice.best_us) == (0, persistent_us(33))


def test_sizes_of_another_store_of_the_place_count(stores):
    """With the shipped kernels' times the best choice is a smaller cluster than the arm's."""
    found = choices(stores, "sms24", "shipped")
    choice = found["shipped", 8]
    assert choice.tried == (0, 2, 4, 8)
    assert (choice.cluster, choice.best_cluster) == (8, 2)
    assert choice.best_us == cooperative_us(8, 2)
    assert choice.took["pr-56084"].cluster == 0
    assert choice.took["0.33.0"].us == cooperative_us(8, 8)
    assert set(choice.sources) == {"sms24", "shipped"}
    refused = found["shipped", 1]
    assert (refused.arm_us, refused.arm_code, reject(refused)) == (None, 912, None)
    assert refused.took["0.33.0"].code == 912
    assert refused.took["step-down"].cluster == 8


def test_where_the_cluster_is_refused_a_reject_loses_nothing(stores):
    """In groups of 2 the gate that lets rows through ends with 912."""
    found = choices(stores, "pairs")
    assert [found["pairs", rows].took["0.33.0"].code for rows in (1, 8, 33)] == [912] * 3
    assert found["pairs", 1].took["occupancy"].cluster == 0
    assert reject(found["pairs", 1]) is None
    assert reject(found["pairs", 64]) < 0


def test_two_spellings_of_a_partition_are_one_place(stores, tmp_path):
    """Times of `flags=1` count for `groups-of=2`, never for the same SMs split otherwise."""
    other = drive(
        tmp_path, "flags", "sms=8,groups-of=2", library=LIBRARY, policies=("0.33.0",), rows=(64,)
    )
    text = other.read_text().replace("sms=8,groups-of=2", "sms=8,flags=1")
    other.write_text(text)
    found = choices({**stores, "flags": other}, "flags", "sms8")
    assert found["flags", 64].sources == ("flags",)
    both = choices({**stores, "flags": other}, "flags", "pairs")
    assert set(both["pairs", 64].sources) <= {"flags", "pairs"}
    assert both["flags", 64].persistent_us == persistent_us(64)


def test_without_a_time_of_the_persistent_operator_nothing_is_told(stores):
    """Then what a reject costs is not established, as before."""
    summary = audited(stores, "shipped").summary
    assert summary.choices is msgspec.UNSET
    assert any(cost.rows == 8 for cost in summary.costs)
    assert any("not established" in text for text in summary.proposal.paragraphs)


def test_the_text_for_upstream_says_what_an_exclusion_costs_and_what_to_ask(stores):
    """Costs at few rows, savings above, and a gate that asks occupancy, then rows and SMs."""
    told = " ".join(audited(stores, "sms24", "shipped", "sms8").summary.proposal.paragraphs)
    assert "An exclusion of the family (pr-56084 and pr-56102) on H200 sms=24 as cc 11.0" in told
    assert "costs time at num_rows 5, 8, 16 (at 5: 17.0 us become 29.2)" in told
    assert "saves it at num_rows 33, 64" in told
    assert "the right gate asks occupancy first, and then goes by rows and by the SMs" in told
    assert "num_rows 33 to 64 persistent_topk" in told
    assert "not established" not in told.partition("An exclusion")[2]


def test_the_page_has_a_table_a_place_and_no_old_costs(stores):
    """What was measured stands where it was not established before."""
    found = audited(stores, "sms24", "shipped", "sms8")
    answer = Audit(
        command="audit",
        argv=(),
        started="",
        ended="",
        origin=found.origin,
        software={},
        inputs=found.inputs,
        options={},
        results=found.results,
        summary=found.summary,
        wall_s=0.0,
    )
    page = sheet(answer)
    headings = [section.heading for section in page.sections]
    assert sum(heading.startswith("What each gate's choice takes") for heading in headings) == 3
    assert "What kept-out rows lose" not in headings
    (table,) = [s.table for s in page.sections if "choice takes: H200 sms=8 " in s.heading]
    by_rows = {row[2][0]: [cell[0] for cell in row] for row in table.rows}
    assert by_rows["64"][6].startswith("-")
    assert by_rows["8"][6].startswith("+")
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Audit) == answer
