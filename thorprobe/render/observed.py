# SPDX-License-Identifier: Apache-2.0
"""What kernels themselves reported where a launch went wrong, as remarks on a page."""

from collections.abc import Iterator

from thorprobe.judge.cause import expected_cluster
from thorprobe.record import Outcome, Verdict
from thorprobe.render.escape import plain
from thorprobe.render.table import counted
from thorprobe.summary import Document

_MOST = 8
_TOLD = {Verdict.WRONG, Verdict.FAULTS}


def remarks(document: Document) -> list[tuple[str, str]]:
    """Return the observed cluster size and the comparison's detail of what went wrong."""
    told = [
        (outcome, sentence)
        for outcome in document.results
        if outcome.verdict in _TOLD and (sentence := "; ".join(_seen(outcome)))
    ]
    found = [
        (f"Seen at {plain(o.spec.kernel)}, cluster {o.spec.cluster_size}", plain(sentence))
        for o, sentence in told[:_MOST]
    ]
    if len(told) > _MOST:
        found.append(("Seen as well", counted(len(told) - _MOST, "launch", "launches")))
    return found


def _seen(outcome: Outcome) -> Iterator[str]:
    seen, asked = outcome.observed, expected_cluster(outcome.spec)
    if seen.cluster_seen is not None and seen.cluster_seen != asked:
        yield f"the kernel saw a cluster of {seen.cluster_seen}, not {asked}"
    check = seen.check
    if check is not None and check.wrong_rows:
        detail = f": {check.detail}" if check.detail else ""
        yield f"{check.wrong_rows} of {check.rows} rows differ from {check.oracle}{detail}"
