# SPDX-License-Identifier: Apache-2.0
"""An operator of vLLM's with the drop-in before it, in torch's dispatcher and for callers by name.

The dispatcher's kernel is replaced, which every caller meets: Python, a compiled graph, C++. vLLM's
own kernel is taken out first (``torch.library.get_kernel``) and is what ``upstream`` calls. Python
callers that name ``torch.ops._C.<operator>`` meet the drop-in before the dispatcher, which spares
its way there and back (3 of 5 us, torch 2.13 on a CPU, 2026-12-01); where torch is too old to give
the kernel out, these are all that is replaced.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from thorprobe.errors import CouldNotProbeError
from thorprobe.plan.operator import NAMESPACE

if TYPE_CHECKING:
    from torch import Tensor

    from thorprobe.vllm.dropin_answer import DropIn


def signature(name: str) -> tuple[tuple[str, str, bool], ...] | None:
    """Return the signature that an operator of the namespace was registered with.

    Whatever ``torch.ops`` holds of that name; None where none is registered, () where something is
    returned or there are several.
    """
    found = torch._C._jit_get_schemas_for_operator(f"{NAMESPACE}::{name}")  # noqa: SLF001
    if not found:
        return None
    if len(found) != 1 or found[0].returns or found[0].overload_name:
        return ()
    return tuple(
        (a.name, str(a.type), bool(a.alias_info and a.alias_info.is_write))
        for a in found[0].arguments
    )


class Seat:
    """What ``torch.ops._C`` holds in the operator's place: called, it answers; else it is that."""

    def __init__(self, packet: Any, answer: Callable[..., None]) -> None:
        """Take the operator and what answers in its place."""
        self._packet = packet
        self._answer = answer

    def leave(self) -> None:
        """Hand every further call to the operator: whoever watches the seat may keep it."""
        self._answer = self._packet

    def __call__(  # noqa: PLR0917  the operator's own signature
        self,
        logits: "Tensor",
        lengths: "Tensor",
        output: "Tensor",
        workspace: "Tensor",
        k: int,
        max_seq_len: int,
    ) -> None:
        """Answer a call; one that is being compiled is the operator's."""
        if torch.compiler.is_compiling():
            self._packet(logits, lengths, output, workspace, k, max_seq_len)
        else:
            self._answer(logits, lengths, output, workspace, k, max_seq_len)

    def __getattr__(self, name: str) -> Any:
        """Return what the operator has, such as ``default``."""
        if name == "_packet":  # Of a copy that was made without ``__init__``.
            raise AttributeError(name)
        return getattr(self._packet, name)


class Operator:
    """One operator, replaced until ``remove``."""

    def __init__(self, name: str, drop_in: "DropIn", key: str) -> None:
        """Replace the operator's kernel for a dispatch key, such as ``CUDA``."""
        self.name = name
        self._drop_in = drop_in
        self._namespace = getattr(torch.ops, NAMESPACE)
        self._packet = getattr(self._namespace, name)
        self._seated = isinstance(self._packet, torch._ops.OpOverloadPacket)  # noqa: SLF001
        self._library: Any = None
        self._upstream: Callable[..., None] = self._packet
        get_kernel = getattr(torch.library, "get_kernel", None)
        if get_kernel is not None:
            self._replace(get_kernel(f"{NAMESPACE}::{name}", key), key)
        elif not self._seated:
            raise CouldNotProbeError(
                f"this torch ({torch.__version__}) does not give {name} out, and something else "
                "already stands in its place",
                "vLLM 0.29 and later pin a torch that does",
            )
        self._seat = Seat(self._packet, self._answer)
        if self._seated:
            # Where something else stands there, its calls come through the dispatcher.
            setattr(self._namespace, name, self._seat)

    @property
    def how(self) -> str:
        """Where the drop-in stands."""
        seat = "for callers by name" if self._seated else ""
        return " and ".join(filter(None, ("in the dispatcher" if self._library else "", seat)))

    def _replace(self, kernel: Any, key: str) -> None:
        keys = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(key))  # noqa: SLF001
        call = kernel.call_boxed

        def upstream(*arguments: Any) -> None:
            call(keys, *arguments)

        self._upstream = upstream
        self._library = torch.library.Library(NAMESPACE, "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # That a kernel is overridden is what is wanted.
            self._library.impl(self.name, self._answer, key, allow_override=True)

    def _answer(  # noqa: PLR0917  the operator's own signature
        self,
        logits: "Tensor",
        lengths: "Tensor",
        output: "Tensor",
        workspace: "Tensor",
        k: int,
        max_seq_len: int,
    ) -> None:
        self._drop_in.answer(
            self.name, self._upstream, logits, lengths, output, workspace, k, max_seq_len
        )

    def remove(self) -> None:
        """Give the operator back; who has taken the seat since keeps it, and meets vLLM's."""
        self._seat.leave()
        if getattr(self._namespace, self.name) is self._seat:
            setattr(self._namespace, self.name, self._packet)
        if self._library is not None:
            self._library._destroy()  # noqa: SLF001  It has no other way.
            self._library = None
