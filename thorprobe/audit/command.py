# SPDX-License-Identifier: Apache-2.0
"""``thorprobe audit``."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thorprobe.cli import options as o
from thorprobe.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from thorprobe.audit.installed import Sources
    from thorprobe.audit.records import AuditSummary


class FailOn(StrEnum):
    """Findings that ``--fail-on`` turns into exit code 1."""

    MISMATCH = "mismatch"
    FALSE_ACCEPT = "false-accept"
    FALSE_REJECT = "false-reject"


def audit(
    *,
    stores: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[STORE]...", help="Recorded stores of topk-arms"),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            "--profile", metavar="NAME", help="Answer for this profile by the model; repeat"
        ),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option("--gate", metavar="NAME|FILE", help="Only this gate; repeat"),
    ] = None,
    installed: Annotated[
        bool, typer.Option("--installed", help="Read the gate of the vLLM that is installed here")
    ] = False,
    sources: Annotated[
        Path | None,
        typer.Option(
            "--sources", metavar="PATH", help="Read the gate of a vLLM wheel, or of a folder"
        ),
    ] = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option("--fail-on", help="Exit 1 on a mismatch with the data, or a wrong decision"),
    ] = None,
) -> None:
    """Audit the gates that choose cooperative_topk: rows let through or kept out wrongly.

    Each gate (shipped, proposed, thorprobe's own) on each device answered for: stores of
    topk-arms, and profiles by the model; without either the profiles thor, h200 and gb10.
    """
    from thorprobe.audit import answer as auditing
    from thorprobe.audit.records import Audit
    from thorprobe.cli.measure import now, process_age
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import public
    from thorprobe.plan import gate as gates

    started = now()
    read = _sources(sources, installed=installed)
    names = profile or ([] if stores else list(auditing.PROFILES))
    parties = [
        *(auditing.of_profile(name) for name in dict.fromkeys(names)),
        *(auditing.of_store(path) for path in dict.fromkeys(stores or ())),
    ]
    found = auditing.audit(parties, gate or gates.DEFAULT, read)
    code = _failed(found.summary, fail_on or ())
    answer = Audit(
        command="audit",
        argv=public(sys.argv[1:]),
        started=started,
        ended=now(),
        origin=found.origin,
        software=found.software,
        inputs=found.inputs,
        options={"gates": [g.name for g in found.summary.gates]},
        results=found.results,
        summary=found.summary,
        wall_s=round(process_age(), 2),
        exit_code=int(code),
    )
    show_evidence([answer], o.Format.JSON if json else form, output)
    raise typer.Exit(int(code))


def _sources(path: Path | None, *, installed: bool) -> "Sources | None":
    from thorprobe.audit import installed as packages

    if path is not None and installed:
        raise UsageError(
            "`--installed` and `--sources` were both given, but one gate is read at a time",
            "leave out one of them",
        )
    if path is not None:
        return packages.at(path)
    return packages.here() if installed else None


def _failed(summary: "AuditSummary", wanted: "list[FailOn] | tuple[()]") -> ExitCode:
    """Say on standard error what `--fail-on` asked for and was found."""
    reasons = []
    read = summary.installed
    if FailOn.MISMATCH in wanted and read is not None and read.mismatches:
        reasons.append(read.finding)
    for subject, gates in summary.on.items():
        for name, of in gates.items():
            if FailOn.FALSE_ACCEPT in wanted and of.false_accepts:
                reasons.append(f"gate {name} lets rows through on {subject} that cannot launch")
            if FailOn.FALSE_REJECT in wanted and of.false_rejects:
                reasons.append(f"gate {name} keeps rows out on {subject} that launch")
    for reason in reasons:
        print(f"failed: {reason}", file=sys.stderr)
    return ExitCode.EXPECTATION_FAILED if reasons else ExitCode.DONE
