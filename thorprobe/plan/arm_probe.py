# SPDX-License-Identifier: Apache-2.0
"""What ``topk-arms`` is asked, and one launch of its plan."""

from typing import Literal

import msgspec

from thorprobe.plan.operator import OperatorLibrary
from thorprobe.plan.policy import (
    ArmPath,
    Capability,
)
from thorprobe.plan.shipped_kernel import ShippedKernel
from thorprobe.record import LaunchSpec, Record

DEFAULT_POLICIES = ("e126687a9a", "0.33.0")
"""The commit of the first report from a Thor, and the newest release that was read."""


Role = Literal["arm", "alternative"]


class ArmsOptions(Record, frozen=True, kw_only=True):
    """What ``topk-arms`` was asked.

    ``capability`` is the one dispatched for, which need not be the device's. Empty ``rows`` are the
    first and last of every range of every policy, and the first persistent one; empty ``lengths``
    one per path. ``stride`` 0 is ``columns``. ``compiled`` asks for the kernels compiled with their
    cluster size, as upstream's are; ``repeats`` > 0 for times. ``call_site`` says which settings of
    vLLM the rows come from. ``shipped`` are the kernels of a file that are launched instead of
    thorprobe's own, one for each k, all of the one policy. ``library`` has the operators that
    are called instead, behind the gate of each policy: vLLM's own.
    """

    policies: tuple[str, ...] = DEFAULT_POLICIES
    capability: Capability
    rows: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    columns: int = 65_536
    stride: int = 0
    k: tuple[int, ...] = (512,)
    dtype: str = "fp32"
    distribution: str = "normal"
    seed: int = 0
    repeats: int = 0
    partition: str = ""
    compiled: bool = False
    alternatives: bool = True
    call_site: str = ""
    shipped: tuple[ShippedKernel, ...] = ()
    library: OperatorLibrary | msgspec.UnsetType = msgspec.UNSET


class ArmProbe(Record, frozen=True, kw_only=True):
    """One launch, and what it stands for in one policy.

    ``role`` is ``arm`` for what the policy picks at these rows, ``alternative`` for another size at
    the same rows, asked so that the fastest can be named. ``cluster`` is that of the spec, and
    ``gate`` says whether the call site lets these rows through to the cooperative kernel.
    """

    policy: str
    rows: int
    k: int
    dtype: str
    length: int
    role: Role
    path: ArmPath
    cluster: int
    gate: bool
    gate_reason: str
    note: str = ""
    spec: LaunchSpec
