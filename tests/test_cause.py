# SPDX-License-Identifier: Apache-2.0
"""Verdict and cause of single outcomes.

``TABLE`` copies, row by row, what an H200 (driver 580, 2026-11-30) answered to each way of
launching wrongly. The log sentences paraphrase that driver's.
"""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import H200, LIMITS
from thorprobe.errors import UsageError
from thorprobe.judge.cause import (
    BY_KEY,
    CATALOGUE,
    CODE_NAMES,
    CONSISTENT,
    cause,
    judge,
    refusal,
    settled,
)
from thorprobe.record import (
    Check,
    Device,
    DriverCall,
    LaunchSpec,
    Observed,
    Origin,
    Outcome,
    Status,
    Verdict,
)

SM12X = Device(
    name="NVIDIA GB10",
    capability=(12, 1),
    sms=48,
    limits=msgspec.structs.replace(LIMITS, max_smem_per_block_optin=101_376),
)
AMPERE = Device(
    name="NVIDIA GeForce RTX 3060",
    capability=(8, 6),
    sms=28,
    limits=msgspec.structs.replace(LIMITS, cluster_launch=False),
)
NOISE = "Returning 912 (CUDA_ERROR_INVALID_CLUSTER_SIZE) from cuLaunchKernelEx"


def spec(size: int = 8, **changed: object) -> LaunchSpec:
    """One cluster of ``size`` CTAs of 1,024 threads, with the opt-in where needed."""
    fields = {
        "kernel": "trivial",
        "grid": (1, size, 1),
        "block": (1024, 1, 1),
        "cluster": (1, size, 1),
        "non_portable": size > 8,
    }
    return LaunchSpec(**(fields | changed))


def outcome(asked: LaunchSpec, log: tuple[str, ...] | None = (), **fields: object) -> Outcome:
    """Make a measured outcome; status, calls and note by keyword, the rest goes to Observed."""
    names = ("status", "calls", "note", "origin", "stage")
    own = {k: fields.pop(k) for k in names if k in fields}
    return Outcome(
        id=asked.id,
        spec=asked,
        driver_log=log,
        observed=Observed(**fields),
        **({"status": Status.PASS, "origin": Origin.MEASURED} | own),
    )


def call(name: str, code: int = 0, detail: str = "") -> DriverCall:
    """One driver call."""
    return DriverCall(call=name, code=code, name=f"CODE_{code}", sentence="", detail=detail)


NOT_PORTABLE = "Requested cluster size exceeds portable 8, non-portable sizes are not enabled"
NOT_DIVISIBLE = "Cluster dimensions (1, 4, 1) do not evenly divide grid dimensions (1, 6, 1)"
NOT_REQUIRED = "Cluster dimensions (1, 4, 1) do not match the kernel's required (1, 8, 1)"
TOO_MUCH = "240000 bytes of dynamic shared memory were requested, the limit is 232448"
OVER_DEFAULT = "100000 bytes of dynamic shared memory were requested, the limit is 49152"
BIG_BLOCK = "Block dimension x 2048 exceeds the maximum 1024"
NO_GRID = "Grid dimension x 0 is below the minimum 1"
COOPERATIVE = "A cooperative launch may have at most 120 blocks"

