# SPDX-License-Identifier: Apache-2.0
"""Limits of a compute capability, where no profile of the device is at hand.

Published: CUDA programming guide, technical specifications per compute capability; 11.0 as public
deviceQuery outputs of Thor have it. Nothing here was measured.
"""

from thorprobe.record import Limits

_KIB = 1_024

# (major, minor): shared memory of an SM in KiB, threads and blocks of an SM. A block may have 1 KiB
# less than the SM (on 8.0 and later, where 1 KiB a block is the system's).
_BY_CAPABILITY: dict[tuple[int, int], tuple[int, int, int]] = {
    (8, 0): (164, 2_048, 32),
    (8, 6): (100, 1_536, 16),
    (8, 7): (164, 1_536, 16),
    (8, 9): (100, 1_536, 24),
    (9, 0): (228, 2_048, 32),
    (10, 0): (228, 2_048, 32),
    (10, 3): (228, 2_048, 32),
    (11, 0): (228, 1_536, 24),
    (12, 0): (100, 1_536, 24),
    (12, 1): (100, 1_536, 24),
}


def limits_of(capability: tuple[int, int]) -> Limits | None:
    """Return the published limits of a compute capability, None for one that is not listed."""
    found = _BY_CAPABILITY.get(capability)
    if found is None:
        return None
    smem, threads, blocks = found
    return Limits(
        max_smem_per_block_optin=(smem - 1) * _KIB,
        max_smem_per_sm=smem * _KIB,
        reserved_smem_per_block=_KIB,
        max_threads_per_sm=threads,
        max_blocks_per_sm=blocks,
        registers_per_sm=65_536,
        cluster_launch=capability >= (9, 0),
    )
