# SPDX-License-Identifier: Apache-2.0
"""The explanation of one launch as a sheet, and the whole catalogue as a page."""

from collections.abc import Iterable

from thorprobe.answer import Evidence, Kind
from thorprobe.explain.records import ExplainSummary, Reading
from thorprobe.judge.cause_entry import Cause
from thorprobe.render.sheet import Section, Sheet


def sheet(evidence: Evidence[Reading, ExplainSummary]) -> Sheet:
    """Put an explanation into words."""
    summary = evidence.summary
    sections = (
        Section(heading="Recognised", items=summary.said),
        Section(
            heading="What fits",
            pairs=tuple(pair for one in evidence.results for pair in _entry(one)),
        ),
        Section(heading="Would decide", items=summary.missing),
        Section(heading="Contradicted readings", items=summary.contradicted),
        Section(heading="Remarks", items=summary.remarks),
        Section(heading="To settle it", items=(summary.settles,) if summary.settles else ()),
    )
    return Sheet(
        title="One launch, explained" if not summary.term else summary.term,
        device=_device(summary),
        finding=summary.finding,
        next_action=summary.next_action,
        sections=tuple(one for one in sections if one.items or one.pairs),
    )


def _device(summary: ExplainSummary) -> str:
    if summary.term:
        return "From the catalogue; nothing was launched"
    told = summary.told
    where = " on cc {}.{}".format(*told.capability) if told and told.capability else ""
    return f"Explained from what was told{where}; nothing was launched"


def _entry(one: Reading) -> list[tuple[str, str]]:
    codes = ", ".join(map(str, one.codes)) or "none"
    pairs = [
        (f"{one.number} {one.cause} ({one.fits})", one.sentence),
        ("code", codes),
        ("proof", one.proof),
    ]
    if one.fits != "settled":
        pairs.append(("next", one.next_action))
    if one.sources:
        pairs.append(("sources", "; ".join(one.sources)))
    return pairs


def catalogue_page(entries: Iterable[Cause]) -> str:
    """Return the catalogue of causes as a markdown page, one section an entry."""
    blocks = [
        "# Causes",
        _GENERATED,
    ]
    for one in entries:
        codes = ", ".join(map(str, one.codes)) or "none"
        sources = "; ".join(one.sources) or "none: it says what is not known"
        blocks += [
            f"## {one.number}. {one.name}",
            f"`{one.key}`: {one.sentence}.",
            "\n".join(
                (
                    f"- **Code:** {codes}",
                    f"- **Proof:** {one.separating_test}",
                    f"- **Next:** {one.next_action}",
                    f"- **Sources:** {sources}",
                )
            ),
        ]
    return "\n\n".join(blocks) + "\n"


_GENERATED = (
    "Generated from the catalogue (`thorprobe explain CAUSE` prints one entry); "
    "`THORPROBE_UPDATE_SNAPSHOTS=1 pytest tests/test_explain_page.py` writes it anew."
)

KIND = Kind(type=Evidence[Reading, ExplainSummary], sheet=sheet)
