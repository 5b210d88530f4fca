# SPDX-License-Identifier: Apache-2.0
"""``thorprobe run``."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thorprobe.cli import options as o
from thorprobe.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from thorprobe.cli.measure import Answerer
    from thorprobe.plan.scenario import ExpectationResult, Scenario
    from thorprobe.summary import Document


def run(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCENARIO]...", help="Names or .toml files; none: all shipped"),
    ] = None,
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also list every expectation that held")
    ] = False,
    no_progress: o.NoProgressOption = False,
    deadline: o.DeadlineOption = 10.0,
) -> None:
    """Run scenarios: a known failure is green, a change is red.

    Exits 1 where an outcome differs from what is expected, and 3 where everything was waived
    because the devices are not here.
    """
    from thorprobe.plan import scenario as scenarios
    from thorprobe.record import Status
    from thorprobe.render import EXPECTATION_FORMATS
    from thorprobe.render.expectation import Line

    form = o.Format.JSON if json else form
    if form.value not in EXPECTATION_FORMATS:
        raise UsageError(
            f"`--format {form.value}` was asked for, but scenarios have no such format",
            f"the formats of `run` are {', '.join(EXPECTATION_FORMATS)}",
        )
    chosen = [scenarios.load(name) for name in names or scenarios.names()]
    results: list[ExpectationResult] = []
    for scenario in chosen:
        results += _run(scenario, shown=not no_progress, deadline_s=deadline)
    lines = [Line(r.scenario, r.sentence, r.status) for r in results]
    _show(lines, form, output, verbose=verbose)
    statuses = [r.status for r in results]
    if Status.FAIL in statuses:
        raise typer.Exit(int(ExitCode.EXPECTATION_FAILED))
    if all(status is Status.WAIVED for status in statuses):
        raise typer.Exit(int(ExitCode.COULD_NOT_PROBE))


def _show(lines: "list[Any]", form: o.Format, output: Any, *, verbose: bool) -> None:
    from thorprobe.cli.output import write
    from thorprobe.render import EXPECTATION_FORMATS

    if form is o.Format.TEXT:
        from thorprobe.render.text import render_expectations, show_expectations, terminal

        if output is None:
            show_expectations(lines, terminal(sys.stdout), verbose=verbose)
        else:
            write(render_expectations(lines, verbose=verbose), output)
        return
    write(EXPECTATION_FORMATS[form.value](lines), output)


def _run(scenario: "Scenario", *, shown: bool, deadline_s: float) -> "list[ExpectationResult]":
    from thorprobe.cli.measure import measure
    from thorprobe.cli.session import progress
    from thorprobe.errors import CouldNotProbeError
    from thorprobe.plan.scenario import answered_by, check, mismatch, waive

    try:
        answerer = _open(scenario, deadline_s)
    except CouldNotProbeError as error:
        if scenario.device.profile:
            raise
        return waive(scenario, f"no such GPU is here: {error.sentence}")
    documents: list[Document | None] = []
    if scenario.device.profile:  # A file is compared by the name that it gives itself.
        scenario = answered_by(scenario, answerer.device.profile)
    try:
        other = mismatch(scenario.device, answerer.device)
        if other:
            return waive(scenario, other)
        for probe in scenario.probes:
            question = _question(probe, answerer.device, scenario.device.partition)
            with progress(f"{scenario.name}: {question.command}", shown=shown) as advance:
                documents.append(measure(question, answerer, progress=advance))
        return check(scenario, documents)
    except CouldNotProbeError as error:
        print(f"{scenario.name}: {error.sentence}", file=sys.stderr)
        return check(scenario, documents)  # What was not answered fails; other scenarios go on.
    finally:
        answerer.close()


def _open(scenario: "Scenario", deadline_s: float) -> "Answerer":
    wanted = scenario.device
    if wanted.profile:
        from thorprobe.model.profile import load
        from thorprobe.run.model import ModelAnswerer

        profile = load(wanted.profile)
        if wanted.without_layout:
            profile = profile.without_layout()
        return ModelAnswerer(profile, wanted.partition)
    from thorprobe.run.gpu import GpuAnswerer

    return GpuAnswerer(0, wanted.partition, oracle="auto", deadline_s=deadline_s)


def _question(probe: Any, device: Any, partition: str) -> Any:
    from thorprobe.cli.study import ArmsStudy, SweepStudy
    from thorprobe.plan.scenario import SweepProbe
    from thorprobe.plan.sweep import SweepOptions

    if isinstance(probe, SweepProbe):
        return SweepStudy(
            SweepOptions(
                sizes=probe.sizes,
                kernels=probe.kernels,
                partition=partition,
                compiled=probe.compiled_dims,
            )
        )
    return ArmsStudy(probe.options(device.capability, partition))
