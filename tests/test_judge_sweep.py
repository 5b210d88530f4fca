# SPDX-License-Identifier: Apache-2.0
"""Summaries of cluster sweeps, mostly from what an H200 answered in 13 partitions (2026-11-30)."""

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec
import pytest

from devices import CLAIM, LIMITS, THOR
from thorprobe.judge.catalogue import cause
from thorprobe.judge.ranges import joined, ranges, sizes_text, spans
from thorprobe.judge.sweep import summarize
from thorprobe.judge.topology import hosted
from thorprobe.record import Device, LaunchSpec, Observed, Origin, Outcome, Status, Verdict
from thorprobe.summary import GpcMap, SweepSummary

FULL_MAP = (18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2)


@lru_cache
def recorded() -> dict:
    """Return the recorded points."""
    path = Path(__file__).parent / "data" / "h200_clusters.json"
    return json.loads(path.read_text())


def spec(kernel: str, size: int, smem: int, **changed: object) -> LaunchSpec:
    """Return one cluster of ``size`` CTAs."""
    fields = {
        "kernel": kernel,
        "grid": (1, size, 1),
        "block": (1024, 1, 1),
        "cluster": (1, size, 1),
        "dynamic_smem": smem,
        "non_portable": True,
    }
    return LaunchSpec(**(fields | changed))


def outcome(asked: LaunchSpec, code: int | None, active: int | None, **seen: object) -> Outcome:
    """Return a measured outcome; a launch that code 0 accepted proved itself unless told not to."""
    ran = {"cluster_seen": asked.cluster_size, "verified": True, "sync_code": 0}
    names = ("origin", "assumes", "driver_log", "status", "stage", "note")
    fields = {k: seen.pop(k) for k in names if k in seen}
    return Outcome(
        id=asked.id,
        spec=asked,
        observed=Observed(
            launch_code=code, max_active=active, **((ran if code == 0 else {}) | seen)
        ),
        **({"status": Status.PASS, "origin": Origin.MEASURED, "driver_log": ()} | fields),
    )


def recording(partition: str, kernels: Iterable[str] = ("trivial",)) -> tuple[list, Device]:
    """Return the recorded outcomes of a partition up to size 16, and the device."""
    entry = recorded()["maps"][partition]
    whole = partition == "full"
    device = Device(
        name="NVIDIA H200",
        capability=(9, 0),
        sms=132,
        limits=LIMITS,
        partition="" if whole else partition,
        partition_sms=0 if whole else entry["sms"],
        other_processes=0,
    )
    found = []
    for name, threads, smem, opt_in, size, _, active, code in recorded()["points"]:
        if name == partition and size <= 16:
            for kernel in kernels:
                changed = {"block": (threads, 1, 1), "non_portable": bool(opt_in)}
                asked = spec(kernel, size, smem, partition=device.partition, **changed)
                log = () if opt_in or size <= 8 else ("non-portable sizes are not enabled",)
                answer = None if active < 0 else active
                found.append(outcome(asked, code, answer, driver_log=log if code else ()))
    return found, device


@pytest.mark.parametrize("partition", sorted(recorded()["maps"]))
def test_every_recorded_partition_gives_its_map_and_its_sizes(partition: str) -> None:
    """The map solved from the answers is the recorded one, and its largest group launches."""
    results, device = recording(partition)
    summary = summarize(results, device)
    solved = recorded()["maps"][partition]["solved"]
    largest = min(16, max(solved))
    assert summary.gpc_map.solved == tuple(solved)
    kernel = summary.kernels["trivial"]
    assert kernel.launches == kernel.verified == tuple(range(1, largest + 1))
    assert (kernel.largest, kernel.by_footprint) == (largest, {})
    assert sorted(map(int, kernel.refused)) == list(range(largest + 1, 17))
    assert {r.cause for r in kernel.refused.values()} <= {"larger-than-any-gpc"}
    assert {r.code for r in kernel.refused.values()} <= {912}


