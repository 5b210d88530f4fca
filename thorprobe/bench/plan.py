# SPDX-License-Identifier: Apache-2.0
"""What ``bench`` asks: shapes, distributions of scores, rungs and peers."""

from collections.abc import Sequence

from thorprobe.errors import UsageError
from thorprobe.record import Record
from thorprobe.topk.contract import DTYPES, MAX_K, RUNGS, SCORE_BYTES

AUTO = "auto"
ROWS = (1, 4, 8, 16, 32, 64)
COLUMNS = (4_096, 16_384, 32_768, 65_536, 131_072, 262_144)
"""With ``ROWS`` the 36 shapes of the recorded peers: a model's decode, from one request up."""

DISTRIBUTIONS = {
    "normal": "standard normal",
    "uniform": "uniform in [0, 1)",
    "ascending": "uniform, each row sorted upwards",
    "descending": "uniform, each row sorted downwards",
    "all-equal": "one value everywhere",
    "ten-values": "whole numbers 0 to 9",
    "relu-sum": "sum over 4 heads of relu of a standard normal, as an indexer scores",
    "half-zero": "relu of a standard normal: half of the scores are exactly 0",
    "fp16-ties": "fp32 values that differ, and round to 8 values of fp16",
    "nan-inf": "standard normal with 1 in 64 NaN, +inf and -inf each",
}
"""Distributions of scores, each in a sentence."""

EXACT_PATH = ("ascending", "descending", "all-equal", "ten-values", "fp16-ties", "nan-inf")
"""Distributions whose rows the usual path does not settle: sorted, ties in masses, NaN."""

TIES = ("lowest", "any", "both")
TORCH_PEER, FLASHINFER_PEER, VLLM_PEER = "torch", "flashinfer", "vllm"
SHIPPED_PREFIX, VLLM_PREFIX = "shipped:", f"{VLLM_PEER}:"
FILE_PREFIXES = (SHIPPED_PREFIX, VLLM_PREFIX)
"""Peers that are read from a file start so."""

ALIGNMENT = 16
"""Bytes at whose multiples every row must start to be called aligned: a load of the kernels."""

MAX_SCORES = 2**30
"""Most scores of one shape: 4 GiB of fp32, drawn on the host."""

_MOST = {"rows": 2**20, "columns": 2**30, "launches": 1_000, "replays": 1_000, "host calls": 10**6}


class BenchOptions(Record, frozen=True, kw_only=True):
    """What a bench asks.

    ``columns`` bring their aligned neighbours with them. ``rungs`` empty stands for every rung and
    ``auto``. ``peers`` are ``torch``, ``flashinfer``, ``vllm`` (the installed one), ``vllm:FILE``
    and ``shipped:FILE``. A time is the median of ``replays`` replays of a graph of ``launches``
    launches; the host's cost of a call is the mean over ``host_calls`` calls, 0 to leave it out.
    """

    rows: tuple[int, ...] = ROWS
    columns: tuple[int, ...] = COLUMNS
    k: tuple[int, ...] = (512,)
    dtypes: tuple[str, ...] = ("float32",)
    distributions: tuple[str, ...] = ("normal",)
    rungs: tuple[str, ...] = ()
    peers: tuple[str, ...] = (TORCH_PEER,)
    ties: str = "lowest"
    launches: int = 40
    replays: int = 15
    host_calls: int = 2_000
    partition: str = ""

    @property
    def contenders(self) -> tuple[tuple[str, str], ...]:
        """The ladder's contenders, rung and ties; with both kinds of ties ``auto`` runs twice."""
        ties = "any" if self.ties == "any" else "lowest"
        asked = [(rung, ties) for rung in self.rungs or (AUTO, *RUNGS)]
        if self.ties == "both" and (AUTO, ties) in asked:
            asked.insert(asked.index((AUTO, ties)) + 1, (AUTO, "any"))
        return tuple(dict.fromkeys(asked))


