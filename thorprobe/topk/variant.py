# SPDX-License-Identifier: Apache-2.0
"""The kernels of the ladder by name and size; nothing here needs CUDA."""

from thorprobe.record import Record


class Variant(Record, frozen=True, kw_only=True):
    """One compiled kernel.

    ``short`` keeps a row in the registers of one CTA, ``long`` is for one CTA or a cluster, and
    ``part`` with ``merge`` for several CTAs without a cluster. ``scores`` are those that a thread
    holds in registers at once.
    """

    function: str
    threads: int
    scores: int

    @property
    def capacity(self) -> int:
        """Scores that one CTA holds in registers at once."""
        return self.threads * self.scores

    @property
    def name(self) -> str:
        """How the files of costs name it."""
        return f"{self.function}-{self.threads}x{self.scores}"


VARIANTS = (
    Variant(function="short", threads=1024, scores=4),
    Variant(function="short", threads=1024, scores=8),
    Variant(function="short", threads=512, scores=16),
    Variant(function="long", threads=512, scores=4),
    Variant(function="long", threads=512, scores=8),
    Variant(function="long", threads=512, scores=16),
    Variant(function="long", threads=1024, scores=8),
    Variant(function="part", threads=512, scores=16),
)
"""Every kernel that the ladder may take. Those of 4 scores are for fp32: 16 bytes hold 8 others."""

MERGE = Variant(function="merge", threads=512, scores=1)


def variants(dtype: str) -> tuple[Variant, ...]:
    """Return the variants that are compiled for a type of scores."""
    return tuple(v for v in VARIANTS if v.scores != 4 or dtype == "float32")