FINDINGS = {
    "full": "Launches up to 16 CTAs, the architecture's maximum; largest co-scheduled "
    "group has 18 SMs",
    "sms=8": "Launches up to 8 CTAs; 9 to 16 are refused: 912 CUDA_ERROR_INVALID_CLUSTER_SIZE; "
    "largest co-scheduled group in this partition has 8 SMs",
    "sms=128": "Launches up to 10 CTAs; 11 to 16 are refused: 912 "
    "CUDA_ERROR_INVALID_CLUSTER_SIZE; largest co-scheduled group in this partition has 10 SMs",
    "sms=20,flags=1": "Launches up to 2 CTAs; 3 to 16 are refused: 912 "
    "CUDA_ERROR_INVALID_CLUSTER_SIZE; largest co-scheduled group in this partition has 2 SMs",
}


@pytest.mark.parametrize("partition", FINDINGS)
def test_the_finding_of_a_measurement(partition: str) -> None:
    """The finding names the largest size, the first refused one, the code and the largest group."""
    results, device = recording(partition, ("trivial", "topk"))
    assert summarize(results, device).finding == FINDINGS[partition]


def test_only_the_sizes_that_were_asked_are_told() -> None:
    """A sweep of 2, 4, 8 and 16 says those, and knows no map."""
    results, device = recording("sms=8")
    few = [o for o in results if o.spec.cluster_size in (2, 4, 8, 16)]
    summary = summarize(few, device)
    assert summary.gpc_map == GpcMap()
    assert summary.finding == (
        "Launches 2, 4 and 8 CTAs; 16 is refused: 912 CUDA_ERROR_INVALID_CLUSTER_SIZE "
        "(larger than any GPC)"
    )


def test_kernels_that_differ_are_both_named() -> None:
    """Where the top-k kernel is refused at a size that the trivial one launches, both are told."""
    results, device = recording("full")
    for size in (8, 16):
        seen = {"code": 0, "active": 15} if size == 8 else {"code": 701, "active": 0}
        results.append(outcome(spec("topk", size, 156_416), **seen))
    summary = summarize(results, device)
    assert summary.finding.startswith("Trivial: launches up to 16 CTAs, ")
    assert "topk: launches 8 CTAs; 16 is refused: 701" in summary.finding
    assert "(out of resources)" in summary.finding
    assert summary.kernels["topk"].refused["16"].cause == "out-of-resources"


