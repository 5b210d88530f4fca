# SPDX-License-Identifier: Apache-2.0
"""Exact top-k selection that a model can rely on: a ladder of rungs, chosen by asking the device.

``select`` gives the indices of the k best scores of each row, the same on every rung; ``prepare``
binds a call to its arrays, and ``warm`` decides for shapes before there are any; ``explain`` says
which rung would run and why; ``record`` counts what ran and every fall.
docs/topk.md has the contract and the measurements.
"""

from thorprobe.topk.contract import DTYPES, MAX_K, RUNGS, ArgumentError
from thorprobe.topk.log import Call, Fallback, Log, record
from thorprobe.topk.prepare import Prepared, prepare
from thorprobe.topk.select import Explanation, explain, select, workspace_bytes
from thorprobe.topk.warm import warm

__all__ = [
    "DTYPES",
    "MAX_K",
    "RUNGS",
    "ArgumentError",
    "Call",
    "Explanation",
    "Fallback",
    "Log",
    "Prepared",
    "explain",
    "prepare",
    "record",
    "select",
    "warm",
    "workspace_bytes",
]
