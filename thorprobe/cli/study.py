# SPDX-License-Identifier: Apache-2.0
"""A question ties a plan to its judgement: what to ask first, what next, what it came to.

``cluster-sweep`` and ``topk-arms`` are the two questions. A store's header names one with its
options, so a run can be resumed, replayed and rendered again.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan import arms, sweep
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.record import Device, Header, LaunchSpec, Origin, Outcome, Verdict
from thorprobe.summary import ArmsSummary, SweepSummary

Summary = SweepSummary | ArmsSummary


class Study(Protocol):
    """What a measuring command asks."""

    command: str

    @property
    def options(self) -> dict[str, Any]:
        """The parameters that make the plan, as JSON builtins."""
        ...

    def first(self) -> Sequence[LaunchSpec]:
        """Return the launches to ask at once."""
        ...

    def more(self, outcomes: Sequence[Outcome]) -> Sequence[LaunchSpec]:
        """Return the launches that the judged outcomes so far call for; empty when done."""
        ...

    def summary(self, outcomes: Sequence[Outcome], device: Device) -> Summary:
        """Say what the judged outcomes came to."""
        ...


class SweepStudy:
    """Which cluster sizes launch, and the GPC map."""

    command = "cluster-sweep"

    def __init__(self, options: sweep.SweepOptions) -> None:
        """Take the options of the sweep."""
        self._options = options

    @property
    def options(self) -> dict[str, Any]:
        """The sweep's options."""
        return _builtins(self._options)

    def first(self) -> Sequence[LaunchSpec]:
        """Return every size, opt-in and footprint."""
        return sweep.plan(self._options)

    def more(self, outcomes: Sequence[Outcome]) -> Sequence[LaunchSpec]:
        """Return the launches that read the GPC map, once the sizes are measured."""
        if self._options.compiled or any(o.origin is Origin.PREDICTED for o in outcomes):
            return ()
        known = {o.id for o in outcomes}
        wanted = sweep.gpc_map(outcomes, self._options.partition)
        return [spec for spec in wanted if spec.id not in known]

    def summary(self, outcomes: Sequence[Outcome], device: Device) -> Summary:
        """Return the sweep's summary."""
        from thorprobe.judge.sweep import summarize

        return summarize(outcomes, device, admissible=device.admissible_maps or None)


class ArmsStudy:
    """Which arm each num_rows takes, and what it does."""

    command = "topk-arms"

    def __init__(self, options: ArmsOptions) -> None:
        """Take the options of the drive."""
        self._options = options
        self._probes = list(arms.plan(options))

    @property
    def options(self) -> dict[str, Any]:
        """The drive's options."""
        return _builtins(self._options)

    def first(self) -> Sequence[LaunchSpec]:
        """Return every launch of the asked rows."""
        return arms.specs(self._probes)

    def more(self, outcomes: Sequence[Outcome]) -> Sequence[LaunchSpec]:
        """Return the launches of rows between two whose verdicts differ: bisection.

        Rows that were chosen by the policies' own boundaries need none.
        """
        if not self._options.rows:
            return ()
        by_id = {o.id: o.verdict for o in outcomes}
        asked = {probe.rows for probe in self._probes}
        wanted: set[int] = set()
        for policy in dict.fromkeys(self._options.policies):
            verdicts: dict[int, Verdict] = {}
            for probe in self._probes:
                if probe.policy == policy and probe.role == "arm" and probe.spec.id in by_id:
                    found = by_id[probe.spec.id]
                    held = verdicts.get(probe.rows, Verdict.LAUNCHES)
                    verdicts[probe.rows] = found if held is Verdict.LAUNCHES else held
            wanted |= set(arms.next_rows(verdicts)) - asked
        if not wanted:
            return ()
        added = arms.plan(msgspec.structs.replace(self._options, rows=tuple(sorted(wanted))))
        known = {probe.spec.id for probe in self._probes}
        self._probes += added
        return [spec for spec in arms.specs(added) if spec.id not in known]

    def summary(self, outcomes: Sequence[Outcome], device: Device) -> Summary:
        """Return the drive's summary."""
        from thorprobe.judge.arms import summarize
        from thorprobe.plan.policy import load

        policies = [load(name) for name in dict.fromkeys(self._options.policies)]
        return summarize(
            self._probes,
            outcomes,
            device,
            policies,
            self._options.capability,
            call_site=self._options.call_site,
            admissible=device.admissible_maps or None,
        )


def _builtins(options: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(options)
    return made


def plan_digest(specs: Sequence[LaunchSpec]) -> str:
    """SHA-256 of the ids asked first, in order."""
    return hashlib.sha256("\n".join(spec.id for spec in specs).encode()).hexdigest()


def of_header(header: Header) -> Study:
    """Return the question that a store answers. Raises UsageError for one that is not known."""
    kinds: dict[str, Any] = {
        "cluster-sweep": (sweep.SweepOptions, SweepStudy),
        "topk-arms": (ArmsOptions, ArmsStudy),
    }
    if header.command not in kinds:
        raise UsageError(
            f"the store holds a `{header.command}`, which is no question of this thorprobe",
            f"the questions are {', '.join(kinds)}",
        )
    options, question = kinds[header.command]
    try:
        made: Study = question(msgspec.convert(header.options, options, strict=False))
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the store's options are no options of `{header.command}`: {error}",
            "the file was edited or written by another version",
        ) from error
    return made
