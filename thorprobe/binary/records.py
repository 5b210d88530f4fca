# SPDX-License-Identifier: Apache-2.0
"""What a file with device code holds: its images and their kernels, whatever the device."""

from thorprobe.record import Record


class DeviceImage(Record, frozen=True, kw_only=True):
    """One cubin or one PTX text inside a file.

    ``file`` is the member of a wheel or directory, or the file's own name. ``target`` is spelled as
    compilers do: ``sm_90`` plain, ``sm_90a`` for that device alone, ``sm_110f`` for its family, and
    ``compute_90`` for PTX, of which ``isa`` is the version. ``sha256`` is of the image,
    hexadecimal; it is empty and ``bytes`` 0 for one that is only listed.
    """

    file: str
    target: str
    isa: str = ""
    sha256: str = ""
    bytes: int = 0
    kernels: int = 0

    @property
    def is_ptx(self) -> bool:
        """Say whether a driver has to compile it first."""
        return self.target.startswith("compute_")


class DeviceKernel(Record, frozen=True, kw_only=True):
    """One kernel of one image; ``image`` indexes the inventory's images.

    ``symbol`` is as linked, ``registers`` per thread, ``static_smem`` in bytes without what the
    system reserves, ``required_threads`` those of a block whose size is compiled in (0: any up to
    ``max_threads``), ``required_cluster`` the compiled dimensions, ``parameter_bytes`` the size of
    the parameter block, ``stack_bytes`` per thread. What PTX does not state is None.
    """

    image: int
    symbol: str
    registers: int | None = None
    static_smem: int | None = None
    max_threads: int = 1_024
    required_threads: int = 0
    required_cluster: tuple[int, int, int] | None = None
    parameter_bytes: int | None = None
    stack_bytes: int | None = None


class Inventory(Record, frozen=True, kw_only=True):
    """Everything that one file, wheel or directory holds.

    ``package`` and ``version`` are those of a wheel's metadata, empty elsewhere. ``remarks`` say
    what could not be read, one sentence each. ``reader`` names the tool that took it apart.
    """

    name: str
    sha256: str
    bytes: int
    package: str = ""
    version: str = ""
    images: tuple[DeviceImage, ...] = ()
    kernels: tuple[DeviceKernel, ...] = ()
    remarks: tuple[str, ...] = ()
    reader: str = ""