TABLE = {
    "cluster 16 without the opt-in": (
        spec(16, non_portable=False),
        {"launch_code": 912, "max_potential_code": 912, "max_active_code": 912},
        NOT_PORTABLE,
        "non-portable-not-enabled",
    ),
    "cluster 32 with the opt-in": (
        spec(32),
        {"launch_code": 912, "max_potential": 16, "max_active": 0},
        NOT_PORTABLE,
        "cluster-over-16",
    ),
    "cluster 17, where max_active is 2": (
        spec(17),
        {"launch_code": 912, "max_potential": 16, "max_active": 2},
        NOT_PORTABLE,
        "cluster-over-16",
    ),
    "grid.y 6, cluster.y 4": (
        spec(4, grid=(1, 6, 1)),
        {"launch_code": 912, "max_potential_code": 912, "max_active_code": 912},
        NOT_DIVISIBLE,
        "grid-not-divisible",
    ),
    "grid.z 3, cluster.z 2": (
        spec(grid=(1, 1, 3), cluster=(1, 1, 2)),
        {"launch_code": 912, "max_active_code": 912},
        NOT_DIVISIBLE,
        "grid-not-divisible",
    ),
    "compiled dims 8, attribute 4": (
        spec(4, grid=(1, 8, 1), compiled_cluster=8),
        {"launch_code": 912, "max_potential_code": 912, "max_active_code": 912},
        NOT_REQUIRED,
        "required-cluster-mismatch",
    ),
    "compiled dims 8, no attribute, grid 12": (
        spec(8, grid=(1, 12, 1), compiled_cluster=8, cluster_attribute=False),
        {"launch_code": 912, "max_active_code": 912},
        NOT_DIVISIBLE,
        "grid-not-divisible",
    ),
    "shared memory over the opt-in, cluster 8": (
        spec(8, dynamic_smem=240_000),
        {"launch_code": 1},
        TOO_MUCH,
        "smem-over-optin",
    ),
    "shared memory over the opt-in and cluster 32": (
        spec(32, dynamic_smem=240_000),
        {"launch_code": 1},
        TOO_MUCH,
        "smem-over-optin",
    ),
    "more than 48 KiB, attribute not set": (
        spec(8, dynamic_smem=100_000, smem_opt_in=False),
        {"launch_code": 1},
        OVER_DEFAULT,
        "smem-not-opted-in",
    ),
    "block of 2,048 threads": (
        spec(4, block=(2048, 1, 1)),
        {"launch_code": 1},
        BIG_BLOCK,
        "block-too-large",
    ),
    "block of 2,048 threads and cluster 32": (
        spec(32, block=(2048, 1, 1)),
        {"launch_code": 1},
        BIG_BLOCK,
        "block-too-large",
    ),
    "zero rows": (spec(8, grid=(0, 8, 1)), {"launch_code": 1}, NO_GRID, "empty-grid"),
    "cooperative and cluster, too many": (
        spec(8, grid=(400, 8, 1), cooperative=True),
        {"launch_code": 720, "max_active": 15},
        COOPERATIVE,
        "cooperative-too-large",
    ),
}


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("log", ["named", "silent", "unreadable"])
def test_each_misconfiguration_has_its_cause_whatever_the_log(row: str, log: str) -> None:
    """Each measured misuse gets its own cause with the driver's sentence, silence, and no log."""
    asked, seen, sentence, key = TABLE[row]
    said = {"named": (NOISE, sentence), "silent": (NOISE,), "unreadable": None}[log]
    judged = judge(outcome(asked, said, **seen), H200)
    assert (judged.verdict, judged.cause) == (Verdict.REFUSED, key)


@pytest.mark.parametrize(
    "log", [(), (NOISE,), ("Failed to instantiate KERNEL node 0xe0a0b38",), None]
)
@pytest.mark.parametrize("captured", [False, True])
def test_a_cluster_that_no_group_hosts_is_the_devices_fault(
    log: tuple[str, ...] | None, captured: bool
) -> None:
    """912 with every argument in order and no active cluster is cause 1, in a graph as well."""
    asked = spec(16, dynamic_smem=156_416, captured=captured)
    judged = judge(outcome(asked, log, launch_code=912, max_potential=8, max_active=0), H200)
    assert judged.cause == "larger-than-any-gpc"
    assert refusal(judged).name == "CUDA_ERROR_INVALID_CLUSTER_SIZE"


def test_an_unknown_sentence_leaves_the_cause_open_and_is_quoted() -> None:
    """A 912 with a sentence outside the catalogue is undetermined, though no group hosts it."""
    seen = {"launch_code": 912, "max_active": 0}
    judged = judge(outcome(spec(16), ("The moon is in the wrong house",), **seen), H200)
    assert (judged.verdict, judged.cause) == (Verdict.REFUSED, "undetermined")
    assert "The moon is in the wrong house" in judged.note


