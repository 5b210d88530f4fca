# SPDX-License-Identifier: Apache-2.0
"""The launches that shipped kernels stand for: as their host code makes them, where it is known."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256

import msgspec

from thorprobe.binary.records import DeviceImage, DeviceKernel, Inventory
from thorprobe.errors import UsageError
from thorprobe.plan.layout import Layout, of_image
from thorprobe.plan.policy import load as load_policy
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.record import PORTABLE_CLUSTER, LaunchSpec, Record, Workload

LEAST_THREADS = 32
"""Threads a CTA of a kernel whose block is not known: one warp asks for least."""

_LONGEST_LABEL = 160


class Entry(Record, frozen=True, kw_only=True):
    """A kernel of an inventory with its image and its demangled name."""

    kernel: DeviceKernel
    image: DeviceImage
    name: str


def clustered(kernel: DeviceKernel) -> bool:
    """Say whether a cluster of more than one CTA is compiled into a kernel."""
    x, y, z = kernel.required_cluster or (1, 1, 1)
    return x * y * z > 1


def matches(pattern: str, entry: Entry) -> bool:
    """Say whether a pattern selects a kernel by name or symbol; '' selects those with a cluster.

    A pattern without a wildcard may stand anywhere in the name.
    """
    if not pattern:
        return clustered(entry.kernel)
    wanted = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    return fnmatchcase(entry.name, wanted) or fnmatchcase(entry.kernel.symbol, wanted)


def layout_of(entry: Entry, inventory: Inventory) -> tuple[Layout | None, str]:
    """Return the layout that a kernel's launch follows, and why it follows none that is near."""
    layout = of_image(entry.image.sha256, inventory.package, inventory.version)
    if layout is None or layout.parts(entry.name) is None:
        return None, ""
    kernel = entry.kernel
    wrong = layout.disagrees(
        entry.name,
        cluster=kernel.required_cluster,
        parameter_bytes=kernel.parameter_bytes,
        max_threads=kernel.max_threads,
    )
    if wrong:
        return None, f"`{entry.name}` is not launched as {layout.name} launches it: {wrong}"
    return layout, ""


def build(entries: Iterable[Entry], inventory: Inventory) -> tuple[ShippedKernel, ...]:
    """Join entry points that differ in their cluster alone; equal labels mean equal kernels."""
    found: dict[str, ShippedKernel] = {}
    for entry in entries:
        layout, _ = layout_of(entry, inventory)
        made = _alone(entry) if layout is None else _known(entry, layout)
        held = found.get(made.label)
        if held is not None and layout is None:
            if held.functions[0].symbol == entry.kernel.symbol:
                continue
            # Overloads share a name; their symbols tell them apart.
            made = msgspec.structs.replace(made, label=_label(entry, tell=True))
        elif held is not None and held.function(made.functions[0].size) is None:
            made = _joined(held, made)
        elif held is not None:
            continue
        found[made.label] = made
    return tuple(found[label] for label in sorted(found))


def spec(
    kernel: ShippedKernel,
    function: ShippedFunction,
    *,
    workload: Workload | None = None,
    non_portable: bool | None = None,
    partition: str = "",
    repeats: int = 0,
) -> LaunchSpec:
    """Return the launch of one entry point: a row per cluster, the opt-in where the size needs it.

    Raises UsageError for rows or a stride that the kernel's host code refuses.
    """
    rows = workload.rows if workload else 1
    if workload is not None:
        check(kernel, (rows,), workload.stride)
    x, y, z = function.cluster
    return LaunchSpec(
        kernel=kernel.label,
        grid=(rows * x, y, z),
        block=(function.threads, 1, 1),
        cluster=function.cluster,
        dynamic_smem=function.dynamic_smem,
        non_portable=function.size > PORTABLE_CLUSTER if non_portable is None else non_portable,
        compiled_cluster=function.size,
        partition=partition,
        workload=workload,
        repeats=repeats,
    )


def check(kernel: ShippedKernel, rows: Sequence[int], stride: int) -> None:
    """Raise UsageError for what the kernel's host code would refuse: a launch of it is no guess."""
    most = max(rows, default=0)
    if kernel.row_limit and most > kernel.row_limit:
        raise UsageError(
            f"{most:,} rows were asked of `{kernel.label}`, whose host code takes at most "
            f"{kernel.row_limit}",
            f"ask for 1 to {kernel.row_limit} rows",
        )
    if stride % kernel.stride_multiple:
        raise UsageError(
            f"stride {stride:,} was asked of `{kernel.label}`, whose host code takes multiples of "
            f"{kernel.stride_multiple}",
            "choose columns and stride that are such multiples",
        )


def _alone(entry: Entry) -> ShippedKernel:
    kernel = entry.kernel
    function = ShippedFunction(
        symbol=kernel.symbol,
        name=entry.name,
        cluster=kernel.required_cluster or (1, 1, 1),
        threads=kernel.required_threads or LEAST_THREADS,
        **_stated(kernel),
    )
    return ShippedKernel(
        label=_label(entry),
        image=entry.image.sha256,
        target=entry.image.target,
        functions=(function,),
    )


def _known(entry: Entry, layout: Layout) -> ShippedKernel:
    cluster, k = layout.parts(entry.name) or (0, 0)
    policy = load_policy(layout.policy)
    function = ShippedFunction(
        symbol=entry.kernel.symbol,
        name=entry.name,
        cluster=(1, cluster, 1),
        threads=policy.kernel.threads,
        dynamic_smem=policy.footprint(cluster).dynamic_smem,
        **_stated(entry.kernel),
    )
    return ShippedKernel(
        label=_label(entry, f"{layout.family}<{k}>"),
        image=entry.image.sha256,
        target=entry.image.target,
        functions=(function,),
        layout=layout.name,
        policy=layout.policy,
        k=k,
        parameters=layout.parameters,
        workspace_bytes=layout.workspace_bytes,
        row_limit=policy.kernel.row_limit,
        stride_multiple=policy.kernel.stride_multiple,
    )


def _stated(kernel: DeviceKernel) -> dict[str, int]:
    return {
        "registers": kernel.registers or 0,
        "static_smem": kernel.static_smem or 0,
        "max_threads": kernel.max_threads,
    }


def _label(entry: Entry, name: str = "", *, tell: bool = False) -> str:
    bare = (name or entry.name).replace(" ", "").replace("@", "")
    # Names of templates grow to thousands of characters; the symbol's hash tells them apart.
    if tell or len(bare) > _LONGEST_LABEL:
        digest = sha256(entry.kernel.symbol.encode()).hexdigest()[:8]
        bare = f"{bare[:_LONGEST_LABEL]}~{digest}"
    return f"{bare}@{entry.image.sha256[:12]}"


def _joined(one: ShippedKernel, other: ShippedKernel) -> ShippedKernel:
    functions = sorted((*one.functions, *other.functions), key=lambda f: f.size)
    return msgspec.structs.replace(one, functions=tuple(functions))