class BenchShape(Record, frozen=True, kw_only=True):
    """One input that every contender gets: ``rows`` x ``columns`` scores, all of them valid."""

    rows: int
    columns: int
    k: int
    dtype: str
    distribution: str

    @property
    def seed(self) -> int:
        """Seed of the draw."""
        return self.columns + self.rows

    @property
    def id(self) -> str:
        """Stable, readable name."""
        return f"{self.distribution}/{self.dtype}/k{self.k}/r{self.rows}n{self.columns}"

    @property
    def aligned(self) -> bool:
        """Whether every row starts at a multiple of 16 B, as the first one does."""
        return aligned(self.columns, self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes that a selection has to move: scores and lengths read, indices written."""
        return self.rows * (self.columns * SCORE_BYTES[self.dtype] + 4 + 4 * self.k)


def aligned(columns: int, dtype: str) -> bool:
    """Say whether rows of so many scores, one after the other, all start at a multiple of 16 B."""
    return columns * SCORE_BYTES[dtype] % ALIGNMENT == 0


def neighbour(columns: int) -> int:
    """Return the nearest multiple of 8 columns: rows of it are aligned, whatever their type."""
    return max(8, (columns + 4) // 8 * 8)


def shapes(options: BenchOptions) -> tuple[BenchShape, ...]:
    """Return the shapes by distribution, columns, rows, type and k.

    An unaligned number of columns brings its aligned neighbour with it, to be held against.
    """
    unaligned = {
        columns
        for columns in options.columns
        for dtype in options.dtypes
        if not aligned(columns, dtype)
    }
    return tuple(
        BenchShape(rows=rows, columns=columns, k=k, dtype=dtype, distribution=distribution)
        for distribution in options.distributions
        for columns in sorted({*options.columns, *map(neighbour, unaligned)})
        for rows in options.rows
        for dtype in options.dtypes
        for k in options.k
    )


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Read ``1,4,8`` into numbers, ascending. Raises UsageError, naming the option."""
    parts = text.replace(" ", "").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
        raise UsageError(
            f"`{option} {text}` was asked for, but that is no list of whole numbers",
            "write it as `1,4,8`",
        )
    return tuple(sorted({int(part) for part in parts}))


def check(options: BenchOptions) -> None:
    """Raise UsageError for options that cannot be served."""
    _known("--distribution", options.distributions, tuple(DISTRIBUTIONS))
    _known("--dtype", options.dtypes, DTYPES)
    _known("--ties", (options.ties,), TIES)
    _known("--rung", options.rungs, (AUTO, *RUNGS))
    _check_peers(options)
    for k in options.k:
        if not 1 <= k <= MAX_K:
            raise UsageError(f"`--k {k}` was asked for, but k is 1 to {MAX_K}", "`--k 512`")
    counts = {
        "rows": options.rows,
        "columns": options.columns,
        "launches": (options.launches,),
        "replays": (options.replays,),
        "host calls": (options.host_calls or 1,),
    }
    for name, numbers in counts.items():
        _in_range(name, numbers)
    most = max(options.rows) * max(options.columns)
    if most > MAX_SCORES:
        raise UsageError(
            f"{max(options.rows):,} rows of {max(options.columns):,} columns were asked for, but "
            f"a shape has at most {MAX_SCORES:,} scores",
            "ask for fewer rows, or for shorter ones",
        )


def _check_peers(options: BenchOptions) -> None:
    names = (TORCH_PEER, FLASHINFER_PEER, VLLM_PEER, *(f"{one}FILE" for one in FILE_PREFIXES))
    for peer in options.peers:
        if not peer.startswith(FILE_PREFIXES):
            _known("--peer", (peer,), names)
    if sum(peer == VLLM_PEER or peer.startswith(VLLM_PREFIX) for peer in options.peers) > 1:
        raise UsageError(
            "`--peer vllm` was asked for more than once, but a process loads one vLLM",
            "time the other one in a run of its own",
        )
    if len(options.k) > 1 and any(peer.startswith(SHIPPED_PREFIX) for peer in options.peers):
        raise UsageError(
            f"`--peer {SHIPPED_PREFIX}FILE` was asked for with {len(options.k)} values of k, but a "
            "shipped kernel is built for one",
            "give one `--k` a run, or time vLLM's own op: `--peer vllm:FILE`",
        )


def _known(option: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for one in asked:
        if one not in known:
            raise UsageError(
                f"`{option} {one}` was asked for, but that is none of {', '.join(known)}",
                "`thorprobe bench --help` says more",
            )


def _in_range(name: str, numbers: Sequence[int]) -> None:
    if not numbers or not 1 <= min(numbers) <= max(numbers) <= _MOST[name]:
        raise UsageError(
            f"{name} of {', '.join(f'{n:,}' for n in numbers) or 'no number'} were asked for, but "
            f"they are 1 to {_MOST[name]:,}",
            "`thorprobe bench` without options times the 36 usual shapes",
        )
