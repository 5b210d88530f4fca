# SPDX-License-Identifier: Apache-2.0
"""Public runs of others on named hardware, as data: *reported*, between measured and claimed.

A claim says what somebody wrote; a reported run says what somebody's device did, with the source
and how sure it is. Neither makes a measurement, and a measurement that differs wins.
"""

from enum import StrEnum
from functools import cache
from typing import Annotated

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan.claim import ClaimStatus, Matcher, Predicate, PublishedClaim, register
from thorprobe.plan.datafile import Folder
from thorprobe.record import Record

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Day = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]

_REINSTALL = "reinstall thorprobe"

_FOLDER = Folder("Reported runs", "plan", "reported_runs")


class Sureness(StrEnum):
    """How sure a reported run is, by what its source shows."""

    HIGH = "high"
    FAIRLY_HIGH = "fairly high"
    MEDIUM = "medium"


class ReportedRun(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. ``says`` is what a measurement can contradict, empty where it cannot.

    ``date`` is of the run or of what told it, empty where the source gives none; ``read`` is the
    day on which the source was read. ``doubt`` says why ``sure`` is less than high.
    ``contradicts`` names claims of the register that the run speaks against.
    """

    id: Text
    hardware: Text
    seen: Text
    source: Text
    sure: Sureness
    read: Day
    date: Day | None = None
    doubt: str = ""
    contradicts: tuple[Text, ...] = ()
    device: Matcher
    says: tuple[Predicate, ...] = ()

    def __post_init__(self) -> None:
        """Reject a doubt without its grounds, and grounds without a doubt."""
        if (self.sure is Sureness.HIGH) == bool(self.doubt):
            raise ValueError("a run that is less than high in sureness says why, and no other does")

    @property
    def told(self) -> str:
        """The source and the day, such as ``vLLM #56083, read 2026-12-01``."""
        return f"{self.source}, {self.date or f'read {self.read}'}"

    def as_claim(self) -> PublishedClaim:
        """Return it as what a run can be held against. Only for a run that says something."""
        return PublishedClaim(
            id=self.id,
            statement=self.seen,
            source=self.source,
            date=self.date or "",
            status=ClaimStatus.REPORTED,
            device=self.device,
            says=self.says,
        )


class _File(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    runs: tuple[ReportedRun, ...]


@cache
def reported() -> tuple[ReportedRun, ...]:
    """Return every reported run, by file and in the files' order.

    An id is of one run alone and of no claim, and what a run contradicts is a claim.
    """
    found = [run for name in _FOLDER.names() for run in _FOLDER.load(name, _File).runs]
    claims = {claim.id for claim in register()}
    ids = [run.id for run in found]
    if len({*ids, *claims}) != len(ids) + len(claims):
        raise UsageError("two reported runs, or a run and a claim, have one id", _REINSTALL)
    if not claims.issuperset(name for run in found for name in run.contradicts):
        raise UsageError("a reported run contradicts a claim that is not there", _REINSTALL)
    return tuple(found)
