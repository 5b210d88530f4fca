# SPDX-License-Identifier: Apache-2.0
"""The words of a gate read from the Python sources of an installed vLLM."""

from enum import StrEnum

from thorprobe.record import Record


class Role(StrEnum):
    """Which call site a source file is, told from its path."""

    QSA = "QSA indexer"
    GENERIC = "generic sparse indexer"
    AMD = "AMD copy"
    OTHER = "other"


class Match(StrEnum):
    """How a constant of the sources stands to the data of that version."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NEW = "not in the data"
    MISSING = "not read in the source"


class SourceGate(Record, frozen=True, kw_only=True):
    """The conditions under which one place takes ``cooperative_topk``, as its source has them.

    ``path`` is relative to the package's parent, ``line`` that of the operator. None and empty say
    that no such condition was read; ``unread_lines`` are those of conditions that were not
    understood. ``required_families`` and ``excluded_families`` are majors times ten, as a policy's.
    """

    path: str
    function: str
    line: int
    role: Role
    rows: int | None = None
    stride_multiple: int | None = None
    min_capability: tuple[int, int] | None = None
    excluded_families: tuple[int, ...] = ()
    required_families: tuple[int, ...] = ()
    k: tuple[int, ...] = ()
    cuda_only: bool = False
    unread_lines: tuple[int, ...] = ()


class Comparison(Record, frozen=True, kw_only=True):
    """One constant of one call site beside the policy's."""

    path: str
    constant: str
    in_source: str
    in_data: str
    match: Match


class Installed(Record, frozen=True, kw_only=True):
    """What was read of an installed version, a wheel or a source tree.

    ``source`` is what was read, without folders; ``version`` is empty where it is not said.
    ``policy`` names the data of that version, empty for a version without data: then the constants
    are reported and nothing is assumed.
    """

    source: str
    version: str
    policy: str = ""
    sites: tuple[SourceGate, ...] = ()
    compared: tuple[Comparison, ...] = ()
    finding: str = ""

    @property
    def mismatches(self) -> tuple[Comparison, ...]:
        """The constants that differ from the data."""
        return tuple(c for c in self.compared if c.match is Match.DIFFERS)
