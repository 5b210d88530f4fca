# SPDX-License-Identifier: Apache-2.0
"""vLLM's own operators as a peer of a bench: called as its call site calls them, host code too."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from thorprobe.bench.candidates import Data, NotTakenError, Prepared
from thorprobe.bench.check import UNWRITTEN
from thorprobe.bench.plan import VLLM_PEER
from thorprobe.plan.policy import Capability, Policy, load, names, reached

WORKSPACE_BYTES = 2**20
"""What vLLM's call site gives the operators (``topk_workspace`` of 0.33.0)."""

_DTYPE = "float32"
_TRIES = 3


class Operators(Protocol):
    """The two operators, as ``vllm.library.Library`` has them."""

    @property
    def cooperative_topk(self) -> Callable[..., None]:
        """The one of clusters."""
        ...

    @property
    def persistent_topk(self) -> Callable[..., None]:
        """The one without clusters."""
        ...


@dataclass(frozen=True)
class VllmPeer:
    """The operator that vLLM's gate takes for a shape, on the current stream."""

    operators: Operators
    policy: Policy
    capability: Capability
    name: str = VLLM_PEER
    ties: str = ""

    def prepare(self, data: Data) -> Prepared:
        """Call it once, as the call site does.

        Raises NotTakenError for scores or a k that the operators do not take, and what vLLM's host
        code raises where it refuses; nothing of that is left pending.
        """
        shape, torch, where = data.shape, data.torch, data.scores.device
        if shape.dtype != _DTYPE or shape.k not in self.policy.kernel.k:
            known = ", ".join(f"{k:,}" for k in self.policy.kernel.k)
            raise NotTakenError(f"it takes {_DTYPE} scores and k {known}")
        arm = reached(self.policy, shape.rows, shape.columns, self.capability)
        cooperative = arm.path == "cooperative"
        operators = self.operators
        operator = operators.cooperative_topk if cooperative else operators.persistent_topk
        out = torch.full((shape.rows, shape.k), UNWRITTEN, dtype=torch.int32, device=where)
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=where)
        # Rows of no scores leave the device next to nothing to do.
        empty, spare = torch.zeros_like(data.lengths), torch.empty_like(out)

        def launch() -> None:
            operator(data.scores, data.lengths, out, workspace, shape.k, shape.columns)

        def call() -> None:
            operator(data.scores, empty, spare, workspace, shape.k, shape.columns)

        try:
            launch()
        except RuntimeError:
            _clear(torch, where)
            raise
        return Prepared(
            launch,
            lambda: out,
            choice=f"{'cooperative' if cooperative else 'persistent'}_topk",
            call=call,
        )


def _clear(torch: Any, where: Any) -> None:
    """Take the error that a refused launch leaves behind: torch's next call would raise it."""
    for _ in range(_TRIES):
        with suppress(RuntimeError):
            torch.zeros(1, device=where)
            return


def policy_of(version: str) -> tuple[Policy, str]:
    """Return the policy of a vLLM's version, and a remark where another one's stands in for it.

    ``version`` may be '' for a library that does not say it.
    """
    releases = {name for name in names() if re.fullmatch(r"\d+\.\d+\.\d+", name)}
    base = re.match(r"\d+\.\d+\.\d+", version)
    if base is not None and base.group() in releases:
        return load(base.group()), ""
    newest = max(releases, key=_numbers)
    told = f"of version {version}" if version else "of a version that its file does not tell"
    return load(newest), f"vLLM's library is {told}: the gate of {newest} stands in for its own"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
