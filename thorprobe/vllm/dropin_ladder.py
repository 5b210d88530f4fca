# SPDX-License-Identifier: Apache-2.0
"""The ladder behind the signature of vLLM's operators: what fits its contract, and how it runs."""

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from thorprobe.errors import ThorprobeError
from thorprobe.record import Record
from thorprobe.topk.contract import MAX_COLUMNS, MAX_K
from thorprobe.vllm.dropin_hosting import Place

if TYPE_CHECKING:
    from torch import Tensor

_MANY_CTAS = "many-ctas"
_CAPTURED_ROWS = 64
# More rows than these take vLLM's other operator: graphs are of decode, and rarely of more.
_KEPT_BYTES = 64 * 2**20
# Of one thread's workspace: 2,033 rows at k 512.


class Ran(Record, frozen=True, kw_only=True):
    """Which rung answered, and why a rung before it did not."""

    rung: str
    why: tuple[str, ...] = ()


class Fit(Record, frozen=True, kw_only=True):
    """How the operator's arguments become the ladder's.

    ``columns`` is where rows end by the operator's contract, if before their end; ``flat`` says
    that lengths have two dimensions. ``refusal`` is why the ladder does not serve the call.
    """

    columns: int = 0
    flat: bool = False
    refusal: str = ""


def fit(logits: "Tensor", lengths: "Tensor", output: "Tensor", k: int, limit: int | None) -> Fit:
    """Hold the operator's arguments against what both contracts promise.

    ``limit`` is the operator's own bound of every length, None where it has none. Addresses and
    values are not looked at.
    """
    told = _wrong_scores(logits) or _wrong_others(logits, lengths, output, k)
    if not told and limit is not None and limit < 1:
        told = f"max_seq_len is {limit}"
    if told:
        return Fit(refusal=told)
    return Fit(columns=limit or 0, flat=lengths.dim() != 1)


def _wrong_scores(logits: "Tensor") -> str:
    """Return what the ladder does not take, '' where all is well."""
    if logits.dim() != 2 or _kind(logits) != "float32":
        return f"logits are {_kind(logits)} of {logits.dim()} dimensions, not fp32 [rows, columns]"
    rows, columns = logits.shape
    if columns > MAX_COLUMNS:
        return f"a row has {columns:,} columns, more than {MAX_COLUMNS:,}"
    if columns > 1 and logits.stride(1) != 1:
        return f"columns are {logits.stride(1)} scores apart"
    if rows > 1 and logits.stride(0) < columns:
        return f"rows of {columns:,} columns are {logits.stride(0):,} scores apart"
    return ""


def _wrong_others(logits: "Tensor", lengths: "Tensor", output: "Tensor", k: int) -> str:
    rows = logits.shape[0]
    if not 1 <= k <= MAX_K:
        return f"k is {k}, not 1 to {MAX_K:,}"
    if _kind(lengths) != "int32" or lengths.numel() != rows or not lengths.is_contiguous():
        return f"lengths are {_kind(lengths)} {tuple(lengths.shape)}, not contiguous int32 [{rows}]"
    right = _kind(output) == "int32" and tuple(output.shape) == (rows, k)
    if not right or not output.is_contiguous():
        return (
            f"output is {_kind(output)} {tuple(output.shape)}, not contiguous int32 [{rows}, {k}]"
        )
    if not logits.device == lengths.device == output.device:
        return "logits, lengths and output are not on one device"
    return ""


def _kind(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")


class Ladder:
    """``thorprobe.topk`` as vLLM calls its operators: into a given output, best score first.

    The rung ``many-ctas`` needs more than vLLM's workspace of 1 MiB holds (33,024 B a row at k 512:
    31 rows), so each thread has one of its own for each device, made outside captures; a graph
    keeps its address. Like vLLM's it is shared by what one thread launches, which runs in order.
    """

    def __init__(self) -> None:
        """Import what the calls need; no CUDA is."""
        import torch

        from thorprobe.topk import record, select, workspace_bytes

        self._byte = torch.uint8
        self._select = select
        self._record = record
        self._bytes = workspace_bytes
        self._kept = threading.local()
        self._warm: set[tuple[Place, int]] = set()

    def ready(self, place: Place, logits: "Tensor", k: int) -> None:
        """Let the device answer for every shape with this k, so that none is new to a capture.

        Call it outside captures. What the device cannot answer, the selection itself will tell.
        """
        self.keep("", logits, k)
        if (place, k) in self._warm or not logits.is_cuda:
            return
        self._warm.add((place, k))
        from thorprobe.topk import warm

        with suppress(ThorprobeError):
            # The shortest of rows, for which no kernel is left out.
            warm(1, 1, k, device=logits.device.index)

    def first(self, logits: "Tensor", lengths: "Tensor", output: "Tensor", k: int, how: Fit) -> Ran:
        """Select, and say which rung did. Raises ArgumentError where nothing was launched."""
        with self._record() as log:
            self(logits, lengths, output, k, how, self.kept(logits, k))
        if not log.calls:
            return Ran(rung="none")
        call = log.calls[-1]
        return Ran(rung=call.rung, why=tuple(f"{fall.rung}: {fall.reason}" for fall in call.falls))

    def __call__(  # noqa: PLR0917  It is called for every token.
        self,
        logits: "Tensor",
        lengths: "Tensor",
        output: "Tensor",
        k: int,
        how: Fit,
        workspace: "Tensor | None",
    ) -> None:
        """Fill ``output`` int32 [rows, k] on the current stream; nothing is read by the host."""
        if how.columns:
            logits = logits[:, : how.columns]
        if how.flat:
            lengths = lengths.view(-1)
        self._select(logits, lengths, k, out=output, workspace=workspace)

    def would(self, logits: "Tensor", lengths: "Tensor", k: int, how: Fit) -> Ran:
        """Say which rung would answer; nothing is selected, the device is asked."""
        from thorprobe.topk import explain

        if how.columns:
            logits = logits[:, : how.columns]
        told = explain(logits, lengths.view(-1) if how.flat else lengths, k)
        return Ran(rung=told.rung, why=tuple(f"{fall.rung}: {fall.reason}" for fall in told.falls))

    def kept(self, logits: "Tensor", k: int) -> "Tensor | None":
        """Return this thread's workspace on a device, None where it has none for so many rows."""
        mine = self._mine(logits)
        return mine[-1] if mine and mine[-1].numel() >= self._bytes(logits.shape[0], k) else None

    def keep(self, rung: str, logits: "Tensor", k: int) -> "Tensor | None":
        """Return the same, made where it is wanting: for few rows, and for a rung that needs it.

        Call it outside captures.
        """
        rows = logits.shape[0]
        if not logits.is_cuda or (rows > _CAPTURED_ROWS and rung != _MANY_CTAS):
            return None
        size = self._bytes(max(rows, _CAPTURED_ROWS), k)
        if size > _KEPT_BYTES:
            return None
        mine = self._mine(logits)
        if not mine or mine[-1].numel() < size:
            # None is ever dropped: a graph may hold its address.
            mine.append(logits.new_empty(size, dtype=self._byte))
        return mine[-1]

    def _mine(self, logits: "Tensor") -> "list[Tensor]":
        kept: dict[str, list[Tensor]] = self._kept.__dict__
        return kept.setdefault(str(logits.device), [])
