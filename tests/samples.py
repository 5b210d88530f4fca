# SPDX-License-Identifier: Apache-2.0
"""Sample documents, made up but plausible, that the tests of the renderers show.

The plan, the cluster rule, the judge and the summaries are the real ones; times, drivers and
processes are invented.
"""

from collections.abc import Callable, Iterable, Iterator

from devices import LIMITS
from thorprobe.judge import arms as judge_arms
from thorprobe.judge import sweep as judge_sweep
from thorprobe.judge.cause import judge
from thorprobe.model.gpc_maps import Admissible, Constraints
from thorprobe.plan import arms as plan_arms
from thorprobe.plan import policy, sweep
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.record import (
    Check,
    Claim,
    Device,
    DriverCall,
    LaunchSpec,
    Observed,
    Origin,
    Outcome,
    Status,
    Tool,
)
from thorprobe.summary import ArmsSummary, Document, SweepSummary

_PARTITION = Device(
    name="NVIDIA H200",
    capability=(9, 0),
    sms=132,
    limits=LIMITS,
    partition="sms=8",
    partition_sms=8,
    driver="580.159",
    other_processes=0,
)
_THOR = Device(
    name="NVIDIA Thor",
    capability=(11, 0),
    sms=20,
    limits=LIMITS,
    profile="thor",
    basis="a published layout: 20 SMs, no GPC above 8 SMs, groups possibly split",
    claims=(
        Claim(
            id="largest-cluster-8",
            statement="The largest cluster is 8",
            source="a published statement without raw output",
            largest_cluster=8,
        ),
    ),
)
_LAYOUT = Constraints(max_gpcs=3, max_sms_per_gpc=8)
_CLAIMED = Constraints(max_gpcs=3, max_sms_per_gpc=8, largest_at_least=8, largest_at_most=8)

_COUNTS = {
    "": Admissible(sms=20, constraints=_LAYOUT).count,
    "largest-cluster-8": Admissible(sms=20, constraints=_CLAIMED).count,
}

_REFUSED = DriverCall(
    call="cuLaunchKernelEx",
    code=912,
    name="CUDA_ERROR_INVALID_CLUSTER_SIZE",
    sentence="a kernel launch error has occurred due to cluster misconfiguration",
)
_ACCEPTED = DriverCall(call=_REFUSED.call, code=0, name="CUDA_SUCCESS", sentence="no error")
_NOT_PORTABLE = "The requested cluster size exceeds 8 and non-portable sizes are not enabled"


def measured_sweep() -> Document:
    """Return a sweep measured in a partition of 8 SMs: 16 is refused."""
    maps = Admissible(sms=8, known=(8,))
    specs = sweep.plan(sweep.SweepOptions(partition="sms=8"))
    results = [_measured(spec, maps) for spec in specs]
    results += [_mapped(spec) for spec in sweep.gpc_map(results, "sms=8")]
    return _document(
        "cluster-sweep", _PARTITION, results, judge_sweep.summarize(results, _PARTITION)
    )


def predicted_sweep() -> Document:
    """Return a sweep predicted from a layout, with and without a published claim."""
    results = list(_predicted(sweep.plan(sweep.SweepOptions())))
    summary = judge_sweep.summarize(results, _THOR, admissible=_COUNTS)
    return _document("cluster-sweep", _THOR, results, summary)


def measured_arms() -> Document:
    """Return the arms of two policies, dispatched as for cc 11.0, in a partition of 8 SMs."""
    maps = Admissible(sms=8, known=(8,))
    return _arms(
        _PARTITION, "sms=8", lambda specs: [_measured(spec, maps, timed=True) for spec in specs]
    )


def predicted_arms() -> Document:
    """Return the arms of two policies, predicted from a layout and a claim."""
    return _arms(_THOR, "", lambda specs: list(_predicted(specs)))


SAMPLES: dict[str, Callable[[], Document]] = {
    "measured-sweep": measured_sweep,
    "predicted-sweep": predicted_sweep,
    "measured-arms": measured_arms,
    "predicted-arms": predicted_arms,
}
"""Every sample by its name."""


