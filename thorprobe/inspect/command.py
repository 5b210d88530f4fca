# SPDX-License-Identifier: Apache-2.0
"""``thorprobe inspect``."""

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thorprobe.cli import options as o
from thorprobe.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from thorprobe.inspect.load import Party, Source
    from thorprobe.record import Device, Origin


class FailOn(StrEnum):
    """Findings of an inspection that ``--fail-on`` turns into exit code 1."""

    NO_IMAGE = "no-image"


def inspect(
    *,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Wheels, libraries, cubins, fatbins or folders"),
    ],
    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            metavar="PATTERN",
            help="Kernels by name, `*topk*`; default: those with a compiled cluster; `*`: all",
        ),
    ] = "",
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="N", help="Ask the occupancy queries of this device"),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME", help="Ask the model of this device; repeat"),
    ] = None,
    capability: Annotated[
        list[str] | None,
        typer.Option(
            "--capability", metavar="X.Y", help="Say which image this capability loads; repeat"
        ),
    ] = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option("--fail-on", help="Exit 1 where a device has no image of a kernel"),
    ] = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    no_progress: o.NoProgressOption = False,
) -> None:
    """Say what files with device code hold, and what a device would load and refuse of it.

    Targets, kernels, registers, bytes and compiled clusters; no GPU is needed, nothing is launched.
    """
    import msgspec

    from thorprobe.cli.measure import now, process_age
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import public
    from thorprobe.inspect.judge import judged, lacks_an_image, summarize
    from thorprobe.inspect.records import Inspection

    started = now()
    ordinal = _ordinal(device)
    capabilities = [_capability(text) for text in dict.fromkeys(capability or ())]
    profiles = list(dict.fromkeys(profile or ()))
    _known(profiles)
    sources = [_source(path, kernel, shown=not no_progress) for path in dict.fromkeys(files)]
    parties = list(_parties(capabilities, profiles, ordinal, sources))
    answer = Inspection(
        command="inspect",
        argv=public(sys.argv[1:]),
        started=started,
        ended=now(),
        origin=_origin(parties),
        device=_device(parties),
        software=_software(sources, parties),
        inputs=_inputs(sources, parties),
        results=tuple(outcome for party in parties for outcome in judged(party)),
        summary=summarize(sources, parties, kernel),
        wall_s=round(process_age(), 2),
    )
    lacking = bool(fail_on) and lacks_an_image(answer.summary.devices, sources)
    if lacking:
        answer = msgspec.structs.replace(answer, exit_code=int(ExitCode.EXPECTATION_FAILED))
    show_evidence([answer], o.Format.JSON if json else form, output)
    if lacking:
        raise typer.Exit(int(ExitCode.EXPECTATION_FAILED))


def _ordinal(text: str | None) -> int | None:
    if text is not None and not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"`--device {text}` was asked for, but a device is a number",
            "`thorprobe doctor` lists the devices",
        )
    return None if text is None else int(text)


def _capability(text: str) -> tuple[int, int]:
    from thorprobe.plan.drive import parse_capability

    return parse_capability(text)


def _known(profiles: Iterable[str]) -> None:
    """Find a bad profile before a wheel is read."""
    from thorprobe.model.profile import load

    for name in profiles:
        load(name)


def _source(path: Path, pattern: str, *, shown: bool) -> "Source":
    from thorprobe.binary.inventory import take
    from thorprobe.cli.session import progress
    from thorprobe.inspect.device import source

    with progress(f"inspect {path.name}", shown=shown) as advance:
        return source(path, take(path, advance), pattern)


def _parties(
    capabilities: Iterable[tuple[int, int]],
    profiles: Iterable[str],
    ordinal: int | None,
    sources: "Sequence[Source]",
) -> "Iterable[Party]":
    from thorprobe.inspect import device as inspection

    for capability in capabilities:
        yield inspection.by_capability(capability, sources)
    for name in profiles:
        yield inspection.by_profile(name, sources)
    if ordinal is not None:
        yield inspection.by_device(ordinal, sources)


def _origin(parties: "Sequence[Party]") -> "Origin":
    """Return the weakest origin among the answers; the files themselves were read in this run."""
    from thorprobe.record import Origin

    held = {party.origin for party in parties}
    weakest = (Origin.PREDICTED, Origin.PUBLISHED)
    return next((origin for origin in weakest if origin in held), Origin.MEASURED)


def _device(parties: "Sequence[Party]") -> "Device | None":
    devices = [party.device for party in parties if party.device is not None]
    return devices[0] if len(devices) == 1 else None


def _software(sources: "Sequence[Source]", parties: "Sequence[Party]") -> dict[str, str]:
    found: dict[str, str] = {}
    for source in sources:
        name, _, version = source.inventory.reader.partition(" ")
        if name:
            found[name] = version
    for party in parties:
        found |= party.software
    return found


def _inputs(sources: "Sequence[Source]", parties: "Sequence[Party]") -> dict[str, str]:
    found: dict[str, str] = {}
    for source in sources:
        held = source.inventory
        # Files of one name in two folders are told apart by a number, never by the folder.
        name, number = held.name, 2
        while found.get(name, held.sha256) != held.sha256:
            name, number = f"{held.name} ({number})", number + 1
        found[name] = held.sha256
    for party in parties:
        found |= party.inputs
    return found
