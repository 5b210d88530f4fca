# SPDX-License-Identifier: Apache-2.0
"""Whether a device, or the partition of a stream, hosts the cluster of an arm of vLLM's operator.

vLLM's kernel is not at hand, so a kernel of thorprobe's own is asked about, with the same cluster,
threads, dynamic shared memory and opt-in. The answer carries over: a group of n SMs hosts a cluster
of c CTAs where n >= c and one CTA fits an SM (2,210 of 2,210 recorded points of an H200), and of
vLLM's kernels no more than one CTA fits: 1,024 threads at 64 registers fill an SM's registers, and
156,416 B or more of shared memory its shared memory. Their static shared memory (128 to 384 B) is
not asked for: no known limit lies so close.
"""

import threading
from typing import TYPE_CHECKING, Protocol

from thorprobe.errors import ThorprobeError
from thorprobe.plan.policy import Policy, arm_name, dispatch
from thorprobe.record import Record

if TYPE_CHECKING:
    from torch import Tensor

Place = tuple[int, int]
"""Ordinal of a device, and the handle of a green context on it, 0 for the whole device."""


class Arm(Record, frozen=True, kw_only=True):
    """One launch of vLLM's operator: CTAs of a cluster (1: none), threads and bytes of a CTA."""

    cluster: int
    threads: int = 0
    dynamic_smem: int = 0

    @property
    def name(self) -> str:
        """How tables name it."""
        return arm_name(self.cluster, "cooperative" if self.dynamic_smem else "persistent")


class Hosted(Record, frozen=True, kw_only=True):
    """What the driver says of an arm: ``max_active`` clusters at once, or the code of a refusal.

    ``unknown`` is why it could not be asked, '' where it was.
    """

    max_active: int = 0
    code: int = 0
    call: str = ""
    name: str = ""
    unknown: str = ""

    @property
    def told(self) -> str:
        """The driver's answer in words."""
        if self.unknown:
            return f"occupancy is not known: {self.unknown}"
        if self.code:
            return f"{self.call} answers {self.code} {self.name}"
        return f"max_active_clusters is {self.max_active}"


class Host(Protocol):
    """Where calls arrive: the CUDA devices, or what stands for them in a test."""

    def place(self, logits: "Tensor") -> Place:
        """Return where the work of the current stream runs."""

    def capturing(self) -> bool:
        """Say whether the current stream is being captured."""

    def device(self, place: Place) -> tuple[str, int]:
        """Return the name of a device and the major of its compute capability."""

    def hosts(self, place: Place, arm: Arm) -> Hosted:
        """Ask about an arm on the current stream. Raises ThorprobeError where it cannot be."""


def arm(policy: Policy, rows: int, major: int) -> Arm:
    """Return the arm that the operator takes for ``rows`` on a device of that major."""
    cluster, path = dispatch(policy, rows, major)
    if path != "cooperative":
        return Arm(cluster=1)
    return Arm(
        cluster=cluster,
        threads=policy.kernel.threads,
        dynamic_smem=policy.footprint(cluster).dynamic_smem,
    )


def arms(policy: Policy, major: int) -> tuple[Arm, ...]:
    """Return every arm with a cluster that the operator has on a device of that major."""
    rows = (entry.last_row for entry in policy.arms if entry.path == "cooperative")
    return tuple(dict.fromkeys(arm(policy, last, major) for last in rows if last is not None))


class Answers:
    """What a host says of each arm, asked once a place, and never inside a capture."""

    def __init__(self, host: Host, policy: Policy) -> None:
        """Take where to ask, and whose arms."""
        self._host = host
        self._policy = policy
        self._lock = threading.Lock()
        self._known: dict[Place, dict[Arm, Hosted]] = {}
        self._majors: dict[int, tuple[str, int]] = {}

    def device(self, place: Place) -> tuple[str, int]:
        """Return the name and major of a device, asked once."""
        found = self._majors.get(place[0])
        if found is None:
            found = self._majors[place[0]] = self._host.device(place)
        return found

    def arm(self, place: Place, rows: int) -> Arm:
        """Return the arm that ``rows`` take at a place."""
        return arm(self._policy, rows, self.device(place)[1])

    def hosted(self, place: Place, wanted: Arm) -> Hosted | None:
        """Return the answer about an arm; None where none was had before a capture began.

        All arms are asked at the first, so that a capture finds them answered.
        """
        found = self._known.get(place)
        if found is None:
            if self._host.capturing():
                return None
            every = arms(self._policy, self.device(place)[1])
            with self._lock:
                found = {one: self._asked(place, one) for one in every}
                self._known[place] = found
        return found.get(wanted)

    def _asked(self, place: Place, one: Arm) -> Hosted:
        try:
            return self._host.hosts(place, one)
        except ThorprobeError as error:
            return Hosted(unknown=error.sentence)
