# SPDX-License-Identifier: Apache-2.0
"""The footprints a sweep asks about, and the shared memory of each top-k arm."""

from thorprobe.errors import UsageError
from thorprobe.record import Footprint

TOPK_THREADS = 1024

TOPK_SMEM = {16: 156_416, 8: 156_416, 4: 221_952, 2: 221_952}
"""Dynamic shared memory in bytes that upstream's cooperative_topk asks for at each cluster size,
fp32 (read in the cubins of the vLLM 0.33.0 wheel)."""

_TWO_STAGES, _THREE_STAGES = TOPK_SMEM[8], TOPK_SMEM[4]

STANDARD = (
    Footprint(kernel="trivial", threads=32, dynamic_smem=0),
    Footprint(kernel="trivial", threads=1024, dynamic_smem=0),
    Footprint(kernel="trivial", threads=1024, dynamic_smem=_TWO_STAGES),
    Footprint(kernel="trivial", threads=1024, dynamic_smem=_THREE_STAGES),
    Footprint(kernel="topk", threads=TOPK_THREADS, dynamic_smem=_TWO_STAGES),
    Footprint(kernel="topk", threads=TOPK_THREADS, dynamic_smem=_THREE_STAGES),
)
"""Six footprints: one that asks for almost nothing, one full of threads, the shared memory of the
two kinds of top-k arm with a trivial kernel, and the same two with the top-k kernel itself."""


def of_kernels(kernels: tuple[str, ...]) -> tuple[Footprint, ...]:
    """Return the standard footprints of these kernels, all of them for an empty tuple.

    Raises UsageError for a kernel that has no footprint.
    """
    known = sorted({f.kernel for f in STANDARD})
    for kernel in kernels:
        if kernel not in known:
            raise UsageError(
                f"`--kernel {kernel}` was asked for, but the kernels are {', '.join(known)}",
                "`thorprobe list` describes each of them",
            )
    return tuple(f for f in STANDARD if not kernels or f.kernel in kernels)
