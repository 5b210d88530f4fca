# SPDX-License-Identifier: Apache-2.0
"""The gates that an audit compares: shipped, proposed, and thorprobe's own, as data.

A gate decides which rows the call site hands to the cooperative kernel. One TOML file per gate
under ``gates/``; the dispatch behind it is a policy's, and so are the conditions of a shipped gate.
"""

from typing import Annotated, Literal

import msgspec

from thorprobe.plan.datafile import Folder
from thorprobe.plan.policy import Policy
from thorprobe.plan.policy import load as load_policy
from thorprobe.record import Record

GateStatus = Literal["shipped", "proposed", "thorprobe", "installed"]
"""``shipped`` in an upstream version, ``proposed`` upstream, ``thorprobe``'s own proposal, or read
from the sources of an ``installed`` version."""

Text = Annotated[str, msgspec.Meta(min_length=1)]

DEFAULT = ("e126687a9a", "0.33.0", "pr-56084", "pr-56102", "occupancy", "step-down")
"""The gates of an audit where none is named: the commit of the first report from a Thor, the newest
release that was read, the two proposed fixes, and thorprobe's own."""

_FOLDER = Folder("Gate", "plan", "gates")


class AuditGate(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gate over the dispatch of one policy.

    The conditions are the policy's, with ``also_excluded_families`` (majors times ten) added. With
    ``asks_occupancy`` those on capability and family are replaced by cuOccupancyMaxActiveClusters
    for the arm's own kernel and bytes; with ``steps_down`` the next smaller size that the kernel is
    built for is tried until one is resident.
    """

    name: Text
    title: Text
    status: GateStatus
    policy: Text
    also_excluded_families: tuple[int, ...] = ()
    asks_occupancy: bool = False
    steps_down: bool = False
    source: Text
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject a step down without the question that it needs."""
        if self.steps_down and not self.asks_occupancy:
            raise ValueError("steps_down needs asks_occupancy")

    def effective(self) -> Policy:
        """Return the policy with this gate in the place of its own.

        Raises UsageError: an unknown policy.
        """
        policy = load_policy(self.policy)
        bounds = policy.gate
        families = (*bounds.excluded_families, *self.also_excluded_families)
        bounds = msgspec.structs.replace(bounds, excluded_families=families, source=self.source)
        if self.asks_occupancy:
            bounds = msgspec.structs.replace(bounds, min_capability=None, excluded_families=())
        return msgspec.structs.replace(policy, gate=bounds)


def names() -> tuple[str, ...]:
    """Names of the shipped gates, sorted."""
    return _FOLDER.names()


def load(name: str) -> AuditGate:
    """Shipped gate of that name, or the gate file at that path (ending in ``.toml``).

    Raises UsageError: unknown name or policy, unreadable file, or a file outside the schema.
    """
    gate = _FOLDER.load(name, AuditGate)
    gate.effective()
    return gate
