# SPDX-License-Identifier: Apache-2.0
"""Fleets: the devices a row is to be checked on, and the candidates for its oracle, as data.

A fleet file declares; it holds no status. What each candidate does on each device comes from
evidence files, by the rules of ``oracle/table.py``.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Annotated, Literal

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan import gate as gates
from thorprobe.plan.datafile import Folder
from thorprobe.record import Record

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
VersionText = Annotated[str, msgspec.Meta(pattern=r"^([0-9]+(\.[0-9]+){0,3})?$")]
Positive = Annotated[int, msgspec.Meta(ge=1)]

CandidateKind = Literal["vllm", "transformers", "ladder", "external"]

_FOLDER = Folder("fleet", "oracle", "fleets")


class Row(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The row of the model's record that wants an oracle.

    ``subject`` is the device that the row's report is about. The model selects ``k`` blocks; up to
    ``budget_tokens`` of context it selects all of them, and a wrong selection cannot show.
    """

    name: Name
    model: Text
    subject: Name
    k: Positive
    budget_tokens: Positive
    source: Text


class FleetDevice(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device of the fleet, and which evidence answers for it.

    Measurements answer if the name of their device contains ``gpu`` and their partition is
    ``partition``; predictions if they are of ``profile``; ``host`` is a CPU. ``exposes_gpu`` says
    whether what runs there sees a GPU.
    """

    name: Name
    exposes_gpu: bool
    gpu: str = ""
    profile: str = ""
    partition: str = ""
    host: bool = False

    def __post_init__(self) -> None:
        """Reject a device that nothing could answer for, and a CPU that exposes a GPU."""
        if self.host == bool(self.gpu or self.profile):
            raise ValueError("a device is either a host or has a gpu, a profile or both")
        if self.host and (self.exposes_gpu or self.partition):
            raise ValueError("a host exposes no GPU and has no partition")


class GateOpen(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published statement that a version's gate lets rows through on a device."""

    device: Name
    source: Text


class Candidate(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate for the row's oracle.

    ``vllm`` is the dispatch policy that ``pin`` names, with ``gate`` in the place of its own where
    one is named, or with thorprobe's drop-in in the mode ``drop_in``. ``transformers`` is the
    model's reference and ``ladder`` the same with thorprobe's selection, both of version
    ``at_least`` or later, or exactly ``pin``. Nothing of thorprobe runs an ``external`` one.
    """

    kind: CandidateKind
    oracle: Name
    role: Text
    source: Text
    pin: str = ""
    at_least: VersionText = ""
    gate: str = ""
    drop_in: Literal["", "fallback", "always"] = ""
    gate_open: tuple[GateOpen, ...] = ()

    def __post_init__(self) -> None:
        """Reject a policy that is not named, a gate that fits none, and a gate of another kind."""
        if self.kind == "vllm":
            self._check_policy()
        elif self.gate or self.gate_open:
            raise ValueError(f"candidate {self.oracle} has a gate, and only vllm has one")
        elif self.drop_in:
            raise ValueError(f"candidate {self.oracle} has a drop-in, and only vllm has one")
        if self.drop_in and (self.gate or self.gate_open):
            raise ValueError(f"candidate {self.oracle} has a drop-in and a gate: it is one of them")

    def _check_policy(self) -> None:
        from thorprobe.plan.policy import names

        if self.pin not in names():
            raise ValueError(
                f"candidate {self.oracle} is pinned to {self.pin!r}, and the policies are "
                f"{', '.join(names())}"
            )
        if not self.gate:
            return
        if self.gate not in gates.names():
            raise ValueError(
                f"candidate {self.oracle} has gate {self.gate!r}, and the gates are "
                f"{', '.join(gates.names())}"
            )
        gate = gates.load(self.gate)
        if gate.policy != self.pin or gate.steps_down:
            raise ValueError(
                f"candidate {self.oracle}: gate {self.gate} is of policy {gate.policy}"
                f"{' and steps down, which the arms of a policy do not answer' * gate.steps_down}"
            )

    @property
    def shipped(self) -> bool:
        """Whether upstream ships it as it is."""
        return self.kind != "ladder" and not self.gate and not self.drop_in


class Fleet(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices and candidates of one row."""

    name: Name
    description: Text
    row: Row
    devices: Annotated[tuple[FleetDevice, ...], msgspec.Meta(min_length=1, max_length=64)] = (
        msgspec.field(name="device")
    )
    candidates: Annotated[tuple[Candidate, ...], msgspec.Meta(min_length=1, max_length=64)] = (
        msgspec.field(name="candidate")
    )

    def __post_init__(self) -> None:
        """Reject names that occur twice, and a subject or gate on a device that is not there."""
        _once("device", (device.name for device in self.devices))
        _once("candidate", (candidate.oracle for candidate in self.candidates))
        known = {device.name for device in self.devices}
        named = [self.row.subject]
        named += [opened.device for one in self.candidates for opened in one.gate_open]
        for name in named:
            if name not in known:
                raise ValueError(f"device {name} is named, but the fleet has no such device")

    def device(self, name: str) -> FleetDevice:
        """Return the device of that name, which is there: names are checked at loading."""
        return next(device for device in self.devices if device.name == name)


def _once(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} occurs twice")
        seen.add(name)


def names() -> tuple[str, ...]:
    """Names of the shipped fleets, sorted."""
    return _FOLDER.names()


def load(name: str) -> Fleet:
    """Shipped fleet of that name, or the fleet file at that path (ending in ``.toml``).

    Raises UsageError: unknown name, unreadable or oversized file, or one outside the schema.
    """
    return _FOLDER.load(name, Fleet)


def digest(name: str) -> str:
    """SHA-256 of that file. Raises UsageError where it cannot be read."""
    return sha256(_FOLDER.read(name)).hexdigest()


def of_row(name: str) -> str:
    """Return the shipped fleet of that row. Raises UsageError where none is."""
    found = {load(fleet).row.name: fleet for fleet in names()}
    if name not in found:
        raise UsageError(
            f"`--row {name}` was asked for, and no shipped fleet is of that row",
            f"the rows are {', '.join(sorted(found))}; `--fleet FILE` names a fleet of another",
        )
    return found[name]
