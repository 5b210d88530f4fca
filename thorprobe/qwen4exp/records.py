# SPDX-License-Identifier: Apache-2.0
"""The words of ``model-topk``: one call of the model, its selections, and what they came to."""

import msgspec

from thorprobe.record import Check, Origin, Record, Status


class Fallen(Record, frozen=True, kw_only=True):
    """A rung that was refused, with the driver's code, why, and in how many calls."""

    rung: str
    code: int
    reason: str
    calls: int = 1


class Agreement(Record, frozen=True, kw_only=True):
    """Blocks that two runs selected, compared query by query.

    ``compared`` queries were selected by both; ``past_budget`` of them saw more blocks than are
    selected, and only those can differ. ``identical`` sets, ``tied`` ones (other blocks with the
    same scores), ``unresolved`` ones (blocks whose scores are closer than the two runs' scores of
    that query are to each other), ``wrong`` ones (all the rest). ``max_score_difference`` is the
    largest between the two runs' scores of one block, None where nothing was compared.
    """

    compared: int = 0
    past_budget: int = 0
    identical: int = 0
    tied: int = 0
    unresolved: int = 0
    wrong: int = 0
    max_score_difference: float | None = None


class Selection(Record, frozen=True, kw_only=True):
    """The selection of one layer in one step.

    ``num_rows`` x ``columns`` fp32 scores went to the ladder in one call; ``lengths`` are the least
    and the greatest valid prefix. ``ties_at_cut`` rows have an unselected score equal to the least
    selected one. ``check`` holds every row against the definition of a top-k. Times are in
    microseconds: ``reference_us`` of the loop over ``reference_queries`` queries, ``ladder_us`` of
    what replaces it (scoring, selection, tokens), ``select_us`` of the ladder's call made once more
    by itself.
    """

    layer: int
    num_rows: int
    columns: int
    lengths: tuple[int, int]
    rung: str = ""
    falls: tuple[Fallen, ...] = ()
    ties_at_cut: int = 0
    check: Check | None = None
    agreement: Agreement = Agreement()
    reference_queries: int = 0
    reference_us: float = 0.0
    ladder_us: float = 0.0
    select_us: float = 0.0


class ModelStep(Record, frozen=True, kw_only=True):
    """One call of the model with ``tokens`` a request from position ``first`` on, by both runs.

    ``different_tokens`` of ``compared_tokens`` greedy tokens differ. ``max_logit`` is the largest
    absolute logit of the reference, a scale for ``max_logit_difference``; both are None where one
    is no finite number. Durations are in microseconds, without what thorprobe does to watch.
    """

    id: str
    status: Status
    origin: Origin
    phase: str
    first: int
    tokens: int
    requests: int
    selections: tuple[Selection, ...] = ()
    compared_tokens: int = 0
    different_tokens: int = 0
    max_logit_difference: float | None = None
    max_logit: float | None = None
    reference_us: float = 0.0
    duration_us: float = 0.0


class RowsSeen(Record, frozen=True, kw_only=True):
    """Calls of the ladder with so many rows, the rungs that took them, and the policy's arms.

    ``arms`` maps a compute capability, such as ``11.0``, to the arm that ``policy`` takes there.
    """

    phase: str
    num_rows: int
    calls: int
    rungs: dict[str, int] = msgspec.field(default_factory=dict)
    policy: str
    arms: dict[str, str] = msgspec.field(default_factory=dict)


class PhaseTime(Record, frozen=True, kw_only=True):
    """Time of selection in one phase, in microseconds; ``speedup`` is a query's share of each."""

    phase: str
    reference_queries: int
    reference_us: float
    ladder_queries: int
    ladder_us: float
    select_us: float
    speedup: float


class ModelSummary(Record, frozen=True, kw_only=True):
    """What a drive of the model's selection came to.

    ``rungs`` counts calls by the rung that answered, ``falls`` those in which a rung was refused
    before, ``fallen`` which ones. ``sets_equal`` says that no compared query selected blocks of
    other scores than the reference did, ``wrong_rows`` counts rows, of all ``checked_rows``, that
    are no top-k of their own scores. ``tokens_per_second`` is the decode rate with the ladder, over
    all requests, and ``reference_tokens_per_second`` without. ``peak_memory_bytes`` is the most
    that the process held, on a GPU what torch allocated there.
    """

    finding: str
    next_action: str = ""
    model: str
    parameters: int
    indexer_layers: tuple[int, ...]
    k: int
    context_tokens: int
    requests: int
    query_tokens: int
    rungs: dict[str, int]
    falls: int = 0
    fallen: tuple[Fallen, ...] = ()
    num_rows: tuple[RowsSeen, ...] = ()
    sets_equal: bool
    agreement: Agreement
    ties_at_cut: int = 0
    checked_rows: int = 0
    wrong_rows: int = 0
    max_logit_difference: float | None
    max_logit: float | None = None
    tokens_equal: bool
    compared_tokens: int = 0
    different_tokens: int = 0
    tokens_per_second: float
    reference_tokens_per_second: float = 0.0
    times: tuple[PhaseTime, ...] = ()
    peak_memory_bytes: int = 0
    notes: tuple[str, ...] = ()
