# SPDX-License-Identifier: Apache-2.0
"""What a question says of vLLM's own operators: which library, and what they are called."""

from thorprobe.record import Record

NAMESPACE = "_C"
"""torch's namespace of vLLM's operators."""

COOPERATIVE = "cooperative_topk"
PERSISTENT = "persistent_topk"
OPERATORS = (COOPERATIVE, PERSISTENT)


class OperatorLibrary(Record, frozen=True, kw_only=True):
    """The library whose operators are called.

    ``version`` is vLLM's. ``sha256`` is of the file that was loaded; ``of`` that of the released
    library where a sidecar says that the file is a copy of it, and ``pruned`` what that lacks.
    ``policy`` names the dispatch policy of its host code.
    """

    version: str
    policy: str
    sha256: str
    of: str = ""
    pruned: str = ""
    wheel: str = ""

    def label(self, operator: str) -> str:
        """Return what a LaunchSpec calls an operator: its qualified name and the library's hash."""
        return f"{NAMESPACE}::{operator}@{self.sha256[:12]}"


def is_operator(kernel: str) -> bool:
    """Say whether a LaunchSpec's kernel is an operator of vLLM, called through torch."""
    return kernel.startswith(f"{NAMESPACE}::")


def operator_of(kernel: str) -> str:
    """Return the operator that a label names, such as ``cooperative_topk``."""
    return kernel.removeprefix(f"{NAMESPACE}::").partition("@")[0]
