# SPDX-License-Identifier: Apache-2.0
"""What a drive of the model's selection came to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from thorprobe.plan.policy import Capability, arm_name, load, reached
from thorprobe.qwen4exp.plan import ModelOptions
from thorprobe.qwen4exp.records import (
    Agreement,
    Fallen,
    ModelStep,
    ModelSummary,
    PhaseTime,
    RowsSeen,
    Selection,
)
from thorprobe.qwen4exp.selection import together
from thorprobe.qwen4exp.through_records import ArmCall
from thorprobe.record import Record

THOR: Capability = (11, 0)
"""Compute capability of the device whose arms are in question, named beside the device's own."""


class ModelNumbers(Record, frozen=True, kw_only=True):
    """What the model is: a sentence, parameters, its layers with an indexer, k, and the last layer.

    ``budget`` is k in tokens.
    """

    sentence: str
    parameters: int
    layers: tuple[int, ...]
    last_layer: int
    k: int
    budget: int


def summarize(
    steps: Sequence[ModelStep],
    options: ModelOptions,
    model: ModelNumbers,
    capability: Capability | None,
) -> ModelSummary:
    """Return the summary; ``capability`` is the device's, None for a CPU."""
    taken = [selection for step in steps for selection in step.selections]
    agreement = together(selection.agreement for selection in taken)
    fallen = count_falls(taken)
    wrong_rows = sum(s.check.wrong_rows for s in taken if s.check)
    decoded = [step for step in steps if step.phase == "decode"]
    different = sum(step.different_tokens for step in steps)
    summary = ModelSummary(
        finding="",
        model=model.sentence,
        parameters=model.parameters,
        indexer_layers=model.layers,
        k=model.k,
        context_tokens=options.context,
        requests=options.requests,
        query_tokens=options.width,
        rungs=dict(sorted(Counter(s.rung for s in taken).items())),
        falls=sum(1 for s in taken if s.falls),
        fallen=fallen,
        num_rows=_rows_seen(steps, options, _capabilities(options, capability)),
        sets_equal=not agreement.wrong and not agreement.unresolved,
        agreement=agreement,
        ties_at_cut=sum(s.ties_at_cut for s in taken),
        checked_rows=sum(s.check.rows for s in taken if s.check),
        wrong_rows=wrong_rows,
        max_logit_difference=_greatest(step.max_logit_difference for step in steps),
        max_logit=_greatest(step.max_logit for step in steps),
        tokens_equal=not different,
        compared_tokens=sum(step.compared_tokens for step in steps),
        different_tokens=different,
        tokens_per_second=_rate(decoded, [step.duration_us for step in decoded]),
        reference_tokens_per_second=_rate(decoded, [step.reference_us for step in decoded]),
        times=times(steps),
        notes=_notes(options, model, taken),
    )
    return msgspec.structs.replace(
        summary, finding=finding(summary, model.budget), next_action=_next(summary, model.budget)
    )


def count_falls(taken: Iterable[Selection | ArmCall]) -> tuple[Fallen, ...]:
    """Return each fall once, with the number of calls in which it happened."""
    counts = Counter(
        (fall.rung, fall.code, fall.reason) for selection in taken for fall in selection.falls
    )
    return tuple(
        Fallen(rung=rung, code=code, reason=reason, calls=calls)
        for (rung, code, reason), calls in sorted(counts.items())
    )


def _capabilities(options: ModelOptions, own: Capability | None) -> tuple[Capability, ...]:
    if options.capability is not None:
        return (options.capability,)
    return tuple(dict.fromkeys((own, THOR))) if own is not None else (THOR,)


def _rows_seen(
    steps: Sequence[ModelStep], options: ModelOptions, capabilities: Sequence[Capability]
) -> tuple[RowsSeen, ...]:
    """Return each row count that reached the ladder, and the policy's arm for it."""
    policy = load(options.policy)
    found = []
    seen = [(step.phase, s) for step in steps for s in step.selections]
    for (phase, rows), group in groupby(
        sorted(seen, key=lambda item: (item[0] != "prefill", item[1].num_rows)),
        key=lambda item: (item[0], item[1].num_rows),
    ):
        calls = [selection for _, selection in group]
        arms = {}
        for capability in capabilities:
            # Upstream pads the columns, so that its condition on the stride holds.
            arm = reached(policy, rows, 0, capability)
            arms["{}.{}".format(*capability)] = arm_name(arm.cluster, arm.path)
        rungs = dict(sorted(Counter(s.rung for s in calls).items()))
        found.append(
            RowsSeen(
                phase=phase,
                num_rows=rows,
                calls=len(calls),
                rungs=rungs,
                policy=policy.name,
                arms=arms,
            )
        )
    return tuple(found)