def test_footprints_that_differ_are_told_by_their_memory() -> None:
    """On a part with 99 KiB the large footprints are refused for bytes, not for the cluster."""
    limits = msgspec.structs.replace(LIMITS, max_smem_per_block_optin=101_376)
    device = Device(name="NVIDIA GB10", capability=(12, 1), sms=48, limits=limits)
    results = []
    for size in range(1, 9):
        results.append(outcome(spec("trivial", size, 0), 0, 48 // size))
        results += [outcome(spec(name, size, 156_416), 1, None) for name in ("trivial", "topk")]
    summary = summarize(results, device)
    trivial = summary.kernels["trivial"]
    assert (trivial.launches, trivial.largest) == (tuple(range(1, 9)), 8)
    assert trivial.by_footprint["trivial 1024 thr 0 B"].largest == 8
    heavy = trivial.by_footprint["trivial 1024 thr 156,416 B"]
    assert (heavy.launches, heavy.refused["2"].cause) == ((), "smem-over-optin")
    assert summary.kernels["topk"].launches == ()
    assert "At 0 B of dynamic shared memory: 8 and the smaller sizes asked" in summary.finding
    assert summary.next_action.startswith("Use less dynamic shared memory")
    assert "1 CUDA_ERROR_INVALID_VALUE (shared memory over the opt-in limit)" in summary.finding
    assert "The cluster: 8 CTAs launch at 0 B" in summary.ruled_out
    assert not any("opt-in: non-portable" in sentence for sentence in summary.ruled_out)


def test_a_launch_without_proof_is_undetermined_and_a_failed_one_wrong() -> None:
    """Code 0 is no launch until the kernel proves it, and a hang is not a refusal."""
    _, device = recording("sms=8")
    results = [
        outcome(spec("trivial", 1, 0), 0, 8),
        outcome(spec("trivial", 2, 0), 0, 4, cluster_seen=None, verified=None),
        outcome(spec("trivial", 3, 0), 0, 2, cluster_seen=1),
        outcome(spec("trivial", 4, 0), None, None, status=Status.TIMEOUT, stage="sync"),
        outcome(spec("trivial", 5, 0), None, None, status=Status.ERROR),
        outcome(spec("trivial", 6, 0), None, None, status=Status.TIMEOUT, stage="compile"),
    ]
    summary = summarize(results, device)
    kernel = summary.kernels["trivial"]
    assert (kernel.launches, kernel.undetermined, kernel.wrong) == ((1,), (2,), (3, 4))
    assert kernel.not_probed == (5, 6)
    assert "5 and 6 are not known: the probe ended without an answer" in summary.finding


def test_sizes_without_the_opt_in_do_not_count_beside_those_with_it() -> None:
    """A size above 8 is judged by its launch with the opt-in, and by the other only without one."""
    results, device = recording("full")
    off = [o for o in results if not o.spec.non_portable]
    assert summarize(results, device).kernels["trivial"].refused == {}
    summary = summarize(off, device)
    assert summary.kernels["trivial"].refused["16"].cause == "non-portable-not-enabled"
    assert summary.finding.endswith("asked without the non-portable opt-in")


def held(sizes: Iterable[int], groups: Iterable[tuple[int, ...]]) -> list[Outcome]:
    """Return launches that held their SMs, each with the SM ids of the same clusters."""
    seen = {"sm_groups": tuple(groups)}
    asked = [spec("trivial", size, 221_952, spin_cycles=20_000) for size in sizes]
    return [outcome(one, 0, None, **seen) for one in asked]


def test_the_measured_map_joins_what_ran_together() -> None:
    """SM ids seen in one cluster are one GPC; where the solved groups are smaller both are told."""
    results, device = recording("sms=96")
    groups = [tuple(range(first, first + 8)) for first in range(0, 96, 8)]
    bridges = [(first + 7, first + 8) for first in range(0, 64, 16)]
    summary = summarize([*results, *held(range(2, 9), (*groups, *bridges))], device)
    assert summary.gpc_map.measured == (16, 16, 16, 16, 8, 8, 8, 8)
    assert summary.gpc_map.solved == (8,) * 12
    assert "hosts a cluster in this partition has 8 SMs, though 16 SMs share" in summary.finding
    alike = summarize([*results, *held(range(2, 9), groups)], device)
    assert alike.gpc_map.measured == alike.gpc_map.solved == (8,) * 12
    assert alike.finding.endswith("; largest GPC in this partition has 8 SMs")


def test_a_map_of_some_sizes_alone_is_not_claimed() -> None:
    """SM ids are a lower bound until every size that runs was held, one left out is enough."""
    results, device = recording("sms=96")
    pairs = [(sm, sm + 1) for sm in range(0, 96, 2)]
    for sizes in ([8], [2, 3, 4, 5, 6, 8], [2]):
        summary = summarize([*results, *held(sizes, pairs)], device)
        assert summary.gpc_map.measured is None
        assert "largest co-scheduled group in this partition has 8 SMs" in summary.finding
        assert "though" not in summary.finding
    few = [o for o in results if o.spec.cluster_size in (2, 8)]
    assert summarize([*few, *held([2, 8], pairs)], device).gpc_map == GpcMap()
    smaller = summarize([*results, *held(range(2, 9), pairs)], device)
    assert "largest co-scheduled group in this partition has 8 SMs" in smaller.finding


def test_what_the_evidence_rules_out() -> None:
    """Each sentence rests on these launches; a log that could not be read rules out nothing."""
    results, device = recording("sms=8", ("trivial", "topk"))
    text = "\n".join(summarize(results, device).ruled_out)
    for word in (
        "Missing opt-in",
        "Shared memory: at most",
        "its log",
        "Sticky",
        "NVML listed no other",
    ):
        assert word in text
    unread = [msgspec.structs.replace(o, driver_log=None) for o in results]
    busy = msgspec.structs.replace(device, other_processes=2)
    text = "\n".join(summarize(unread, busy).ruled_out)
    assert "its log" not in text
    assert "Not ruled out: other processes on the GPU, 2 of them" in text


def test_nothing_is_ruled_out_where_nothing_is_refused() -> None:
    """A device that launches everything needs no excuses."""
    results, device = recording("full")
    summary = summarize(results, device)
    assert (summary.ruled_out, summary.settles) == ((), "")


def predictions() -> list[Outcome]:
    """Return what two admissible maps of 20 SMs allow, and one of them under the claim."""
    found = []
    for size in range(1, 17):
        asked = spec("trivial", size, 156_416)
        for assumes, maps in (((), ((8, 8, 4), (2,) * 10)), ((CLAIM.id,), ((8, 8, 4),))):
            counts = [hosted(groups, size) for groups in maps]
            low, high = min(counts), max(counts)
            code = 0 if low else None if high else 912
            same = low if low == high else None
            fields = {"origin": Origin.PREDICTED, "assumes": assumes, "driver_log": None}
            fields |= {"cluster_seen": None, "verified": None, "sync_code": None}
            found.append(outcome(asked, code, same, max_active_range=(low, high), **fields))
    return found


def predicted() -> SweepSummary:
    """Return the summary of the predictions."""
    return summarize(predictions(), THOR, admissible={"": 23, CLAIM.id: 9})


def test_the_finding_of_a_prediction_names_the_claim() -> None:
    """A prediction tells what holds on every map, what is open, and what a claim adds by its id."""
    assert predicted().finding == (
        "9 to 16 are refused on every admissible map: "
        "912 CUDA_ERROR_INVALID_CLUSTER_SIZE (larger than any GPC), "
        "3 to 8 are undetermined by the layout, 1 and 2 launch on every admissible map; "
        "with the published claim largest-cluster-8: 1 to 8 launch"
    )


def test_a_prediction_keeps_layout_and_claim_apart() -> None:
    """The kernels rest on the layout alone; the claim's answers stand beside it with its maps."""
    summary = predicted()
    assert summary.kernels["trivial"].launches == (1, 2)
    assert summary.kernels["trivial"].undetermined == (3, 4, 5, 6, 7, 8)
    assert summary.kernels["trivial"].verified == ()
    assert summary.gpc_map == GpcMap(admissible=23)
    (under,) = summary.under_claims
    assert (under.claim, under.admissible) == (CLAIM, 9)
    assert under.kernels["trivial"].launches == (1, 2, 3, 4, 5, 6, 7, 8)
    assert summary.settles.startswith("cuOccupancyMaxPotentialClusterSize with the opt-in")
    assert "`thorprobe cluster-sweep` on the device" in summary.settles


def test_a_prediction_excludes_only_what_the_launch_itself_does() -> None:
    """Bytes and threads separate causes; what the model was told rules out nothing."""
    assert predicted().ruled_out == (
        "Shared memory: at most 156,416 of 232,448 B were asked for",
        "Block: 1,024 of 1,024 threads",
    )


def test_a_prediction_solves_no_map() -> None:
    """Answers made from a known map would give that map back: none is claimed as solved."""
    full = []
    for size in range(1, 17):
        active = hosted(FULL_MAP, size)
        seen = {"origin": Origin.PREDICTED, "driver_log": None, "sync_code": None}
        seen |= {"cluster_seen": None, "verified": None}
        full.append(outcome(spec("trivial", size, 156_416), 0, active, **seen))
    device = msgspec.structs.replace(recording("full")[1], profile="h200")
    summary = summarize(full, device, admissible={"": 1})
    assert summary.gpc_map == GpcMap(admissible=1)
    assert summary.finding == "1 to 16 launch"


def test_outcomes_are_judged_anew() -> None:
    """A verdict written into the evidence by hand does not survive the summary."""
    results, device = recording("sms=8")
    forged = [msgspec.structs.replace(o, verdict=Verdict.LAUNCHES, cause=None) for o in results]
    assert summarize(forged, device) == summarize(results, device)


def test_nothing_measured_is_not_no_size_launches() -> None:
    """Where every probe ended without an answer that is the finding, with the first one's note."""
    _, device = recording("sms=8")
    lost = {"status": Status.ERROR, "note": "the worker ended with status 1 in stage `compile`"}
    results = [outcome(spec("trivial", size, 0), None, None, **lost) for size in range(1, 17)]
    summary = summarize(results, device)
    assert summary.finding == (
        "Nothing was measured: 16 probes ended without an answer "
        "(first: the worker ended with status 1 in stage `compile`)"
    )
    assert summary.kernels["trivial"].not_probed == tuple(range(1, 17))
    assert summary.next_action == ""
    one = summarize([*results[:7], outcome(spec("trivial", 8, 0), 0, 1)], device)
    assert one.finding.startswith("Launches 8 CTAs; 1 to 7 are not known")
    open_ = summarize(
        [outcome(spec("trivial", 8, 0), 0, 1, verified=None, cluster_seen=None)], device
    )
    assert open_.finding == "8 is undetermined"


def test_up_to_is_said_only_where_the_next_size_was_asked() -> None:
    """A sweep that stops at 4 does not say that 5 is refused; 16 is the end anyway."""
    results, device = recording("full")
    asked = {n: [o for o in results if o.spec.cluster_size <= n] for n in (1, 4, 16)}
    assert summarize(asked[4], device).finding == "4 and the smaller sizes asked launch"
    assert summarize(asked[1], device).finding == "Launches 1 CTA"
    assert summarize(asked[16], device).finding.startswith("Launches up to 16 CTAs")
    holes = [o for o in results if o.spec.cluster_size in (1, 2, 4)]
    assert summarize(holes, device).finding == "Launches 1, 2 and 4 CTAs"


def test_the_next_action_is_that_of_the_worst_cause() -> None:
    """A hang outranks a refusal, of refusals the smallest cluster counts, an opt-in for none."""
    results, device = recording("sms=8")
    larger = summarize(results, device)
    assert larger.next_action == cause("larger-than-any-gpc").next_action
    seen = {"launch_code": 912, "max_active": 0, "max_potential": 8}
    known = [
        msgspec.structs.replace(o, observed=msgspec.structs.replace(o.observed, **seen))
        if o.observed.launch_code == 912 and o.spec.non_portable
        else o
        for o in results
    ]
    assert "launch at most 8 CTAs a cluster" in summarize(known, device).next_action
    off = [o for o in results if not o.spec.non_portable]
    assert summarize(off, device).kernels["trivial"].refused["16"].cause == (
        "non-portable-not-enabled"
    )
    assert summarize(off, device).next_action == ""
    full, whole = recording("full")
    assert summarize(full, whole).next_action == ""
    over = outcome(spec("topk", 2, 240_000), 1, None)
    assert summarize([*results, over], device).next_action == cause("smem-over-optin").next_action
    hung = outcome(spec("topk", 4, 0), None, None, status=Status.TIMEOUT, stage="sync")
    assert summarize([*results, over, hung], device).next_action == cause("hang").next_action


def test_an_empty_sweep_finds_nothing() -> None:
    """No outcome at all is said, not guessed around."""
    assert summarize([], THOR).finding == "Nothing was probed"


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([16], "16"),
        ([1, 2], "1 and 2"),
        ([3, 1, 2, 8], "1 to 3 and 8"),
        ([4, 8, 9, 16], "4, 8, 9 and 16"),
    ],
)
def test_sizes_in_words(sizes: list[int], text: str) -> None:
    """Runs of three and more are joined."""
    assert sizes_text(sizes) == text


def test_ranges_of_numbers_are_joined() -> None:
    """Neighbours and overlaps are one range, and an open end swallows what follows."""
    assert ranges([8, 1, 2, 3, 2]) == "1-3, 8"
    assert spans([(5, 8), (1, 2), (9, 32), (65, None), (70, 80)]) == "1-2, 5-32, 65+"
    assert joined([(1, 9), (2, 3)]) == [(1, 9)]
    assert joined([]) == []
    assert ranges([]) == ""
