# SPDX-License-Identifier: Apache-2.0
"""How many CTAs of a kernel one SM holds, from its resources and the device's limits."""

from thorprobe.binary.cubin import KernelFacts
from thorprobe.record import Limits

WARP = 32
REGISTER_UNIT = 256
"""Registers are handed out to a warp in units of 256 (CUDA occupancy calculator, cc 3.0 and
later)."""

SUBPARTITIONS = 4
"""An SM's registers are split over four schedulers, and a warp lives on one of them (CUDA
occupancy calculator: warp allocation granularity 4)."""

SMEM_UNIT = 128
"""Shared memory of a block is rounded up to 128 B (CUDA occupancy calculator, cc 8.0 and later)."""


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of ``unit`` that is not below ``value``."""
    return -(-value // unit) * unit


def ctas_per_sm(facts: KernelFacts, threads: int, dynamic_smem: int, limits: Limits) -> int:
    """Return the CTAs of ``threads`` threads and ``dynamic_smem`` bytes that one SM holds.

    That is cuOccupancyMaxActiveBlocksPerMultiprocessor; equal to it on 936 of 936 points of static
    and dynamic bytes and threads (H200, measured 2026-11-30). 0 when not even one CTA fits.
    """
    return min(
        limits.max_blocks_per_sm,
        limits.max_threads_per_sm // (round_up(threads, WARP) or WARP),
        _by_registers(facts.registers, threads, limits.registers_per_sm),
        _by_shared_memory(facts.static_smem + dynamic_smem, limits),
    )


def cluster_ctas_per_sm(blocks: int, max_cluster_ctas: int) -> int:
    """Return the CTAs per SM that cluster launches reach, of ``blocks`` that fit.

    On the H200 never more than 8, whatever the shared memory (same 936 points): 32 threads and no
    shared memory give 32 blocks per SM and 8 CTAs in clusters, of size 1 already.
    """
    return min(blocks, max_cluster_ctas)


def fits_registers(registers: int, threads: int, registers_per_sm: int) -> bool:
    """Say whether one CTA of ``threads`` threads has its registers on an SM."""
    return _by_registers(registers, threads, registers_per_sm) > 0


def most_threads(registers: int, most: int = 1_024, registers_per_sm: int = 65_536) -> int:
    """Return the most threads of one CTA whose registers an SM holds, in whole warps.

    Every SM since cc 3.0 but that of 3.7 has 65,536 registers (CUDA programming guide).
    """
    sizes = range(most // WARP * WARP, 0, -WARP)
    return next((size for size in sizes if fits_registers(registers, size, registers_per_sm)), 0)


def _by_shared_memory(user_smem: int, limits: Limits) -> int:
    block = round_up(user_smem, SMEM_UNIT) + limits.reserved_smem_per_block
    return limits.max_smem_per_sm // block if block else limits.max_blocks_per_sm


def _by_registers(registers: int, threads: int, registers_per_sm: int) -> int:
    if registers <= 0:
        return registers_per_sm
    warps = round_up(-(-threads // WARP), SUBPARTITIONS) or SUBPARTITIONS
    per_warp = round_up(registers * WARP, REGISTER_UNIT)
    return registers_per_sm // SUBPARTITIONS // per_warp * SUBPARTITIONS // warps
