# SPDX-License-Identifier: Apache-2.0
"""The words of ``topk-arms --through-model``: steps of the model, and the arms they reached."""

import msgspec

from thorprobe.qwen4exp.records import Fallen
from thorprobe.record import Check, Origin, Record, Status


class ArmCall(Record, frozen=True, kw_only=True):
    """One step of the model, and the call of the selection that came of it.

    ``wanted_rows`` is what the settings make, ``num_rows`` what the selection saw. ``cluster`` and
    ``path`` are the arm that ``policy`` takes for ``num_rows``; ``wanted_cluster`` the one that was
    to be reached. ``asked_rung`` was asked of the ladder and ``rung`` answered; ``check`` holds the
    result against the definition of a top-k. ``duration_us`` is of the ladder's call.
    """

    id: str
    status: Status
    origin: Origin
    policy: str
    kind: str
    setting: str
    requests: int
    query_tokens: int
    wanted_rows: int
    wanted_cluster: int
    num_rows: int
    columns: int
    cluster: int
    path: str
    gate: bool
    gate_reason: str = ""
    asked_rung: str
    rung: str
    falls: tuple[Fallen, ...] = ()
    check: Check
    duration_us: float = 0.0


class ArmReached(Record, frozen=True, kw_only=True):
    """One arm of a policy, and the calls that reached it through the model.

    ``num_rows`` are those seen, ascending; ``settings`` the ones that made the fewest and the most
    rows; ``checked`` counts right rows, out of those compared; ``falls`` the calls in which a rung
    was refused.
    """

    policy: str
    cluster: int
    path: str
    calls: int
    num_rows: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    rungs: dict[str, int] = msgspec.field(default_factory=dict)
    falls: int = 0
    fallen: tuple[Fallen, ...] = ()
    checked: tuple[int, int] = (0, 0)


class ThroughSummary(Record, frozen=True, kw_only=True):
    """What the drive through the model came to.

    ``missed`` counts calls that took another arm, or brought other rows, than was wanted.
    ``contrasts`` name settings that differ in one knob and take different arms, or that differ and
    take the same.
    """

    finding: str
    capability: tuple[int, int]
    model: str
    context_tokens: int
    k: int
    arms: tuple[ArmReached, ...]
    missed: int = 0
    contrasts: tuple[str, ...] = ()