def times(steps: Sequence[ModelStep]) -> tuple[PhaseTime, ...]:
    """Return the time of selection in each phase; a speedup of 0 where there is none to compare."""
    found = []
    for phase in ("prefill", "decode"):
        taken = [s for step in steps if step.phase == phase for s in step.selections]
        visited = sum(s.reference_queries for s in taken)
        rows = sum(s.num_rows for s in taken)
        loop = sum(s.reference_us for s in taken)
        ladder = sum(s.ladder_us for s in taken)
        if not taken:
            continue
        both = visited and rows and ladder
        found.append(
            PhaseTime(
                phase=phase,
                reference_queries=visited,
                reference_us=loop,
                ladder_queries=rows,
                ladder_us=ladder,
                select_us=sum(s.select_us for s in taken),
                speedup=(loop / visited) / (ladder / rows) if both else 0.0,
            )
        )
    return tuple(found)


def finding(summary: ModelSummary, budget: int) -> str:
    """Say it in a paragraph, and no more than was compared."""
    found = summary.agreement
    if not (found.past_budget or found.wrong or summary.wrong_rows):
        return (
            f"No query saw more than {summary.k} blocks ({budget:,} tokens): every block is "
            "selected, and a wrong selection could not show at this context"
        )
    where = (
        f"at {summary.context_tokens:,} tokens of context, where {found.past_budget:,} of "
        f"{found.compared:,} compared queries see more blocks than the {summary.k} selected"
    )
    ties = f" ({found.tied:,} of them differ in blocks of equal scores)" if found.tied else ""
    told = [f"{_sets(found)} {where}{ties}"]
    if summary.wrong_rows:
        told.append(
            f"{summary.wrong_rows:,} of {summary.checked_rows:,} rows are no top-{summary.k} of "
            "their own scores"
        )
    told.append(
        f"all {summary.compared_tokens:,} greedy tokens equal"
        if summary.tokens_equal
        else f"{summary.different_tokens:,} of {summary.compared_tokens:,} greedy tokens differ"
    )
    told.append(
        f"largest logit difference {_number(summary.max_logit_difference)} of logits up to "
        f"{_number(summary.max_logit)}"
    )
    return "; ".join(told)


def _sets(found: Agreement) -> str:
    if found.wrong:
        return f"WRONG: {found.wrong:,} queries selected other blocks than the reference"
    if found.unresolved:
        return (
            f"{found.unresolved:,} queries selected other blocks than the reference, whose scores "
            "lie closer together than those of the two runs "
            f"(up to {_number(found.max_score_difference)})"
        )
    return "Ladder and reference select equal sets"


def _next(summary: ModelSummary, budget: int) -> str:
    if not summary.agreement.past_budget:
        return f"ask for more than {budget:,} tokens of context, such as `--context 2300`"
    if summary.agreement.wrong or summary.wrong_rows:
        return "`--rung torch` tells the ladder's kernels and the batched scores apart"
    return ""


def _notes(
    options: ModelOptions, model: ModelNumbers, taken: Sequence[Selection]
) -> tuple[str, ...]:
    notes = [
        "Both runs are fed the same tokens: the prompt, then the reference's greedy token"
        + (", followed by drafts that are all taken as accepted" if options.width > 1 else "")
        + "; logits and greedy tokens are compared after each prefill chunk and at every decoded "
        "token"
    ]
    visited = sum(s.reference_queries for s in taken)
    rows = sum(s.num_rows for s in taken)
    if visited < rows:
        alone = model.layers == (model.last_layer,)
        notes.append(
            f"Of {rows:,} queries the reference's loop visited {visited:,}, evenly over the "
            "context and the last; in the reference run the ladder selected for the others"
            + (
                ", which no compared query depends on, since the one indexer is in the last layer"
                if alone
                else ", so later layers of the reference rest on them"
            )
        )
    if len(model.layers) > 1:
        notes.append(
            "Layers after the first indexer see what it selected: a tie that was broken otherwise "
            "shows there as another score"
        )
    notes.append(
        "Selection time is that of the loop (pooling, scoring, top-k, tokens) and of what replaces "
        "it, waiting for the device at both ends; the ladder's call alone was made once more from "
        "the same scores. On a GPU all steps were taken once before, untimed, with other tokens: "
        "the first run pays for what libraries prepare for each length"
    )
    return tuple(notes)


def _rate(steps: Sequence[ModelStep], microseconds: Sequence[float]) -> float:
    total = sum(microseconds)
    tokens = sum(step.requests * step.tokens for step in steps)
    return tokens / total * 1e6 if total else 0.0


def _greatest(values: Iterable[float | None]) -> float | None:
    """Return the greatest, None where one is unknown: it may be the greatest."""
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _number(value: float | None) -> str:
    return "that is no finite number" if value is None else f"{value:.3g}"
