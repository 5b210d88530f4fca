# SPDX-License-Identifier: Apache-2.0
"""Shipped kernels as peers of a bench: launched with the parameter block of their layout."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cuda.bindings import driver

from thorprobe.bench.candidates import Data, NotTakenError, Prepared
from thorprobe.bench.check import UNWRITTEN
from thorprobe.bench.plan import BenchShape
from thorprobe.bench.ready_launch import ReadyLaunch
from thorprobe.errors import UsageError
from thorprobe.plan.policy import Capability, load, reached
from thorprobe.plan.shipped import spec
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.record import Workload
from thorprobe.run.shipped import Shipped
from thorprobe.run.shipped_module import ShippedModules, parameters


@dataclass(frozen=True)
class ShippedPeer:
    """One entry point of a shipped kernel, on one stream."""

    kernel: ShippedKernel
    entry: ShippedFunction
    modules: ShippedModules
    stream: int
    ties: str = ""

    @property
    def name(self) -> str:
        """How tables call it: by its cluster size."""
        return f"shipped-{self.entry.size}"

    def prepare(self, data: Data) -> Prepared:
        """Load it, set what its host code sets, and launch it once."""
        shape, torch, where = data.shape, data.torch, data.scores.device
        if shape.dtype != "float32" or shape.k != self.kernel.k:
            raise NotTakenError(f"it takes float32 scores and k {self.kernel.k}")
        work = Workload(
            rows=shape.rows,
            columns=shape.columns,
            stride=shape.columns,
            length=shape.columns,
            k=shape.k,
        )
        try:
            asked = spec(self.kernel, self.entry, workload=work)
        except UsageError as error:
            raise NotTakenError(error.sentence) from error
        launch = ReadyLaunch(
            asked, self.modules.function(asked), driver.CUstream(self.stream), _quiet, 0
        ).ready()
        out = torch.full((shape.rows, shape.k), UNWRITTEN, dtype=torch.int32, device=where)
        size = max(1, shape.rows * self.kernel.workspace_bytes)
        workspace = torch.empty(size, dtype=torch.uint8, device=where)
        values = {
            "logits": data.scores.data_ptr(),
            "output": out.data_ptr(),
            "lengths": data.lengths.data_ptr(),
            "workspace": workspace.data_ptr(),
            "rows": shape.rows,
            "stride": shape.columns,
        }
        launch.parameters = parameters(self.kernel, values)

        launch()
        return Prepared(launch, lambda: out, kept=(workspace,))


def _quiet(_stage: str) -> None:
    """Nobody waits for a heartbeat here."""


def peers(held: Shipped, k: int, stream: int) -> tuple[list[ShippedPeer], list[str]]:
    """Return the entry points of a file that select k scores, and what is to be said of the rest.

    Raises UsageError for a file without one whose launch is known.
    """
    modules = ShippedModules()
    images: Mapping[str, str] = {digest: str(path) for digest, path in held.images.items()}
    modules.adopt(held.kernels, images)
    usable = [one for one in held.kernels if one.k == k and one.parameters]
    if not usable:
        raise UsageError(
            f"`{held.file}` was to be timed, but holds no kernel with k {k} whose launch is known",
            f"`thorprobe inspect {held.file}` lists what it holds",
        )
    first, *rest = usable
    remarks = [f"{one.label} of {held.file} is not timed: one kernel is" for one in rest]
    return [ShippedPeer(first, entry, modules, stream) for entry in first.functions], remarks


def upstream(kernel: ShippedKernel, capability: Capability) -> Callable[[BenchShape], str]:
    """Return who says which entry point upstream's own dispatch takes for a shape.

    It answers '' where the gate is shut, or the dispatch takes another kernel.
    """
    policy = load(kernel.policy)

    def chosen(shape: BenchShape) -> str:
        arm = reached(policy, shape.rows, shape.columns, capability)
        return f"shipped-{arm.cluster}" if arm.path == "cooperative" else ""

    return chosen
