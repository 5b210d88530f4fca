# SPDX-License-Identifier: Apache-2.0
"""The calls that tell vLLM's operators apart: what a version's gate picks, and the other beside it.

The gate and its rows are a policy's; the cluster is what the library's own host code picks, so that
one library can stand behind the gates of several versions.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thorprobe.errors import UsageError
from thorprobe.plan.operator import COOPERATIVE, PERSISTENT, OperatorLibrary
from thorprobe.plan.policy import Policy, dispatch, gate, load
from thorprobe.record import PORTABLE_CLUSTER, LaunchSpec, Workload

if TYPE_CHECKING:
    from thorprobe.plan.arm_probe import ArmProbe, ArmsOptions


def probes(
    options: "ArmsOptions",
    library: OperatorLibrary,
    policy: Policy,
    rows: int,
    *,
    k: int,
    stride: int,
    lengths: Sequence[int],
) -> "Iterator[ArmProbe]":
    """Yield the calls at these rows: the arm at every length, the other operator where it counts.

    Calls whose rows are longer than k are timed. The cooperative operator is not called where its
    own host code refuses rows or stride: the call site never does.
    """
    from thorprobe.plan.arm_probe import ArmProbe

    host = load(library.policy)
    taken = rows <= host.kernel.row_limit and stride % host.kernel.stride_multiple == 0
    cluster, path = dispatch(host, rows, options.capability[0])
    taken = taken and path == "cooperative"
    is_open, reason = gate(policy, rows, stride, options.capability)
    own = dispatch(policy, rows, options.capability[0])[1]
    arm = COOPERATIVE if own == "cooperative" and taken else PERSISTENT
    beside = [PERSISTENT] if arm == COOPERATIVE else [COOPERATIVE] if taken else []
    for operator in (arm, *beside):
        for length in lengths:
            timed = length > k
            if operator != arm and not timed:
                continue
            work = Workload(
                rows=rows,
                columns=options.columns,
                stride=stride,
                length=length,
                k=k,
                dtype=options.dtype,
                distribution=options.distribution,
                seed=options.seed,
            )
            clustered = operator == COOPERATIVE
            yield ArmProbe(
                policy=policy.name,
                rows=rows,
                k=k,
                dtype=options.dtype,
                length=length,
                role="arm" if operator == arm else "alternative",
                path="cooperative" if clustered else "persistent",
                cluster=cluster if clustered else 1,
                gate=is_open,
                gate_reason=reason,
                spec=_spec(
                    library.label(operator),
                    host,
                    cluster if clustered else 0,
                    work,
                    partition=options.partition,
                    repeats=options.repeats if timed else 0,
                ),
            )


def _spec(
    kernel: str, host: Policy, cluster: int, work: Workload, *, partition: str, repeats: int
) -> LaunchSpec:
    """Return a call as its host code is known to launch; ``cluster`` 0: the persistent operator.

    How many CTAs that one launches, and with how many bytes, its host code decides by asking.
    """
    size = max(1, cluster)
    return LaunchSpec(
        kernel=kernel,
        grid=(work.rows, size, 1),
        block=(host.kernel.threads, 1, 1),
        cluster=(1, size, 1),
        dynamic_smem=host.footprint(cluster).dynamic_smem if cluster else 0,
        non_portable=size > PORTABLE_CLUSTER,
        compiled_cluster=cluster,
        cluster_attribute=bool(cluster),
        partition=partition,
        workload=work,
        repeats=repeats,
    )


def check(options: "ArmsOptions", library: OperatorLibrary) -> None:
    """Raise UsageError for what the operators of this library cannot be asked."""
    host = load(library.policy)
    if wrong := [k for k in options.k if k not in host.kernel.k]:
        raise UsageError(
            f"k {wrong[0]} was asked for, but the operators of {host.version} do not take it",
            f"k is one of {', '.join(map(str, host.kernel.k))}",
        )
    if options.compiled:
        raise UsageError(
            "`--compiled-dims` was asked for, but vLLM's operators are called as they were built",
            "leave out one of `--compiled-dims` and `--kernel vllm`",
        )
