# SPDX-License-Identifier: Apache-2.0
"""CTAs per SM against every recorded occupancy answer."""

import json
from pathlib import Path

import msgspec

from thorprobe.binary.cubin import KernelFacts
from thorprobe.model.occupancy import cluster_ctas_per_sm, ctas_per_sm
from thorprobe.model.profile import load

DATA = json.loads((Path(__file__).parent / "data" / "h200_ctas_per_sm.json").read_text())
H200 = load("h200")


def test_recorded_occupancy_is_reproduced() -> None:
    """Blocks per SM, and CTAs per SM of cluster launches, equal all 936 recorded points."""
    limits = H200.device().limits
    equal = 0
    for static, threads, dynamic, blocks, in_clusters in DATA["points"]:
        facts = KernelFacts(function="probe", registers=16, static_smem=static)
        found = ctas_per_sm(facts, threads, dynamic, limits)
        equal += (found, cluster_ctas_per_sm(found, H200.max_cluster_ctas)) == (blocks, in_clusters)
    assert equal == len(DATA["points"]) == 936


def test_registers_limit_by_whole_scheduler() -> None:
    """64 registers fill an SM with one CTA of 1,024 threads; 65 leave room for none."""
    limits = H200.device().limits
    facts = KernelFacts(function="probe", registers=64)
    assert ctas_per_sm(facts, 1024, 0, limits) == 1
    assert ctas_per_sm(msgspec.structs.replace(facts, registers=65), 1024, 0, limits) == 0
    assert ctas_per_sm(msgspec.structs.replace(facts, registers=33), 32, 0, limits) == 12