def _arms(
    device: Device, partition: str, answer: Callable[[Iterable[LaunchSpec]], list[Outcome]]
) -> Document:
    options = ArmsOptions(capability=(11, 0), partition=partition, repeats=20)
    probes = plan_arms.plan(options)
    results = answer(plan_arms.specs(probes))
    policies = [policy.load(name) for name in options.policies]
    summary = judge_arms.summarize(probes, results, device, policies, options.capability)
    return _document("topk-arms", device, results, summary)


def _document(
    command: str, device: Device, results: list[Outcome], summary: SweepSummary | ArmsSummary
) -> Document:
    predicted = bool(device.profile)
    where = ("--profile", "thor") if predicted else ("--partition", device.partition)
    return Document(
        tool=Tool(version="0.0.0"),
        command=command,
        argv=(command, *where),
        started="2026-11-30T12:00:00+00:00",
        ended="2026-11-30T12:00:02+00:00",
        origin=Origin.PREDICTED if predicted else Origin.MEASURED,
        device=device,
        software={"nvrtc": "13.0"} if predicted else {"driver": "580.159", "nvrtc": "13.0"},
        inputs=dict.fromkeys(("topk", "trivial"), "0" * 64),
        results=tuple(results),
        summary=summary,
        wall_s=1.92,
    )


def _measured(spec: LaunchSpec, maps: Admissible, *, timed: bool = False) -> Outcome:
    size = spec.cluster_size
    refused = size > 8 and not spec.non_portable
    active, _ = maps.hosted(size, 1 if spec.dynamic_smem else 2)
    fits = bool(active) and not refused
    call = _ACCEPTED if fits else _REFUSED
    work = spec.workload
    seen = Observed(
        max_potential=None if refused else 8,
        max_potential_code=912 if refused else 0,
        max_active=None if refused else active,
        max_active_code=912 if refused else 0,
        launch_code=call.code,
        sync_code=0 if fits else None,
        cluster_seen=size if fits else None,
        verified=True if fits else None,
        check=Check(oracle="torch.topk", rows=work.rows, wrong_rows=0) if fits and work else None,
        time_us=5.0 + 0.25 * size if fits and timed and spec.repeats else None,
    )
    return judge(
        Outcome(
            id=spec.id,
            spec=spec,
            status=Status.PASS,
            origin=Origin.MEASURED,
            observed=seen,
            calls=(call,),
            driver_log=(_NOT_PORTABLE,) if refused else (),
            duration_us=100.0,
        ),
        _PARTITION,
    )


def _mapped(spec: LaunchSpec) -> Outcome:
    size = spec.cluster_size
    seen = Observed(
        launch_code=0,
        sync_code=0,
        cluster_seen=size,
        verified=True,
        sm_groups=tuple(tuple(range(c * size, (c + 1) * size)) for c in range(spec.grid[0])),
    )
    outcome = Outcome(
        id=spec.id, spec=spec, status=Status.PASS, origin=Origin.MEASURED, observed=seen
    )
    return judge(outcome, _PARTITION)


def _predicted(specs: Iterable[LaunchSpec]) -> Iterator[Outcome]:
    for spec in specs:
        for assumes, constraints in (((), _LAYOUT), (("largest-cluster-8",), _CLAIMED)):
            maps = Admissible(sms=20, constraints=constraints)
            least, most = maps.hosted(spec.cluster_size, 1 if spec.dynamic_smem else 2)
            if spec.cluster_size > 8 and not spec.non_portable:
                least = most = 0
            low, high = maps.largest(8)
            seen = Observed(
                max_potential=low if low == high else None,
                max_active=least if least == most else None,
                max_active_range=(least, most),
                launch_code=0 if least else None if most else 912,
            )
            under = f" under {assumes[0]}" if assumes else ""
            outcome = Outcome(
                id=spec.id + under,
                spec=spec,
                status=Status.PASS,
                origin=Origin.PREDICTED,
                observed=seen,
                assumes=assumes,
            )
            yield judge(outcome, _THOR)
