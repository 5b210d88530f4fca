# SPDX-License-Identifier: Apache-2.0
"""The QSA call site: from what a user sets in vLLM to rows, columns and stride, and back.

The shapes are those of vLLM's QSA indexer (``ops/qsa_indexer.py``, vLLM PR #54513 and the 0.33.0
wheel). A request batch is not ``num_rows``: speculative tokens, CUDA-graph padding and prefill
chunks stand between them.
"""

from collections.abc import Sequence

from thorprobe.errors import UsageError
from thorprobe.plan import qwen4exp
from thorprobe.plan.policy import ArmPath, Capability, Policy, reached, row_ranges
from thorprobe.record import Record

COMPRESS_RATIO = qwen4exp.RATIO
"""Tokens per scored block, where nothing else is asked."""

BLOCK_SIZE = 16
"""Tokens per KV-cache block where the user sets none (vLLM's default for CUDA); a hybrid model may
raise it, which only rounds the columns up."""

MAX_MODEL_LEN = qwen4exp.MAX_POSITIONS
"""Tokens of vLLM's max_model_len where the user sets none: the model's own."""

_PREFILL_ROUND = 64
# Prefill widths are at least 64 and rounded up to 64 columns (ops/qsa_indexer.py, vLLM 0.33.0).

_MIB = 1 << 20
_FP32 = 4
_SPECULATIVE = (0, 1, 2, 3)
# No MTP, and the one to three speculative tokens that reports of this model use.

ANYWHERE = "A launch failure does not depend on context length: the first call meets it"


class CallSite(Record, frozen=True, kw_only=True):
    """Shape of one call of the top-k: ``rows`` x ``columns`` fp32, pitch ``stride`` elements.

    ``kind`` is ``decode`` or ``prefill``; ``calls`` counts the calls of this shape in one step.
    """

    kind: str
    rows: int
    columns: int
    stride: int
    calls: int = 1
    explanation: str


class Setting(Record, frozen=True, kw_only=True):
    """What to set in vLLM for an arm, and the arm that it really reaches.

    ``requests`` (decode) and ``tokens`` (prefill, None: any) are first and last values;
    ``logits_mib`` is the prefill bound to set, None for the version's own.
    """

    kind: str
    rows: tuple[int, int]
    columns: int
    cluster: int
    path: ArmPath
    requests: tuple[int, int] | None = None
    speculative_tokens: int | None = None
    tokens: tuple[int, int] | None = None
    logits_mib: int | None = None
    explanation: str


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(
            f"{name} {value!r} is not a whole number of at least {least}", f"try {max(least, 1)}"
        )
    return value


