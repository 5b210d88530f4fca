# SPDX-License-Identifier: Apache-2.0
"""The legend: one sentence for each word of the tables that is not a plain number."""

import re
from collections.abc import Iterable

from thorprobe.judge.catalogue import BY_KEY
from thorprobe.judge.cause import CODE_NAMES
from thorprobe.judge.ranges import ranges
from thorprobe.record import Outcome
from thorprobe.render import arms, cells, shipped, sweep
from thorprobe.render import operator as operator_page
from thorprobe.render.escape import plain
from thorprobe.render.table import Table
from thorprobe.summary import ArmsSummary, Document

_RANGE = re.compile(r"\d+-\d+")


def legend(document: Document, tables: Iterable[Table]) -> list[tuple[str, str]]:
    """Return (word, meaning) for the headings and cells present, then for the causes named."""
    if isinstance(document.summary, ArmsSummary):
        found = arms.meanings(document.summary, document) + operator_page.meanings(document)
        found += _codes(document, {str(arm.code) for arm in document.summary.arms if arm.code})
        return found + _causes(_arm_causes(document.summary))
    present = {word for table in tables for word in table.words()}
    found = list(sweep.PART_MEANINGS.items()) + shipped.meanings(document)
    found += [(word, text) for word, text in cells.MEANINGS.items() if word in present]
    if any(_RANGE.fullmatch(word) for word in present):
        found.append(("n-m", "least and greatest answer over the admissible GPC maps"))
    codes = {cells.launch(outcome) for outcome in document.results}
    found += _codes(document, {code for code in codes & present if code.isdigit()})
    causes = _sweep_causes(document.results)
    if cells.UNKNOWN in present:
        causes.pop("undetermined", None)  # The word in the cell has said it.
    return found + _causes(causes)


def cause_sentence(key: str) -> str:
    """Return the catalogue's sentence for a cause, or say that the catalogue lacks it."""
    entry = BY_KEY.get(key)
    return entry.sentence if entry else "a cause that this version's catalogue does not list"


def code_names(document: Document) -> dict[str, str]:
    """Return the driver's name and sentence for each code; its name alone where no call has one."""
    found: dict[str, str] = {}
    for outcome in document.results:
        for call in outcome.calls:
            if call.code:
                found.setdefault(str(call.code), plain(f"{call.name}: {call.sentence}"))
    return {str(code): name for code, name in CODE_NAMES.items()} | found


def _codes(document: Document, codes: Iterable[str]) -> list[tuple[str, str]]:
    names = code_names(document)
    return [(code, names.get(code, "result code of the driver")) for code in sorted(codes, key=int)]


def _causes(where: dict[str, str]) -> list[tuple[str, str]]:
    return [(plain(key), f"{where[key]}: {cause_sentence(key)}") for key in sorted(where)]


def _sweep_causes(results: Iterable[Outcome]) -> dict[str, str]:
    sizes: dict[str, set[int]] = {}
    for outcome in results:
        if outcome.cause and not outcome.assumes:
            sizes.setdefault(outcome.cause, set()).add(outcome.spec.cluster_size)
    told = {key: f"size {ranges(found)}" for key, found in sizes.items()}
    if sweep.NOT_ENABLED in told:
        told[sweep.NOT_ENABLED] += " without the opt-in"
    return told


def _arm_causes(summary: ArmsSummary) -> dict[str, str]:
    told: dict[str, list[str]] = {}
    for arm in summary.arms:
        if arm.cause:
            told.setdefault(arm.cause, []).append(arms.cluster_label(arm))
    return {key: f"cluster {', '.join(dict.fromkeys(found))}" for key, found in told.items()}