@pytest.mark.parametrize(
    ("active", "words"), [(7, "max active clusters is 7"), (None, "not known")]
)
def test_912_without_proof_that_no_group_hosts_it_is_undetermined(
    active: int | None, words: str
) -> None:
    """912 in order with active clusters, or without that answer, is not blamed on the GPCs."""
    judged = judge(outcome(spec(16), (), launch_code=912, max_active=active), H200)
    assert judged.cause == "undetermined"
    assert words in judged.note


def test_a_sentence_that_contradicts_the_launch_is_quoted_not_believed() -> None:
    """A cluster of 8 is portable, so a sentence about portable sizes leaves its cause open."""
    judged = judge(outcome(spec(8), (NOT_PORTABLE,), launch_code=912, max_active=0), H200)
    assert judged.cause == "undetermined"
    assert NOT_PORTABLE in judged.note


def test_a_failed_opt_in_setter_counts_as_no_opt_in() -> None:
    """The opt-in that was asked for but refused by its setter explains the 912."""
    setter = call("cuFuncSetAttribute", 1, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 1")
    seen = {"launch_code": 912, "max_active_code": 912}
    judged = judge(outcome(spec(16), None, calls=(setter,), **seen), H200)
    assert judged.cause == "non-portable-not-enabled"


def test_static_shared_memory_shows_in_the_setters_answer() -> None:
    """Dynamic bytes within the limit whose setter fails are over it with the static ones."""
    setter = call("cuFuncSetAttribute", 1, "MAX_DYNAMIC_SHARED_SIZE_BYTES = 232448")
    asked = spec(4, dynamic_smem=232_448)
    judged = judge(outcome(asked, None, calls=(setter,), launch_code=1), H200)
    assert judged.cause == "smem-over-optin"


def test_the_log_decides_between_two_faults_of_one_launch() -> None:
    """An empty grid that also asks for too much memory is what the driver says it is."""
    asked = spec(8, grid=(0, 8, 1), dynamic_smem=240_000)
    assert judge(outcome(asked, (NO_GRID,), launch_code=1), H200).cause == "empty-grid"
    assert judge(outcome(asked, None, launch_code=1), H200).cause == "smem-over-optin"


@pytest.mark.parametrize("size", [4, 8, 16])
def test_sm12x_invalid_argument_is_shared_memory_not_the_cluster(size: int) -> None:
    """What SM12x parts answer to every fp32 arm is blamed on bytes, at 16 CTAs too."""
    asked = spec(size, dynamic_smem=221_952 if size == 4 else 156_416)
    judged = judge(outcome(asked, None, launch_code=1, max_active=0), SM12X)
    assert judged.cause == "smem-over-optin"


def test_code_1_in_order_is_undetermined() -> None:
    """Code 1 may come from any attribute; with nothing known to be wrong no cause is invented."""
    judged = judge(outcome(spec(8), None, launch_code=1), H200)
    assert judged.cause == "undetermined"
    assert "not readable" in judged.note


@pytest.mark.parametrize("code", [912, 801, 1])
def test_a_device_without_clusters_is_named(code: int) -> None:
    """Below compute capability 9.0 the device launches no cluster, whatever the code."""
    judged = judge(outcome(spec(1), None, launch_code=code, max_active_code=912), AMPERE)
    assert judged.cause == "no-cluster-launch"


MODULES = [(209, "no-kernel-image"), (222, "ptx-too-new"), (200, "invalid-image")]


@pytest.mark.parametrize(("code", "key"), MODULES)
def test_a_module_that_does_not_load_is_no_launch_failure(code: int, key: str) -> None:
    """The load's own code gives the cause, and the refusal carries it."""
    calls = (call("cuModuleLoadData", code),)
    judged = judge(outcome(spec(8), None, status=Status.ERROR, calls=calls), H200)
    assert (judged.verdict, judged.cause) == (Verdict.REFUSED, key)
    assert refusal(judged).code == code


def test_a_compiler_front_ends_message_is_read() -> None:
    """Where the module was loaded by someone else, the name in the message counts."""
    note = "CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available"
    judged = judge(outcome(spec(8), None, status=Status.ERROR, note=note), H200)
    assert judged.cause == "no-kernel-image"


def test_a_refused_setter_before_a_fallback_module_does_not_hide_the_launch() -> None:
    """A load that failed and was made up for is not the cause of what the launch answered."""
    calls = (call("cuModuleLoadData", 209), call("cuLaunchKernelEx", 912))
    judged = judge(outcome(spec(16), (), calls=calls, launch_code=912, max_active=0), H200)
    assert judged.cause == "larger-than-any-gpc"


def test_the_kernels_cluster_size_is_believed_over_the_launch_code() -> None:
    """Launch code 0 with cluster 1 seen where 8 was asked is a wrong result: cluster ignored."""
    asked = spec(8, cluster_attribute=False)
    judged = judge(outcome(asked, launch_code=0, sync_code=0, cluster_seen=1), H200)
    assert (judged.verdict, judged.cause) == (Verdict.WRONG, "cluster-ignored")


def test_compiled_dimensions_without_the_attribute_launch() -> None:
    """Compiled dims 8 without the attribute run as clusters of 8, whatever the spec calls it."""
    asked = spec(8, cluster=(1, 1, 1), compiled_cluster=8, cluster_attribute=False)
    seen = {"launch_code": 0, "sync_code": 0, "cluster_seen": 8, "verified": True}
    judged = judge(outcome(asked, **seen), H200)
    assert (judged.verdict, judged.cause) == (Verdict.LAUNCHES, None)
    assert settled(judged) is Verdict.LAUNCHES


def test_a_launch_that_the_kernel_did_not_prove_is_not_counted() -> None:
    """Launch code 0 alone launches, but a summary takes it for undetermined."""
    judged = judge(outcome(spec(8), launch_code=0, sync_code=0), H200)
    assert judged.verdict is Verdict.LAUNCHES
    assert settled(judged) is Verdict.UNDETERMINED


@pytest.mark.parametrize(
    "seen",
    [
        {"verified": False},
        {"cluster_seen": 0},
        {"check": Check(oracle="numpy", rows=64, wrong_rows=6), "verified": True},
    ],
)
def test_a_wrong_result_is_wrong(seen: dict[str, object]) -> None:
    """A failed proof, CTAs that disagree, and one wrong row each make the result wrong."""
    judged = judge(outcome(spec(8), launch_code=0, sync_code=0, **seen), H200)
    assert (judged.verdict, judged.cause) == (Verdict.WRONG, "wrong-result")


@pytest.mark.parametrize("code", [700, 715, 719])
def test_a_fault_at_synchronisation_is_the_kernels(code: int) -> None:
    """Accepted and then an illegal address or instruction: a fault, not a refused cluster."""
    calls = (call("cuCtxSynchronize"), call("cuLaunchKernelEx"), call("cuCtxSynchronize", code))
    seen = {"launch_code": 0, "sync_code": code}
    judged = judge(outcome(spec(8), status=Status.ERROR, calls=calls, **seen), H200)
    assert (judged.verdict, judged.cause) == (Verdict.FAULTS, "kernel-fault")
    assert str(code) in judged.note


def test_an_error_from_before_is_not_blamed_on_the_launch() -> None:
    """A sticky error seen before the launch, or answered by it, is an earlier launch's."""
    calls = (call("cuCtxSynchronize", 700, "before the probe"),)
    before = judge(outcome(spec(8), status=Status.ERROR, calls=calls), H200)
    at_launch = judge(outcome(spec(8), None, launch_code=700), H200)
    assert before.verdict is at_launch.verdict is Verdict.NOT_PROBED
    assert before.cause == at_launch.cause == "prior-error"


@pytest.mark.parametrize("stage", ["attributes", "occupancy", "launch", "sync", "time"])
def test_a_deadline_that_passed_in_the_launch_is_a_hang(stage: str) -> None:
    """A worker killed while the driver or the kernel had the word, and a watchdog, mean a hang."""
    killed = judge(outcome(spec(8), None, status=Status.TIMEOUT, stage=stage), H200)
    watchdog = judge(outcome(spec(8), None, launch_code=0, sync_code=702), H200)
    assert killed.verdict is watchdog.verdict is Verdict.HANGS
    assert killed.cause == watchdog.cause == "hang"


@pytest.mark.parametrize("stage", ["start", "idle", "input", "compile", "check", "", "prayer"])
def test_a_worker_lost_elsewhere_says_nothing_of_the_launch(stage: str) -> None:
    """A slow oracle, a compiler or a stopped heartbeat is no hang, whatever the note says."""
    note = "no answer within 10.0 s in stage `sync`; the worker was killed and replaced"
    lost = outcome(spec(8), None, status=Status.TIMEOUT, stage=stage, note=note)
    judged = judge(lost, H200)
    assert (judged.verdict, judged.cause) == (Verdict.NOT_PROBED, "could-not-run")


@pytest.mark.parametrize(
    ("code", "key"), [(701, "out-of-resources"), (209, "no-kernel-image"), (999, "undetermined")]
)
def test_other_launch_codes(code: int, key: str) -> None:
    """Codes that carry their cause keep it, and an unknown one is quoted, not guessed."""
    judged = judge(outcome(spec(8), None, launch_code=code), H200)
    assert (judged.verdict, judged.cause) == (Verdict.REFUSED, key)
    assert ("999" in judged.note) == (code == 999)


def test_what_never_launched_is_not_probed() -> None:
    """A dead worker and a waived probe say nothing of the launch."""
    for status in (Status.ERROR, Status.WAIVED):
        judged = judge(outcome(spec(8), None, status=status), H200)
        assert (judged.verdict, judged.cause) == (Verdict.NOT_PROBED, "could-not-run")


@pytest.mark.parametrize(
    ("seen", "verdict", "key"),
    [
        ({"max_active_range": (0, 2)}, Verdict.UNDETERMINED, "undetermined"),
        ({"max_active_range": (0, 0)}, Verdict.REFUSED, "larger-than-any-gpc"),
        ({"max_active": 0, "launch_code": 912}, Verdict.REFUSED, "larger-than-any-gpc"),
        ({"max_active_range": (1, 2), "launch_code": 0}, Verdict.LAUNCHES, None),
        ({}, Verdict.UNDETERMINED, "undetermined"),
    ],
)
def test_predictions_are_judged_by_the_same_rules(
    seen: dict[str, object], verdict: Verdict, key: str | None
) -> None:
    """A prediction has no log: limits, spec and admissible maps decide, or leave it open."""
    judged = judge(outcome(spec(8), None, origin=Origin.PREDICTED, **seen), H200)
    assert (judged.verdict, judged.cause) == (verdict, key)
    assert settled(judged) is verdict


def test_the_catalogue_is_closed_and_numbered() -> None:
    """Numbers run from 1 without gaps, keys and names are unique, and every key can be judged."""
    assert [entry.number for entry in CATALOGUE] == list(range(1, len(CATALOGUE) + 1))
    assert len(BY_KEY) == len({entry.name for entry in CATALOGUE}) == len(CATALOGUE)
    reachable = {key for keys in CONSISTENT.values() for key in keys if key}
    assert reachable == set(BY_KEY)
    assert cause("hang").number == BY_KEY["hang"].number


def test_the_catalogue_names_only_commands_that_exist() -> None:
    """Every `thorprobe ...` in the catalogue is a command of the application."""
    import typer

    from thorprobe.app import app

    commands = set(typer.main.get_command(app).commands)
    text = " ".join(f"{entry.separating_test} {entry.next_action}" for entry in CATALOGUE)
    named = set(re.findall(r"`thorprobe (\S+?)[ `]", text))
    assert named
    assert named <= commands


def test_an_unknown_key_is_a_usage_error_with_a_hint() -> None:
    """Asking for a cause that does not exist names those that do."""
    with pytest.raises(UsageError) as caught:
        cause("bad-luck")
    assert "undetermined" in caught.value.hint


_codes = st.none() | st.sampled_from([0, 1, 2, 200, 209, 222, 600, 700, 701, 702, 720, 801, 912])
_small = st.integers(-1, 40)
_dims = st.tuples(_small, _small, _small)
_texts = st.sampled_from(
    [NOT_PORTABLE, NOT_DIVISIBLE, TOO_MUCH, BIG_BLOCK, NOISE, "", "CUDA_ERROR_INVALID_IMAGE"]
)
_specs = st.builds(
    LaunchSpec,
    kernel=st.sampled_from(["trivial", "topk"]),
    grid=_dims,
    block=st.tuples(st.integers(0, 4096), _small, st.integers(0, 100)),
    cluster=_dims,
    dynamic_smem=st.integers(0, 300_000),
    non_portable=st.booleans(),
    compiled_cluster=st.sampled_from([0, 4, 16]),
    cluster_attribute=st.booleans(),
    smem_opt_in=st.booleans(),
)
_CALLS = ["cuModuleLoadData", "cuFuncSetAttribute", "cuCtxSynchronize", "cuLaunchKernelEx", "x"]


@st.composite
def _any_call(draw: st.DrawFn) -> DriverCall:
    code = draw(_codes) or 0
    detail = draw(st.sampled_from(["", "NON_PORTABLE", "DYNAMIC_SHARED"]))
    name = CODE_NAMES.get(code, "NAME")
    called = draw(st.sampled_from(_CALLS))
    return DriverCall(call=called, code=code, name=name, sentence="", detail=detail)


_observed = st.builds(
    Observed,
    max_active=st.none() | st.integers(0, 9),
    max_active_range=st.none() | st.tuples(st.just(0), st.integers(0, 3)),
    launch_code=_codes,
    sync_code=_codes,
    cluster_seen=st.none() | st.integers(0, 17),
    verified=st.none() | st.booleans(),
    check=st.none() | st.just(Check(oracle="numpy", rows=2, wrong_rows=1)),
)
_outcomes = st.builds(
    Outcome,
    id=st.just("any"),
    spec=_specs,
    status=st.sampled_from(Status),
    origin=st.sampled_from(Origin),
    observed=_observed,
    calls=st.lists(_any_call(), max_size=3).map(tuple),
    driver_log=st.none() | st.lists(_texts, max_size=2).map(tuple),
    note=st.sampled_from(["", "CUDA_ERROR_INVALID_IMAGE"]),
    stage=st.sampled_from(["", "sync", "compile"]),
)


@settings(max_examples=400, deadline=None)
@given(_outcomes, st.sampled_from([H200, SM12X, AMPERE]))
def test_every_outcome_gets_a_consistent_verdict_once(any_outcome: Outcome, on: Device) -> None:
    """Judging never raises, cause and verdict agree, facts stay, and twice is as once."""
    judged = judge(any_outcome, on)
    assert judged.cause in CONSISTENT[judged.verdict]
    assert judge(judged, on) == judged
    kept = {"verdict": any_outcome.verdict, "cause": any_outcome.cause, "note": any_outcome.note}
    assert msgspec.structs.replace(judged, **kept) == any_outcome
    refusal(judged)


@settings(max_examples=300, deadline=None)
@given(_outcomes)
def test_shared_memory_and_cluster_are_never_mixed(any_outcome: Outcome) -> None:
    """Code 1 is never blamed on a cluster, and 912 never on memory, block or grid size."""
    seen = any_outcome.observed
    judged = judge(any_outcome, H200)
    code = seen.launch_code or seen.sync_code
    cluster = {"larger-than-any-gpc", "non-portable-not-enabled", "cluster-over-16"}
    cluster |= {"grid-not-divisible", "required-cluster-mismatch"}
    value = {"smem-over-optin", "smem-not-opted-in", "block-too-large", "empty-grid"}
    if code == 1:
        assert judged.cause not in cluster
    if code == 912:
        assert judged.cause not in value