def columns_of(
    max_model_len: int = MAX_MODEL_LEN,
    compress_ratio: int = COMPRESS_RATIO,
    block_size: int = BLOCK_SIZE,
) -> int:
    """Scored columns of a decode call: block-table width times blocks' compressed size.

    It is the full ``max_model_len`` (tokens), whatever the context really holds.

    Raises UsageError: a value below 1, or a block size that is no multiple of the ratio.
    """
    _whole("max_model_len", max_model_len, 1)
    _whole("Compress ratio", compress_ratio, 1)
    _whole("Block size", block_size, 1)
    if block_size % compress_ratio:
        raise UsageError(
            f"Block size {block_size} is no multiple of the compress ratio {compress_ratio}",
            f"try {-(-block_size // compress_ratio) * compress_ratio}",
        )
    return -(-max_model_len // block_size) * (block_size // compress_ratio)


def _padded(rows: int, query: int, capture_sizes: Sequence[int]) -> tuple[int, str]:
    if not capture_sizes:
        return rows, "no CUDA graph, so no padding"
    for size in capture_sizes:
        _whole("Capture size", size, 1)
    # Uniform batches only: a graph holds whole requests of `query` rows each.
    fitting = sorted(size for size in capture_sizes if size >= rows and size % query == 0)
    if not fitting:
        return rows, f"no capture size holds {rows} rows of {query} a request, so no padding"
    if fitting[0] == rows:
        return rows, f"capture size {rows} fits exactly"
    return fitting[0], f"padded to capture size {fitting[0]} with CUDA graphs on"


def decode(
    requests: int,
    speculative_tokens: int,
    max_model_len: int,
    *,
    compress_ratio: int = COMPRESS_RATIO,
    block_size: int = BLOCK_SIZE,
    capture_sizes: Sequence[int] = (),
) -> CallSite:
    """Shape of the decode call for ``requests`` concurrent requests.

    ``capture_sizes`` are the CUDA-graph sizes in rows, empty for eager mode.

    Raises UsageError: no request, a negative number of speculative tokens, or a bad size.
    """
    _whole("Number of requests", requests, 1)
    query = 1 + _whole("Number of speculative tokens", speculative_tokens, 0)
    columns = columns_of(max_model_len, compress_ratio, block_size)
    rows, padding = _padded(requests * query, query, capture_sizes)
    return CallSite(
        kind="decode",
        rows=rows,
        columns=columns,
        stride=columns,
        explanation=(
            f"requests x decode_query_len = rows: {requests} x {query} = {requests * query}; "
            f"{padding}; {columns:,} columns from max_model_len {max_model_len:,}"
        ),
    )


def prefill(
    tokens: int,
    max_seq_len: int,
    max_model_len: int,
    max_logits_mb: int = 512,
    *,
    compress_ratio: int = COMPRESS_RATIO,
    block_size: int = BLOCK_SIZE,
) -> list[CallSite]:
    """Shapes of the prefill calls for ``tokens`` prefill tokens in one step: full chunks, the last.

    ``max_seq_len`` (tokens) is the longest sequence of the batch, context included, and
    ``max_logits_mb`` (MiB) is VLLM_SPARSE_INDEXER_MAX_LOGITS_MB, 512 by default.

    Raises UsageError: a value below 1, or a sequence longer than ``max_model_len``.
    """
    _whole("Number of prefill tokens", tokens, 1)
    _whole("max_seq_len", max_seq_len, 1)
    _whole("MAX_LOGITS_MB", max_logits_mb, 1)
    table = columns_of(max_model_len, compress_ratio, block_size)
    if max_seq_len > max_model_len:
        raise UsageError(
            f"max_seq_len {max_seq_len:,} is longer than max_model_len {max_model_len:,}",
            "a sequence ends at max_model_len",
        )
    blocks = -(-max_seq_len // compress_ratio)
    width = min(max(_PREFILL_ROUND, -(-blocks // _PREFILL_ROUND) * _PREFILL_ROUND), table)
    chunk = max(1, max_logits_mb * _MIB // (_FP32 * width))
    why = (
        f"max(1, {max_logits_mb} MiB // (4 x {width:,} columns)) = {chunk:,} rows a chunk, "
        f"{tokens:,} prefill tokens in the step"
    )
    full, rest = divmod(tokens, chunk)
    shapes = [(chunk, full, "full chunks"), (rest, 1, "last chunk")]
    return [
        CallSite(
            kind="prefill",
            rows=rows,
            columns=width,
            stride=width,
            calls=calls,
            explanation=f"{name}: {why}",
        )
        for rows, calls, name in shapes
        if rows and calls
    ]


def reach(
    policy: Policy,
    capability: Capability,
    cluster: int,
    max_model_len: int = MAX_MODEL_LEN,
    *,
    compress_ratio: int = COMPRESS_RATIO,
    block_size: int = BLOCK_SIZE,
) -> tuple[Setting, ...]:
    """Find settings of vLLM that reach the arm with this cluster size (1: the persistent kernel).

    Decode settings come without CUDA graphs; pass a setting and the capture sizes to ``decode``
    to see the padding. ``rows`` of an open range are given up to twice its first. Columns are the
    QSA indexer's, also under a policy of another call site.

    Raises UsageError: no setting reaches it on such a device, naming the sizes that are reached.
    """
    columns = columns_of(max_model_len, compress_ratio, block_size)
    found: list[Setting] = []
    sizes: set[int] = set()
    for item in row_ranges(policy, capability[0]):
        rows = (item.first, item.first * 2 if item.last is None else item.last)
        arm = reached(policy, item.first, columns, capability)
        sizes.add(arm.cluster)
        if arm.cluster == cluster:
            found += _decode_settings(rows, columns, arm.cluster, arm.path)
            found += _prefill_settings(policy, rows, columns, arm.cluster, arm.path)
    if not found:
        raise UsageError(
            f"No num_rows reaches a cluster of {cluster} under {policy.name} "
            f"on cc {capability[0]}.{capability[1]}",
            f"reached there: {', '.join(map(str, sorted(sizes, reverse=True)))} (1: no cluster)",
        )
    return tuple(found)


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _decode_settings(
    rows: tuple[int, int], columns: int, cluster: int, path: ArmPath
) -> list[Setting]:
    settings = []
    for speculative in _SPECULATIVE:
        query = 1 + speculative
        first, last = -(-rows[0] // query), rows[1] // query
        if first <= last:
            settings.append(
                Setting(
                    kind="decode",
                    rows=(first * query, last * query),
                    columns=columns,
                    cluster=cluster,
                    path=path,
                    requests=(first, last),
                    speculative_tokens=speculative,
                    explanation=(
                        f"requests x decode_query_len = rows: {_span(first, last)} x {query} = "
                        f"{_span(first * query, last * query)}, eager or at a capture size of "
                        "as many rows"
                    ),
                )
            )
    return settings


def _prefill_settings(
    policy: Policy, rows: tuple[int, int], columns: int, cluster: int, path: ArmPath
) -> list[Setting]:
    if policy.prefill is None:
        return []
    limit = policy.prefill.logits_mib * _MIB // (_FP32 * columns)
    settings = []
    if rows[0] <= limit:
        last = min(rows[1], limit)
        settings.append(
            Setting(
                kind="prefill",
                rows=(rows[0], last),
                columns=columns,
                cluster=cluster,
                path=path,
                tokens=(rows[0], last),
                explanation=(
                    f"a step with {_span(rows[0], last)} prefill tokens, or such a last chunk; "
                    f"a full chunk holds {limit:,} rows once a sequence is max_model_len long"
                ),
            )
        )
    # The greatest whole MiB whose full chunks still have rows in the range.
    mib = ((rows[1] + 1) * _FP32 * columns - 1) // _MIB
    chunk = mib * _MIB // (_FP32 * columns)
    if policy.prefill.setting and mib >= 1 and rows[0] <= chunk <= rows[1]:
        settings.append(
            Setting(
                kind="prefill",
                rows=(chunk, chunk),
                columns=columns,
                cluster=cluster,
                path=path,
                logits_mib=mib,
                explanation=(
                    f"{policy.prefill.setting}={mib} makes full chunks of {chunk} rows of "
                    f"{columns:,} columns, once a sequence of the batch is max_model_len long"
                ),
            )
        )
    return settings
