# SPDX-License-Identifier: Apache-2.0
"""Opens a GPU, or a partition of one, as the bed of a bench."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from thorprobe.bench.candidates import Candidate, Ladder, TorchTopk, flashinfer
from thorprobe.bench.plan import (
    FLASHINFER_PEER,
    SHIPPED_PREFIX,
    TORCH_PEER,
    VLLM_PEER,
    VLLM_PREFIX,
    BenchOptions,
    BenchShape,
)
from thorprobe.bench.run import DeviceSession, Progress
from thorprobe.binary.container import sha256
from thorprobe.driver import torch_device
from thorprobe.errors import CouldNotProbeError, UsageError

NOTHING_TO_TIME = (
    "`thorprobe.topk.select` is right on CPU tensors too, but there is nothing to time there; "
    "`thorprobe doctor` says what is missing for a GPU"
)


def gpu(device: str | None) -> tuple[Any, int]:
    """Return torch and the device's number.

    Raises CouldNotProbeError where there is no torch or no GPU, UsageError for another name.
    """
    try:
        import torch
    except ImportError as error:
        raise CouldNotProbeError(
            f"a bench needs torch, which cannot be imported: {error}", "`pip install torch`"
        ) from error
    text = device if device is not None else "0"
    if text == torch_device.CPU or not torch.cuda.is_available():
        what = f"`--device {device}`" if device is not None else "a GPU"
        there = "a bench needs a GPU" if text == torch_device.CPU else "torch sees no GPU here"
        raise CouldNotProbeError(f"{what} was asked to be timed, but {there}", NOTHING_TO_TIME)
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"`--device {text}` was asked for, but a device is a number",
            "`thorprobe doctor` lists the devices",
        )
    return torch, int(text)


@contextmanager
def open_session(
    options: BenchOptions, device: str | None, progress: Progress = lambda _done, _total: None
) -> Iterator[DeviceSession]:
    """Open the device for a bench: stream, stopwatch, copy rates, contenders.

    ``progress`` hears of the reading of a shipped file. Raises CouldNotProbeError where there is no
    such device or partition, UsageError for a file that holds nothing to time.
    """
    torch, ordinal = gpu(device)
    from thorprobe.bench.floor import EmptyLaunches, copy_rates
    from thorprobe.driver.compile import hashes
    from thorprobe.driver.stopwatch import Stopwatch
    from thorprobe.topk import kernel, select
    from thorprobe.topk.prepare import prepare

    with torch_device.open_device(str(ordinal), options.partition) as place:
        where = place.torch_device
        stream = int(torch.cuda.current_stream(where).cuda_stream)
        watch = Stopwatch(stream)
        # The copies come first: they also bring the clocks up.
        rates = copy_rates(torch, where, stream, watch)
        choice = _choices(ordinal, stream)
        found = _Peers(options, place, stream, progress)
        yield DeviceSession(
            torch=torch,
            place=place,
            watch=watch,
            select=select,
            prepare=prepare,
            contenders=(
                *(Ladder(rung, ties, select, choice) for rung, ties in options.contenders),
                *found.contenders,
            ),
            empty=EmptyLaunches(torch, where, kernel.target(ordinal), stream, watch),
            rates=rates,
            rate=max(rates, key=lambda rate: rate.gb_per_s),
            upstream=found.upstream,
            notes=tuple(found.notes),
            inputs=hashes(("select", "trivial")) | found.inputs,
            software=place.software,
        )


class _Peers:
    """The peers that were asked for and are here, and what is to be said of the others."""

    def __init__(
        self,
        options: BenchOptions,
        place: torch_device.TorchDevice,
        stream: int,
        progress: Progress,
    ) -> None:
        self._options = options
        self._place = place
        self._stream = stream
        self._progress = progress
        self.contenders: list[Candidate] = []
        self.upstream: Callable[[BenchShape], str] = lambda _shape: ""
        self.notes: list[str] = []
        self.inputs: dict[str, str] = {}
        for peer in dict.fromkeys(options.peers):
            if peer == TORCH_PEER:
                self.contenders.append(TorchTopk())
            elif peer == FLASHINFER_PEER:
                self._flashinfer()
            elif place.device is None:
                continue
            elif peer.startswith(SHIPPED_PREFIX):
                self._shipped(peer, place.device.capability)
            elif peer == VLLM_PEER or peer.startswith(VLLM_PREFIX):
                self._vllm(peer.removeprefix(VLLM_PEER).removeprefix(":"), place.device.capability)

    def _flashinfer(self) -> None:
        library, note = flashinfer()
        self.notes.append(note)
        if library is not None:
            self.contenders.append(library)
            if library.built is not None:
                self.inputs[f"FlashInfer's {library.built.name}"] = sha256(library.built)

    def _shipped(self, peer: str, capability: tuple[int, int]) -> None:
        from thorprobe.bench.shipped_peer import peers, upstream
        from thorprobe.run.shipped import open_for, parse

        path, pattern = parse(peer)
        held = open_for(path, pattern, capability, self._progress)
        entries, remarks = peers(held, self._options.k[0], self._stream)
        self.contenders += entries
        self.notes += [*remarks, *held.remarks]
        self.inputs |= held.inputs
        self.upstream = upstream(entries[0].kernel, capability)

    def _vllm(self, source: str, capability: tuple[int, int]) -> None:
        from thorprobe.bench.vllm_peer import VllmPeer, policy_of
        from thorprobe.binary.operator_file import find
        from thorprobe.run.operator_library import load_file

        file = find(source)
        library = load_file(file)
        policy, remark = policy_of(library.version)
        self.contenders.append(VllmPeer(library, policy, capability))
        self.inputs |= file.inputs
        told = (
            f"vllm is vLLM {library.version or 'of unknown version'}'s own library, host code too"
        )
        if library.of:
            told += f"; this copy of it: {library.pruned}; SHA-256 as released {library.of}"
        self.notes += [told, *([remark] if remark else [])]


def _choices(device: int, stream: int) -> Callable[[BenchShape, str, str], str]:
    """Return who names the kernel that a rung takes for a shape, '' where it is the library's."""
    from thorprobe.topk import kernel, plan
    from thorprobe.topk.contract import select_options
    from thorprobe.topk.request import columns_class

    def choice(shape: BenchShape, rung: str, ties: str) -> str:
        asked = plan.Shape(
            rows=shape.rows,
            columns=columns_class(shape.columns),
            dtype=shape.dtype,
            strided=False,
            wish=select_options(shape.k, ties, "largest", ordered=False),
            rung=rung,
        )
        with kernel.Current(device):
            steps = plan.make(asked, device, stream).steps
        return steps[0].choice.name if steps else ""

    return choice
