# SPDX-License-Identifier: Apache-2.0
"""The register of published claims about cluster limits, as data that a run can be held against.

One TOML file per family under ``claims/``. A claim says what, of which device, from where and how
sure it is; it is a fact about what was published, and never more than that.
"""

import re
from enum import StrEnum
from functools import cache
from typing import Annotated, Literal

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan.datafile import Folder
from thorprobe.record import MAX_CLUSTER, Claim, Device, Record

Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Cluster = Annotated[int, msgspec.Meta(ge=0, le=MAX_CLUSTER)]
Relation = Literal["equal to", "at least", "at most"]

_FOLDER = Folder("Claims", "plan", "claims")


class ClaimStatus(StrEnum):
    """How sure a published claim is, whatever was measured since.

    ``documented`` by the vendor; ``reported`` by someone who shows what they saw; ``stated``
    without raw output; ``unconfirmed``: one source, no way to check it; ``disputed``: other
    published facts speak against it.
    """

    DOCUMENTED = "documented"
    REPORTED = "reported"
    STATED = "stated"
    UNCONFIRMED = "unconfirmed"
    DISPUTED = "disputed"


class Quantity(StrEnum):
    """What a claim puts a value to.

    ``largest_cluster`` (CTAs, with the opt-in), ``launches`` (yes or no), ``launch_code``,
    ``max_active`` (clusters at one CTA an SM) and ``cluster_seen`` (CTAs, in the kernel) are of a
    launch; ``largest_group`` is in SMs that are co-scheduled; the rest are device limits, in SMs,
    bytes, threads and 32-bit registers.
    """

    LARGEST_CLUSTER = "largest_cluster"
    LAUNCHES = "launches"
    LAUNCH_CODE = "launch_code"
    MAX_ACTIVE = "max_active"
    CLUSTER_SEEN = "cluster_seen"
    LARGEST_GROUP = "largest_group"
    SMS = "sms"
    SMEM_OPTIN = "smem_optin"
    SMEM_PER_SM = "smem_per_sm"
    THREADS_PER_SM = "threads_per_sm"
    REGISTERS_PER_SM = "registers_per_sm"


_OF_ONE_SIZE = {
    *(Quantity.LAUNCHES, Quantity.LAUNCH_CODE),
    *(Quantity.MAX_ACTIVE, Quantity.CLUSTER_SEEN),
}


class Predicate(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value that a run can confirm or contradict.

    ``cluster`` is the size asked about (CTAs). ``dynamic_smem`` 0 is a kernel without shared
    memory, more is a top-k kernel of so many bytes a CTA. ``opt_in`` is the non-portable one.
    """

    quantity: Quantity
    relation: Relation = "equal to"
    value: Count | bool
    cluster: Cluster = 0
    dynamic_smem: Count = 0
    opt_in: bool = True

    def __post_init__(self) -> None:
        """Reject a question about one size without a size, and a yes or no of a number."""
        if (self.quantity in _OF_ONE_SIZE) != bool(self.cluster):
            raise ValueError(f"{self.quantity.value} and cluster {self.cluster} do not go together")
        if isinstance(self.value, bool) != (self.quantity is Quantity.LAUNCHES):
            raise ValueError(f"{self.quantity.value} has no value {self.value}")

    @property
    def text(self) -> str:
        """Such as ``launch_code at cluster 16, 156,416 B: equal to 912``."""
        where = f" at cluster {self.cluster}" if self.cluster else ""
        smem = f", {self.dynamic_smem:,} B" if self.dynamic_smem else ""
        opt_in = "" if self.opt_in else ", no opt-in"
        if isinstance(self.value, bool):
            return f"{self.quantity.value}{where}{smem}{opt_in}: {'yes' if self.value else 'no'}"
        return f"{self.quantity.value}{where}{smem}{opt_in}: {self.relation} {self.value:,}"


class Matcher(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which devices a claim is about; what is left out does not matter.

    ``name`` is a whole word or words of the device's name, ``family`` a major times ten.
    """

    capability: tuple[int, int] | None = None
    family: int | None = None
    name: str = ""
    sms: int | None = None

    def fits(self, device: Device) -> bool:
        """Say whether a device is of the claim."""
        named = rf"(?<!\w){re.escape(self.name)}(?!\w)"
        return (
            self.capability in (None, device.capability)
            and self.family in (None, device.capability[0] * 10)
            and self.sms in (None, device.sms)
            and (not self.name or re.search(named, device.name) is not None)
        )

    @property
    def text(self) -> str:
        """Such as ``GB10, cc 12.1``; ``any device`` where nothing is asked."""
        parts = [
            *([self.name] if self.name else []),
            *(["cc {}.{}".format(*self.capability)] if self.capability else []),
            *([f"cc {self.family // 10}.x"] if self.family else []),
            *([f"{self.sms} SMs"] if self.sms else []),
        ]
        return ", ".join(parts) or "any device"


class PublishedClaim(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim. All of ``says`` hold, or the claim does not; ``date`` is when it was last made."""

    id: Text
    statement: Text
    source: Text
    status: ClaimStatus
    date: str = ""
    disputed_by: str = ""
    device: Matcher = Matcher()
    says: Annotated[tuple[Predicate, ...], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Reject a dispute without its grounds."""
        if (self.status is ClaimStatus.DISPUTED) != bool(self.disputed_by):
            raise ValueError("a disputed claim says by what, and no other does")

    @property
    def general(self) -> bool:
        """Whether it is about every device."""
        return self.device == Matcher()

    def as_layout(self) -> Claim:
        """Return it as what a profile adds to its layout.

        Raises UsageError where it is not about the largest cluster.
        """
        for said in self.says:
            if said.quantity is Quantity.LARGEST_CLUSTER and said.relation != "at most":
                return Claim(
                    id=self.id,
                    statement=self.statement,
                    source=self.source,
                    largest_cluster=int(said.value),
                    at_least=said.relation == "at least",
                )
        raise UsageError(
            f"claim `{self.id}` says nothing of the largest cluster, so no layout follows from it",
            "`thorprobe claims` lists what each claim says",
        )


class _File(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    claims: tuple[PublishedClaim, ...]


@cache
def register() -> tuple[PublishedClaim, ...]:
    """Return every claim, by file and in the files' order. Ids are unique."""
    found = [c for name in _FOLDER.names() for c in _FOLDER.load(name, _File).claims]
    ids = [claim.id for claim in found]
    if len(set(ids)) != len(ids):
        raise UsageError("two claims of the register have one id", "reinstall thorprobe")
    return tuple(found)


def by_id(name: str) -> PublishedClaim:
    """Return one claim. Raises UsageError for an id that the register lacks."""
    for claim in register():
        if claim.id == name:
            return claim
    raise UsageError(
        f"claim `{name}` is not in the register",
        f"it holds {', '.join(claim.id for claim in register())}",
    )
