# SPDX-License-Identifier: Apache-2.0
"""The closing report of a row: what was owed, and what the evidence answers.

No result is written here: every sentence about a device is of an exhibit or follows from one.
"""

from collections.abc import Iterable, Sequence

from thorprobe.judge.ranges import sizes_text, spans
from thorprobe.oracle import closing_report_findings
from thorprobe.oracle import table as oracle
from thorprobe.oracle.closing_report_findings import Sides, arm_lines, reached, who
from thorprobe.oracle.closing_report_records import Loss, Owed, RowSummary, Told
from thorprobe.oracle.evidence_file import THROUGH_MODEL, EvidenceFile
from thorprobe.oracle.findings import testimonies
from thorprobe.oracle.fleet import Fleet
from thorprobe.oracle.records import Cell, OracleSummary
from thorprobe.oracle.vllm import sent
from thorprobe.plan import gate as gates
from thorprobe.plan.policy import load as load_policy
from thorprobe.record import Origin, Verdict
from thorprobe.summary import ArmRow

QUESTIONS = (
    "Measure the device's largest cluster, and find where a trivial kernel is refused",
    "Drive num_rows deliberately, so that the arms of the dispatch can be told apart",
    "Decide the oracle of the row, where upstream cannot run the model on the only GPU",
)
"""What the row's report left owed."""

STORES = ("thor-sweep.jsonl", "thor-arms.jsonl")
ENGINES = ("thor-engine.json", "thor-engine-drop-in.json")


def command(row: str) -> str:
    """Return the line that the subject's owner runs in a checkout; it needs no vLLM."""
    run = ".venv/bin/thorprobe"
    sweep, arms = STORES
    return (
        "python3 -m venv .venv && .venv/bin/pip install -q . "
        f"&& {run} cluster-sweep --device 0 --store {sweep} "
        f"&& {run} topk-arms --device 0 --store {arms} "
        f"&& {run} report --row {row} reports {sweep} {arms}"
    )


def engine_command(row: str) -> str:
    """Return the line for the environment of a vLLM: its engine alone, and with the drop-in."""
    engine, drop_in = ENGINES
    run = "thorprobe model-topk --engine vllm --device 0 --repeat 12"
    return (
        f"python -m pip install -q . && {run} --store {engine} "
        f"&& {run} --drop-in always --store {drop_in} "
        f"&& thorprobe report --row {row} reports {engine} {drop_in}"
    )


def summarize(
    fleet: Fleet, exhibits: Sequence[EvidenceFile], cells: Sequence[Cell], table: OracleSummary
) -> RowSummary:
    """Return the report of a fleet's row from its exhibits and its oracle table."""
    row = fleet.row
    found = closing_report_findings.sides(fleet, exhibits)
    failing = closing_report_findings.failing(row.k, found.own_arms)
    columns = (*found.own_arms, *found.other_arms)
    sweeps = (*found.own_sweeps, *found.other_sweeps)
    answers = [x for x in exhibits if x.sweep is None and x.arms is None]
    used = {x.line.id for x in (*columns, *sweeps, *answers)}
    used |= {line.id for line in table.evidence}
    return RowSummary(
        row=row.name,
        subject=row.subject,
        finding=_finding(fleet, found, failing, table),
        next_action=_next(found),
        failing=failing,
        owed=_owed(fleet, found, answers, cells, table),
        sizes=closing_report_findings.sizes(sweeps),
        who=tuple(who(x) for x in columns),
        arms=arm_lines(row.k, columns),
        losses=tuple(_losses(fleet, found)),
        told=tuple(
            Told(who=who(x), command=x.line.command, finding=x.line.finding) for x in answers
        ),
        oracle=table,
        open=(*_open(fleet, found), *oracle.still_open(cells)),
        command=command(row.name),
        engine_command=engine_command(row.name),
        took=tuple(_took(x for x in exhibits if x.line.id in used)),
        evidence=tuple(x.line for x in exhibits if x.line.id in used),
    )


def _finding(fleet: Fleet, found: Sides, failing: Sequence[int], table: OracleSummary) -> str:
    subject = fleet.row.subject
    if not found.own_arms:
        first = f"The failing cluster size on {subject} is not established"
    elif not failing:
        first = f"No arm is refused on {subject} ({found.own_arms[0].line.origin.value})"
    else:
        one = "size is" if len(failing) == 1 else "sizes are"
        seen = [
            who(x).label
            for x in found.other_arms
            if set(failing) <= set(closing_report_findings.failing(fleet.row.k, [x]))
        ]
        also = f", and measured on {_listed(seen)}" if seen else ""
        origin = found.own_arms[0].line.origin.value
        first = f"The failing cluster {one} {sizes_text(failing)}, {origin} for {subject}{also}"
    if subject in table.alone:
        return f"{first}; where {subject} is the only GPU: {table.alone[subject]}"
    return f"{first}; {table.finding[:1].lower()}{table.finding[1:]}"


