# SPDX-License-Identifier: Apache-2.0
"""The plan of ``model-topk``: which tokens the model is fed, step by step, and what is compared.

A context is prefilled in chunks, then decoded. Both runs are fed the same tokens, so that a step
can be compared whatever came before it.
"""

from collections.abc import Iterator
from typing import Literal

from thorprobe.errors import UsageError
from thorprobe.plan import qwen4exp
from thorprobe.plan.policy import Capability
from thorprobe.record import Record

Phase = Literal["prefill", "decode"]

DTYPES = ("bf16", "fp16", "fp32")

WHOLE_CONTEXT = 8_192
"""Contexts up to here have every prefill query compared: the reference visits them one by one, at
about half a millisecond each, so that a long context takes minutes."""

SAMPLE = 512
"""Prefill queries a request that the reference visits of a longer context, if nothing is asked."""

_MOST_ROWS = 65_536
# Rows of one call: requests times tokens of a chunk. Above it the masks alone exceed memory.


class ModelOptions(Record, frozen=True, kw_only=True):
    """What ``model-topk`` was asked.

    ``size`` is a name of ``plan.qwen4exp``, or ``checkpoint`` a folder's name in its place.
    ``context`` counts prompt tokens a request, ``decode_tokens`` those fed after it.
    ``reference_queries`` is the most prefill queries a request that the reference's loop visits, 0
    for all, None for all of a short context. ``rung`` is handed to the ladder. ``capability`` is
    the one that arms are named for, None for the device's own.
    """

    size: str = qwen4exp.REDUCED.name
    checkpoint: str = ""
    context: int = 2_300
    requests: int = 1
    speculative_tokens: int = 0
    decode_tokens: int = 8
    prefill_chunk: int = 2_048
    reference_queries: int | None = None
    rung: str = "auto"
    policy: str = "0.33.0"
    capability: Capability | None = None
    dtype: str = "bf16"
    seed: int = 0
    partition: str = ""

    @property
    def width(self) -> int:
        """Query tokens a request in one decode step."""
        return 1 + self.speculative_tokens


class Step(Record, frozen=True, kw_only=True):
    """One call of the model: ``tokens`` a request, the first at position ``first``."""

    phase: Phase
    index: int
    first: int
    tokens: int

    @property
    def id(self) -> str:
        """Such as ``prefill-0``."""
        return f"{self.phase}-{self.index}"


def check(options: ModelOptions) -> None:
    """Raise UsageError for options that no run can have."""
    from thorprobe.plan.policy import load

    load(options.policy)
    for name, value, least in (
        ("--context", options.context, 1),
        ("--requests", options.requests, 1),
        ("--speculative-tokens", options.speculative_tokens, 0),
        ("--decode-tokens", options.decode_tokens, 1),
        ("--prefill-chunk", options.prefill_chunk, 1),
        ("--reference-queries", options.reference_queries or 0, 0),
        ("--seed", options.seed, 0),
    ):
        if value < least:
            raise UsageError(
                f"`{name} {value}` was asked for, but it is at least {least}",
                f"try {max(least, 1)}",
            )
    if options.dtype not in DTYPES:
        raise UsageError(
            f"`--dtype {options.dtype}` was asked for, but the dtypes are {', '.join(DTYPES)}",
            "the model is published in bf16",
        )
    if not options.checkpoint:
        qwen4exp.size_of(options.size)
    longest = max(step.first + step.tokens for step in steps(options))
    if longest > qwen4exp.MAX_POSITIONS:
        raise UsageError(
            f"{longest:,} tokens a request were asked for, but the model has "
            f"{qwen4exp.MAX_POSITIONS:,} positions",
            "shorten `--context`",
        )
    rows = options.requests * min(options.prefill_chunk, options.context)
    if rows > _MOST_ROWS:
        raise UsageError(
            f"{options.requests:,} requests of {rows // options.requests:,} prefill tokens make "
            f"{rows:,} rows a call, more than {_MOST_ROWS:,}",
            f"`--prefill-chunk {max(1, _MOST_ROWS // options.requests)}`",
        )


def steps(options: ModelOptions) -> tuple[Step, ...]:
    """Return every call of the model: prefill chunks, the last shorter, then decode steps."""
    return (*_prefill(options), *_decode(options))


def _prefill(options: ModelOptions) -> Iterator[Step]:
    for index, first in enumerate(range(0, options.context, options.prefill_chunk)):
        tokens = min(options.prefill_chunk, options.context - first)
        yield Step(phase="prefill", index=index, first=first, tokens=tokens)


def _decode(options: ModelOptions) -> Iterator[Step]:
    for index in range(-(-options.decode_tokens // options.width)):
        first = options.context + index * options.width
        yield Step(phase="decode", index=index, first=first, tokens=options.width)


def compared(options: ModelOptions, step: Step) -> range:
    """Return the queries of a step, from 0, that the reference visits.

    Of a sampled prefill they stand evenly over the whole context, and end with its last query;
    a decode step is always whole.
    """
    limit = options.reference_queries
    if limit is None:
        limit = 0 if options.context <= WHOLE_CONTEXT else SAMPLE
    every = -(-options.context // limit) if limit else 1
    if step.phase == "decode" or every == 1:
        return range(step.tokens)
    last = options.context - 1
    # The first position of this step that is a whole number of strides before the last one.
    start = last - (last - step.first) // every * every
    return range(start - step.first, step.tokens, every)
