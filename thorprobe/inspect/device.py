# SPDX-License-Identifier: Apache-2.0
"""Asks a device, a model of one, or its compute capability alone what it makes of a file.

Nothing is launched: a model predicts, and a device answers the occupancy queries.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from thorprobe.binary.image import Capability
from thorprobe.binary.inventory import extract
from thorprobe.binary.records import Inventory
from thorprobe.inspect.load import Load, Party, Source
from thorprobe.plan.shipped import build, clustered, spec
from thorprobe.record import Origin
from thorprobe.run.gpu import GpuAnswerer
from thorprobe.run.model import ModelAnswerer
from thorprobe.run.shipped import Shipped, entries, loaded


def source(path: Path, inventory: Inventory, pattern: str) -> Source:
    """Select kernels of a file by a pattern, '' for those with a compiled cluster."""
    return Source(path=path, inventory=inventory, selected=entries(inventory, pattern))


def by_capability(capability: Capability, sources: Sequence[Source]) -> Party:
    """Say which images a device of that capability loads; nothing else is known of it."""
    party = Party(
        title="cc {}.{}".format(*capability), capability=capability, origin=Origin.PUBLISHED
    )
    for one in sources:
        party.loads += _loads(one, capability, ask=False)
    return party


def by_profile(name: str, sources: Sequence[Source]) -> Party:
    """Answer from the model of a device; raises as ``ModelAnswerer`` does."""
    return _asked(ModelAnswerer(name), sources, extracted=False)


def by_device(ordinal: int, sources: Sequence[Source]) -> Party:
    """Ask the occupancy queries of a device; raises as ``GpuAnswerer`` does."""
    return _asked(GpuAnswerer(ordinal), sources, extracted=True)


def _asked(
    answerer: ModelAnswerer | GpuAnswerer, sources: Sequence[Source], *, extracted: bool
) -> Party:
    device = answerer.device
    party = Party(
        title=device.name, capability=device.capability, origin=answerer.origin, device=device
    )
    try:
        for one in sources:
            loads = _loads(one, device.capability, ask=True, ptx=not extracted)
            party.loads += loads
            answerer.attach(_shipped(one, loads, extracted=extracted))
        wanted = {load.asked.id: load.asked for load in party.loads if load.asked is not None}
        party.outcomes += answerer.ask(list(wanted.values()))
        party.inputs |= {k: v for k, v in answerer.inputs.items() if k.startswith("profile ")}
        party.software |= answerer.software
        party.device = answerer.device
    finally:
        answerer.close()
    return party


def _loads(one: Source, capability: Capability, *, ask: bool, ptx: bool = False) -> Iterable[Load]:
    chosen = loaded(one.selected, capability)
    asked = {}
    if ask:
        usable = [
            e
            for e, _ in chosen.values()
            if e is not None and clustered(e.kernel) and (ptx or not e.image.is_ptx)
        ]
        asked = {
            function.symbol: spec(kernel, function)
            for kernel in build(usable, one.inventory)
            for function in kernel.functions
        }
    return [
        Load(source=one, symbol=symbol, entry=entry, reason=reason, asked=asked.get(symbol))
        for symbol, (entry, reason) in chosen.items()
    ]


def _shipped(one: Source, loads: Iterable[Load], *, extracted: bool) -> Shipped:
    """Hand the kernels over without their parameters, so that nobody can launch them."""
    usable = [load.entry for load in loads if load.entry is not None and load.asked is not None]
    kernels = tuple(
        msgspec.structs.replace(kernel, parameters=()) for kernel in build(usable, one.inventory)
    )
    cubins = {e.image.sha256: e.image for e in usable if not e.image.is_ptx}
    return Shipped(
        file=one.inventory.name,
        kernels=kernels,
        images={k: extract(one.path, v) for k, v in cubins.items()} if extracted else {},
        inputs={one.inventory.name: one.inventory.sha256},
    )
