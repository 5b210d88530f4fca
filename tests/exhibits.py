# SPDX-License-Identifier: Apache-2.0
"""Exhibits made up for the tests of the oracle: real policies, invented verdicts."""

from thorprobe.oracle.evidence_file import EngineFacts, EvidenceFile, EvidenceLine, ModelFacts
from thorprobe.plan.policy import load, row_ranges
from thorprobe.record import Origin, Verdict
from thorprobe.summary import ArmRow, ArmsSummary

CAPABILITY = {"NVIDIA Thor": (11, 0), "NVIDIA H200": (9, 0), "NVIDIA GB10": (12, 1)}
REFUSED = (Verdict.REFUSED, 912, "larger-than-any-gpc")
NO_SMEM = (Verdict.REFUSED, 1, "smem-over-optin")


def line(name, device, origin, command="topk-arms", finding="found"):
    """Return an evidence line with a made-up hash."""
    digest = f"{sum(map(ord, name)):064x}"
    return EvidenceLine(
        id=f"{name}@{digest[:12]}",
        name=name,
        sha256=digest,
        command=command,
        origin=origin,
        device=device or "CPU",
        finding=finding,
    )


def arms(
    device="NVIDIA Thor",
    policies=("0.33.0",),
    *,
    by_cluster=None,
    kernel="topk",
    origin=Origin.PREDICTED,
    dispatched=None,
    partition="",
    rows=None,
    k=512,
    name="arms.jsonl",
    claims=None,
    time_us=None,
):
    """Return a drive in which every arm launches but those of ``by_cluster``.

    ``by_cluster`` maps a cluster size to a verdict, or to verdict, code and cause; ``rows`` keeps
    the arms that begin with one of them.
    """
    capability = CAPABILITY[device]
    dispatched = dispatched or capability
    made = []
    for policy in policies:
        for extent in row_ranges(load(policy), dispatched[0]):
            if rows is not None and extent.first not in rows:
                continue
            told = (by_cluster or {}).get(extent.cluster, Verdict.LAUNCHES)
            verdict, code, cause = told if isinstance(told, tuple) else (told, None, None)
            persistent = extent.path == "persistent"
            made.append(
                ArmRow(
                    policy=policy,
                    rows=(extent.first, extent.last),
                    k=k,
                    dtype="fp32",
                    path=extent.path,
                    kernel=kernel,
                    cluster=extent.cluster,
                    dynamic_smem=0,
                    gate=extent.gate_open,
                    verdict=Verdict.NOT_PROBED if persistent else verdict,
                    code=code,
                    cause=cause,
                    under_claims=claims or {},
                    checked=(8, 8),
                    time_us=None if persistent else time_us,
                    time_shape="8 x 65,536" if time_us else "",
                )
            )
    label = f"{device} ({partition})" if partition else device
    return EvidenceFile(
        line=line(name, label, origin),
        device=device,
        profile=device.split()[-1].lower() if origin is Origin.PREDICTED else "",
        partition=partition,
        capability=capability,
        dispatched=dispatched,
        arms=ArmsSummary(finding="found", capability=dispatched, arms=tuple(made)),
        wall_s=2.0,
    )


def model(device="", *, context=2_300, version="5.24.0", name="model.json", partition="", **facts):
    """Return an answer of the model's own selection, on a CPU where no device is named."""
    held = {"sets_equal": True, "tokens_equal": True, "rungs": {"cluster-8": 3}} | facts
    return EvidenceFile(
        line=line(name, device, Origin.MEASURED, "model-topk"),
        device=device,
        partition=partition,
        capability=CAPABILITY.get(device, (0, 0)),
        model=ModelFacts(context_tokens=context, transformers=version, **held),
    )


def engine(device="NVIDIA H200", *, name="engine.json", facts=(), **one):
    """Return an answer of vLLM's engine: one start of 0.33.0 that ran, or ``facts`` of several."""
    held = {
        "version": "0.33.0",
        "graphs": "eager",
        "prompts": (2_300, 30_000),
        "rows": 5_000,
        "positions": 16,
        "runs": 50,
        "sequences": 1,
        "traces": 1,
    }
    return EvidenceFile(
        line=line(name, device, Origin.MEASURED, "model-topk --engine"),
        device=device,
        capability=CAPABILITY[device],
        engines=tuple(EngineFacts(**held | told) for told in facts or (one,)),
    )
