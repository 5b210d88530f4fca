# SPDX-License-Identifier: Apache-2.0
"""An inspection as a sheet: what the files hold, and a table for each device that was asked."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from thorprobe.answer import Kind
from thorprobe.inspect.records import (
    DeviceAnswer,
    Inspection,
    InspectSummary,
    KernelRow,
    LoadRow,
    TargetRow,
)
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.record import Origin, Verdict
from thorprobe.render.kernel_name import shortened
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted

_Row = TypeVar("_Row")

NONE = "-"
RULES = (
    "Which image a device loads follows the documented rules: `a` on that capability alone, `f` on "
    "its family, plain code on the same major and later minors, PTX on any later device whose "
    "driver knows its version; of several that fit, the nearest"
)
RUN_TIME = (
    "A cluster that host code sets only when it launches is in no file: such kernels carry no "
    "compiled cluster and are not listed without `--kernel`"
)
LEAST = (
    "block and dynamic shared memory are not known: asked with one warp, or the compiled block, "
    "and no dynamic shared memory, so that a real launch may ask for more"
)
_KERNEL_MEANINGS = (
    ("cluster", "compiled cluster dimensions, which every launch must have"),
    ("reg", "registers a thread"),
    ("static", "static shared memory a CTA in bytes, without the 1,024 that the system reserves"),
    ("dynamic", "dynamic shared memory that the host code asks for, where the version is known"),
    ("thr", "most threads a CTA"),
    ("par", "bytes of the parameter block"),
    ("stack", "bytes of local memory a thread"),
)
_ORIGINS = {
    Origin.PREDICTED: "PREDICTED from profile",
    Origin.MEASURED: "Measured by occupancy queries, nothing launched",
    Origin.PUBLISHED: "By the published rules of compute capabilities alone",
}


def sheet(evidence: Inspection) -> Sheet:
    """Put an inspection into words."""
    summary = evidence.summary
    return Sheet(
        title="Inspection",
        device=f"Read from {_files(summary)}; nothing was launched",
        finding=summary.finding,
        next_action=summary.next_action,
        sections=tuple(_sections(summary)),
        legend=tuple(_legend(summary)),
        closing=f"{counted(len(summary.kernels), 'row')} of kernels in {evidence.wall_s:.2f} s",
    )


KIND = Kind(type=Inspection, sheet=sheet)


def _files(summary: InspectSummary) -> str:
    names = [f"{file.name} ({file.bytes:,} B)" for file in summary.files]
    return ", ".join(names)


def _sections(summary: InspectSummary) -> Iterator[Section]:
    held = [
        f"{file.name}: {file.package} {file.version}, ".replace(":  , ", ": ")
        + f"{counted(file.images, 'image')}, {counted(file.kernels, 'kernel')} of all images"
        for file in summary.files
    ]
    yield Section(heading="Targets", items=tuple(held), table=_targets(summary.targets))
    if summary.kernels:
        which = f"matching {summary.pattern}" if summary.pattern else "with a compiled cluster"
        yield Section(heading=f"Kernels {which}", table=_kernels(summary.kernels))
    for device in summary.devices:
        yield _device(device)
    if summary.remarks:
        yield Section(heading="Not read", items=summary.remarks)


def _targets(rows: Sequence[TargetRow]) -> Table:
    return _table(
        rows,
        (
            (_left("target"), lambda row: row.target),
            (_right("images"), lambda row: f"{row.images:,}"),
            (_right("kernels"), lambda row: f"{row.kernels:,}"),
            (_right("below"), lambda row: f"{row.selected:,}"),
            (_left("PTX"), lambda row: ", ".join(row.isa) or NONE),
            (_left("runs on"), lambda row: row.runs_on),
        ),
    )


def _kernels(rows: Sequence[KernelRow]) -> Table:
    files = len({row.file for row in rows}) > 1
    columns: list[tuple[Column, Callable[[KernelRow], str]]] = [
        (_left("kernel"), lambda row: shortened(row.name)),
        (_left("target"), lambda row: row.target),
        (_right("cluster"), lambda row: _dims(row.required_cluster)),
        (_right("reg"), lambda row: _number(row.registers)),
        (_right("static"), lambda row: _number(row.static_smem)),
        (_right("dynamic"), lambda row: _number(row.dynamic_smem)),
        (_right("thr"), lambda row: _number(row.max_threads)),
        (_right("par"), lambda row: _number(row.parameter_bytes)),
        (_right("stack"), lambda row: _number(row.stack_bytes)),
    ]
    if files:
        columns.append((_left("file"), lambda row: row.file))
    return _table(rows, tuple(columns))


def _device(device: DeviceAnswer) -> Section:
    major, minor = device.capability
    cc = f"cc {major}.{minor}"
    paragraphs = [f"{_ORIGINS[device.origin]} {device.profile}".rstrip()]
    paragraphs += [device.basis] if device.basis else []
    paragraphs += [f"Claim {c.id}: {c.statement} (source: {c.source})" for c in device.claims]
    heading = device.title if cc in device.title else f"{device.title}, {cc}"
    targets = {row.target for row in device.kernels}
    if targets <= {""} or (len(targets) == 1 and not any(row.verdict for row in device.kernels)):
        many = counted(len(device.kernels), "kernel")
        whole = len(device.reasons) == 1
        items = tuple(f"all {many}: {one}" if whole else one for one in device.reasons)
        return Section(heading=heading, paragraphs=tuple(paragraphs), items=items)
    columns: list[tuple[Column, Callable[[LoadRow], str]]] = [
        (_left("kernel"), lambda row: shortened(row.name)),
        (_right("size"), lambda row: str(row.cluster)),
        (_left("loads"), lambda row: row.target or NONE),
    ]
    if any(row.verdict for row in device.kernels):
        columns.append((_left("verdict"), _verdict))
        columns += [(_left("claimed"), _under(claim.id)) for claim in device.claims]
        columns.append((_right("active"), _active))
        columns.append((_left("cause"), lambda row: row.cause or NONE))
    return Section(
        heading=heading,
        paragraphs=tuple(paragraphs),
        table=_table(device.kernels, tuple(columns)),
    )


def _legend(summary: InspectSummary) -> Iterator[tuple[str, str]]:
    yield "below", "kernels of that target in the table below"
    if summary.kernels:
        yield from _KERNEL_MEANINGS
    rows = [row for device in summary.devices for row in device.kernels]
    if any(row.verdict for row in rows):
        yield (
            "active",
            "clusters resident at once; n-m: least and most over admissible GPC maps",
        )
    if any(_queried(row) for row in rows):
        yield (
            "room for n",
            "the device answered that n clusters are resident at once; nothing was launched",
        )
    for device in summary.devices:
        for claim in device.claims:
            yield "claimed", f"verdict with the claim {claim.id} added to the layout"
    if any(row.least for row in rows):
        yield "least", LEAST
    for key in dict.fromkeys(row.cause for row in rows if row.cause):
        yield key, BY_KEY[key].sentence if key in BY_KEY else key
    if summary.devices:
        yield "loads", RULES
    yield "not here", RUN_TIME


def _verdict(row: LoadRow) -> str:
    if row.verdict is None:
        return NONE
    if _queried(row):
        return f"room for {row.max_active}{' (least)' if row.least else ''}"
    code = f" {row.code}" if row.code and row.verdict is Verdict.REFUSED else ""
    return f"{row.verdict.value}{code}{' (least)' if row.least else ''}"


def _queried(row: LoadRow) -> bool:
    return row.verdict is Verdict.NOT_PROBED and bool(row.max_active)


def _under(claim: str) -> Callable[[LoadRow], str]:
    return lambda row: row.under_claims[claim].value if claim in row.under_claims else NONE


def _active(row: LoadRow) -> str:
    if row.max_active is not None:
        return str(row.max_active)
    if row.max_active_range is not None:
        return "{}-{}".format(*row.max_active_range)
    return NONE


def _dims(sides: tuple[int, int, int] | None) -> str:
    return NONE if sides is None else "x".join(map(str, sides))


def _number(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _left(heading: str) -> Column:
    return Column((heading,), numeric=False)


def _right(heading: str) -> Column:
    return Column((heading,))


def _table(rows: Sequence[_Row], columns: Sequence[tuple[Column, Callable[[_Row], str]]]) -> Table:
    return Table(
        title="",
        columns=tuple(column for column, _ in columns),
        rows=tuple(tuple((cell(row),) for _, cell in columns) for row in rows),
    )
