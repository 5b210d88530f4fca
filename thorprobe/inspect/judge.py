# SPDX-License-Identifier: Apache-2.0
"""What an inspection found: targets, kernels, and what each device loads and launches of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from thorprobe.binary.image import choose, meaning
from thorprobe.driver.code import MODULE_CAUSES, NO_BINARY_FOR_GPU
from thorprobe.inspect.finding import device_finding, finding, next_action
from thorprobe.inspect.load import Load, Party, Source
from thorprobe.inspect.records import (
    DeviceAnswer,
    FileRow,
    InspectSummary,
    KernelRow,
    LoadRow,
    TargetRow,
)
from thorprobe.judge.cause import judge, refusal
from thorprobe.judge.kernel_name import natural
from thorprobe.model.occupancy import most_threads
from thorprobe.plan.policy import load as load_policy
from thorprobe.plan.shipped import Entry, layout_of
from thorprobe.record import Outcome, Verdict


def summarize(sources: Sequence[Source], parties: Sequence[Party], pattern: str) -> InspectSummary:
    """Sum up files and devices; the parties' outcomes need not be judged yet."""
    several = len(sources) > 1
    rows = [_kernel(one, entry, several) for one in sources for entry in one.selected]
    kernels = tuple(
        sorted(rows, key=lambda row: (row.file, _target_order(row.target), natural(row.name)))
    )
    devices = tuple(_device(party, sources, several=several) for party in parties)
    unread = [remark for one in sources for remark in one.inventory.remarks]
    remarks = list(unread)
    remarks += [
        told
        for one in sources
        for entry in one.selected
        if (told := layout_of(entry, one.inventory)[1])
    ]
    return InspectSummary(
        finding=finding(kernels, devices, pattern, unread),
        pattern=pattern,
        files=tuple(_file(one) for one in sources),
        targets=tuple(_targets(sources)),
        kernels=kernels,
        devices=devices,
        remarks=tuple(dict.fromkeys(remarks)),
        next_action=next_action(devices),
    )


def _file(one: Source) -> FileRow:
    held = one.inventory
    return FileRow(
        name=held.name,
        bytes=held.bytes,
        package=held.package,
        version=held.version,
        images=len(held.images),
        kernels=len(held.kernels),
    )


def _targets(sources: Iterable[Source]) -> list[TargetRow]:
    images: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    selected: Counter[str] = Counter()
    versions: dict[str, set[str]] = {}
    for one in sources:
        for image in one.inventory.images:
            images[image.target] += 1
            kernels[image.target] += image.kernels
            versions.setdefault(image.target, set()).update({image.isa} - {""})
        selected.update(entry.image.target for entry in one.selected)
    return [
        TargetRow(
            target=target,
            images=images[target],
            kernels=kernels[target],
            selected=selected[target],
            isa=tuple(sorted(versions[target])),
            runs_on=meaning(target),
        )
        for target in sorted(images, key=_target_order)
    ]


def _target_order(target: str) -> tuple[bool, int, str]:
    digits = "".join(sign for sign in target if sign.isdigit())
    return target.startswith("compute"), int(digits or 0), target


def _named(one: Source, file: str, *, several: bool) -> str:
    name = one.inventory.name
    if not several:
        return file
    return name if file == name else f"{name}: {file}"


def _kernel(one: Source, entry: Entry, several: bool) -> KernelRow:
    kernel = entry.kernel
    layout, _ = layout_of(entry, one.inventory)
    parts = layout.parts(entry.name) if layout else None
    dynamic = None
    if layout is not None and parts is not None:
        dynamic = load_policy(layout.policy).footprint(parts[0]).dynamic_smem
    return KernelRow(
        name=entry.name,
        symbol=kernel.symbol,
        file=_named(one, entry.image.file, several=several),
        target=entry.image.target,
        registers=kernel.registers,
        static_smem=kernel.static_smem,
        dynamic_smem=dynamic,
        max_threads=min(kernel.max_threads, most_threads(kernel.registers or 0)),
        required_cluster=kernel.required_cluster,
        parameter_bytes=kernel.parameter_bytes,
        stack_bytes=kernel.stack_bytes,
        layout=layout.name if layout else "",
    )


