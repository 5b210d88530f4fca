# SPDX-License-Identifier: Apache-2.0
"""The words of ``explain``: what is known of one failing launch, and what follows from it."""

import msgspec

from thorprobe.model.launch_facts import LaunchFacts
from thorprobe.record import Record


class Told(Record, frozen=True, kw_only=True):
    """What a person has of one launch; None is what nobody said.

    ``code`` is the driver's or the runtime's result at load, query or launch, ``sync_code`` the one
    at the synchronisation after it, ``earlier_code`` one that an earlier call of the process had.
    ``named`` are causes that a recognised sentence itself names, ``said`` what was recognised.
    ``images`` are the targets of the file that was loaded. ``waits`` says that the CTAs of the grid
    wait for each other without a cooperative launch. Versions are (major, minor) of CUDA.
    """

    launch: LaunchFacts = LaunchFacts()
    capability: tuple[int, int] | None = None
    images: tuple[str, ...] | None = None
    code: int | None = None
    sync_code: int | None = None
    earlier_code: int | None = None
    named: tuple[str, ...] = ()
    hung: bool = False
    waits: bool = False
    observed_cluster: int | None = None
    observed_ctas: int | None = None
    wrong_rows: int | None = None
    ptx_version: tuple[int, int] | None = None
    driver_version: tuple[int, int] | None = None
    said: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Reading(Record, frozen=True, kw_only=True):
    """One cause that fits, with the fact that decides between it and the others."""

    cause: str
    number: int
    fits: str
    sentence: str
    proof: str
    next_action: str = ""
    codes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


class ExplainSummary(Record, frozen=True, kw_only=True):
    """What explains the launch.

    ``cause`` is a key of the catalogue: None where nothing is wrong, ``undetermined`` where the
    facts leave several. ``candidates`` are ranked, ``missing`` are the facts that would decide, as
    options of ``explain`` name them. ``contradicted`` says where the popular reading is wrong.
    """

    finding: str
    cause: str | None = None
    candidates: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    settles: str = ""
    next_action: str = ""
    said: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    told: Told | None = None
    term: str = ""
    terms: dict[str, str] = msgspec.field(default_factory=dict)
