# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N999
"""The operators on the CPU. ``REFUSING`` has the report's sentence, ``CAPTURING`` a capture."""

import os

import torch

REFUSING = [False]
CAPTURING = [False]
SENTENCE = (
    "cooperative_topk launch failed: a kernel launch error has occurred due to cluster "
    "misconfiguration"
)
_SCHEMA = (
    "(Tensor logits, Tensor lengths, Tensor(a!) output, Tensor workspace, int k, int max_seq_len)"
    " -> ()"
)


def topk(logits, lengths, output, _workspace, k, _max_seq_len):
    """Write the best of each row, -1 behind them; the order is that of torch.topk."""
    output.fill_(-1)
    for row, length in enumerate(lengths.tolist()):
        count = min(length, k, logits.shape[1])
        if count > 0:
            output[row, :count] = logits[row, :length].topk(count).indices.int()
            if os.environ.get("FAKE_VLLM") == "odd":
                output[row, 0] = output[row, count - 1]


def refuse(*arguments):
    """Raise the report's sentence where the partition refuses."""
    if REFUSING[0]:
        raise RuntimeError(SENTENCE)
    topk(*arguments)


_library = torch.library.Library("_C", "FRAGMENT")
for _name, _kernel in (("cooperative_topk", refuse), ("persistent_topk", topk)):
    _library.define(_name + _SCHEMA)
    _library.impl(_name, _kernel, "CPU")
