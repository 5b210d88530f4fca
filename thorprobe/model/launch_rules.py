# SPDX-License-Identifier: Apache-2.0
"""One table of what a driver refuses: for predictions, for outcomes, and for what a person tells.

The rules stand in the order in which a driver judges, as measured on an H200 (driver 580,
2026-11-30): what answers 1, the cluster, then what fits. Each says whether it
holds, does not, or lacks a fact. Documented, not measured: grid limits, launch bounds, and 701.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from thorprobe.model.launch_facts import NO_CLUSTER, LaunchFacts, volume
from thorprobe.model.occupancy import fits_registers
from thorprobe.record import MAX_BLOCK_Z, MAX_CLUSTER, PORTABLE_CLUSTER

VALUE, CLUSTER, RESOURCES, COOPERATIVE = 1, 912, 701, 720

MAX_GRID = (2**31 - 1, 65_535, 65_535)
"""Largest grid dimensions (CUDA programming guide, compute capabilities)."""

DEFAULT_SMEM = 49_152
"""Bytes of shared memory of a block that need no opt-in, on every device with clusters."""

Holds = bool | None
"""Whether a rule holds; None where a fact is missing."""


@dataclass(frozen=True)
class Rule:
    """A cause of the catalogue, the code it answers, and the facts that it asks for.

    ``queries`` says that both occupancy queries answer the code as well, whatever the device.
    """

    cause: str
    code: int
    holds: Callable[[LaunchFacts], Holds]
    needs: tuple[str, ...]
    queries: bool = False

    def missing(self, facts: LaunchFacts) -> tuple[str, ...]:
        """Return which of the needed facts nobody said."""
        return tuple(name for name in self.needs if getattr(facts, name) is None)


def _empty(facts: LaunchFacts) -> Holds:
    return _any(*(None if d is None else 0 in d for d in (facts.grid, facts.block)))


def _grid_over(facts: LaunchFacts) -> Holds:
    if facts.grid is None:
        return None
    return any(asked > most for asked, most in zip(facts.grid, MAX_GRID, strict=True))


def _block_over(facts: LaunchFacts) -> Holds:
    if facts.block is None or facts.threads is None:
        return None
    most = facts.limits.max_threads_per_block if facts.limits else 1_024  # Of every device.
    if max(facts.threads, *facts.block) > most or facts.block[2] > MAX_BLOCK_Z:
        return True
    return None if facts.max_threads is None else facts.threads > facts.max_threads


def _smem_over(facts: LaunchFacts) -> Holds:
    if facts.dynamic_smem is None or facts.limits is None:
        return None
    most = facts.limits.max_smem_per_block_optin
    if facts.dynamic_smem + (facts.static_smem or 0) > most:
        return True
    if facts.setter_code:  # The setter judges static and dynamic bytes together.
        return facts.dynamic_smem > 0
    return None if facts.static_smem is None else False


def _smem_lowered(facts: LaunchFacts) -> Holds:
    if facts.setter_limit is None:
        return None
    return None if facts.dynamic_smem is None else facts.dynamic_smem > facts.setter_limit


def _smem_default(facts: LaunchFacts) -> Holds:
    asked = facts.dynamic_smem
    if asked is None:
        return None
    most = facts.limits.max_smem_per_block if facts.limits else DEFAULT_SMEM
    over = asked > 0 and asked + (facts.static_smem or 0) > most
    if facts.setter_limit is not None:  # Set once, so whatever is wrong is the value.
        return False
    return _all(over, None if facts.raised is None else not facts.raised)


def _no_clusters(facts: LaunchFacts) -> Holds:
    if facts.limits is None:
        return None
    if facts.limits.cluster_launch:
        return False
    return None if facts.cluster is None else facts.cluster != NO_CLUSTER or (facts.size or 1) > 1


def _over_16(facts: LaunchFacts) -> Holds:
    return None if facts.size is None else facts.size > MAX_CLUSTER


def _other_than_compiled(facts: LaunchFacts) -> Holds:
    if NO_CLUSTER in (facts.compiled_cluster, facts.cluster):
        return False
    if facts.compiled_cluster is None or facts.cluster is None:
        return None
    return facts.cluster != facts.compiled_cluster


def _not_portable(facts: LaunchFacts) -> Holds:
    over = None if facts.size is None else facts.size > PORTABLE_CLUSTER
    return _all(over, None if facts.non_portable is None else not facts.non_portable)


def _not_divisible(facts: LaunchFacts) -> Holds:
    if facts.size == 1:
        return False
    if facts.dims is None or facts.grid is None:
        return None
    return any(side <= 0 or grid % side for grid, side in zip(facts.grid, facts.dims, strict=True))


def _registers(facts: LaunchFacts) -> Holds:
    if facts.registers is None or facts.threads is None or facts.limits is None:
        return None
    return not fits_registers(facts.registers, facts.threads, facts.limits.registers_per_sm)


def _hosted_nowhere(facts: LaunchFacts) -> Holds:
    size = facts.size
    if size == 1:
        return False
    if size is not None and facts.largest_cluster is not None and size > facts.largest_cluster:
        return True
    if facts.hosted is None:
        return None
    least, most = facts.hosted
    return True if most == 0 else (None if least == 0 else False)


def _too_many(facts: LaunchFacts) -> Holds:
    over = None
    if facts.grid is not None and facts.resident is not None:
        over = volume(facts.grid) > facts.resident
    return _all(facts.cooperative, over)


RULES: tuple[Rule, ...] = (
    Rule("block-too-large", VALUE, _block_over, ("block", "max_threads")),
    Rule("smem-over-optin", VALUE, _smem_over, ("dynamic_smem", "static_smem", "limits")),
    Rule("smem-limit-lowered", VALUE, _smem_lowered, ("dynamic_smem", "setter_limit")),
    Rule("smem-not-opted-in", VALUE, _smem_default, ("dynamic_smem", "raised")),
    Rule("empty-grid", VALUE, _empty, ("grid", "block")),
    Rule("grid-too-large", VALUE, _grid_over, ("grid",)),
    Rule("no-cluster-launch", CLUSTER, _no_clusters, ("cluster", "limits")),
    Rule("cluster-over-16", CLUSTER, _over_16, ("cluster", "compiled_cluster")),
    Rule(
        "required-cluster-mismatch",
        CLUSTER,
        _other_than_compiled,
        ("cluster", "compiled_cluster"),
        queries=True,
    ),
    Rule(
        "non-portable-not-enabled",
        CLUSTER,
        _not_portable,
        ("cluster", "non_portable", "compiled_cluster"),
        queries=True,
    ),
    Rule(
        "grid-not-divisible",
        CLUSTER,
        _not_divisible,
        ("grid", "cluster", "compiled_cluster"),
        queries=True,
    ),
    Rule("out-of-resources", RESOURCES, _registers, ("registers", "block", "limits")),
    Rule(
        "larger-than-any-gpc", CLUSTER, _hosted_nowhere, ("cluster", "compiled_cluster", "hosted")
    ),
    Rule("cooperative-too-large", COOPERATIVE, _too_many, ("grid", "cooperative", "resident")),
)
"""The table, in the order in which a driver judges."""

BY_CAUSE = {rule.cause: rule for rule in RULES}


def holding(facts: LaunchFacts, code: int | None = None) -> Iterator[str]:
    """Yield the causes whose rules hold, in order; of one code where it is given."""
    for rule in RULES:
        if code in (None, rule.code) and rule.holds(facts):
            yield rule.cause


def _any(*parts: Holds) -> Holds:
    return True if True in parts else (None if None in parts else False)


def _all(*parts: Holds) -> Holds:
    return False if False in parts else (None if None in parts else True)
