# SPDX-License-Identifier: Apache-2.0
"""The words of a call of an operator, which an Observed may hold; record.py imports them."""

import msgspec


class KernelSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that a call launches, as a capture of the call shows it.

    ``name`` is demangled without parameters; ``grid`` counts CTAs, ``dynamic_smem`` is in bytes,
    and ``cluster`` is None where the node states none.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem: int
    cluster: tuple[int, int, int] | None = None


class OperatorCall(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one call of an operator that launches kernels of its own choice.

    ``raised`` is the exception's text, verbatim; ``pending_code`` the error that the call left to
    whoever asks next (0 for none, None where it could not be asked), ``pending`` what the next
    call of torch raised, and ``cleared`` whether the one after that was right. ``ran`` names the
    kernels that torch's profiler saw, ``captured`` those of the call's capture, which launches
    nothing. ``call_us`` is the host's median time of one call after another, with its spread.
    """

    operator: str
    raised: str = ""
    pending_code: int | None = None
    pending: str = ""
    cleared: bool | None = None
    ran: tuple[str, ...] = ()
    captured: tuple[KernelSeen, ...] = ()
    call_us: float | None = None
    call_spread_us: float | None = None
    remarks: tuple[str, ...] = ()
