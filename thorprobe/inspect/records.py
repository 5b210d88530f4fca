# SPDX-License-Identifier: Apache-2.0
"""What files with device code hold, and what devices make of it: the answer of ``inspect``."""

import msgspec

from thorprobe.answer import Evidence
from thorprobe.record import Claim, Origin, Outcome, Record, Verdict


class FileRow(Record, frozen=True, kw_only=True):
    """One file that was inspected, with everything in it, whatever the pattern selects."""

    name: str
    bytes: int
    package: str = ""
    version: str = ""
    images: int = 0
    kernels: int = 0


class TargetRow(Record, frozen=True, kw_only=True):
    """One target: images and kernels built for it, and those that the pattern selects.

    ``isa`` are the PTX versions, empty for code. ``runs_on`` says which devices run it.
    """

    target: str
    images: int
    kernels: int
    selected: int
    isa: tuple[str, ...] = ()
    runs_on: str = ""


class KernelRow(Record, frozen=True, kw_only=True):
    """One selected kernel of one image; what PTX does not state is None.

    ``dynamic_smem`` is what the host code asks for, known where ``layout`` names its version.
    """

    name: str
    symbol: str
    file: str
    target: str
    registers: int | None = None
    static_smem: int | None = None
    dynamic_smem: int | None = None
    max_threads: int = 1_024
    required_cluster: tuple[int, int, int] | None = None
    parameter_bytes: int | None = None
    stack_bytes: int | None = None
    layout: str = ""


class LoadRow(Record, frozen=True, kw_only=True):
    """What a device makes of one kernel.

    ``target`` is the image that it loads, '' for none. ``verdict`` is None where nothing was asked
    beyond that: a kernel without a cluster, or a device of which only the capability is known.
    ``least`` says that block and dynamic shared memory are not known, so that the kernel was asked
    with one warp and none. ``max_active`` are clusters resident at once, its range where GPC maps
    differ.
    """

    name: str
    symbol: str
    file: str
    cluster: int
    target: str
    verdict: Verdict | None = None
    cause: str | None = None
    code: int | None = None
    under_claims: dict[str, Verdict] = msgspec.field(default_factory=dict)
    least: bool = False
    max_active: int | None = None
    max_active_range: tuple[int, int] | None = None
    note: str = ""


class DeviceAnswer(Record, frozen=True, kw_only=True):
    """What one device loads and launches. ``reasons`` are distinct sentences about the images."""

    title: str
    capability: tuple[int, int]
    origin: Origin
    finding: str
    profile: str = ""
    basis: str = ""
    claims: tuple[Claim, ...] = ()
    reasons: tuple[str, ...] = ()
    kernels: tuple[LoadRow, ...] = ()


class InspectSummary(Record, tag="inspect", tag_field="kind", frozen=True, kw_only=True):
    """What was found. ``pattern`` is '' for the kernels that carry a compiled cluster."""

    finding: str
    pattern: str = ""
    files: tuple[FileRow, ...] = ()
    targets: tuple[TargetRow, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    devices: tuple[DeviceAnswer, ...] = ()
    remarks: tuple[str, ...] = ()
    next_action: str = ""


Inspection = Evidence[Outcome, InspectSummary]
"""The whole answer; ``results`` holds one outcome per kernel that a device was asked about."""
