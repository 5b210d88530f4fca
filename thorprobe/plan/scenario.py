# SPDX-License-Identifier: Apache-2.0
"""Scenarios: a device, what to probe, what is expected, and where the claim comes from."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import msgspec

from thorprobe.driver import partition
from thorprobe.errors import UsageError
from thorprobe.plan.arm_probe import DEFAULT_POLICIES, ArmsOptions
from thorprobe.plan.arms import parse_rows
from thorprobe.plan.expectation import ArmsExpect, Expect, Size, SweepExpect, hold, subject, wanted
from thorprobe.plan.policy import Capability
from thorprobe.plan.sweep import SIZES
from thorprobe.record import Device, Record, Status
from thorprobe.summary import Document

__all__ = [
    "ArmsExpect",
    "ArmsProbe",
    "Expect",
    "ExpectationResult",
    "Probe",
    "Scenario",
    "ScenarioDevice",
    "SweepExpect",
    "SweepProbe",
    "check",
    "load",
    "mismatch",
    "names",
    "waive",
]

_LARGEST_FILE = 262_144

Text = Annotated[str, msgspec.Meta(min_length=1)]
CapabilityText = Annotated[str, msgspec.Meta(pattern=r"^([1-9][0-9]?\.[0-9])?$")]


class ScenarioDevice(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who answers: a ``profile`` of the model, or the first GPU, if its name contains ``gpu``.

    ``partition`` is spelled as ``--partition`` takes it. ``without_layout`` takes the published
    layout out of the profile.
    """

    profile: str = ""
    gpu: str = ""
    partition: str = ""
    without_layout: bool = False

    def __post_init__(self) -> None:
        """Reject a device that is both a profile and a GPU, or neither."""
        if bool(self.profile) == bool(self.gpu):
            raise ValueError("a device has either a profile or a gpu")
        if self.without_layout and not self.profile:
            raise ValueError("without_layout needs a profile")
        _as_value_error(partition.parse, self.partition)


class SweepProbe(
    Record,
    frozen=True,
    tag="cluster-sweep",
    tag_field="command",
    kw_only=True,
    forbid_unknown_fields=True,
):
    """One ``cluster-sweep``; ``kernels`` empty is every standard footprint."""

    name: str = ""
    sizes: tuple[Size, ...] = SIZES
    kernels: tuple[str, ...] = ()
    compiled_dims: bool = False


class ArmsProbe(
    Record,
    frozen=True,
    tag="topk-arms",
    tag_field="command",
    kw_only=True,
    forbid_unknown_fields=True,
):
    """One ``topk-arms``; ``rows`` as in ``--rows``, empty for the default rows.

    ``as_capability`` such as ``11.0`` dispatches for that part; empty is the device's own.
    """

    name: str = ""
    policies: tuple[str, ...] = DEFAULT_POLICIES
    rows: str = ""
    lengths: tuple[int, ...] = ()
    columns: int = 65_536
    stride: int = 0
    k: tuple[int, ...] = (512,)
    distribution: str = "normal"
    repeats: int = 0
    compiled_dims: bool = False
    as_capability: CapabilityText = ""

    def __post_init__(self) -> None:
        """Reject rows that ``--rows`` would reject."""
        if self.rows:
            _as_value_error(parse_rows, self.rows)

    def options(self, capability: Capability, partition_text: str = "") -> ArmsOptions:
        """Options of the plan on a device of that capability, in that partition."""
        if self.as_capability:
            major, minor = self.as_capability.split(".")
            capability = (int(major), int(minor))
        return ArmsOptions(
            policies=self.policies,
            capability=capability,
            rows=parse_rows(self.rows) if self.rows else (),
            lengths=self.lengths,
            columns=self.columns,
            stride=self.stride,
            k=self.k,
            distribution=self.distribution,
            repeats=self.repeats,
            partition=partition_text,
            compiled=self.compiled_dims,
        )


Probe = SweepProbe | ArmsProbe


class Scenario(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device, its probes and the expectations; ``source`` is the origin of the claim."""

    name: Text
    description: Text
    source: Text
    device: ScenarioDevice
    probes: Annotated[tuple[Probe, ...], msgspec.Meta(min_length=1)] = msgspec.field(name="probe")
    expects: Annotated[tuple[Expect, ...], msgspec.Meta(min_length=1)] = msgspec.field(
        name="expect"
    )

    def __post_init__(self) -> None:
        """Reject an expectation that no single probe answers, or a claim without a profile."""
        for number, expect in enumerate(self.expects, 1):
            fitting = self.answering(expect)
            if len(fitting) != 1:
                found = "no probe" if not fitting else f"{len(fitting)} probes"
                raise ValueError(
                    f"expectation {number} ({subject(expect)}) is answered by {found}: "
                    "name one with probe"
                )
            if expect.under and self.device.gpu:
                raise ValueError(
                    f"expectation {number} is under a claim, but a measurement rests on none"
                )

    def answering(self, expect: Expect) -> tuple[int, ...]:
        """Return the indices of the probes that could answer it; exactly one once loaded."""
        kind = SweepProbe if isinstance(expect, SweepExpect) else ArmsProbe
        return tuple(
            index
            for index, probe in enumerate(self.probes)
            if isinstance(probe, kind) and expect.probe in ("", probe.name)
        )


class ExpectationResult(Record, frozen=True, kw_only=True):
    """What became of one expectation: pass, fail or waived, and a sentence that says so."""

    scenario: str
    expect: Expect
    status: Status
    sentence: str


def _as_value_error(parse: Callable[[str], object], text: str) -> None:
    # msgspec reports a ValueError with its place in the file; a UsageError would lose that.
    try:
        parse(text)
    except UsageError as error:
        raise ValueError(error.sentence) from error


def _folder() -> Traversable:
    packaged = files("thorprobe").joinpath("scenarios")
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[2] / "scenarios"


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios, sorted; empty where none are shipped."""
    folder = _folder()
    if not folder.is_dir():
        return ()
    entries = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in entries if name.endswith(".toml")))


