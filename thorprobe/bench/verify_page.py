# SPDX-License-Identifier: Apache-2.0
"""How ``bench --verify`` is shown: how many calls, of what, and a line for each wrong one."""

from collections.abc import Iterator

from thorprobe.answer import Kind
from thorprobe.bench.verify_answer import Answer
from thorprobe.bench.verify_record import Failure, VerifySummary
from thorprobe.render.page import device_line
from thorprobe.render.sheet import Section, Sheet
from thorprobe.render.table import Column, Table, counted

_METHOD = (
    "Shapes lie around every boundary of every kernel. Scores are drawn on the device, and the "
    "reference is torch's stable sort of whole rows, computed once an input. Each call's result, "
    "and what is around it, is compared index by index on the device."
)
_BY = {"rung": "the rung that answered", "asked": "what was asked"}
_LEGEND = (
    ("rung", "the rung that answered; one that the device refuses falls to the next"),
    ("asked", "what was asked for: a rung, auto, or one kernel of the ladder by its name"),
    ("partition", "the whole device, or a green context of so many SMs on it"),
    (
        "mode",
        "one stream a partition, several streams or threads, a replayed graph, or prepared calls",
    ),
)


def sheet(answer: Answer) -> Sheet:
    """Put a verification into words."""
    found = answer.summary
    processes = counted(found.processes, "process", "processes")
    return Sheet(
        title="Generated calls of the ladder against a stable sort",
        device=device_line(answer) if answer.device else "the CPU, measured",  # type: ignore[arg-type]
        finding=found.finding,
        next_action=found.next_action,
        sections=tuple(_sections(answer)),
        legend=_LEGEND,
        closing=(
            f"{counted(found.calls, 'call')} of {counted(found.inputs, 'input')} and "
            f"{counted(found.shapes, 'shape')} in {found.seconds:.1f} s of {processes}; seed "
            f"{found.seed}"
        ),
    )


def _sections(answer: Answer) -> Iterator[Section]:
    found = answer.summary
    if answer.results:
        yield Section(
            heading="What was wrong",
            items=tuple(_told(one) for one in answer.results),
            code="\n".join(one.smallest or one.line for one in answer.results),
        )
        first = [one.line for one in answer.results if one.smallest]
        if first:
            yield Section(heading="First met as", code="\n".join(first))
    yield Section(heading="How calls were held", paragraphs=(_METHOD,), pairs=_made(found))
    counts = {
        "rung": found.by_ran,
        "partition": found.by_partition,
        "type": found.by_dtype,
        "mode": found.by_mode,
        "distribution": found.by_distribution,
        "asked": found.by_asked,
    }
    for name, of in counts.items():
        if of:
            yield Section(heading=f"Calls by {_BY.get(name, name)}", table=_table(name, of))
    if found.notes:
        yield Section(heading="Notes", items=found.notes)


def _made(found: VerifySummary) -> tuple[tuple[str, str], ...]:
    pairs = (("kernels/select.cu", found.kernel), ("NVRTC", found.nvrtc))
    return tuple((name, told) for name, told in pairs if told)


def _told(one: Failure) -> str:
    ran = f"{one.ran}: " if one.ran else ""
    shrunk = f", shrunk in {counted(one.tries, 'try', 'tries')}" if one.smallest else ""
    return f"{ran}{one.detail or 'not tried again'}{shrunk}"


def _table(name: str, counts: dict[str, int]) -> Table:
    return Table(
        title=name,
        columns=(Column((name,), numeric=False), Column(("calls",))),
        rows=tuple(((key,), (f"{many:,}",)) for key, many in counts.items()),
    )


KIND = Kind(type=Answer, sheet=sheet)
