# SPDX-License-Identifier: Apache-2.0
"""What is known of one launch, before it is judged: any part of it may be missing."""

from thorprobe.binary.cubin import KernelFacts
from thorprobe.record import LaunchSpec, Limits, Record

Dims = tuple[int, int, int]

NO_CLUSTER: Dims = (0, 0, 0)
"""A kernel that is known to be compiled without a cluster."""


class LaunchFacts(Record, frozen=True, kw_only=True):
    """One launch, its kernel and its device; None is what nobody said.

    ``grid`` counts CTAs; bytes are shared memory. ``cluster`` is the launch attribute, NO_CLUSTER
    where the launch carries none; ``compiled_cluster`` the kernel's own, NO_CLUSTER where it has
    none. ``setter_limit`` is the dynamic limit last set on the function, ``raised`` whether it was
    ever set. ``max_threads`` is the kernel's launch bound. ``hosted`` is the least and the greatest
    max_active_clusters of this cluster, ``largest_cluster`` the device's own maximum, and
    ``resident`` the CTAs of this launch that fit at once.
    """

    grid: Dims | None = None
    block: Dims | None = None
    cluster: Dims | None = None
    compiled_cluster: Dims | None = None
    dynamic_smem: int | None = None
    static_smem: int | None = None
    registers: int | None = None
    max_threads: int | None = None
    cooperative: bool | None = None
    non_portable: bool | None = None
    raised: bool | None = None
    setter_limit: int | None = None
    setter_code: int | None = None
    limits: Limits | None = None
    sms: int | None = None
    hosted: tuple[int, int] | None = None
    largest_cluster: int | None = None
    resident: int | None = None

    @property
    def dims(self) -> Dims | None:
        """Cluster that the launch gets: the attribute's, else the compiled one; None if unknown."""
        if self.cluster is not None and self.cluster != NO_CLUSTER:
            return self.cluster
        compiled = self.compiled_cluster
        if compiled is not None and compiled != NO_CLUSTER:
            return compiled
        return (1, 1, 1) if self.cluster is not None and compiled is not None else None

    @property
    def size(self) -> int | None:
        """CTAs of that cluster."""
        dims = self.dims
        return None if dims is None else volume(dims)

    @property
    def threads(self) -> int | None:
        """Threads of a CTA."""
        return None if self.block is None else volume(self.block)


def volume(dims: Dims) -> int:
    """Return x times y times z."""
    x, y, z = dims
    return x * y * z


def of_launch(spec: LaunchSpec, limits: Limits, kernel: KernelFacts | None = None) -> LaunchFacts:
    """Return the facts of a launch that is wholly known; of the kernel, what is given."""
    compiled = None
    if kernel is not None:
        compiled = kernel.required_cluster or NO_CLUSTER
    return LaunchFacts(
        grid=spec.grid,
        block=spec.block,
        cluster=spec.cluster if spec.cluster_attribute else NO_CLUSTER,
        compiled_cluster=compiled,
        dynamic_smem=spec.dynamic_smem,
        static_smem=kernel.static_smem if kernel else 0,
        registers=kernel.registers if kernel else None,
        max_threads=kernel.max_threads if kernel else None,
        cooperative=spec.cooperative,
        non_portable=spec.non_portable,
        raised=spec.smem_opt_in,
        limits=limits,
    )
