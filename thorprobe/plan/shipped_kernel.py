# SPDX-License-Identifier: Apache-2.0
"""Kernels that someone else compiled and shipped, as a question about them needs them."""

from thorprobe.record import Record


class ShippedFunction(Record, frozen=True, kw_only=True):
    """One entry point of a shipped kernel, and the launch that its host code makes.

    ``name`` is demangled without parameters. ``cluster`` is the compiled one, in CTAs.
    ``dynamic_smem`` is in bytes, 0 where it is not known. ``registers`` (a thread), ``static_smem``
    (bytes) and ``max_threads`` are what its code states; registers are 0 where a driver has yet to
    compile it.
    """

    symbol: str
    name: str
    cluster: tuple[int, int, int]
    threads: int
    dynamic_smem: int = 0
    registers: int = 0
    static_smem: int = 0
    max_threads: int = 1_024

    @property
    def size(self) -> int:
        """CTAs per cluster."""
        x, y, z = self.cluster
        return x * y * z


class ShippedKernel(Record, frozen=True, kw_only=True):
    """Entry points that differ in their cluster alone, in one image of one file.

    ``label`` is what a LaunchSpec calls it: a name, ``@``, and the first 12 digits of ``image``,
    the SHA-256 of the cubin. ``layout`` names the data that its launch follows. ``parameters``
    spells the parameter block field by field; where it is empty the kernel is queried and never
    launched. ``workspace_bytes`` is per row, ``k`` 0 where the kernel is not known to have one.
    """

    label: str
    image: str
    target: str
    functions: tuple[ShippedFunction, ...]
    layout: str = ""
    policy: str = ""
    k: int = 0
    parameters: tuple[str, ...] = ()
    workspace_bytes: int = 0
    row_limit: int = 0
    stride_multiple: int = 1

    def function(self, size: int) -> ShippedFunction | None:
        """Return the entry point of that many CTAs per cluster, None where there is none."""
        return next((one for one in self.functions if one.size == size), None)


def is_shipped(kernel: str) -> bool:
    """Say whether a LaunchSpec's kernel is someone else's: its label carries the image's hash."""
    return "@" in kernel
