# SPDX-License-Identifier: Apache-2.0
"""Reads everything that a wheel, library, cubin, fatbin or folder holds, once per content.

Images are extracted one architecture at a time and deleted as soon as they are read, so that
memory and disk stay bounded by the largest of them.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from thorprobe.binary import cache as kept
from thorprobe.binary import cubin, cuobjdump, ptx
from thorprobe.binary.container import ELF, PTX, Binary, Container, open_container
from thorprobe.binary.container import sha256 as file_digest
from thorprobe.binary.records import DeviceImage, DeviceKernel, Inventory
from thorprobe.errors import ThorprobeError, UsageError
from thorprobe.record import Record

MAX_KERNELS = 500_000
"""Most kernels of one file; the vLLM 0.33.0 wheels hold fewer than 40,000."""

MAX_SYMBOL_BYTES = 256 << 20
"""Most bytes of all their names; those of a vLLM 0.33.0 wheel take 9 MB."""

_FORMAT = 1
"""Raised whenever an inventory is read or written otherwise: older entries are then ignored."""

_MAX_UNPACKED = 1 << 30
_MAX_STRINGS = 16 << 20
_CODE_SECTIONS = (".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment")

Progress = Callable[[int, int], None]


def take(path: Path, progress: Progress = lambda _done, _total: None) -> Inventory:
    """Return the inventory of a file, from the cache where its content was read before.

    Raises UsageError for what holds no device code or is damaged, CouldNotProbeError where
    cuobjdump is needed and missing.
    """
    container = open_container(path)
    entry = f"inventory-{_FORMAT}-{container.sha256[:40]}.bin"
    known = _remembered(entry)
    if known is not None:
        progress(1, 1)
        return msgspec.structs.replace(known, name=container.name)
    made = _read(container, progress)
    kept.store(entry, zlib.compress(msgspec.msgpack.encode(made), 6))
    return made


def extract(path: Path, image: DeviceImage) -> Path:
    """Put one cubin of a file into the cache, where it stays, and return its path.

    Raises UsageError where the file no longer holds it.
    """
    name = f"image-{image.sha256}.cubin"
    held = kept.path(name)
    if held.is_file() and file_digest(held) == image.sha256:
        return held
    container = open_container(path)
    with kept.workspace() as folder:
        for binary in container.binaries(folder):
            if binary.shown != image.file:
                continue
            for part in _parts(binary, folder, only=image.target):
                data = part.read_bytes() if isinstance(part, Path) else b""
                if hashlib.sha256(data).hexdigest() == image.sha256:
                    return kept.place(name, data)
    raise UsageError(
        f"the {image.target} image of `{image.file}` was to be extracted, but is no longer there",
        "the file changed while it was read: run the command again",
    )


def _remembered(entry: str) -> Inventory | None:
    data = kept.load(entry)
    if data is None:
        return None
    try:
        plain = zlib.decompressobj().decompress(data, _MAX_UNPACKED)
        return msgspec.msgpack.decode(plain, type=Inventory)
    except (zlib.error, msgspec.MsgspecError):
        return None


def _read(container: Container, progress: Progress) -> Inventory:
    found = _Found()
    total = max(1, len(container.members))
    progress(0, total)
    try:
        with kept.workspace() as folder:
            for done, binary in enumerate(container.binaries(folder), 1):
                try:
                    _add(binary, folder, found)
                except cuobjdump.NoDeviceCodeError:
                    if not container.members:
                        raise
                except UsageError as error:
                    if not container.members:
                        raise
                    found.remarks.append(error.sentence)
                progress(done, total)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"`{container.name}` was to be inspected, but its images cannot be kept in the cache "
            f"folder: {reason}",
            "make room, or name another folder with XDG_CACHE_HOME",
        ) from error
    if not found.images:
        raise cuobjdump.NoDeviceCodeError(container.name, *found.remarks[:1])
    return Inventory(
        name=container.name,
        sha256=container.sha256,
        bytes=container.bytes,
        package=container.package,
        version=container.version,
        images=tuple(found.images),
        kernels=tuple(found.kernels),
        remarks=tuple(dict.fromkeys(found.remarks)),
        reader=_reader(),
    )


@cache
def _reader() -> str:
    """Name the tool, '' where none is here: a plain cubin needs none."""
    try:
        return f"cuobjdump {cuobjdump.version()}"
    except ThorprobeError:
        return ""


class _Unread(Record, frozen=True, kw_only=True):
    """Images that the tool lists and cannot extract."""

    listed: cuobjdump.Listed
    count: int


@dataclass
class _Found:
    """What was read so far; ``named`` counts the bytes of the kernels' names."""

    images: list[DeviceImage] = field(default_factory=list)
    kernels: list[DeviceKernel] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    named: int = 0

    def take(self, image: DeviceImage, kernels: tuple[DeviceKernel, ...]) -> None:
        self.images.append(image)
        self.kernels.extend(kernels)
        self.named += sum(len(kernel.symbol) for kernel in kernels)


