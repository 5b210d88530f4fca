# SPDX-License-Identifier: Apache-2.0
"""Which misuse the driver's own sentences name.

A driver log that could be read and says nothing is evidence; one that could not be read is not. On
an H200 (driver 580, measured 2026-11-30) the log names every misuse of a launch but one, a cluster
of more than 16 CTAs, and is silent where no group of SMs hosts the cluster.
"""

import re
from collections.abc import Iterable

from thorprobe.record import Outcome

SHARED_MEMORY = "shared-memory"
GRID = "grid"

_NOISE = re.compile(
    r"cuGetProcAddress|\bcudaVersion argument|\breturning\s+\d+\b.*\bfrom\s+\w+", re.IGNORECASE
)
_PLACE = re.compile(r"instantiate \w+ node|capture was invalidated", re.IGNORECASE)
# Where in a CUDA graph a refusal showed up, which names no reason (H200, driver 580, 2026-11-30).
# Keyed by words rather than by whole sentences: drivers reword their log between releases.
_PATTERNS = (
    ("cooperative-too-large", re.compile(r"cooperative", re.IGNORECASE)),
    ("non-portable-not-enabled", re.compile(r"portable", re.IGNORECASE)),
    ("grid-not-divisible", re.compile(r"\bdivi(de|sib)", re.IGNORECASE)),
    (
        "required-cluster-mismatch",
        re.compile(r"cluster.*(match|required)|(match|required).*cluster", re.IGNORECASE),
    ),
    (SHARED_MEMORY, re.compile(r"shared\s*mem|\bsmem\b", re.IGNORECASE)),
    ("block-too-large", re.compile(r"\bblock\s*dim|\bthreads\b", re.IGNORECASE)),
    (GRID, re.compile(r"\bgrid\s*dim", re.IGNORECASE)),
)


def matters(outcome: Outcome) -> tuple[list[str], list[str]]:
    """Sort the sentences into the matters they name, in order, and sentences that name none.

    A matter is a cause key, or ``SHARED_MEMORY`` or ``GRID``, which several causes share.
    """
    named: list[str] = []
    unknown: list[str] = []
    for sentence in _said(outcome):
        if _PLACE.search(sentence):
            continue
        key = next((key for key, words in _PATTERNS if words.search(sentence)), None)
        if key is None:
            unknown.append(sentence)
        elif key not in named:
            named.append(key)
    return named, unknown


def quote(what: str, outcome: Outcome) -> str:
    """Follow ``what`` by the driver's sentences, or say that it was silent or not readable."""
    if outcome.driver_log is None:
        return f"{what}; driver log not readable"
    return f"{what}; driver log: " + (" / ".join(_said(outcome)) or "silent")


def _said(outcome: Outcome) -> Iterable[str]:
    return (line for line in outcome.driver_log or () if line.strip() and not _NOISE.search(line))
