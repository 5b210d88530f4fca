# SPDX-License-Identifier: Apache-2.0
"""Where generated calls run: a device with its buffers, and a lane for each stream."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from thorprobe.bench.verify_case import MAX_ROWS, MAX_SPAN, SLACK, WHOLE, Case
from thorprobe.bench.verify_draw import INPUTS, SIDES
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.record import Device
from thorprobe.topk.contract import RUNGS

PARTITIONS = ("sms=24", "sms=8", "sms=8,groups-of=2")
"""Parts of a device that calls run in, besides the whole of it."""

_RESULTS = 2**25
# Indices of all calls of an input.


class Forced(Protocol):
    """One kernel of the ladder, prepared for a shape on a lane; the choosing is left out."""

    @property
    def rung(self) -> str:
        """The rung that it belongs to."""
        ...

    def __call__(self, scores: Any, lengths: Any, out: Any, workspace: Any) -> None:
        """Select into ``out``. Raises ThorprobeError where the launch is refused."""
        ...


@dataclass
class Lane:
    """A stream of a partition, and the memory that kernels on it share.

    ``stream`` is torch's, None on a CPU; ``workspace`` uint8.
    """

    partition: str
    stream: Any
    workspace: Any
    follow: Callable[[], None] = lambda: None
    lead: Callable[[], None] = lambda: None
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass
class Bed:
    """A device for generated calls; a test puts its own together.

    ``memory`` uint8 holds the scores, ``outs`` int32 all results of an input, ``lengths`` those of
    an input, ``staged`` on the host those of a group. ``lanes`` by partition; ``sides`` are several
    on the whole device. ``force`` prepares one kernel, and answers None where the device refuses
    it. ``capture`` records calls on a lane and returns their replay. Without ``capture`` or
    ``prepare`` the calls of these modes are made one by one.
    """

    torch: Any
    device: Any
    select: Callable[..., Any]
    memory: Any
    outs: Any
    lengths: Any
    staged: Any
    lanes: dict[str, Lane]
    sides: tuple[Lane, ...]
    rungs: tuple[str, ...] = RUNGS
    force: Callable[[str, Lane, Case], Forced | None] = lambda _name, _lane, _case: None
    capture: Callable[[Lane, Callable[[], None]], Callable[[], None]] | None = None
    prepare: Callable[..., Callable[[], Any]] | None = None
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(SIDES))
    facts: Device | None = None
    software: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kernel: str = ""
    nvrtc: str = ""


def buffers(torch: Any, device: Any, *, pinned: bool) -> dict[str, Any]:
    """Return a bed's memory: for the scores of any case, all results, and lengths."""
    return {
        "memory": torch.empty(MAX_SPAN + SLACK, dtype=torch.uint8, device=device),
        "outs": torch.empty(_RESULTS, dtype=torch.int32, device=device),
        "lengths": torch.empty(MAX_ROWS, dtype=torch.int32, device=device),
        "staged": torch.empty((INPUTS, MAX_ROWS), dtype=torch.int32, pin_memory=pinned),
    }


def cpu_bed(select: Callable[..., Any] | None = None, rungs: tuple[str, ...] = ("torch",)) -> Bed:
    """Return a bed on the CPU, where the ladder is the library's sort, or ``select`` if given."""
    import torch

    from thorprobe.driver import torch_device
    from thorprobe.topk import prepare
    from thorprobe.topk import select as ladder

    device = torch.device("cpu")

    def lane() -> Lane:
        return Lane(WHOLE, None, torch.empty(2**20, dtype=torch.uint8))

    with torch_device.open_device(torch_device.CPU) as place:
        software = place.software
    return Bed(
        torch=torch,
        device=device,
        select=select or ladder,
        prepare=None if select else prepare,
        **buffers(torch, device, pinned=False),
        lanes={WHOLE: lane()},
        sides=tuple(lane() for _ in range(SIDES)),
        rungs=rungs,
        software=software,
    )


def gpu(device: str | None) -> tuple[Any, int]:
    """Return torch and the device's number.

    Raises CouldNotProbeError where there is no torch or no GPU, UsageError for another name.
    """
    try:
        import torch
    except ImportError as error:
        raise CouldNotProbeError(
            f"generated calls need torch, which cannot be imported: {error}", "`pip install torch`"
        ) from error
    text = device if device is not None else "0"
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"`--device {text}` was asked for, but a device is a number or `cpu`",
            "`thorprobe doctor` lists the devices",
        )
    if not torch.cuda.is_available():
        what = f"`--device {device}`" if device is not None else "a GPU"
        raise CouldNotProbeError(
            f"{what} was asked for, but torch sees no GPU here",
            "`--device cpu` holds the library's sort against the reference",
        )
    return torch, int(text)
