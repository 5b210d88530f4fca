# SPDX-License-Identifier: Apache-2.0
"""A vLLM that is not there: its operators on the CPU, its call sites, and a device to be asked."""

import sys
import types
from contextlib import contextmanager

import torch

from thorprobe.vllm import dropin_start
from thorprobe.vllm.dropin_hosting import Hosted

SCHEMA = (
    "(Tensor logits, Tensor lengths, Tensor(a!) output, Tensor workspace, int k, int max_seq_len)"
    " -> ()"
)
REFUSED = (
    "cooperative_topk launch failed: a kernel launch error has occurred due to cluster "
    "misconfiguration"
)
NAMES = ("cooperative_topk", "persistent_topk")
VERSIONS = ("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


class Host:
    """A device that hosts clusters up to ``largest``; ``place`` and ``captured`` may be set."""

    def __init__(self, largest=8, major=11, name="Thor", error=None):
        self.largest, self.major, self.name, self.error = largest, major, name, error
        self.place_now = (0, 0)
        self.captured = False
        self.asked = []

    def place(self, logits):
        """Return the place that was set."""
        return self.place_now

    def capturing(self):
        """Say whether a capture was set."""
        return self.captured

    def device(self, place):
        """Return name and major."""
        return self.name, self.major

    def hosts(self, place, arm):
        """Answer, and keep what was asked; a capture is no time to ask."""
        assert not self.captured, "the device was asked inside a capture"
        self.asked.append((place, arm.cluster, arm.threads, arm.dynamic_smem))
        if self.error is not None:
            raise self.error
        return Hosted(max_active=int(arm.cluster <= self.largest))


class Operators:
    """Counts the calls of vLLM's own kernels, which select as vLLM's do: exact, in any order."""

    def __init__(self, largest=None, major=11):
        self.largest, self.major = largest, major
        self.calls = []
        self.spoil = None

    def cooperative_topk(self, *arguments):
        """Select, or die as vLLM's operator does on a device without the cluster."""
        logits, lengths, output, _, k, _ = arguments
        rows = logits.shape[0]
        self.calls.append(("cooperative_topk", rows))
        cluster = (16 if self.major >= 10 else 8) if rows <= 4 else 8 if rows <= 8 else 4
        if self.largest is not None and cluster > self.largest:
            raise RuntimeError(REFUSED)
        self._select(logits, lengths, output, k, logits.shape[1])

    def persistent_topk(self, *arguments):
        """Select; rows end at max_seq_len."""
        logits, lengths, output, _, k, max_seq_len = arguments
        self.calls.append(("persistent_topk", logits.shape[0]))
        self._select(logits, lengths, output, k, max_seq_len)

    def _select(self, logits, lengths, output, k, limit):
        for row, many in enumerate(lengths.reshape(-1).tolist()):
            length = max(0, min(many, limit, logits.shape[1]))
            best = logits[row, :length].topk(min(k, length)).indices
            output[row] = -1
            output[row, : len(best)] = best[torch.randperm(len(best))].to(torch.int32)
        if self.spoil is not None:
            self.spoil(output)


@contextmanager
def operators(schema=SCHEMA, names=NAMES, **options):
    """Register vLLM's operators on the CPU for as long as the block lasts."""
    made = Operators(**options)
    library = torch.library.Library("_C", "FRAGMENT")
    for name in names:
        library.define(f"{name}{schema}")
        if schema == SCHEMA:
            library.impl(name, getattr(made, name), "CPU")
    try:
        yield made
    finally:
        library._destroy()
        for name in NAMES:
            torch.ops._C.__dict__.pop(name, None)


def call(name, logits, lengths, k=8, max_seq_len=None):
    """Call an operator as a model does, and return what it wrote."""
    output = torch.full((logits.shape[0], k), -7, dtype=torch.int32)
    workspace = torch.empty(64, dtype=torch.uint8)
    limit = logits.shape[1] if max_seq_len is None else max_seq_len
    getattr(torch.ops._C, name)(logits, lengths, output, workspace, k, limit)
    return output


def batch(rows, columns=200, seed=0, length=None):
    """Return scores fp32 [rows, columns] and lengths int32 [rows]."""
    scores = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    return scores, torch.full((rows,), columns if length is None else length, dtype=torch.int32)


@contextmanager
def vllm(monkeypatch, version="0.33.0", **modules):
    """Put a package ``vllm`` of that version into ``sys.modules``, with its library's module."""
    package = types.ModuleType("vllm")
    package.__version__ = version
    package.__path__ = []
    package.__file__ = "/vllm/__init__.py"
    monkeypatch.setitem(sys.modules, "vllm", package)
    library = types.ModuleType("vllm._C_stable_libtorch")
    monkeypatch.setitem(sys.modules, "vllm._C_stable_libtorch", library)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    try:
        yield package
    finally:
        dropin_start.stop()


@contextmanager
def dropped_in(monkeypatch, mode, host=None, version="0.33.0", schema=SCHEMA, **options):
    """Put the drop-in in before fake operators on the CPU."""
    with operators(schema, **options) as made, vllm(monkeypatch, version):
        made.drop_in = dropin_start.start(mode, host=host or Host(), key="CPU")
        yield made


def best(logits, lengths, k=8):
    """Return the sets of columns that a right selection holds, row by row, where none tie."""
    return [
        set(row[:length].topk(min(k, length)).indices.tolist())
        for row, length in zip(logits, lengths.tolist(), strict=True)
    ]


def picked(output):
    """Return the sets of columns that were selected, row by row."""
    return [{c for c in row if c >= 0} for row in output.tolist()]
