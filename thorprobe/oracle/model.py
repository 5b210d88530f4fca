# SPDX-License-Identifier: Apache-2.0
"""What the model's reference and the ladder in it do on a device: rules T1 to T4 and L1 to L6."""

from collections.abc import Sequence

from thorprobe.oracle.evidence_file import EvidenceFile, ModelFacts
from thorprobe.oracle.fleet import Candidate, Row
from thorprobe.oracle.records import Gateable, OracleStatus
from thorprobe.oracle.vllm import Ruling

Told = tuple[EvidenceFile, ModelFacts]


def reference(candidate: Candidate, row: Row, exhibits: Sequence[EvidenceFile]) -> Ruling:
    """Return what the first rule that fits says of the reference, transformers itself."""
    told = _told(exhibits)
    missing = _missing(candidate, told, ("T1", "T2"))
    if missing is not None:
        return missing
    fitting = [one for one in told if not _unfit(candidate, one[1])]
    past = [one for one in fitting if _past(row, one[1])]
    if not past:
        return _ruling(
            "T3",
            OracleStatus.RUNS,
            f"ran at {_contexts(fitting)} tokens of context only: up to {row.budget_tokens:,} "
            "every block is selected, and a wrong selection cannot show",
            fitting,
            Gateable.NO,
        )
    return _ruling(
        "T4",
        OracleStatus.RUNS,
        f"transformers {_versions(past)} ran at {_contexts(past)} tokens of context",
        past,
        Gateable.YES,
    )


def ladder(candidate: Candidate, row: Row, exhibits: Sequence[EvidenceFile]) -> Ruling:
    """Return what the first rule that fits says of the reference with thorprobe's selection."""
    told = _told(exhibits)
    missing = _missing(candidate, told, ("L1", "L2"))
    if missing is not None:
        return missing
    fitting = [one for one in told if not _unfit(candidate, one[1])]
    wrong = [one for one in fitting if not one[1].sets_equal or one[1].wrong_rows]
    if wrong:
        return _ruling(
            "L3",
            OracleStatus.BLOCKED,
            f"other blocks than the reference's were selected at {_contexts(wrong)} tokens",
            wrong,
            Gateable.NO,
        )
    past = [one for one in fitting if _past(row, one[1]) and one[1].past_budget != 0]
    if not past:
        return _ruling(
            "L4",
            OracleStatus.NOT_ESTABLISHED,
            f"ran at {_contexts(fitting)} tokens of context, and no compared query is past the "
            f"{row.budget_tokens:,} up to which a wrong selection cannot show",
            fitting,
            Gateable.UNMEASURED,
        )
    differ = [one for one in past if not one[1].tokens_equal]
    if differ:
        return _ruling(
            "L5",
            OracleStatus.NOT_ESTABLISHED,
            f"greedy tokens differ at {_contexts(differ)} tokens of context, though every selected "
            "set is equal",
            differ,
            Gateable.UNMEASURED,
        )
    falls = sum(facts.falls for _, facts in past)
    told_falls = f", {falls:,} calls on a lower rung than the first asked" if falls else ""
    return _ruling(
        "L6",
        OracleStatus.FALLBACK if falls else OracleStatus.RUNS,
        f"equal sets and tokens at {_contexts(past)} tokens of context, rungs {_rungs(past)}"
        f"{told_falls}",
        past,
        Gateable.YES,
    )


def _past(row: Row, facts: ModelFacts) -> bool:
    return facts.context_tokens > row.budget_tokens


def _told(exhibits: Sequence[EvidenceFile]) -> list[Told]:
    return [(exhibit, exhibit.model) for exhibit in exhibits if exhibit.model is not None]


def _missing(candidate: Candidate, told: Sequence[Told], rules: tuple[str, str]) -> Ruling | None:
    if not told:
        return Ruling(
            rule=rules[0],
            status=OracleStatus.NOT_ESTABLISHED,
            reason="no evidence of the model's selection",
        )
    reasons = [_unfit(candidate, facts) for _, facts in told]
    if all(reasons):
        return _ruling(
            rules[1], OracleStatus.NOT_ESTABLISHED, reasons[0], told, Gateable.UNMEASURED
        )
    return None


def _unfit(candidate: Candidate, facts: ModelFacts) -> str:
    """Say why a run is not of the wanted model and version; empty where it is."""
    if facts.tiny:
        return "a tiny model ran, whose widths are not those of the row's"
    found = facts.transformers
    if not found:
        return "the evidence does not say which transformers ran"
    if candidate.pin and found != candidate.pin:
        return f"transformers {found} ran, and {candidate.pin} is pinned"
    if candidate.at_least and _number(found) < _number(candidate.at_least):
        return f"transformers {found} ran, and {candidate.at_least} is the first with the model"
    return ""


def _number(version: str) -> tuple[int, ...]:
    """Read the leading numbers of a version: 5.17.0.dev0 gives (5, 17, 0)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not (part.isascii() and part.isdigit()):
            break
        numbers.append(int(part))
    return tuple(numbers)


def _ruling(
    rule: str, status: OracleStatus, reason: str, told: Sequence[Told], gateable: Gateable
) -> Ruling:
    return Ruling(
        rule=rule,
        status=status,
        reason=reason,
        gateable=gateable,
        origin=told[0][0].line.origin,
        because=tuple(sorted(exhibit.line.id for exhibit, _ in told)),
    )


def _contexts(told: Sequence[Told]) -> str:
    return " and ".join(f"{n:,}" for n in sorted({facts.context_tokens for _, facts in told}))


def _versions(told: Sequence[Told]) -> str:
    return " and ".join(sorted({facts.transformers for _, facts in told}))


def _rungs(told: Sequence[Told]) -> str:
    counts: dict[str, int] = {}
    for _, facts in told:
        for name, number in facts.rungs.items():
            counts[name] = counts.get(name, 0) + number
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items())) or "none"
