# SPDX-License-Identifier: Apache-2.0
"""Who is timed in a bench: the ladder's rungs, torch.topk, and FlashInfer where it is installed."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from thorprobe.bench.check import UNWRITTEN, Expected
from thorprobe.bench.plan import AUTO, BenchShape
from thorprobe.errors import ThorprobeError
from thorprobe.topk.log import Call, record


class NotTakenError(ThorprobeError):
    """The contender does not take this shape here; the sentence says why."""


@dataclass(frozen=True)
class Data:
    """One input on the device: ``scores`` [rows, columns], ``lengths`` int32 [rows], all valid."""

    torch: Any
    shape: BenchShape
    scores: Any
    lengths: Any
    expected: Expected


@dataclass(frozen=True)
class Prepared:
    """A contender that has its buffers: ``launch`` selects, ``chosen`` returns what it selected.

    ``chosen`` is int32 or int64 [rows, k]. ``rung`` is the ladder's, ``choice`` the kernel or the
    operator that takes the shape. ``call`` is a peer's call as its users make it, with as little
    work for the device as it allows; None where it has no host code. ``kept`` are buffers that only
    device code knows, and that must stay allocated.
    """

    launch: Callable[[], Any]
    chosen: Callable[[], Any]
    rung: str = ""
    choice: str = ""
    call: Callable[[], Any] | None = None
    kept: tuple[Any, ...] = ()


class Candidate(Protocol):
    """One line of a bench; ``ties`` is empty for a peer."""

    @property
    def name(self) -> str:
        """How it is called in tables."""
        ...

    @property
    def ties(self) -> str:
        """What it is asked of ties."""
        ...

    def prepare(self, data: Data) -> Prepared:
        """Take buffers and run once. Raises NotTakenError where it does not take the shape."""
        ...


@dataclass(frozen=True)
class Ladder:
    """``thorprobe.topk.select`` with a rung; ``choice`` tells the kernel that a shape takes."""

    name: str
    ties: str
    select: Callable[..., Any]
    choice: Callable[[BenchShape, str, str], str]

    def prepare(self, data: Data) -> Prepared:
        """Run once and see which rung answers: another than the one named is a refusal.

        Later launches, captured ones among them, must be answered by the same rung.
        """
        from thorprobe.topk import workspace_bytes

        shape, torch = data.shape, data.torch
        where = data.scores.device
        out = torch.full((shape.rows, shape.k), UNWRITTEN, dtype=torch.int32, device=where)
        size = workspace_bytes(shape.rows, shape.k)
        workspace = torch.empty(size, dtype=torch.uint8, device=where)

        def call() -> Call:
            with record() as log:
                self.select(
                    data.scores,
                    data.lengths,
                    shape.k,
                    out=out,
                    workspace=workspace,
                    rung=self.name,
                    ties=self.ties,
                )
            return log.calls[-1]

        first = call()
        if self.name not in (AUTO, first.rung):
            reasons = [fall.reason for fall in first.falls if fall.rung == self.name]
            raise NotTakenError(reasons[-1] if reasons else "no kernel of it takes this shape")

        def launch() -> None:
            taken = call()
            if taken.rung != first.rung:
                reason = "; ".join(fall.reason for fall in taken.falls)
                raise ThorprobeError(f"{taken.rung} answered in its place when captured: {reason}")

        choice = self.choice(shape, self.name, self.ties)
        return Prepared(launch, lambda: out, rung=first.rung, choice=choice)


@dataclass(frozen=True)
class TorchTopk:
    """``torch.topk``, unsorted, into buffers that are there."""

    name: str = "torch.topk"
    ties: str = ""

    def prepare(self, data: Data) -> Prepared:
        """Run once."""
        shape, torch, where = _fitting(data), data.torch, data.scores.device
        values = torch.empty((shape.rows, shape.k), dtype=data.scores.dtype, device=where)
        indices = torch.full((shape.rows, shape.k), UNWRITTEN, dtype=torch.int64, device=where)

        def launch() -> None:
            torch.topk(data.scores, shape.k, dim=1, sorted=False, out=(values, indices))

        launch()
        return Prepared(launch, lambda: indices, call=launch)


@dataclass(frozen=True)
class FlashInfer:
    """``flashinfer.top_k``, which brings its own result at each call.

    ``built`` is the library of its kernels where they were built ahead of time.
    """

    top_k: Callable[..., Any]
    built: Path | None = None
    name: str = "flashinfer"
    ties: str = ""

    def prepare(self, data: Data) -> Prepared:
        """Run once; it may compile its kernels then."""
        shape = _fitting(data)
        held: list[Any] = []

        def launch() -> None:
            held[:] = self.top_k(data.scores, shape.k)

        launch()
        return Prepared(launch, lambda: held[1], call=launch)


def flashinfer() -> tuple[FlashInfer | None, str]:
    """Return FlashInfer's top-k, or None with a sentence that says why there is none."""
    try:
        library = import_module("flashinfer")
    except Exception as error:  # noqa: BLE001  whatever its import raises, it is not here
        return None, f"FlashInfer is not timed, it is not installed: {type(error).__name__}"
    version = getattr(library, "__version__", "of unknown version")
    found = getattr(library, "top_k", None)
    if found is None:
        return None, f"FlashInfer is not timed: {version} has no top_k"
    # Where FlashInfer itself looks for kernels of a module before it compiles them.
    folders = [Path(folder) for folder in getattr(library, "__path__", ())]
    places = [folder / "data" / "aot" / "topk" / "topk.so" for folder in folders]
    ahead = next((place for place in places if place.is_file()), None)
    how = ", its kernels built ahead of time" if ahead else ""
    return FlashInfer(found, ahead), f"FlashInfer is {version}{how}"


def _fitting(data: Data) -> BenchShape:
    if data.shape.k > data.shape.columns:
        raise NotTakenError(f"k is {data.shape.k} and a row has {data.shape.columns} scores")
    return data.shape
