# SPDX-License-Identifier: Apache-2.0
"""The words of ``model-topk --engine vllm``: an engine's start, its cases, and its death.

Times are in microseconds, digests are SHA-256.
"""

from typing import Literal

import msgspec

from thorprobe.qwen4exp.records import Agreement
from thorprobe.record import Check, Record
from thorprobe.vllm.dropin_log import DropInReport

Moment = Literal["start-up", "prompt"]


class OpRun(Record, frozen=True, kw_only=True):
    """Calls of one operator in a row with the same shape: ``rows`` x ``columns`` scores, best k.

    ``captured`` calls went into a CUDA graph; what the graph replays later is not counted here.
    """

    op: str
    rows: int
    columns: int
    k: int
    captured: bool = False
    calls: int = 1


class Death(Record, frozen=True, kw_only=True):
    """An engine that ended with an error, or a process that ended without one.

    ``last`` is the operator's call it was in, None where it was in none. ``arm`` is what the
    version's policy takes for its rows. ``text`` is verbatim, and ``frames`` are those of vLLM and
    torch, outermost first; thorprobe's own are left out.
    """

    moment: Moment
    case: str = ""
    last: OpRun | None = None
    arm: str = ""
    kind: str
    text: str
    frames: tuple[str, ...] = ()
    exit_status: int | None = None


class Likeness(Record, frozen=True, kw_only=True):
    """One request's log-probabilities against transformers' on the same weights and tokens.

    ``forced`` says that the engine was made to emit transformers' tokens, so that every one of
    ``positions`` has the same prefix; else only those up to the first other token count.
    ``equal`` positions have the same best token, ``ties`` another one where none of the best five
    log-probabilities differs by more than 0.125, ``other`` the rest.
    ``ties_named`` says of each: position, token here, token there, and the margin.
    """

    forced: bool
    positions: int
    equal: int
    ties: int
    other: int
    max_difference: float | None
    ties_named: tuple[str, ...] = ()
    prefill: Agreement = Agreement()
    decode: Agreement = Agreement()


class Repeats(Record, frozen=True, kw_only=True):
    """The same prompts ``runs`` times: distinct token sequences, and traces of log-probabilities.

    A trace holds every bit of every returned log-probability. Both are counted over the whole
    batch; ``worst_sequences`` and ``worst_traces`` are those of the one request with most.
    """

    runs: int
    sequences: int
    traces: int
    worst_sequences: int
    worst_traces: int


class KernelTime(Record, frozen=True, kw_only=True):
    """A GPU kernel of the selection as torch's profiler saw it, replays of graphs included.

    ``total_us`` is of all ``calls``, so that a graph's and an eager one compare.
    """

    phase: Literal["prefill", "decode"]
    name: str
    calls: int
    total_us: float


class Times(Record, frozen=True, kw_only=True):
    """Host time of one run, waiting for its tokens: the median of ``runs``, and the spread.

    ``prefill_us`` is up to the first token of all requests, ``token_us`` each token after it.
    ``unprofiled`` says why the profiler saw no kernels, where it could not start.
    """

    runs: int
    prefill_us: float
    prefill_spread_us: float
    token_us: float
    token_spread_us: float
    kernels: tuple[KernelTime, ...] = ()
    unprofiled: str = ""


class CaseRun(Record, frozen=True, kw_only=True):
    """One case in one engine.

    ``ops`` ran in this order, ``more_ops`` calls after those that are listed; ``checks`` has for
    each operator every row that was seen outside of a graph, against torch.topk. ``tokens`` are
    the first request's; ``sequence`` and ``trace`` are digests of all tokens and all
    log-probabilities of the first run.
    """

    case: str
    requests: int
    prompt_tokens: int
    new_tokens: int
    tokens: tuple[int, ...] = ()
    sequence: str = ""
    trace: str = ""
    ops: tuple[OpRun, ...] = ()
    more_ops: int = 0
    checks: dict[str, Check] = msgspec.field(default_factory=dict)
    likeness: Likeness | None = None
    repeats: Repeats | None = None
    times: Times | None = None
    wall_s: float = 0.0


class EngineRun(Record, frozen=True, kw_only=True):
    """One start of vLLM's engine and its cases, up to its end or its death.

    ``graphs`` is the graph mode that was asked for, ``graph_mode`` the one that the engine names.
    ``start_ops`` ran before the first prompt. ``workarounds`` say what of vLLM did not run here.
    ``beside`` counts the engines that were alive on the device while untimed cases ran. ``seen`` is
    the drop-in's own report at the end.
    """

    engine: str
    model: str
    graphs: str
    drop_in: str = ""
    partition: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    runner: str = ""
    graph_mode: str = ""
    capture_sizes: tuple[int, ...] = ()
    backends: dict[str, str] = msgspec.field(default_factory=dict)
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    workarounds: tuple[str, ...] = ()
    start_s: float = 0.0
    start_ops: tuple[OpRun, ...] = ()
    beside: int = 1
    cases: tuple[CaseRun, ...] = ()
    death: Death | None = None
    seen: DropInReport | None = None


class EngineModel(Record, frozen=True, kw_only=True):
    """A reduced model, and transformers' own answer on its weights.

    ``layers`` are those with an indexer, ``weights`` the digest of the saved weights.
    """

    model: str
    sentence: str
    parameters: int
    layers: tuple[int, ...]
    k: int
    budget: int
    weights: str
    tokens: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)


class EngineSummary(Record, frozen=True, kw_only=True):
    """What all engines came to. ``sentences`` say one thing each, the most important first."""

    finding: str
    next_action: str = ""
    version: str = ""
    models: tuple[EngineModel, ...] = ()
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