def load(path_or_name: str) -> Scenario:
    """Shipped scenario of that name, or the scenario file at that path (ending in ``.toml``).

    Raises UsageError: unknown name, unreadable file, or a file outside the schema.
    """
    known = names()
    if path_or_name in known:
        raw = _folder().joinpath(f"{path_or_name}.toml").read_bytes()
    elif path_or_name.endswith(".toml"):
        try:
            with Path(path_or_name).open("rb") as file:
                raw = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise UsageError(
                f"Scenario file {path_or_name} cannot be read: {error.strerror or error}",
                "give the path of a readable .toml file",
            ) from error
    else:
        raise UsageError(
            f"Unknown scenario {path_or_name!r}",
            f"known scenarios: {', '.join(known)}; a file's name ends in .toml",
        )
    if len(raw) > _LARGEST_FILE:
        raise UsageError(
            f"Scenario file {path_or_name} has more than {_LARGEST_FILE:,} bytes",
            "a scenario is a short TOML file; scenarios/ has examples",
        )
    try:
        return _from(Path(path_or_name).parent, msgspec.toml.decode(raw, type=Scenario))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"Scenario file {path_or_name} does not fit the schema: {error}",
            "scenarios/ has examples",
        ) from error


def is_file(profile: str) -> bool:
    """Say whether a profile is named by the path of its file."""
    return profile.endswith(".toml") or "/" in profile or "\\" in profile


def _from(folder: Path, scenario: Scenario) -> Scenario:
    """Take the path of a profile file from the scenario's own folder."""
    profile = scenario.device.profile
    if not is_file(profile) or Path(profile).is_absolute():
        return scenario
    return answered_by(scenario, f"{folder}/{profile}")


def answered_by(scenario: Scenario, profile: str) -> Scenario:
    """Return the scenario with its profile named so: by path, or by the name that the file has."""
    device = msgspec.structs.replace(scenario.device, profile=profile)
    return msgspec.structs.replace(scenario, device=device)


def mismatch(wanted_device: ScenarioDevice, device: Device) -> str:
    """Why ``device`` is not the one a scenario is about; empty where it is."""
    if wanted_device.profile:
        if device.profile != wanted_device.profile:
            return f"profile {device.profile or 'none'} answered, not {wanted_device.profile}"
    elif device.profile:
        return f"profile {device.profile} answered, not a GPU"
    elif wanted_device.gpu not in device.name:
        return f"the GPU is {device.name}, not {wanted_device.gpu}"
    if not partition.same(device.partition, wanted_device.partition):
        return (
            f"partition {device.partition or 'none'} answered, "
            f"not {wanted_device.partition or 'the whole device'}"
        )
    return ""


def check(scenario: Scenario, documents: Sequence[Document | None]) -> list[ExpectationResult]:
    """Compare every expectation with the documents, one per probe in the scenario's order.

    None, or a sequence that ends early, is a probe without an answer: what it should have shown
    fails. So does a document of another device, partition or command.
    """
    results = []
    for expect in scenario.expects:
        index = scenario.answering(expect)[0]
        document = documents[index] if index < len(documents) else None
        if document is None:
            wrong = "no result"
        elif document.command != scenario.probes[index].__struct_config__.tag:
            wrong = f"a document of {document.command}"
        else:
            wrong = mismatch(scenario.device, document.device)
        if wrong or document is None:
            status = Status.FAIL
            sentence = f"{subject(expect)}: expected {wanted(expect)}; observed {wrong}"
        else:
            status, sentence = hold(expect, document)
        results.append(
            ExpectationResult(
                scenario=scenario.name, expect=expect, status=status, sentence=sentence
            )
        )
    return results


def waive(scenario: Scenario, reason: str) -> list[ExpectationResult]:
    """Waive every expectation: the scenario cannot apply here, and ``reason`` says why."""
    return [
        ExpectationResult(
            scenario=scenario.name,
            expect=expect,
            status=Status.WAIVED,
            sentence=f"{subject(expect)}: expected {wanted(expect)}; waived: {reason}",
        )
        for expect in scenario.expects
    ]
