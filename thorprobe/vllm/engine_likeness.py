# SPDX-License-Identifier: Apache-2.0
"""How alike an engine's answer and transformers' are, on the same weights and tokens.

Log-probabilities are compared position by position where both had the same prefix, selections
query by query as sets. Another best token is a tie where the two engines are close at that
position: then so are the two tokens in the reference, by at most twice as much.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thorprobe.qwen4exp.records import Agreement
from thorprobe.qwen4exp.selection import Pair, compare
from thorprobe.vllm.engine_plan import MODELS
from thorprobe.vllm.engine_wire import Best
from thorprobe.vllm.engine_words import Likeness

FIRST = 5
"""Best tokens whose log-probabilities are compared."""

NEAR = 0.125
"""Difference of log-probabilities up to which two engines are close: 8 steps of a bf16 logit
between 2 and 4. By hand 0.03 was the largest of a forced prefix (one H200, 2026-12-01)."""

_TIES = 16
# Ties that are named one by one.

Rows = dict[tuple[int, int], tuple[NDArray[Any], NDArray[Any]]]


def likeness(
    best: Sequence[Best],
    tokens: Sequence[int],
    logprobs: NDArray[np.float64],
    *,
    forced: bool,
    emitted: Sequence[int],
) -> Likeness:
    """Compare best tokens with the reference's ``logprobs`` [positions, vocabulary].

    ``tokens`` are the reference's, ``emitted`` the engine's: positions count up to the first other
    token before them.
    """
    equal = ties = other = positions = 0
    named: list[str] = []
    largest: float | None = None
    for index, mine in enumerate(best[: len(tokens)]):
        if tuple(emitted[:index]) != tuple(tokens[:index]) or not mine:
            break
        positions += 1
        line = logprobs[index]
        apart = max(abs(value - float(line[token])) for token, value in mine[:FIRST])
        largest = apart if largest is None else max(largest, apart)
        here, there = mine[0][0], int(line.argmax())
        margin = float(line[there] - line[here])
        if here == there:
            equal += 1
        elif apart <= NEAR:
            ties += 1
            named.append(f"position {index}: {here} here, {there} there, margin {margin:.3f}")
        else:
            other += 1
            named.append(
                f"position {index}: {here} here, {there} there, margin {margin:.3f}, no tie"
            )
    return Likeness(
        forced=forced,
        positions=positions,
        equal=equal,
        ties=ties,
        other=other,
        max_difference=largest,
        ties_named=tuple(named[:_TIES]),
    )


def read_rows(path: Path) -> Rows:
    """Return what ``engine_case.save`` wrote; empty where there is no such file."""
    if not path.is_file():
        return {}
    found: Rows = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            kind, layer, position = name.split("-")
            if kind == "s":
                key = int(layer), int(position)
                found[key] = arrays[name], arrays[f"b-{layer}-{position}"]
    return found


def selections(
    model: str, reference: Rows, engine: Rows, prompt: int
) -> tuple[Agreement, Agreement]:
    """Compare the sets of both, of the prefill and of the decode.

    transformers divides the scores by the square root of the indexer's width, vLLM does not: its
    scores are divided here, which changes no order.
    """
    width = float(MODELS[model].config["indexer_head_dim"]) ** 0.5
    k = MODELS[model].k

    def pairs(keys: Sequence[tuple[int, int]]) -> Iterator[Pair]:
        for key in keys:
            scores, blocks = engine[key]
            yield Pair(
                reference_scores=reference[key][0],
                reference_blocks=reference[key][1],
                ladder_scores=(scores / width).astype(np.float32),
                ladder_blocks=blocks,
            )

    # A query that sees no whole block selects nothing, and the reference keeps nothing of it.
    both = sorted(key for key in reference if key in engine)
    return (
        compare(pairs([key for key in both if key[1] < prompt]), k),
        compare(pairs([key for key in both if key[1] >= prompt]), k),
    )