def _add(binary: Binary, folder: Path, found: _Found) -> None:
    """Read every image of a binary; what cannot be read becomes a remark."""
    for part in _parts(binary, folder):
        if isinstance(part, _Unread):
            found.remarks.append(_told(part, binary.shown))
            target = part.listed.arch
            if part.listed.ptx:
                target = target.replace("sm_", "compute_", 1)
            listed = DeviceImage(file=binary.shown, target=target, isa=part.listed.isa)
            found.images.extend([listed] * part.count)
            continue
        try:
            found.take(*_image(part, binary.shown, len(found.images)))
        except ThorprobeError as error:
            if part == binary.path:
                raise UsageError(
                    f"`{binary.shown}` was to be inspected: {error.sentence}", error.hint
                ) from error
            found.remarks.append(f"an image of `{binary.shown}` is left out: {error.sentence}")
        if len(found.kernels) > MAX_KERNELS or found.named > MAX_SYMBOL_BYTES:
            raise UsageError(
                f"`{binary.shown}` was to be inspected, but has more than {MAX_KERNELS:,} kernels "
                f"or {MAX_SYMBOL_BYTES:,} B of names",
                "that is no sound library",
            )


def _told(unread: _Unread, shown: str) -> str:
    many = "1 image" if unread.count == 1 else f"{unread.count} images"
    kind = "PTX" if unread.listed.ptx else "code"
    return (
        f"{many} of {kind} for {unread.listed.arch} in `{shown}`: listed, and not extracted by "
        f"{_reader()}, so their kernels are not known"
    )


def _image(path: Path, shown: str, index: int) -> tuple[DeviceImage, tuple[DeviceKernel, ...]]:
    if path.suffix == PTX:
        return ptx.read(path, shown, index)
    data = path.read_bytes() if path.stat().st_size <= cubin.MAX_CUBIN else b""
    target, facts = cubin.contents(data)
    image = DeviceImage(
        file=shown,
        target=target,
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        kernels=len(facts),
    )
    return image, tuple(
        DeviceKernel(
            image=index,
            symbol=one.function,
            registers=one.registers,
            static_smem=one.static_smem,
            max_threads=one.max_threads,
            required_threads=one.required_threads,
            required_cluster=one.required_cluster,
            parameter_bytes=one.parameter_bytes,
            stack_bytes=one.local_bytes,
        )
        for one in facts
    )


def _parts(binary: Binary, folder: Path, only: str = "") -> "Iterable[Path | _Unread]":
    """Yield the file of each image; it is gone once the next is asked for.

    A cubin and a PTX text are their own part. ``only`` limits it to the cubins of one target's
    number.
    """
    if binary.path.suffix == PTX or _is_cubin(binary):
        yield binary.path
        return
    listed = cuobjdump.listing(binary.path, binary.shown, _emptied(folder / "list"))
    groups: dict[tuple[bool, str], list[cuobjdump.Listed]] = {}
    for one in listed:
        groups.setdefault((one.ptx, one.arch.rstrip("af")), []).append(one)
    for (is_ptx, number), members in groups.items():
        if only and (is_ptx or number != only.rstrip("af")):
            continue
        into = _emptied(folder / "parts")
        found = 0
        for path in cuobjdump.extract(binary.path, binary.shown, into, members[0]):
            found += 1
            yield path
            path.unlink()
        # Images of one name overwrite each other when they are extracted.
        if found < len(members):
            yield _Unread(listed=members[0], count=len(members) - found)


def _section_names(elf: Any, file: BinaryIO) -> set[str]:
    """Return the names of a library's sections, none of one that has too many to be sound."""
    count = elf.num_sections()
    if not 0 < count <= cubin.MAX_SECTIONS:
        return set()
    headers = [elf._get_section_header(index) for index in range(count)]  # noqa: SLF001
    strings = headers[elf.get_shstrndx()]
    file.seek(strings["sh_offset"])
    table = file.read(min(strings["sh_size"], _MAX_STRINGS))
    return {cubin.string_at(table, header["sh_name"]) for header in headers}


def _emptied(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    return folder


def _is_cubin(binary: Binary) -> bool:
    """Tell a cubin from a host library, which must be whole and have a place for device code.

    Raises NoDeviceCodeError for a library without one, UsageError for a broken one.
    """
    from elftools.elf.elffile import ELFFile

    with binary.path.open("rb") as file:
        if file.read(len(ELF)) != ELF:
            return False
        size = binary.path.stat().st_size
        file.seek(0)
        try:
            elf = ELFFile(file)
            if elf["e_machine"] in cubin.CUDA_MACHINES:
                return True
            end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
            names = set() if end > size else _section_names(elf, file)
        # pyelftools raises whatever its parsers meet in broken input.
        except Exception as error:
            raise UsageError(
                f"`{binary.shown}` was to be inspected, but its ELF structure is broken "
                f"({type(error).__name__})",
                "the file is truncated or damaged: fetch it again",
            ) from error
    if end > size:
        raise UsageError(
            f"`{binary.shown}` was to be inspected, but it is truncated: it has {size:,} B and "
            f"its section table ends at {end:,}",
            "fetch the file again",
        )
    # A library stripped of its sections may hold code all the same.
    if names and not names.intersection(_CODE_SECTIONS):
        raise cuobjdump.NoDeviceCodeError(binary.shown)
    return False
