# SPDX-License-Identifier: Apache-2.0
"""``thorprobe doctor``."""

import sys
from typing import TYPE_CHECKING

import typer

from thorprobe.cli import options as o

if TYPE_CHECKING:
    from thorprobe.commands.environment import Fact


def doctor(*, json: o.JsonOption = False, output: o.OutputOption = None) -> None:
    """Say what is here and what is missing, with the exact line that mends it.

    Devices, driver, NVRTC, packages, partitions (MIG, MPS, green contexts), other processes.
    """
    from thorprobe.cli.output import write
    from thorprobe.commands.environment import survey

    facts = (*survey(), _gate(), _drop_in())
    if json:
        import msgspec

        from thorprobe.cli.measure import now
        from thorprobe.record import SchemaTag

        document = {"schema": SchemaTag(), "command": "doctor", "started": now(), "facts": facts}
        write(msgspec.json.format(msgspec.json.encode(document)).decode(), output)
        return
    if output is not None:
        write("\n".join(_lines(facts)), output)
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in _lines(facts):
        style = "yellow" if line.startswith("!") else ""
        console.print(escape(line), style=style)
    missing = [fact for fact in facts if not fact.found]
    if missing:
        typer.echo(
            f"\n{len(missing)} missing, marked with !, each with the line that mends it", err=True
        )


def _gate() -> "Fact":
    """Say what the gate of an installed vLLM has, and whether the data describes it."""
    from thorprobe.audit import installed
    from thorprobe.audit.agreement import compare
    from thorprobe.commands.environment import Fact
    from thorprobe.errors import CouldNotProbeError, ThorprobeError

    try:
        read = installed.here()
    except CouldNotProbeError:
        return Fact(topic="vLLM", name="gate", value="no vLLM in this environment")
    except ThorprobeError as error:
        return Fact(topic="vLLM", name="gate", value=error.sentence, found=False, mend=error.hint)
    told = compare(read.source, read.version, read.gates)
    mend = "thorprobe audit --installed" if told.mismatches else ""
    return Fact(topic="vLLM", name="gate", value=told.finding, found=not mend, mend=mend)


def _drop_in() -> "Fact":
    """Say whether a vLLM that starts here has thorprobe's top-k in the place of its own."""
    from thorprobe.commands.environment import Fact
    from thorprobe.vllm.dropin_status import status

    told = status()
    return Fact(topic="vLLM", name="drop-in", value=told.value, found=not told.mend, mend=told.mend)


def _lines(facts: "tuple[object, ...]") -> "list[str]":
    from thorprobe.commands.environment import Fact

    lines: list[str] = []
    topic = ""
    width = max((len(f.name) for f in facts if isinstance(f, Fact)), default=0)
    for fact in facts:
        if not isinstance(fact, Fact):
            continue
        if fact.topic != topic:
            topic = fact.topic
            lines.append(topic)
        mark = "  " if fact.found else "! "
        lines.append(f"{mark}{fact.name:{width}}  {fact.value}")
        if fact.mend:
            lines.append(f"      hint: {fact.mend}")
    return lines
