# SPDX-License-Identifier: Apache-2.0
"""The words of ``claims``: what was published, and how a run stands to it."""

from enum import StrEnum

from thorprobe.answer import Evidence
from thorprobe.plan.claim import ClaimStatus
from thorprobe.plan.reported import Sureness
from thorprobe.record import Origin, Record


class Standing(StrEnum):
    """What one run says of one claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    OPEN = "left open"


class ClaimResult(Record, frozen=True, kw_only=True):
    """One claim held against one run.

    ``observed`` is what the run has of each thing that the claim says, ``reason`` why it is left
    open, empty where it is not. ``about`` says whether the claim is about this device at all.
    """

    id: str
    subject: str
    claim: str
    standing: Standing
    about: bool
    observed: str = ""
    reason: str = ""


class ClaimLine(Record, frozen=True, kw_only=True):
    """One entry of the register, in words."""

    id: str
    statement: str
    source: str
    status: ClaimStatus
    date: str
    disputed_by: str
    device: str
    says: tuple[str, ...]


class ReportedLine(Record, frozen=True, kw_only=True):
    """One reported run, in words. ``told`` is its source with a day, ``doubt`` why it may err."""

    id: str
    hardware: str
    seen: str
    told: str
    sure: Sureness
    doubt: str = ""
    contradicts: tuple[str, ...] = ()


class ReportedResult(Record, frozen=True, kw_only=True):
    """A reported run on such a device, and how one measurement stands to it."""

    subject: str
    run: str
    standing: Standing
    observed: str = ""
    reason: str = ""


class ClaimSubject(Record, frozen=True, kw_only=True):
    """A run that claims are held against, and where its answers come from."""

    name: str
    label: str
    origin: Origin


class ClaimsSummary(Record, tag="claims", tag_field="kind", frozen=True, kw_only=True):
    """The register, and the ids by standing of each run that it was held against.

    ``reported`` lists what others ran, ``against_reported`` how each run stands to it.
    """

    finding: str
    next_action: str = ""
    register: tuple[ClaimLine, ...]
    subjects: tuple[ClaimSubject, ...] = ()
    standings: dict[str, dict[Standing, tuple[str, ...]]]
    reported: tuple[ReportedLine, ...] = ()
    against_reported: tuple[ReportedResult, ...] = ()


Claims = Evidence[ClaimResult, ClaimsSummary]
