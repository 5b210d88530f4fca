# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102, PLR0917  the operators' own arguments, and a seat as its protocol describes it
"""vLLM's operators without a GPU: a namespace of torch's whose operators select on the CPU.

As a program it is a worker that speaks thorprobe.run.worker_protocol and calls them through
OperatorProber.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1]))

import torch

from thorprobe.binary.operator_file import LibraryFile
from thorprobe.driver import partition as partitions
from thorprobe.driver.stopwatch import Timing
from thorprobe.model.profile import load as load_profile
from thorprobe.plan import policy as policies
from thorprobe.record import (
    KernelSeen,
    Observed,
)
from thorprobe.run import worker_protocol
from thorprobe.run.operator_library import with_operators
from thorprobe.run.operator_probe import OperatorProber
from thorprobe.run.workload import oracle

SCHEMA = (
    "(Tensor logits, Tensor lengths, Tensor(a!) output, Tensor workspace, int k, int max_seq_len)"
    " -> ()"
)
REPORTED = (
    "cooperative_topk launch failed: a kernel launch error has occurred due to cluster "
    "misconfiguration"
)
PENDING = "CUDA error: a kernel launch error has occurred due to cluster misconfiguration"
MAJOR = 9


class Played:
    """What the operators do: ``largest`` is the largest cluster that is hosted, in CTAs."""

    def __init__(self):
        self.largest = 16
        self.pending = 0
        self.spoil = ""
        self.refuse = ""
        self.fault = 0
        self.calls = []
        self.shift = 0

    def cooperative(self, logits, lengths, output, workspace, k, max_seq_len):
        """Select as cooperative_topk does: its own checks, then the cluster by rows."""
        rows = logits.shape[0]
        if self.refuse:
            raise RuntimeError(self.refuse)
        if rows > 64:
            raise RuntimeError("cooperative_topk supports <=64 rows")
        self._select("cooperative_topk", logits, lengths, output, workspace, k, max_seq_len)
        if self.cluster(rows) > self.largest:
            output.fill_(-7)
            self.pending = 912
            raise RuntimeError(REPORTED)

    def persistent(self, logits, lengths, output, workspace, k, max_seq_len):
        """Select as persistent_topk does."""
        self._select("persistent_topk", logits, lengths, output, workspace, k, max_seq_len)

    def cluster(self, rows):
        """Return the cluster that the host code picks."""
        name = "0.33.0"
        return policies.dispatch(policies.load(name), rows + self.shift, MAJOR)[0]

    def _select(self, name, logits, lengths, output, workspace, k, max_seq_len):
        assert max_seq_len == logits.shape[1]
        assert workspace.numel() == 1_048_576
        assert workspace.dtype == torch.uint8
        self.calls.append((name, logits.shape[0], logits.stride(0), int(lengths[0])))
        for row in range(logits.shape[0]):
            length = max(0, min(int(lengths[row]), logits.shape[1]))
            count = min(length, k)
            best = torch.topk(logits[row, :length], count).indices.to(torch.int32)
            output[row, :count] = best[torch.randperm(count)]
            output[row, count:] = -1
        if name == self.spoil and int(lengths[0]) > 1:
            output[0, 0] = output[0, 1]


def namespace(name, played, schema=SCHEMA, operators=("cooperative_topk", "persistent_topk")):
    """Define the operators in a namespace of torch's; return it with the library to keep alive."""
    library = torch.library.Library(name, "DEF")
    for operator in operators:
        library.define(operator + schema)
        library.impl(operator, getattr(played, operator.partition("_")[0]), "CPU")
    return getattr(torch.ops, name), library


class PlayedSeat:
    """A CPU that keeps a pending error, captures and profiles as a GPU would."""

    device = torch.device("cpu")

    def __init__(self, played):
        self.played = played
        self.blind = False
        self.stubborn = False

    def current(self):
        return nullcontext()

    def settle(self):
        return self.played.fault

    def pending(self):
        return None if self.blind else self.played.pending

    def clear(self):
        self.played.pending = 0

    def touch(self):
        if not self.played.pending:
            return ""
        if not self.stubborn:
            self.played.pending = 0
        return PENDING

    def captured(self, call):
        before = len(self.played.calls)
        try:
            call()
        except RuntimeError:
            self.clear()
        name, rows, _, _ = self.played.calls[before]
        k = 512
        if name == "cooperative_topk":
            size = self.played.cluster(rows)
            return (
                KernelSeen(
                    name=f"cooperative_topk_cs{size}<{k}>",
                    grid=(rows, size, 1),
                    block=(1024, 1, 1),
                    dynamic_smem=156_416 if size > 4 else 221_952,
                    cluster=(1, size, 1),
                ),
            )
        return (
            KernelSeen(
                name=f"persistent_topk_kernel<{k}, 4>",
                grid=(132, 1, 1),
                block=(1024, 1, 1),
                dynamic_smem=35_968,
            ),
        )

    def ran(self, call):
        call()
        return tuple(kernel.name for kernel in self.captured(call))

    def time(self, call, launches, replays):
        assert replays == 7
        call()
        name, rows, _, length = self.played.calls[-1]
        slope = 2.0 if name == "cooperative_topk" else 0.5
        fixed = 4.0 if name == "cooperative_topk" else 20.0
        us = (fixed + slope * rows) * (0.5 + length / 131_072)
        return Timing(us=round(us, 3), spread_us=0.1, launches=launches)


def fits(played):
    """Return who answers what fits, by the largest cluster."""

    def ask(spec):
        hosted = spec.cluster_size <= played.largest
        seen = Observed(
            max_potential=played.largest,
            max_potential_code=0,
            max_active=1 if hosted else 0,
            max_active_code=0,
        )
        return seen, ()

    return ask


def prober(played, seat=None, name="played_c"):
    """Return a prober of played operators, and what must be kept alive."""
    space, library = namespace(name, played)
    file = LibraryFile(path=Path("x.so"), version="0.33.0", sha256="0" * 64)
    held = with_operators(file, space)
    made = OperatorProber(held, seat or PlayedSeat(played), lambda: oracle("numpy"), lambda _: None)
    return made, library


def main():
    """Answer as a worker does, until the parent closes the pipe."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def send(message):
        out.write(worker_protocol.encode(message) + b"\n")

    played, asked = Played(), None
    for text in sys.stdin.buffer:
        message = worker_protocol.to_worker(text)
        if isinstance(message, worker_protocol.Setup):
            profile = load_profile("h200")
            device = profile.device(message.partition)
            part = partitions.parse(message.partition)
            played.largest = {0: 8, 1: 2, 2: 16}[part.flags] if part else 16
            send(worker_protocol.Hello(device=device, software={"torch": str(torch.__version__)}))
        elif isinstance(message, worker_protocol.Operators):
            if "broken" in message.path:
                send(worker_protocol.Failed(sentence="this torch (1.0) is too old", hint="newer"))
                return
            if asked is None:
                asked, _keep = prober(played)
            send(worker_protocol.Ready())
        elif isinstance(message, worker_protocol.Ask):
            outcome = asked.answer(message.spec, fits(played), lambda: ())
            send(worker_protocol.Answer(outcome=outcome, poisoned=asked.dead, compiler=""))


if __name__ == "__main__":
    main()
