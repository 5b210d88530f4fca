# SPDX-License-Identifier: Apache-2.0
"""Two selections of the same rows, compared on the device: as sets, ties by their scores.

vLLM's operators leave to chance which of equal scores at the cut are taken, and in which order. So
a row agrees where both selections hold as many valid, distinct columns as the contract says, and
the same multiset of scores; -0 equals +0, and any NaN any other.
"""

import threading
from typing import TYPE_CHECKING, Any

from thorprobe.record import Record

if TYPE_CHECKING:
    from torch import Tensor

DETAILS = 100
"""Rows that are kept one by one; all are counted."""

_SHOWN = 8
_CHUNK = 2**22
# Selected scores compared at once: 32 MiB for each of a few 64-bit copies.
_TOP = 0x7FFFFFFF
_NONE = -(2**31)


class Difference(Record, frozen=True, kw_only=True):
    """One row on which the two do not agree, or one of them breaks the contract.

    ``vllm_only`` and ``ladder_only`` are the first columns that only one of them selected.
    """

    operator: str
    num_rows: int
    columns: int
    k: int
    row: int
    length: int
    vllm_broken: bool
    ladder_broken: bool
    vllm_only: tuple[int, ...] = ()
    ladder_only: tuple[int, ...] = ()


class Compared(Record, frozen=True, kw_only=True):
    """Rows compared, replays of graphs included, and how many disagree or break the contract.

    ``not_compared`` are calls with nothing to compare with, or first made inside a capture;
    ``unread`` says why the device could not be asked for what it counted.
    """

    rows: int = 0
    different: int = 0
    vllm_broken: int = 0
    ladder_broken: int = 0
    not_compared: int = 0
    unread: str = ""
    details: tuple[Difference, ...] = ()


def broken(picked: "Tensor", lengths: "Tensor", columns: int) -> "Tensor":
    """Say of each row whether it is no selection: too few or many, twice, or beyond the length.

    picked int32 [rows, k], lengths int32 [rows]; bool [rows].
    """
    length = lengths.clamp(0, columns)[:, None]
    ordered = picked.sort(dim=1).values
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(dim=1)
    outside = ((picked >= length) | (picked < -1)).any(dim=1)
    wanted = length[:, 0].clamp(max=picked.shape[1])
    return twice | outside | ((picked >= 0).sum(dim=1) != wanted)


def scores(logits: "Tensor", picked: "Tensor") -> "Tensor":
    """Return the selected scores as whole numbers, best first, those not selected last.

    logits fp32 [rows, columns], picked int32 [rows, k]; int64 [rows, k].
    """
    import torch

    inside = (picked >= 0) & (picked < logits.shape[1])
    index = torch.where(inside, picked, 0).to(torch.int64)
    wide = logits.gather(1, index) + 0.0
    bits = wide.view(torch.int32)
    key = (bits ^ ((bits >> 31) & _TOP)).to(torch.int64)
    key = torch.where(wide.isnan(), _TOP, key)
    return torch.where(inside, key, _NONE).sort(dim=1, descending=True).values


def differing(logits: "Tensor", lengths: "Tensor", vllm: "Tensor", mine: "Tensor") -> "Tensor":
    """Return bool [3, rows]: disagree, vLLM's is none, the ladder's is none. No host is waited for.

    Rows that only one of them broke disagree as well.
    """
    import torch

    columns = logits.shape[1]
    one, other = broken(vllm, lengths, columns), broken(mine, lengths, columns)
    unlike = (scores(logits, vllm) != scores(logits, mine)).any(dim=1)
    return torch.stack((unlike | (one != other), one, other))


class Check:
    """What was compared, counted on each device, so that a captured comparison counts its replays.

    One for the process; every thread may call it.
    """

    def __init__(self) -> None:
        """Start with nothing compared."""
        self._counts: dict[str, Tensor] = {}
        self._details: list[Difference] = []
        self._skipped = 0
        self._lock = threading.Lock()

    def skip(self) -> None:
        """Count a call that had nothing to be compared with."""
        with self._lock:
            self._skipped += 1

    def compare(
        self,
        operator: str,
        logits: "Tensor",
        lengths: "Tensor",
        vllm: "Tensor",
        mine: "Tensor",
        *,
        capturing: bool,
    ) -> None:
        """Compare two selections of all rows; inside a capture the host looks at nothing."""
        counts = self._counter(logits, capturing=capturing)
        if counts is None:
            self.skip()
            return
        lengths = lengths.reshape(-1)
        rows, k = vllm.shape
        step = max(1, _CHUNK // max(k, 1))
        for begin in range(0, rows, step):
            part = slice(begin, begin + step)
            seen = logits[part], lengths[part], vllm[part], mine[part]
            found = differing(*seen)
            counts[0] += seen[2].shape[0]
            counts[1:] += found.sum(dim=1)
            if not capturing and bool(found.any()):
                self._keep(operator, seen, found, begin, rows)

    def _counter(self, logits: "Tensor", *, capturing: bool) -> "Tensor | None":
        import torch

        where = str(logits.device)
        with self._lock:
            if where not in self._counts and not capturing:
                self._counts[where] = torch.zeros(4, dtype=torch.int64, device=logits.device)
            return self._counts.get(where)

    def _keep(
        self, operator: str, seen: tuple[Any, ...], found: "Tensor", begin: int, rows: int
    ) -> None:
        logits, lengths, vllm, mine = seen
        for row in found.any(dim=0).nonzero()[:DETAILS, 0].tolist():
            one = {c for c in vllm[row].tolist() if c >= 0}
            other = {c for c in mine[row].tolist() if c >= 0}
            detail = Difference(
                operator=operator,
                num_rows=rows,
                columns=logits.shape[1],
                k=vllm.shape[1],
                row=begin + row,
                length=int(lengths[row]),
                vllm_broken=bool(found[1, row]),
                ladder_broken=bool(found[2, row]),
                vllm_only=tuple(sorted(one - other)[:_SHOWN]),
                ladder_only=tuple(sorted(other - one)[:_SHOWN]),
            )
            with self._lock:
                if len(self._details) >= DETAILS:
                    return
                self._details.append(detail)

    def told(self) -> Compared:
        """Read what was counted; the devices are waited for. Nothing is raised."""
        sums, unread = [0, 0, 0, 0], ""
        for counts in list(self._counts.values()):
            try:
                sums = [a + b for a, b in zip(sums, counts.tolist(), strict=True)]
            except RuntimeError as error:  # The device may be lost, or the driver shut down.
                unread = str(error).splitlines()[0]
        rows, different, vllm, mine = sums
        return Compared(
            rows=rows,
            different=different,
            vllm_broken=vllm,
            ladder_broken=mine,
            not_compared=self._skipped,
            unread=unread,
            details=tuple(self._details),
        )
