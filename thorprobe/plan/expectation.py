# SPDX-License-Identifier: Apache-2.0
"""One expectation of a scenario, and whether a document fulfils it.

An expectation that matches nothing in the results fails: silence is never a pass.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from thorprobe.record import MAX_CLUSTER, PORTABLE_CLUSTER, Outcome, Record, Status, Verdict
from thorprobe.summary import ArmRow, ArmsSummary, Document, KernelSummary, SweepSummary

Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_CLUSTER)]
Row = Annotated[int, msgspec.Meta(ge=1)]
Rows = Annotated[tuple[Row, ...], msgspec.Meta(min_length=1, max_length=2)]

Held = tuple[Status, str]


class SweepExpect(
    Record,
    frozen=True,
    tag="cluster-sweep",
    tag_field="command",
    kw_only=True,
    forbid_unknown_fields=True,
):
    """What a cluster sweep must show of one kernel, at every footprint unless bytes are given.

    ``probe`` names the scenario's probe where it has several sweeps. Without ``non_portable`` sizes
    above 8 are meant with the opt-in and smaller ones with either. ``largest`` is the largest size
    that launches, 0 for none. ``under`` is a claim id. ``why`` is for the reader.
    """

    probe: str = ""
    kernel: str
    size: Size | None = None
    dynamic_smem: int | None = None
    non_portable: bool | None = None
    verdict: Verdict | None = None
    code: int | None = None
    cause: str | None = None
    largest: Annotated[int, msgspec.Meta(ge=0, le=MAX_CLUSTER)] | None = None
    under: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        """Reject an expectation that expects nothing, or is about no size."""
        per_size = (self.verdict, self.code, self.cause) != (None, None, None)
        if not per_size and self.largest is None:
            raise ValueError("an expectation needs a verdict, code, cause or largest")
        if per_size != (self.size is not None):
            raise ValueError("a size goes with a verdict, code or cause, and they with a size")
        if per_size and self.largest is not None:
            raise ValueError("largest is about no one size: make it an expectation of its own")


class ArmsExpect(
    Record,
    frozen=True,
    tag="topk-arms",
    tag_field="command",
    kw_only=True,
    forbid_unknown_fields=True,
):
    """What a drive of the arms must show of ``rows`` ([first, last], or [first] and up).

    Every arm of the policy that overlaps the rows is meant, and together they must cover them.
    ``checked`` True demands that results were compared and all of them right.
    ``failing_cluster_sizes`` stands alone: it is about the whole run.
    """

    probe: str = ""
    policy: str = ""
    rows: Rows | None = None
    k: int | None = None
    verdict: Verdict | None = None
    code: int | None = None
    cause: str | None = None
    cluster: Size | None = None
    path: str | None = None
    gate: bool | None = None
    checked: bool | None = None
    failing_cluster_sizes: tuple[Size, ...] | None = None
    under: str = ""
    why: str = ""

    def __post_init__(self) -> None:
        """Reject an expectation that expects nothing, or is about no arm."""
        if self.failing_cluster_sizes is not None:
            if self.policy or self.rows is not None or self.under or self.demands():
                raise ValueError("failing_cluster_sizes is an expectation of its own")
            return
        if not self.demands():
            raise ValueError("an expectation needs something to expect, such as a verdict")
        if not self.policy or self.rows is None:
            raise ValueError("an expectation about arms needs a policy and rows")
        if len(self.rows) == 2 and self.rows[0] > self.rows[1]:
            raise ValueError("rows run backwards")
        if self.under and (self.cause is not None or self.code is not None):
            raise ValueError("under a claim an arm has a verdict only, no code or cause")

    def demands(self) -> dict[str, object]:
        """Return what is expected of each arm, by field, without what is left open."""
        fields = ("verdict", "code", "cause", "cluster", "path", "gate", "checked")
        return {name: getattr(self, name) for name in fields if getattr(self, name) is not None}


Expect = SweepExpect | ArmsExpect


def hold(expect: Expect, document: Document) -> Held:
    """Compare one expectation with one document: pass, fail or waived, and a sentence."""
    if isinstance(expect, SweepExpect):
        return _hold_sweep(expect, document)
    return _hold_arms(expect, document)


def subject(expect: Expect) -> str:
    """Say what an expectation is about, such as ``topk, cluster 16, with the opt-in``."""
    if isinstance(expect, SweepExpect):
        parts = [expect.kernel]
        if expect.size is not None:
            parts.append(f"cluster {expect.size}")
        if expect.dynamic_smem is not None:
            parts.append(f"{expect.dynamic_smem:,} B")
        opt_in = _opt_in(expect)
        if opt_in is not None and expect.size is not None:
            parts.append("with the opt-in" if opt_in else "without the opt-in")
    elif expect.rows is None:
        parts = ["failing cluster sizes"]
    else:
        parts = [f"policy {expect.policy}", f"rows {_span(expect.rows)}"]
        if expect.k is not None:
            parts.append(f"k {expect.k}")
    if expect.under:
        parts.append(f"under the claim {expect.under}")
    about = ", ".join(parts)
    return f"{expect.probe}: {about}" if expect.probe else about


def wanted(expect: Expect) -> str:
    """Say what an expectation expects, such as ``refused, code 912``."""
    if isinstance(expect, ArmsExpect):
        if expect.failing_cluster_sizes is not None:
            return _sizes(expect.failing_cluster_sizes)
        return _told(expect.demands())
    if expect.largest is not None:
        return f"largest {expect.largest or 'none'}"
    fields = ("verdict", "code", "cause")
    return _told({f: getattr(expect, f) for f in fields if getattr(expect, f) is not None})


def _hold_sweep(expect: SweepExpect, document: Document) -> Held:
    if expect.largest is not None:
        return _hold_largest(expect, document)
    found = [outcome for outcome in document.results if _matches(expect, outcome)]
    if not found:
        return _failed(expect, "no such result")
    asked = [outcome for outcome in found if outcome.status is not Status.WAIVED]
    if not asked:
        return Status.WAIVED, f"{subject(expect)}: waived, {found[0].note or 'not applicable here'}"
    for outcome in asked:
        seen: dict[str, object] = {
            "verdict": outcome.verdict,
            "code": outcome.observed.launch_code,
            "cause": outcome.cause,
        }
        expected = {name: getattr(expect, name) for name in seen}
        wrong = {n: seen[n] for n, want in expected.items() if want is not None and seen[n] != want}
        if wrong:
            return _failed(expect, f"{_told(wrong)} at {outcome.spec.footprint.label}")
    return _passed(expect, f"the same in {len(asked)} of {len(found)} results")


def _matches(expect: SweepExpect, outcome: Outcome) -> bool:
    spec = outcome.spec
    opt_in = _opt_in(expect)
    return (
        spec.kernel == expect.kernel
        and spec.cluster_size == expect.size
        and not spec.spin_cycles
        and outcome.assumes == ((expect.under,) if expect.under else ())
        and (opt_in is None or spec.non_portable == opt_in)
        and (expect.dynamic_smem is None or spec.dynamic_smem == expect.dynamic_smem)
    )


def _opt_in(expect: SweepExpect) -> bool | None:
    if expect.non_portable is None and expect.size is not None and expect.size > PORTABLE_CLUSTER:
        return True
    return expect.non_portable


def _hold_largest(expect: SweepExpect, document: Document) -> Held:
    summary = document.summary
    kernels: dict[str, KernelSummary] = {}
    if isinstance(summary, SweepSummary):
        kernels = summary.kernels
        if expect.under:
            under = [u.kernels for u in summary.under_claims if u.claim.id == expect.under]
            kernels = under[0] if under else {}
    kernel = kernels.get(expect.kernel)
    if kernel is None:
        return _failed(expect, "no such kernel in the summary")
    if expect.dynamic_smem is not None and kernel.by_footprint:
        ending = f" {expect.dynamic_smem:,} B"
        fitting = [k for label, k in kernel.by_footprint.items() if label.endswith(ending)]
        if not fitting:
            return _failed(expect, "no such footprint in the summary")
        kernel = min(fitting, key=lambda one: one.largest or 0)
    if (kernel.largest or 0) != expect.largest:
        return _failed(expect, f"largest {kernel.largest or 'none'}")
    return _passed(expect, "the same")


def _hold_arms(expect: ArmsExpect, document: Document) -> Held:
    summary = document.summary
    if not isinstance(summary, ArmsSummary):
        return _failed(expect, "no arms in the summary")
    if expect.failing_cluster_sizes is not None:
        failing = tuple(sorted(summary.failing_cluster_sizes))
        if failing != tuple(sorted(expect.failing_cluster_sizes)):
            return _failed(expect, _sizes(failing))
        return _passed(expect, "the same")
    first, last = _ends(expect.rows or (1,))
    found = sorted(
        (
            arm
            for arm in summary.arms
            if arm.policy == expect.policy
            and expect.k in (None, arm.k)
            and (last is None or arm.rows[0] <= last)
            and (arm.rows[1] is None or arm.rows[1] >= first)
        ),
        key=lambda arm: arm.rows[0],
    )
    for k in sorted({arm.k for arm in found}) or [0]:
        hole = _hole([arm for arm in found if arm.k == k], first, last)
        if hole:
            return _failed(expect, hole)
    for arm in found:
        seen = _seen(expect, arm)
        wrong = {name: seen[name] for name, want in expect.demands().items() if seen[name] != want}
        if wrong:
            return _failed(expect, f"{_told(wrong)} at rows {_span(arm.rows)}, k {arm.k}")
    return _passed(expect, f"the same in {len(found)} arm{'s' if len(found) > 1 else ''}")


def _hole(arms: Sequence[ArmRow], first: int, last: int | None) -> str:
    """Say which of the rows no arm covers, or that none of them was probed."""
    upto = first - 1
    for arm in arms:
        if arm.rows[0] > upto + 1:
            break
        if arm.rows[1] is None:
            upto = -1
            break
        upto = max(upto, arm.rows[1])
    if upto >= 0 and (last is None or upto < last):
        return f"no such result for rows {_span((upto + 1, last))}"
    probed = [row for arm in arms for row in arm.probed_rows]
    if not any(first <= row and (last is None or row <= last) for row in probed):
        return "none of these rows was probed"
    return ""


def _seen(expect: ArmsExpect, arm: ArmRow) -> dict[str, object]:
    verdict = arm.under_claims.get(expect.under) if expect.under else arm.verdict
    right, compared = arm.checked
    return {
        "verdict": verdict,
        "code": arm.code,
        "cause": arm.cause,
        "cluster": arm.cluster,
        "path": arm.path,
        "gate": arm.gate,
        "checked": compared > 0 and right == compared,
    }


def _ends(rows: Sequence[int | None]) -> tuple[int, int | None]:
    return rows[0] or 1, rows[1] if len(rows) == 2 else None


def _span(rows: Sequence[int | None]) -> str:
    first, last = _ends(rows)
    if last is None:
        return f"{first} and up"
    return f"{first}" if first == last else f"{first}-{last}"


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "none"


def _told(values: dict[str, object]) -> str:
    shown = []
    for name, value in values.items():
        if isinstance(value, Verdict):
            shown.append(value.value)
        elif name == "checked":
            shown.append("all results right" if value else "results not all right, or none checked")
        elif name == "gate":
            shown.append("gate open" if value else "gate shut")
        else:
            shown.append(f"{name} {value if value is not None else 'none'}")
    return ", ".join(shown)


def _failed(expect: Expect, observed: str) -> Held:
    return Status.FAIL, f"{subject(expect)}: expected {wanted(expect)}; observed {observed}"


def _passed(expect: Expect, observed: str) -> Held:
    return Status.PASS, f"{subject(expect)}: expected {wanted(expect)}; observed {observed}"
