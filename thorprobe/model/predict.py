# SPDX-License-Identifier: Apache-2.0
"""What a driver would answer to one launch: a pure function of limits, kernel facts and maps.

What is refused for the launch's own sake stands in ``launch_rules``, for outcomes as well; here it
is held against every GPC map that the device may have.
What the queries answer after code 1 was not measured and stays None. Documented, not measured: 701
for too many registers, code 1 for grid limits and launch bounds, and 912 before 720.
"""

from thorprobe.binary.cubin import KernelFacts
from thorprobe.model.gpc_maps import Admissible
from thorprobe.model.launch_facts import of_launch
from thorprobe.model.launch_rules import RULES, holding
from thorprobe.model.occupancy import cluster_ctas_per_sm, ctas_per_sm
from thorprobe.record import (
    MAX_CLUSTER,
    PORTABLE_CLUSTER,
    DriverCall,
    LaunchSpec,
    Limits,
    Observed,
)

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_RESOURCES = 701
COOPERATIVE_TOO_LARGE = 720
INVALID_CLUSTER_SIZE = 912

CODES = {
    SUCCESS: ("CUDA_SUCCESS", "no error"),
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OUT_OF_RESOURCES: (
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "too many resources requested for launch",
    ),
    COOPERATIVE_TOO_LARGE: (
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "too many blocks in cooperative launch",
    ),
    INVALID_CLUSTER_SIZE: (
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "a kernel launch error has occurred due to cluster misconfiguration",
    ),
}
"""Name and sentence of every code the model answers, as the driver spells them."""

_Range = tuple[int, int]


def predict(
    spec: LaunchSpec, facts: KernelFacts, limits: Limits, maps: Admissible, max_cluster_ctas: int
) -> Observed:
    """Return the queries' and the launch's answers over all admissible maps.

    Where the maps differ a field is None, and ``max_active_range`` has the least and the greatest
    max_active. Nothing runs, so ``sync_code`` and what the kernel reports stay None.
    """
    asked = of_launch(spec, limits, facts)
    if next(holding(asked, INVALID_VALUE), None):
        return Observed(launch_code=INVALID_VALUE)
    dims = effective_cluster(spec, facts)
    size = dims[0] * dims[1] * dims[2]
    if size > 1 and not limits.cluster_launch:
        return Observed()
    if any(rule.queries and rule.holds(asked) for rule in RULES):
        return Observed(
            max_potential_code=INVALID_CLUSTER_SIZE,
            max_active_code=INVALID_CLUSTER_SIZE,
            launch_code=INVALID_CLUSTER_SIZE,
        )
    blocks = ctas_per_sm(facts, spec.threads, spec.dynamic_smem, limits)
    if blocks == 0 or next(holding(asked, OUT_OF_RESOURCES), None):
        over = size > MAX_CLUSTER  # Which of the two is judged first was not measured.
        return Observed(launch_code=INVALID_CLUSTER_SIZE if over else OUT_OF_RESOURCES)
    active = maps.hosted(size, cluster_ctas_per_sm(blocks, max_cluster_ctas))
    potential = maps.largest(MAX_CLUSTER if spec.non_portable else PORTABLE_CLUSTER)
    several = maps.known is None
    # A launch without a cluster of any kind has 0 active ones (H200, driver 580, 2026-11-30).
    clustered = spec.cluster_attribute or facts.required_cluster is not None
    told = active if clustered else (0, 0)
    return Observed(
        max_potential=_agreed(potential),
        max_potential_code=SUCCESS,
        max_active=_agreed(told),
        max_active_code=SUCCESS,
        max_active_range=told if several else None,
        launch_code=_launch_code(spec, size, active, blocks * maps.sms),
    )


def calls(
    spec: LaunchSpec, facts: KernelFacts, limits: Limits, seen: Observed
) -> tuple[DriverCall, ...]:
    """List the driver calls of a probe with the codes predicted for them, in order.

    A call whose code is not known is left out.
    """
    smem = spec.dynamic_smem if spec.smem_opt_in else 0
    setter = INVALID_VALUE if over_opt_in(smem, facts, limits) else SUCCESS
    listed = [
        ("cuFuncSetAttribute", setter, f"MAX_DYNAMIC_SHARED_SIZE_BYTES = {smem}"),
        (
            "cuFuncSetAttribute",
            SUCCESS,
            f"NON_PORTABLE_CLUSTER_SIZE_ALLOWED = {int(spec.non_portable)}",
        ),
        ("cuOccupancyMaxPotentialClusterSize", seen.max_potential_code, ""),
        ("cuOccupancyMaxActiveClusters", seen.max_active_code, ""),
    ]
    hosted_nowhere = seen.max_active == 0 or (
        seen.max_active_range is not None and seen.max_active_range[1] == 0
    )
    if spec.captured and seen.launch_code == INVALID_CLUSTER_SIZE and hosted_nowhere:
        # Measured: capture accepts a cluster that no group hosts, the instantiation refuses it.
        listed += [
            ("cuLaunchKernelEx", SUCCESS, "captured"),
            ("cuGraphInstantiate", seen.launch_code, ""),
        ]
    else:
        captured = "captured" if spec.captured else ""
        listed.append(("cuLaunchKernelEx", seen.launch_code, captured))
    return tuple(
        DriverCall(
            call=call, code=code, name=CODES[code][0], sentence=CODES[code][1], detail=detail
        )
        for call, code, detail in listed
        if code is not None
    )


def effective_cluster(spec: LaunchSpec, facts: KernelFacts) -> tuple[int, int, int]:
    """Return the cluster dimensions of a launch: the attribute's, else the compiled ones."""
    if spec.cluster_attribute:
        return spec.cluster
    return facts.required_cluster or (1, 1, 1)


def over_opt_in(dynamic_smem: int, facts: KernelFacts, limits: Limits) -> bool:
    """Say whether static and dynamic bytes exceed what a block may have with the opt-in."""
    return dynamic_smem + facts.static_smem > limits.max_smem_per_block_optin


def _launch_code(spec: LaunchSpec, size: int, active: _Range, plain_capacity: int) -> int | None:
    """Code on every map, None where the maps differ."""
    if size > MAX_CLUSTER or active[1] == 0:
        return INVALID_CLUSTER_SIZE
    low, high = active[0] * size, active[1] * size
    if spec.cooperative:
        if size == 1 and not spec.cluster_attribute:
            low = high = plain_capacity
        ctas = spec.grid[0] * spec.grid[1] * spec.grid[2]
        if ctas > high:
            return COOPERATIVE_TOO_LARGE if active[0] else None
        if ctas > low:
            return None
    return SUCCESS if active[0] else None


def _agreed(found: _Range) -> int | None:
    return found[0] if found[0] == found[1] else None
