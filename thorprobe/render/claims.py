# SPDX-License-Identifier: Apache-2.0
"""The register of published claims as a sheet, held against the runs that were given."""

from collections.abc import Iterator

from thorprobe.answer import Kind
from thorprobe.judge.claim_records import ClaimLine, ClaimResult, Claims, ReportedLine
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted

_OTHERS = "About other devices"

_STATUSES = {
    "documented": "by the vendor",
    "reported": "by someone who shows what they saw",
    "stated": "without raw output",
    "unconfirmed": "one source, and no way to check it",
    "disputed": "other published facts speak against it, and they are named",
}


def sheet(answer: Claims) -> Sheet:
    """Return the sheet of the register, held against the runs that were given."""
    summary = answer.summary
    labels = ", ".join(subject.label for subject in summary.subjects)
    return Sheet(
        title="Published claims about cluster limits",
        device=f"Held against {labels}" if labels else "Held against no run",
        finding=summary.finding,
        next_action=summary.next_action,
        sections=tuple(_sections(answer)),
        legend=tuple(_legend(answer)),
        closing=f"{counted(len(summary.register), 'claim')}, of what was published and no more; "
        "`thorprobe claims STORE` holds them against a run",
    )


def _sections(answer: Claims) -> Iterator[Section]:
    lines = {line.id: line for line in answer.summary.register}
    others = {
        subject.name: ", ".join(
            r.claim for r in answer.results if r.subject == subject.name and not r.about
        )
        for subject in answer.summary.subjects
    }
    # Runs of one device differ in nothing here: it is said once.
    shared = next(iter(others.values())) if len(set(others.values())) == 1 else ""
    for subject in answer.summary.subjects:
        own = [r for r in answer.results if r.subject == subject.name and r.about]
        elsewhere = "" if shared else others[subject.name]
        yield Section(
            heading=subject.label,
            paragraphs=() if own else ("No claim is about this device",),
            table=_weighed(own, lines) if own else None,
            pairs=((_OTHERS, elsewhere),) if elsewhere else (),
        )
    if shared:
        yield Section(heading=_OTHERS, paragraphs=(shared,))
    if answer.summary.against_reported:
        yield Section(heading="Against what others ran", table=_against(answer))
    yield Section(heading="Register", pairs=tuple((n, _line(c)) for n, c in lines.items()))
    if answer.summary.reported:
        runs = answer.summary.reported
        yield Section(heading="Reported runs", pairs=tuple((r.id, _ran(r)) for r in runs))


def _against(answer: Claims) -> Table:
    headings = ("run", "reported run", "this run", "because")
    return Table(
        title="",
        columns=tuple(Column((text,), numeric=False) for text in headings),
        rows=tuple(
            ((r.subject,), (r.run,), (r.standing.value,), (r.observed or r.reason,))
            for r in answer.summary.against_reported
        ),
    )


def _ran(run: ReportedLine) -> str:
    doubt = f": {run.doubt}" if run.doubt else ""
    speaks = f"; speaks against {', '.join(run.contradicts)}" if run.contradicts else ""
    return f"{run.hardware}: {run.seen} ({run.told}; sureness {run.sure.value}{doubt}){speaks}"


def _weighed(results: list[ClaimResult], lines: dict[str, ClaimLine]) -> Table:
    headings = ("claim", "published as", "this run", "because")
    return Table(
        title="",
        columns=tuple(Column((text,), numeric=False) for text in headings),
        rows=tuple(
            (
                (result.claim,),
                (lines[result.claim].status.value if result.claim in lines else "",),
                (result.standing.value,),
                (result.observed or result.reason,),
            )
            for result in results
        ),
    )


def _line(claim: ClaimLine) -> str:
    date = f", {claim.date}" if claim.date else ""
    disputed = f"; disputed: {claim.disputed_by}" if claim.disputed_by else ""
    return (
        f"{claim.statement} [{claim.device}: {'; '.join(claim.says)}] "
        f"({claim.status.value}: {claim.source}{date}){disputed}"
    )


def _legend(answer: Claims) -> Iterator[tuple[str, str]]:
    shown = {claim.status.value for claim in answer.summary.register}
    yield from ((word, meaning) for word, meaning in _STATUSES.items() if word in shown)
    if answer.summary.reported:
        yield "reported run", "seen on a device by others, with a source; no measurement of ours"
    if answer.summary.subjects:
        yield "left open", "not asked in this run, or this run cannot say it of the whole device"


KIND = Kind(type=Claims, sheet=sheet)
"""How ``thorprobe report`` reads and shows the claims."""
