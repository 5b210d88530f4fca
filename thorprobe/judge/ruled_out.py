# SPDX-License-Identifier: Apache-2.0
"""Which causes the evidence excludes for the launches that were refused, one sentence each."""

from collections.abc import Sequence
from itertools import pairwise

from thorprobe.driver.code import INVALID_CLUSTER_SIZE
from thorprobe.judge.cause import refusal, settled
from thorprobe.record import PORTABLE_CLUSTER, Device, Origin, Outcome, Verdict


def ruled_out(outcomes: Sequence[Outcome], device: Device) -> tuple[str, ...]:
    """Say what cannot be the cause of the refusals among judged ``outcomes``, in the order asked.

    Only evidence of these very launches counts; what could not be looked at is not ruled out. Of a
    prediction that leaves the launch's own sizes: all else is what the model was told.
    Empty when nothing is refused for the device's sake.
    """
    by_device = [o for o in outcomes if o.cause == "larger-than-any-gpc"]
    by_memory = [o for o in outcomes if o.cause == "smem-over-optin"]
    if all(o.origin is Origin.PREDICTED for o in by_device + by_memory):
        return (*_memory_in_order(by_device, device), *_block_in_order(by_device, device))
    found = []
    if by_device:
        found += _arguments_in_order(by_device, device)
        found += _driver_silent(by_device)
        found += _not_sticky(outcomes)
        found += _other_kernels(by_device)
    if by_memory:
        found += _not_the_cluster(by_memory, outcomes)
    if by_device or by_memory:
        found += _clusters_at_all(outcomes)
        found += _other_processes(device)
    return tuple(found)


def _arguments_in_order(refused: Sequence[Outcome], device: Device) -> list[str]:
    """Name the arguments that every launch of cause 1 has in order; the judge checked each."""
    found = []
    if all(o.spec.non_portable for o in refused if o.spec.cluster_size > PORTABLE_CLUSTER):
        found.append("Missing opt-in: non-portable sizes were enabled for every refused launch")
    found += _memory_in_order(refused, device)
    found += _block_in_order(refused, device)
    found.append("Grid: it divides into whole clusters in every dimension")
    compiled = {o.spec.compiled_cluster for o in refused}
    if compiled == {0}:
        found.append("Compiled cluster size: the kernel is compiled without one")
    elif 0 not in compiled:
        found.append("Compiled cluster size: it equals the launch's")
    return found


def _memory_in_order(refused: Sequence[Outcome], device: Device) -> list[str]:
    asked = max((o.spec.dynamic_smem for o in refused), default=None)
    most = device.limits.max_smem_per_block_optin
    if asked is None or asked > most:
        return []
    return [f"Shared memory: at most {asked:,} of {most:,} B were asked for"]


def _block_in_order(refused: Sequence[Outcome], device: Device) -> list[str]:
    threads = max((o.spec.threads for o in refused), default=None)
    most = device.limits.max_threads_per_block
    return [] if threads is None or threads > most else [f"Block: {threads:,} of {most:,} threads"]


def _driver_silent(refused: Sequence[Outcome]) -> list[str]:
    if any(o.driver_log is None for o in refused):
        return []
    return ["Misuse that the driver knows of: its log could be read and named none"]


def _not_sticky(outcomes: Sequence[Outcome]) -> list[str]:
    """Look for a refused launch whose very next launch succeeded."""
    for before, after in pairwise(outcomes):
        if before.observed.launch_code == INVALID_CLUSTER_SIZE and _launched(after):
            return ["Sticky error: the launch right after a refused one succeeded"]
    return []


def _other_kernels(refused: Sequence[Outcome]) -> list[str]:
    sizes: dict[str, set[int]] = {}
    for outcome in refused:
        sizes.setdefault(outcome.spec.kernel, set()).add(outcome.spec.cluster_size)
    trivial = sizes.pop("trivial", set())
    others = [name for name, refused_at in sorted(sizes.items()) if refused_at <= trivial]
    if not others:
        return []
    return [f"The {' and '.join(others)} kernel: the trivial kernel is refused at the same sizes"]


def _not_the_cluster(refused: Sequence[Outcome], outcomes: Sequence[Outcome]) -> list[str]:
    codes = sorted({code for o in refused if (code := refusal(o).code) is not None})
    found = []
    if codes and INVALID_CLUSTER_SIZE not in codes:
        answered = " and ".join(map(str, codes))
        found.append(f"The cluster: the code is {answered}, and a refused cluster answers 912")
    sizes = {o.spec.cluster_size for o in refused if o.spec.cluster_size > 1}
    light = [o for o in outcomes if _launched(o) and o.spec.cluster_size in sizes]
    if light:
        most = max(light, key=lambda o: (o.spec.cluster_size, o.spec.dynamic_smem))
        spec = most.spec
        found.append(f"The cluster: {spec.cluster_size} CTAs launch at {spec.dynamic_smem:,} B")
    return found


def _clusters_at_all(outcomes: Sequence[Outcome]) -> list[str]:
    sizes = [o.spec.cluster_size for o in outcomes if _launched(o) and o.spec.cluster_attribute]
    if not sizes or max(sizes) < 2:
        return []
    return [f"A device without clusters: a cluster of {max(sizes)} launches"]


def _other_processes(device: Device) -> list[str]:
    count = device.other_processes
    if count is None:
        return []
    if count:
        return [f"Not ruled out: other processes on the GPU, {count} of them"]
    listed = "NVML listed no other compute process on the GPU when the worker started"
    return [f"Other processes: {listed}"]


def _launched(outcome: Outcome) -> bool:
    return settled(outcome) is Verdict.LAUNCHES
