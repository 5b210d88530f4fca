# SPDX-License-Identifier: Apache-2.0
"""The plan of ``topk-arms --through-model``: settings of vLLM that reach each arm, as model steps.

Rows are never given to the selection: requests and query tokens are, and what arrives is seen.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from thorprobe.plan import callsite
from thorprobe.plan.policy import ArmPath, Capability, load, reached, row_ranges
from thorprobe.record import Record

CONTEXT = 2_300
"""Tokens that every request holds before the step: past the budget of 2,048, so that what is
selected matters."""

Kind = Literal["decode", "prefill"]


class Drive(Record, frozen=True, kw_only=True):
    """One step of the model that is to reach an arm of a policy.

    ``tokens`` are fed to each of the ``requests``: one and the drafts of a decode, or a chunk of
    prompt. ``cluster`` and ``path`` are the arm that ``rows`` rows reach.
    """

    policy: str
    cluster: int
    path: ArmPath
    kind: Kind
    requests: int
    tokens: int

    @property
    def rows(self) -> int:
        """Rows that these settings make."""
        return self.requests * self.tokens

    @property
    def setting(self) -> str:
        """What a user of vLLM would set or see."""
        if self.kind == "prefill":
            return _counted(self.tokens, "prefill token")
        drafts = _counted(self.tokens - 1, "speculative token")
        return f"{_counted(self.requests, 'request')}, {drafts}"

    @property
    def id(self) -> str:
        """Such as ``0.33.0/decode-r2-q3``."""
        return f"{self.policy}/{self.kind}-r{self.requests}-q{self.tokens}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def drives(policies: Sequence[str], capability: Capability) -> tuple[Drive, ...]:
    """Return, for each arm of each policy, the least and most requests at each draft count.

    A prefill chunk of the arm's first rows stands beside them where the policy lets a prefill reach
    it. Raises UsageError for an unknown policy.
    """
    found = [drive for name in dict.fromkeys(policies) for drive in _of(name, capability)]
    return tuple(dict.fromkeys(found))


def _of(name: str, capability: Capability) -> Iterator[Drive]:
    policy = load(name)
    columns = callsite.columns_of()
    ranges = row_ranges(policy, capability[0])
    clusters = [reached(policy, item.first, columns, capability).cluster for item in ranges]
    for cluster in dict.fromkeys(clusters):
        for setting in callsite.reach(policy, capability, cluster):
            if setting.kind == "prefill":
                steps = [(1, setting.tokens[0])] if setting.tokens else []
            else:
                width = 1 + (setting.speculative_tokens or 0)
                steps = [(requests, width) for requests in setting.requests or ()]
            for requests, tokens in steps:
                yield Drive(
                    policy=name,
                    cluster=cluster,
                    path=setting.path,
                    kind="prefill" if setting.kind == "prefill" else "decode",
                    requests=requests,
                    tokens=tokens,
                )
