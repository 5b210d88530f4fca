# SPDX-License-Identifier: Apache-2.0
"""``thorprobe list``."""

import typer

from thorprobe.cli import options as o

PROBES = {
    "cluster-sweep": "Which cluster sizes launch at each footprint, and the GPC map",
    "topk-arms": "Which arm each num_rows takes, whether it launches and whether it is right",
}

KERNELS = {
    "trivial": "Every CTA reads every peer's shared memory, and reports cluster size, rank and SM",
    "topk": "Exact top-k of a row by one cluster, with upstream's grid, cluster, threads and bytes",
}


def list_(*, json: o.JsonOption = False) -> None:
    """List probes, kernels, footprints, profiles, policies, gates, claims, scenarios and causes."""
    from thorprobe.judge.catalogue import CATALOGUE
    from thorprobe.model import profile
    from thorprobe.plan import claim, footprint, gate, policy, scenario

    scenarios = [scenario.load(name) for name in scenario.names()]
    profiles = [profile.load(name) for name in profile.names()]
    policies = [policy.load(name) for name in policy.names()]
    gates = [gate.load(name) for name in gate.names()]
    groups = {
        "probes": PROBES,
        "kernels": KERNELS,
        "footprints": {
            f.label: f"{f.threads} threads and {f.dynamic_smem:,} B of dynamic shared memory a CTA"
            for f in footprint.STANDARD
        },
        "profiles": {p.name: p.description for p in profiles},
        "policies": {p.name: f"{p.version}, {p.date}: {p.source}" for p in policies},
        "gates": {g.name: f"{g.status}: {g.title}" for g in gates},
        "claims": {c.id: f"{c.status.value}: {c.statement}" for c in claim.register()},
        "scenarios": {s.name: s.description for s in scenarios},
        "causes": {c.key: c.sentence for c in CATALOGUE},
    }
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(groups)).decode())
        return
    for title, entries in groups.items():
        typer.echo(title)
        width = max(map(len, entries), default=0)
        for name, sentence in entries.items():
            typer.echo(f"  {name:{width}}  {sentence}")
