# SPDX-License-Identifier: Apache-2.0
"""Puts the question of ``topk-arms --through-model``: which arm the model's own calls take."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from thorprobe.answer import Evidence
from thorprobe.cli.measure import now
from thorprobe.driver.torch_device import open_device
from thorprobe.plan import callsite
from thorprobe.plan.policy import Capability, load, reached
from thorprobe.plan.qwen4exp import TINY
from thorprobe.qwen4exp.answer import inputs
from thorprobe.qwen4exp.judge import THOR
from thorprobe.qwen4exp.model import build, enough_memory
from thorprobe.qwen4exp.plan import ModelOptions
from thorprobe.qwen4exp.through_judge import summarize
from thorprobe.qwen4exp.through_plan import CONTEXT, Drive, drives
from thorprobe.qwen4exp.through_records import ArmCall, ThroughSummary
from thorprobe.qwen4exp.through_run import Progress, measure
from thorprobe.qwen4exp.watch import Taken
from thorprobe.record import Origin, Status

Answer = Evidence[ArmCall, ThroughSummary]
COMMAND = "topk-arms --through-model"


def inquire(
    policies: Sequence[str],
    capability: Capability | None = None,
    device: str | None = None,
    partition: str = "",
    *,
    argv: Sequence[str] = (),
    select: Callable[..., Any] | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Answer:
    """Reach every arm of the policies through a tiny model, dispatched as for ``capability``.

    None is the device's own, and Thor's on a CPU. ``select`` takes the place of the ladder's own,
    for tests. Raises UsageError for an unknown policy, CouldNotProbeError where the device, a
    package or memory is missing.
    """
    for name in policies:
        load(name)
    started, began = now(), perf_counter()
    options = ModelOptions(size=TINY.name, context=CONTEXT, partition=partition)
    with open_device(device, partition) as where, enough_memory():
        own = where.device.capability if where.device else THOR
        dispatched = capability or own
        model = build(options, where)
        planned = drives(policies, dispatched)
        calls = tuple(
            _call(drive, rung, taken, dispatched)
            for drive, rung, taken in measure(model, planned, select=select, progress=progress)
        )
    return Evidence(
        command=COMMAND,
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.MEASURED,
        device=where.device,
        software=where.software,
        inputs=inputs(),
        options={
            "policies": list(dict.fromkeys(policies)),
            "capability": list(dispatched),
            "partition": partition,
            "device": str(where.torch_device),
        },
        results=calls,
        summary=summarize(calls, dispatched, model.sentence, CONTEXT, model.k),
        wall_s=perf_counter() - began,
    )


def _call(drive: Drive, rung: str, taken: Taken, capability: Capability) -> ArmCall:
    # Columns as vLLM's decode has them, so that the gate's stride is upstream's, not this model's.
    arm = reached(load(drive.policy), taken.rows, callsite.columns_of(), capability)
    return ArmCall(
        id=drive.id,
        status=Status.FAIL if taken.check.wrong_rows else Status.PASS,
        origin=Origin.MEASURED,
        policy=drive.policy,
        kind=drive.kind,
        setting=drive.setting,
        requests=drive.requests,
        query_tokens=drive.tokens,
        wanted_rows=drive.rows,
        wanted_cluster=drive.cluster,
        num_rows=taken.rows,
        columns=taken.columns,
        cluster=arm.cluster,
        path=arm.path,
        gate=arm.gate_open,
        gate_reason=arm.reason,
        asked_rung=rung,
        rung=taken.rung,
        falls=taken.falls,
        check=taken.check,
        duration_us=taken.select_us,
    )