def judged(party: Party) -> tuple[Outcome, ...]:
    """Return what a device was asked, with verdict and cause."""
    if party.device is None:
        return tuple(party.outcomes)
    return tuple(judge(outcome, party.device) for outcome in party.outcomes)


def lacks_an_image(devices: Iterable[DeviceAnswer], sources: Sequence[Source]) -> bool:
    """Say whether a device has no image of a kernel that is listed, or of a whole file."""
    for device in devices:
        if any(not row.target for row in device.kernels):
            return True
        held = ([i.target for i in one.inventory.images] for one in sources)
        if any(not choose(targets, device.capability).target for targets in held):
            return True
    return False


def _reason(party: Party, sources: Sequence[Source]) -> str:
    """Say what the device loads of all images: those of the kernels listed, else of the files."""
    held = [e.image.target for load in party.loads for e in load.source.selected]
    held = held or [image.target for one in sources for image in one.inventory.images]
    return choose(held, party.capability).reason


def _device(party: Party, sources: Sequence[Source], *, several: bool) -> DeviceAnswer:
    answers: dict[str, dict[str, Outcome]] = {}
    if party.device is not None:
        for outcome in judged(party):
            claim = outcome.assumes[0] if outcome.assumes else ""
            answers.setdefault(outcome.spec.id, {})[claim] = outcome
    found = [_load(load, answers, several) for load in party.loads]
    rows = tuple(sorted(found, key=lambda row: (row.file, natural(row.name))))
    device = party.device
    claims = device.claims if device else ()
    return DeviceAnswer(
        title=party.title,
        capability=party.capability,
        origin=party.origin,
        finding=device_finding(party.title, rows, _reason(party, sources), claims),
        profile=device.profile if device else "",
        basis=device.basis if device else "",
        claims=claims,
        reasons=tuple(dict.fromkeys(load.reason for load in party.loads)),
        kernels=rows,
    )


def _load(load: Load, answers: Mapping[str, Mapping[str, Outcome]], several: bool) -> LoadRow:
    entry, one = load.entry, load.source
    kernel = entry or next(e for e in one.selected if e.kernel.symbol == load.symbol)
    x, y, z = kernel.kernel.required_cluster or (1, 1, 1)
    row = LoadRow(
        name=kernel.name,
        symbol=load.symbol,
        file=_named(one, kernel.image.file, several=several),
        cluster=x * y * z,
        target=entry.image.target if entry else "",
    )
    if entry is None:
        return msgspec.structs.replace(
            row,
            verdict=Verdict.REFUSED,
            cause=MODULE_CAUSES[NO_BINARY_FOR_GPU],  # What loading its module would answer.
            code=NO_BINARY_FOR_GPU,
            note=load.reason,
        )
    found = answers.get(load.asked.id, {}) if load.asked else {}
    base = found.get("")
    if base is None:
        return row
    return msgspec.structs.replace(
        row,
        verdict=_settled(base, entry),
        cause=base.cause,
        code=refusal(base).code if base.verdict is Verdict.REFUSED else None,
        under_claims={name: _settled(o, entry) for name, o in found.items() if name},
        least=layout_of(entry, one.inventory)[0] is None,
        max_active=base.observed.max_active,
        max_active_range=base.observed.max_active_range,
        note=base.note,
    )


def _settled(outcome: Outcome, entry: Entry) -> Verdict:
    """Return the verdict; of PTX only a refusal, since its resources are not known yet."""
    if entry.image.is_ptx and outcome.verdict is Verdict.LAUNCHES:
        return Verdict.UNDETERMINED
    return outcome.verdict
