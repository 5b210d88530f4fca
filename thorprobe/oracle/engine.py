# SPDX-License-Identifier: Apache-2.0
"""What vLLM's own engine does on a device, alone or with the drop-in: rules E1 to E5 and D1.

The engine ran a reduced model with random weights, which says nothing of a checkpoint. Of an engine
whose operators were in a partition nothing is said of the whole device.
"""

from collections.abc import Iterable, Sequence

from thorprobe.oracle.evidence_file import EngineFacts, EvidenceFile
from thorprobe.oracle.fleet import Candidate, Row
from thorprobe.oracle.records import Gateable, OracleStatus
from thorprobe.oracle.vllm import Ruling
from thorprobe.record import Origin

Told = tuple[EvidenceFile, EngineFacts]

MODEL = "reduced model, random weights"
"""What ran, in a cell's words."""


def rule(candidate: Candidate, row: Row, exhibits: Sequence[EvidenceFile]) -> Ruling | None:
    """Return what the first rule that fits says; None where no engine of it ended a case.

    ``exhibits`` answer for the device.
    """
    told = [
        (exhibit, facts)
        for exhibit in exhibits
        for facts in exhibit.engines
        if facts.version == candidate.pin
        and facts.drop_in == candidate.drop_in
        and not facts.partition
    ]
    dead = [one for one in told if one[1].died]
    if dead:
        return _ruling(
            "E1", OracleStatus.BLOCKED, f"its engine dies {dead[0][1].died}", dead, Gateable.NO
        )
    wrong = [one for one in told if _wrong(one[1])]
    if wrong:
        return _ruling("E2", OracleStatus.BLOCKED, _wrongs(wrong), wrong, Gateable.NO)
    past = [one for one in told if _past(row, one[1])]
    if past:
        return _runs(row, past)
    if not candidate.drop_in:
        return None
    return Ruling(
        rule="D1",
        status=OracleStatus.NOT_ESTABLISHED,
        reason=f"no evidence of vLLM {candidate.pin} with the drop-in ({candidate.drop_in})",
    )


def _past(row: Row, facts: EngineFacts) -> bool:
    return facts.rows > 0 and any(tokens > row.budget_tokens for tokens in facts.prompts)


def _wrong(facts: EngineFacts) -> bool:
    return bool(facts.wrong_rows or facts.other_tokens or facts.wrong_sets)


def _wrongs(wrong: Sequence[Told]) -> str:
    rows = sum(facts.wrong_rows for _, facts in wrong)
    other = sum(facts.other_tokens for _, facts in wrong)
    sets = sum(facts.wrong_sets for _, facts in wrong)
    parts = (
        f"{rows:,} selected rows are no top-k" if rows else "",
        f"{sets:,} queries selected other blocks than transformers'" if sets else "",
        f"{other:,} best tokens are others than transformers', and no ties" if other else "",
    )
    return f"its engine ran ({MODEL}), and {', '.join(filter(None, parts))}"


def _runs(row: Row, told: Sequence[Told]) -> Ruling:
    """Say that it runs, and whether a gate can rest on it: only on what repeats itself."""
    contexts = sorted({n for _, facts in told for n in facts.prompts if n > row.budget_tokens})
    rows = sum(facts.rows for _, facts in told)
    positions = sum(facts.positions for _, facts in told)
    ties = sum(facts.ties for _, facts in told)
    tied = f", {ties:,} of them in ties" if ties else ""
    graphs = ", ".join(dict.fromkeys(facts.graphs for _, facts in told))
    ran = (
        f"its engine ran ({MODEL}; {graphs}) at {_listed(contexts)} tokens of prompt: {rows:,} "
        "checked rows right"
    )
    if positions:
        ran += f", {positions:,} best tokens as transformers'{tied}"
    asked = [facts for _, facts in told if facts.runs]
    if not asked:
        reason = f"{ran}; whether it repeats itself was not asked"
        return _ruling("E5", OracleStatus.RUNS, reason, told, Gateable.UNMEASURED)
    worst = max(asked, key=lambda facts: (facts.traces, facts.sequences))
    if worst.traces > 1 or worst.sequences > 1:
        reason = (
            f"{ran}; but it does not repeat itself: {worst.sequences:,} token sequences and "
            f"{worst.traces:,} traces of log-probabilities in {worst.runs:,} runs of the same "
            "prompts"
        )
        return _ruling("E3", OracleStatus.RUNS, reason, told, Gateable.NO)
    runs = sum(facts.runs for facts in asked)
    reason = f"{ran}; it repeats itself to the bit, {runs:,} runs"
    return _ruling("E4", OracleStatus.RUNS, reason, told, Gateable.YES)


def _ruling(
    name: str, status: OracleStatus, reason: str, told: Iterable[Told], gateable: Gateable
) -> Ruling:
    return Ruling(
        rule=name,
        status=status,
        reason=reason,
        gateable=gateable,
        origin=Origin.MEASURED,
        because=tuple(sorted({exhibit.line.id for exhibit, _ in told})),
    )


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join(f"{number:,}" for number in numbers)
