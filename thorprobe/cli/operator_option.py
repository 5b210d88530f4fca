# SPDX-License-Identifier: Apache-2.0
"""``--kernel vllm`` and ``--kernel vllm:FILE``: the operators of a vLLM, for a GPU that answers."""

import sys
from collections.abc import Sequence
from typing import Any

from thorprobe.binary import operator_file as library_file
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.plan import policy as policies
from thorprobe.plan.operator import OPERATORS, OperatorLibrary
from thorprobe.record import Record

NAME = "vllm"
PREFIX = f"{NAME}:"
REPORTED = "e126687a9a"
"""The policy that is driven beside the library's own: the commit of the report from a Thor."""


class Label(Record, frozen=True, kw_only=True):
    """A kernel that later launches may name."""

    label: str


def is_option(text: str) -> bool:
    """Say whether a value of ``--kernel`` asks for vLLM's operators."""
    return text == NAME or text.startswith(PREFIX)


class VllmOperators:
    """The library that ``--kernel`` names; it stands where a ShippedFile does in a session."""

    def __init__(self, text: str, wanted: Sequence[str] = ()) -> None:
        """Find the library; ``wanted`` are the policies that were asked for, if any.

        Raises CouldNotProbeError where no vLLM is installed, UsageError for a file that is not one,
        and where nothing says which policy its host code follows.
        """
        named = text.removeprefix(NAME).removeprefix(":")
        if text.startswith(PREFIX) and not named:
            raise UsageError(
                f"`--kernel {text}` was asked for, but it names no file",
                "write `--kernel vllm:FILE`, or `--kernel vllm` for the vLLM installed here",
            )
        self.file = library_file.find(named)
        self.library = OperatorLibrary(
            version=self.file.version,
            policy=_policy_of(self.file, wanted),
            sha256=self.file.sha256,
            of=self.file.of,
            pruned=self.file.pruned,
            wheel=self.file.wheel,
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """Return the policies to drive where none was named."""
        return tuple(dict.fromkeys((REPORTED, self.library.policy)))

    def attach(self, answerer: Any) -> None:
        """Let the answerer load the library.

        Raises CouldNotProbeError where it cannot, and for a model: an operator is not predicted.
        """
        attach = getattr(answerer, "attach_operators", None)
        if attach is None:
            raise CouldNotProbeError(
                "`--kernel vllm` calls vLLM's own operators, and nothing is called where a model "
                "answers",
                "run it on a GPU, or leave out `--kernel`: the model answers for the same launches",
            )
        attach(self.file)
        if self.file.pruned:
            print(f"note: `{self.file.path.name}`: {self.file.pruned}", file=sys.stderr)

    def kernels(self, _device: Any) -> tuple[Label, ...]:
        """Return what launches may name, on any device."""
        return tuple(Label(label=self.library.label(operator)) for operator in OPERATORS)


def _policy_of(file: library_file.LibraryFile, wanted: Sequence[str]) -> str:
    """Return the policy of the library's host code: that of its version, else the one wanted."""
    released = file.version.partition("+")[0]
    if released in policies.names():
        return released
    others = [name for name in dict.fromkeys(wanted) if name != REPORTED]
    if len(others) == 1:
        return others[0]
    told = f"is of vLLM {file.version}" if file.version else "does not say which vLLM it is of"
    raise UsageError(
        f"`{file.path.name}` {told}, and no policy says what its host code launches",
        f"name the one that it follows with `--policy`: {', '.join(policies.names())}",
    )
