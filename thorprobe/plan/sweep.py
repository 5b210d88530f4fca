# SPDX-License-Identifier: Apache-2.0
"""The cluster sweep: every size, with and without the opt-in, at every footprint."""

from collections.abc import Iterator, Sequence

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan import footprint as footprints
from thorprobe.plan import shipped
from thorprobe.plan.shipped_kernel import ShippedKernel
from thorprobe.record import MAX_CLUSTER, LaunchSpec, Outcome, Record, Workload

SIZES = tuple(range(1, MAX_CLUSTER + 1))

_SWEEP_WORKLOAD = Workload(rows=1, columns=20_480, stride=20_480, length=20_480, k=512)
# Longer than 16,384, so that the whole cluster works on the row; short enough to check in no time.

_MAP_SPIN_CYCLES = 20_000
# About 10 us at 2 GHz: long enough that all clusters of one launch overlap (H200, 2026-11-30).


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read ``4,8,16`` or ``1-16`` into sorted cluster sizes.

    Raises UsageError for a size below 1 or above 16, or for text that is no list.
    """
    sizes: set[int] = set()
    for part in text.replace(" ", "").split(","):
        low, dash, high = part.partition("-")
        ends = (low, high) if dash else (low, low)
        if not all(end.isascii() and end.isdigit() and len(end) < 6 for end in ends):
            raise UsageError(
                f"`--sizes {text}` was asked for, but `{part}` is not a cluster size",
                "write sizes as `4,8,16` or `1-16`",
            )
        first, last = int(ends[0]), int(ends[1])
        for size in (first, last):
            if not 1 <= size <= MAX_CLUSTER:
                raise UsageError(
                    f"`--sizes {text}` was asked for, but {size} is not a cluster size: CUDA "
                    f"launches 1 to {MAX_CLUSTER} CTAs a cluster",
                    f"write sizes as `4,8,16` or `1-{MAX_CLUSTER}`",
                )
        if first > last:
            raise UsageError(
                f"`--sizes {text}` was asked for, but `{part}` runs backwards",
                f"write `{last}-{first}`",
            )
        sizes.update(range(first, last + 1))
    return tuple(sorted(sizes))


class SweepOptions(Record, frozen=True, kw_only=True):
    """What ``cluster-sweep`` was asked.

    Empty ``kernels`` are all; ``compiled`` asks for the variants compiled with
    ``__cluster_dims__`` of each size. ``shipped`` are kernels of a file, each asked at the sizes
    that it was compiled for; with them alone no kernel of thorprobe's is asked.
    """

    sizes: tuple[int, ...] = SIZES
    kernels: tuple[str, ...] = ()
    partition: str = ""
    compiled: bool = False
    shipped: tuple[ShippedKernel, ...] = ()


def plan(options: SweepOptions) -> tuple[LaunchSpec, ...]:
    """Plan one launch of one cluster per size, opt-in and footprint.

    Raises UsageError for a kernel without footprints.
    """
    alone = bool(options.shipped) and not options.kernels
    own = tuple(
        LaunchSpec(
            kernel=footprint.kernel,
            grid=(1, size, 1),
            block=(footprint.threads, 1, 1),
            cluster=(1, size, 1),
            dynamic_smem=footprint.dynamic_smem,
            non_portable=opt_in,
            compiled_cluster=size if options.compiled else 0,
            partition=options.partition,
            workload=_SWEEP_WORKLOAD if footprint.kernel == "topk" else None,
        )
        for footprint in (() if alone else footprints.of_kernels(options.kernels))
        for opt_in in (False, True)
        for size in options.sizes
    )
    return own + tuple(_shipped(options))


def _shipped(options: SweepOptions) -> Iterator[LaunchSpec]:
    for kernel in options.shipped:
        workload = msgspec.structs.replace(_SWEEP_WORKLOAD, k=kernel.k) if kernel.k else None
        for opt_in in (False, True):
            for function in kernel.functions:
                if function.size in options.sizes:
                    yield shipped.spec(
                        kernel,
                        function,
                        workload=workload,
                        non_portable=opt_in,
                        partition=options.partition,
                    )


def gpc_map(outcomes: Sequence[Outcome], partition: str = "") -> tuple[LaunchSpec, ...]:
    """Plan the launches whose SM ids show which SMs share a GPC.

    One launch per size from 16 down to 2 with as many clusters as ``max_active`` says run at once,
    at the largest shared-memory footprint of the trivial kernel, so that each CTA has an SM to
    itself. Empty where no such footprint was asked about.
    """
    wide = [
        o
        for o in outcomes
        if o.spec.kernel == "trivial"
        and o.spec.non_portable
        and o.spec.dynamic_smem
        and not o.spec.spin_cycles
        and not o.assumes
        and o.observed.max_active
        and o.observed.launch_code == 0
        and o.spec.cluster_size > 1
    ]
    if not wide:
        return ()
    largest = max(o.spec.dynamic_smem for o in wide)
    return tuple(
        LaunchSpec(
            kernel="trivial",
            grid=(o.observed.max_active or 1, o.spec.cluster_size, 1),
            block=o.spec.block,
            cluster=o.spec.cluster,
            dynamic_smem=largest,
            non_portable=True,
            partition=partition,
            spin_cycles=_MAP_SPIN_CYCLES,
        )
        for o in sorted(wide, key=lambda o: -o.spec.cluster_size)
        if o.spec.dynamic_smem == largest
    )