def _listed(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _next(found: Sides) -> str:
    if found.own_arms and found.own_arms[0].line.origin is Origin.MEASURED:
        return ""
    return "Run the command below on the device: it takes the prediction's place"


def _owed(
    fleet: Fleet,
    found: Sides,
    answers: Sequence[EvidenceFile],
    cells: Sequence[Cell],
    table: OracleSummary,
) -> tuple[Owed, ...]:
    subject = fleet.row.subject
    third = [f"{subject} as the only GPU: {table.alone[subject]}"] if subject in table.alone else []
    third.append(f"fleet {fleet.name}: {table.finding}")
    sweeps = (*found.own_sweeps, *found.other_sweeps)
    through = [x for x in answers if x.line.command == THROUGH_MODEL]
    arms = (*found.own_arms, *found.other_arms, *through)
    decided = [cell.origin for cell in cells if cell.device == subject and cell.arm is not None]
    return (
        Owed(
            number=1,
            question=QUESTIONS[0],
            answers=_told(sweeps),
            origin=_origin(found.own_sweeps),
            because=tuple(x.line.id for x in sweeps),
        ),
        Owed(
            number=2,
            question=QUESTIONS[1],
            answers=_told(arms),
            origin=_origin(found.own_arms),
            because=tuple(x.line.id for x in arms),
        ),
        Owed(
            number=3,
            question=QUESTIONS[2],
            answers=tuple(third),
            origin=decided[0] if decided else None,
            because=tuple(line.id for line in table.evidence),
        ),
    )


def _told(exhibits: Iterable[EvidenceFile]) -> tuple[str, ...]:
    told = tuple(f"{who(x).label} ({x.line.origin.value}): {x.line.finding}" for x in exhibits)
    return told or ("not established: no evidence answers it",)


def _origin(exhibits: Sequence[EvidenceFile]) -> Origin | None:
    return exhibits[0].line.origin if exhibits else None


def _losses(fleet: Fleet, found: Sides) -> Iterable[Loss]:
    """Yield for each proposed gate the arms that it alone keeps rows from."""
    columns = (*found.own_arms, *found.other_arms)
    for candidate in fleet.candidates:
        if not candidate.gate or not found.own_arms:
            continue
        gate = gates.load(candidate.gate)
        policy = load_policy(candidate.pin)
        capability = found.own_arms[0].capability
        told = testimonies(policy, fleet.row.k, found.own_arms)
        shipped = sent(policy, None, told, capability).cluster
        kept = sent(policy, gate, told, capability).persistent
        lost = {
            one.arm.rows
            for one in kept
            if one in shipped and one.arm.verdict is not Verdict.REFUSED
        }
        lines = [
            line
            for line in arm_lines(fleet.row.k, columns)
            if line.policy == policy.name and line.rows in lost
        ]
        yield Loss(oracle=candidate.oracle, gate=gate.title, source=gate.source, arms=tuple(lines))


def _open(fleet: Fleet, found: Sides) -> list[str]:
    subject = fleet.row.subject
    left = []
    if _origin(found.own_sweeps) is not Origin.MEASURED:
        left.append(f"{subject} was not measured: what is said of it is no measurement")
    for exhibit in found.own_arms:
        unknown = [
            arm for arm in reached(fleet.row.k, exhibit) if arm.verdict is Verdict.UNDETERMINED
        ]
        if unknown:
            left.append(f"{subject}, rows {_rows(unknown)}: undetermined{_claims(unknown)}")
    return left


def _rows(arms: Iterable[ArmRow]) -> str:
    return spans({arm.rows for arm in arms})


def _claims(arms: Iterable[ArmRow]) -> str:
    told = {
        f"{name}: {verdict.value}" for arm in arms for name, verdict in arm.under_claims.items()
    }
    return f" (with the published claim {', '.join(sorted(told))})" if told else ""


def _took(exhibits: Iterable[EvidenceFile]) -> Iterable[str]:
    """Yield what whole measured runs of the command's two parts took."""
    for exhibit in exhibits:
        whole = exhibit.line.origin is Origin.MEASURED and not exhibit.partition
        if whole and exhibit.wall_s and (exhibit.sweep is not None or exhibit.arms is not None):
            yield (
                f"{exhibit.line.command} took {exhibit.wall_s:.2f} s on {exhibit.line.device} "
                f"({exhibit.line.name})"
            )
