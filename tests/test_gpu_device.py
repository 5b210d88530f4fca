# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show: real launches, refusals, faults and hangs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thorprobe.cli.measure import measure
from thorprobe.cli.study import SweepStudy
from thorprobe.judge.cause import judge
from thorprobe.plan.sweep import SweepOptions
from thorprobe.record import LaunchSpec, Status, Verdict, Workload
from thorprobe.run.gpu import GpuAnswerer
from thorprobe.run.store import read

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def whole():
    """Open an answerer on the whole device."""
    answerer = GpuAnswerer(oracle="auto")
    yield answerer
    answerer.close()


@pytest.fixture(scope="module")
def eight():
    """Open an answerer on a green context of 8 SMs."""
    answerer = GpuAnswerer(partition="sms=8")
    yield answerer
    answerer.close()


def _ask(answerer, *specs):
    return [judge(o, answerer.device) for o in answerer.ask(specs)]


def _trivial(size, **changes):
    base = {
        "kernel": "trivial",
        "grid": (1, size, 1),
        "block": (1024, 1, 1),
        "cluster": (1, size, 1),
        "non_portable": size > 8,
    }
    return LaunchSpec(**(base | changes))


def _topk(size, work, **changes):
    base = {
        "kernel": "topk",
        "grid": (work.rows, size, 1),
        "block": (1024, 1, 1),
        "cluster": (1, size, 1),
        "dynamic_smem": 156_416 if size > 4 else 221_952,
        "non_portable": size > 8,
        "workload": work,
    }
    return LaunchSpec(**(base | changes))


MISUSE = [
    ("no opt-in", _trivial(16, non_portable=False), 912, "non-portable-not-enabled"),
    ("cluster 32", _trivial(32), 912, "cluster-over-16"),
    ("cluster 17", _trivial(17), 912, "cluster-over-16"),
    ("grid 6 by 4", _trivial(4, grid=(1, 6, 1)), 912, "grid-not-divisible"),
    (
        "compiled 8, asked 4",
        _trivial(4, grid=(1, 8, 1), compiled_cluster=8),
        912,
        "required-cluster-mismatch",
    ),
    (
        "compiled 8, no attribute, grid 12",
        _trivial(8, grid=(1, 12, 1), compiled_cluster=8, cluster_attribute=False),
        912,
        "grid-not-divisible",
    ),
    ("shared memory over the opt-in", _trivial(8, dynamic_smem=240_000), 1, "smem-over-optin"),
    (
        "shared memory over the opt-in and cluster 32",
        _trivial(32, dynamic_smem=240_000),
        1,
        "smem-over-optin",
    ),
    (
        "shared memory not opted in",
        _trivial(8, dynamic_smem=100_000, smem_opt_in=False),
        1,
        "smem-not-opted-in",
    ),
    ("block of 2,048", _trivial(4, block=(2048, 1, 1)), 1, "block-too-large"),
    ("block of 2,048 and cluster 32", _trivial(32, block=(2048, 1, 1)), 1, "block-too-large"),
    ("zero rows", _trivial(8, grid=(0, 8, 1)), 1, "empty-grid"),
    (
        "cooperative, too many",
        _trivial(8, grid=(400, 8, 1), cooperative=True),
        720,
        "cooperative-too-large",
    ),
    (
        "no attribute on a cluster kernel",
        _trivial(8, cluster_attribute=False),
        0,
        "cluster-ignored",
    ),
]


@pytest.mark.parametrize(
    ("spec", "code", "cause"), [m[1:] for m in MISUSE], ids=[m[0] for m in MISUSE]
)
def test_each_misuse_answers_its_code_and_is_told_apart(whole, spec, code, cause):
    """Every misuse has its own code and cause, and the next launch is unharmed."""
    outcome, after = _ask(whole, spec, _trivial(4))
    assert (outcome.observed.launch_code, outcome.cause) == (code, cause)
    assert after.verdict is Verdict.LAUNCHES


@pytest.mark.parametrize(
    ("spec", "code", "cause"), [m[1:] for m in MISUSE], ids=[m[0] for m in MISUSE]
)
def test_the_driver_log_names_each_misuse(whole, spec, code, cause):
    """The driver's log has a sentence for every misuse but a size that no device launches."""
    [outcome] = _ask(whole, spec)
    if outcome.driver_log is None:
        pytest.skip("waived: this driver writes no log")
    silent = not code or cause == "cluster-over-16"
    assert bool(outcome.driver_log) != silent, outcome.driver_log


def test_compiled_dimensions_alone_are_honoured(whole):
    """A kernel compiled for 8 runs as 8 without the launch attribute."""
    [outcome] = _ask(whole, _trivial(8, compiled_cluster=8, cluster_attribute=False))
    assert (outcome.verdict, outcome.observed.cluster_seen) == (Verdict.LAUNCHES, 8)


