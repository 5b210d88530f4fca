# SPDX-License-Identifier: Apache-2.0
"""What a PTX text says of itself and of its kernels, by its directives: texts of 60 MB exist."""

import hashlib
import mmap
import re
from pathlib import Path

import msgspec

from thorprobe.binary.records import DeviceImage, DeviceKernel
from thorprobe.errors import ThorprobeError

_DIRECTIVE = re.compile(
    rb"\n\.(?:(?P<head>version|target)\s+(?P<value>[\w.]{1,64})"
    rb"|(?:(?:visible|weak|extern)\s+\.)*entry\s+(?P<entry>[\w$.]{1,65536})"
    rb"|(?P<bound>maxntid|reqntid|reqnctapercluster)\s+(?P<sides>\d{1,9}(?:\s*,\s*\d{1,9}){0,2}))"
)
# Directives that matter begin their line; a search for that is ten times faster than line by line.

MAX_KERNELS = 200_000
"""Most kernels of one text."""

_DEFAULT_MAX_THREADS = 1_024


def read(path: Path, file: str, index: int) -> tuple[DeviceImage, tuple[DeviceKernel, ...]]:
    """Read a PTX text; ``file`` names where it came from, ``index`` its place in the inventory.

    Raises ThorprobeError for a text without a version and a target, or with too many kernels.
    """
    size = path.stat().st_size
    head: dict[str, str] = {}
    kernels: list[DeviceKernel] = []
    digest = ""
    if size:
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as text:
            digest = hashlib.sha256(text).hexdigest()
            for found in _DIRECTIVE.finditer(text):
                if found["entry"] is not None:
                    kernels.append(DeviceKernel(image=index, symbol=found["entry"].decode()))
                    if len(kernels) > MAX_KERNELS:
                        raise ThorprobeError(
                            f"a PTX text of {size:,} bytes has more than {MAX_KERNELS:,} kernels",
                            "that is no sound PTX",
                        )
                elif found["head"] is not None:
                    head.setdefault(found["head"].decode(), found["value"].decode())
                elif kernels:
                    kernels[-1] = _bounded(kernels[-1], found["bound"], found["sides"])
    if len(head) < 2:
        raise ThorprobeError(
            f"a PTX text of {size:,} bytes was read, but it names no version and target",
            "compile or extract it again",
        )
    image = DeviceImage(
        file=file,
        target=head["target"].replace("sm_", "compute_", 1),
        isa=head["version"],
        sha256=digest,
        bytes=size,
        kernels=len(kernels),
    )
    return image, tuple(kernels)


def _bounded(kernel: DeviceKernel, name: bytes, sides: bytes) -> DeviceKernel:
    x, y, z = [*(int(side) for side in sides.split(b",")), 1, 1][:3]
    if name == b"reqnctapercluster":
        return msgspec.structs.replace(kernel, required_cluster=(x, y, z))
    threads = min(x * y * z, _DEFAULT_MAX_THREADS) or 1
    if name == b"reqntid":
        return msgspec.structs.replace(kernel, max_threads=threads, required_threads=threads)
    return msgspec.structs.replace(kernel, max_threads=threads)
