# SPDX-License-Identifier: Apache-2.0
"""Takes shipped kernels out of a file for one device: which image it loads, and what is in it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from thorprobe.binary import demangle, inventory
from thorprobe.binary.cubin import KernelFacts
from thorprobe.binary.image import Capability, choose
from thorprobe.binary.records import Inventory
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.plan.shipped import Entry, build, clustered, layout_of, matches
from thorprobe.plan.shipped_kernel import ShippedKernel

PREFIX = "shipped:"

MAX_FUNCTIONS = 256
"""Most entry points of one question."""

Key = tuple[str, int]
"""Label of a kernel and CTAs per cluster."""


@dataclass(frozen=True)
class Shipped:
    """Kernels of one file for one device.

    ``images`` maps the SHA-256 of a cubin to where it was extracted, ``inputs`` what is to be
    recorded: names without folders, and SHA-256.
    """

    file: str
    kernels: tuple[ShippedKernel, ...]
    images: Mapping[str, Path]
    inputs: Mapping[str, str]
    remarks: tuple[str, ...] = ()

    def facts(self) -> dict[Key, KernelFacts]:
        """Return what each entry point's code states, by label and cluster size."""
        return {
            (kernel.label, function.size): KernelFacts(
                function=function.symbol,
                registers=function.registers,
                static_smem=function.static_smem,
                max_threads=function.max_threads,
                required_cluster=function.cluster,
                target=kernel.target,
            )
            for kernel in self.kernels
            for function in kernel.functions
        }


def recorded(options: Mapping[str, Any]) -> Shipped:
    """Return the shipped kernels that a store's options name; none can be launched from there.

    Raises UsageError for options that no thorprobe wrote.
    """
    try:
        kernels = msgspec.convert(options.get("shipped", ()), tuple[ShippedKernel, ...])
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the store's shipped kernels cannot be read: {error}",
            "the file was edited or written by another version",
        ) from error
    return Shipped(file="", kernels=kernels, images={}, inputs={})


def parse(text: str) -> tuple[Path, str]:
    """Split ``shipped:FILE`` or ``shipped:FILE#PATTERN`` into file and pattern.

    Raises UsageError where the file is not named.
    """
    rest = text.removeprefix(PREFIX)
    if rest and Path(rest).exists():
        return Path(rest), ""
    name, sign, pattern = rest.rpartition("#")
    if not sign or not name:
        name, pattern = rest, ""
    if not name:
        raise UsageError(
            f"`--kernel {text}` was asked for, but it names no file",
            "write `--kernel shipped:FILE`: a wheel, a library, a cubin or a fatbin",
        )
    return Path(name), pattern


def entries(held: Inventory, pattern: str = "") -> tuple[Entry, ...]:
    """Return the kernels that a pattern selects, with their names; '' those with a cluster."""
    kernels = [k for k in held.kernels if pattern or clustered(k)]
    names = demangle.names(k.symbol for k in kernels)
    found = (
        Entry(kernel=k, image=held.images[k.image], name=names.get(k.symbol, k.symbol))
        for k in kernels
    )
    return tuple(entry for entry in found if matches(pattern, entry))


def loaded(found: Iterable[Entry], device: Capability) -> dict[str, tuple[Entry | None, str]]:
    """Return for each symbol the entry that the device loads, None for none, and why."""
    by_symbol: dict[str, dict[str, Entry]] = {}
    for entry in found:
        by_symbol.setdefault(entry.kernel.symbol, {}).setdefault(entry.image.target, entry)
    answers: dict[str, tuple[Entry | None, str]] = {}
    for symbol, images in by_symbol.items():
        choice = choose(images, device)
        answers[symbol] = (images.get(choice.target), choice.reason)
    return answers


def open_for(
    path: Path,
    pattern: str,
    device: Capability,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Shipped:
    """Take the kernels with a compiled cluster that a device loads from a file.

    Where a version's launch is known of some, only those are taken unless a pattern names others.

    Raises UsageError for a file without such kernels, CouldNotProbeError where the device loads no
    image of them.
    """
    held = inventory.take(path, progress)
    found = [e for e in entries(held, pattern) if clustered(e.kernel)]
    if not found:
        which = f"that `{pattern}` names and " if pattern else ""
        raise UsageError(
            f"`{held.name}` holds no kernel {which}that has a cluster compiled in",
            f"`thorprobe inspect {held.name} --kernel '*'` lists what it holds",
        )
    chosen = loaded(found, device)
    usable = [entry for entry, _ in chosen.values() if entry is not None]
    if not pattern:
        usable = [e for e in usable if layout_of(e, held)[0] is not None] or usable
    compiled = [entry for entry in usable if not entry.image.is_ptx]
    if not compiled:
        reason = next(reason for _, reason in chosen.values())
        raise CouldNotProbeError(
            f"the kernels of `{held.name}` cannot be asked about here: {reason}",
            f"`thorprobe inspect {held.name}` says what each device loads",
        )
    if len(compiled) > MAX_FUNCTIONS:
        raise UsageError(
            f"`{held.name}` holds {len(compiled):,} such kernels; {MAX_FUNCTIONS} are asked about "
            "at once",
            "name some with a pattern: `shipped:FILE#*topk*`",
        )
    kernels = build(compiled, held)
    images = {e.image.sha256: e.image for e in compiled}
    inputs = {held.name: held.sha256}
    inputs |= {f"{one.target} image of {one.file}": digest for digest, one in images.items()}
    return Shipped(
        file=held.name,
        kernels=kernels,
        images={digest: inventory.extract(path, one) for digest, one in images.items()},
        inputs=inputs,
        remarks=tuple(dict.fromkeys(r for e in compiled if (r := layout_of(e, held)[1]))),
    )