def test_sixteen_is_refused_in_eight_sms_and_the_log_is_silent(eight):
    """In 8 SMs 16 CTAs answer 912 with no sentence of the driver; 8 launch and are proven."""
    outcomes = _ask(eight, _trivial(16), _trivial(16, captured=True), _trivial(8))
    for outcome in outcomes[:2]:
        assert outcome.observed.launch_code == 912
        assert outcome.observed.max_active == 0
        assert outcome.cause == "larger-than-any-gpc"
        said = [line for line in outcome.driver_log or () if "instantiate" not in line]
        assert said == []
    assert outcomes[1].calls[-2].call == "cuGraphInstantiate"
    assert (outcomes[2].verdict, outcomes[2].observed.verified) == (Verdict.LAUNCHES, True)


def test_a_fault_costs_one_record(whole):
    """An illegal address is 700 at the synchronisation; the next probe is right."""
    fault = LaunchSpec(kernel="fault", grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1))
    outcomes = _ask(whole, _trivial(8), fault, _trivial(8))
    assert [o.verdict for o in outcomes] == [Verdict.LAUNCHES, Verdict.FAULTS, Verdict.LAUNCHES]
    assert (outcomes[1].observed.launch_code, outcomes[1].observed.sync_code) == (0, 700)
    assert outcomes[1].cause == "kernel-fault"


def test_a_hang_costs_one_record():
    """A kernel that does not come back is ended at the deadline; the next probe is right."""
    answerer = GpuAnswerer(deadline_s=2)
    hang = LaunchSpec(kernel="hang", grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1))
    try:
        outcomes = _ask(answerer, _trivial(8), hang, _trivial(8))
    finally:
        answerer.close()
    assert [o.verdict for o in outcomes] == [Verdict.LAUNCHES, Verdict.HANGS, Verdict.LAUNCHES]
    assert outcomes[1].status is Status.TIMEOUT


def test_measurement_equals_the_model(whole, eight):
    """On an H200 every occupancy answer and launch code is what its profile predicts."""
    if "H200" not in whole.device.name:
        pytest.skip("waived: the measured profile is that of an H200")
    from thorprobe.model.profile import load
    from thorprobe.run.model import ModelAnswerer

    for answerer, partition in ((whole, ""), (eight, "sms=8")):
        question = SweepStudy(SweepOptions(partition=partition))
        measured = list(answerer.ask(question.first()))
        model = ModelAnswerer(load("h200"), partition)
        for seen, told in zip(measured, model.ask(question.first()), strict=True):
            fields = (
                "max_potential",
                "max_potential_code",
                "max_active",
                "max_active_code",
                "launch_code",
            )
            for name in fields:
                assert getattr(seen.observed, name) == getattr(told.observed, name), seen.id


LENGTHS = (0, 1, 511, 512, 513, 16_383, 16_384, 16_385, 65_535, 65_536)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_topk_is_exact_at_every_boundary(whole, size):
    """Results are right across paths, slices, ties and k."""
    specs = [
        _topk(
            size,
            Workload(
                rows=rows,
                columns=65_536,
                stride=65_540,
                length=length,
                k=k,
                distribution=distribution,
            ),
        )
        for rows, k, distribution in (
            (1, 512, "normal"),
            (5, 512, "relu-sum"),
            (3, 2_048, "ten-values"),
            (2, 1_024, "all-equal"),
            (4, 512, "uniform"),
            (2, 512, "masked"),
        )
        for length in LENGTHS
    ]
    outcomes = _ask(whole, *specs)
    assert [o.id for o in outcomes if o.verdict is not Verdict.LAUNCHES] == []
    assert all(o.observed.check and o.observed.check.wrong_rows == 0 for o in outcomes)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_topk_is_exact_beyond_its_shared_memory(whole, size):
    """A slice that does not fit in shared memory is read again, with the same result."""
    stage = 49_152 if size < 8 else 32_768
    specs = [
        _topk(size, Workload(rows=2, columns=length, stride=length, length=length, k=512))
        for length in (stage * size - 1, stage * size, stage * size + 1, 1_000_003)
    ]
    assert {o.verdict for o in _ask(whole, *specs)} == {Verdict.LAUNCHES}


def _command(*arguments):
    return [sys.executable, "-m", "thorprobe", *arguments]


def test_a_killed_sweep_resumes(tmp_path):
    """SIGKILL in the middle of a sweep; --resume completes it with every record once."""
    path = tmp_path / "run.jsonl"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.Popen(
        _command("cluster-sweep", "--store", str(path), "--json"),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") > 20:
            break
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = [o.id for o in read(path).outcomes]
    assert read(path).footer is None
    done = subprocess.run(
        _command("cluster-sweep", "--resume", str(path), "--json"),
        env=environment,
        capture_output=True,
        check=True,
    )
    document = json.loads(done.stdout)
    after = [o.id for o in read(path).outcomes]
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == len(document["results"])
    assert len(document["results"]) >= 192


def test_the_gpc_map_is_measured_and_solved_alike(eight):
    """In 8 SMs both maps are one group of 8."""
    document = measure(SweepStudy(SweepOptions(partition="sms=8")), eight)
    assert document.summary.gpc_map.solved == (8,)
    assert document.summary.gpc_map.measured == (8,)
