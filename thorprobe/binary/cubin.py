# SPDX-License-Identifier: Apache-2.0
"""What a cubin says of its kernels: registers, shared memory, launch bounds, required cluster.

Cubins are untrusted input: sizes are checked before bytes are read, nothing is decompressed, and
whatever is wrong becomes one ThorprobeError. The attribute numbers are those that ``cuobjdump
-elf`` prints as EIATTR names; layouts were compared on NVRTC 12.9 and 13.5 output for sm_80 to
sm_121.
"""

import io
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from thorprobe.errors import ThorprobeError
from thorprobe.record import Record

MAX_CUBIN = 256 << 20
"""Largest cubin read, in bytes; the largest of the vLLM 0.33.0 wheels has 65,168,240."""

MAX_SECTIONS = 32_768

RESERVED_SMEM = 1_024
"""Bytes of ``.nv.shared.<kernel>`` that belong to the system from sm_90 on (132 B declared give a
section of 1,156 B for sm_90, 100, 103, 110, 120 and 121, and of 132 B for sm_80)."""

CUDA_MACHINES = ("EM_CUDA", 190)
"""``e_machine`` of CUDA code: the name that pyelftools has for it, and the number behind it."""

_FIRST_RESERVED_SM = 90
_ABI_SM_IN_BYTE_1 = 8
_NEWEST_ABI = 8
_SUFFIX_A_FLAG = 0x800
_ABI_8_SUFFIX_A_FLAG = 0x8
_COMPAT_SUFFIX = 0x09
MAX_SYMBOLS, MAX_INFO, MAX_NAME, MAX_NAMES = 1 << 20, 32 << 20, 16_384, 64 << 20
"""Most symbols, bytes of attributes, bytes of a name and of all section names of a cubin. The
largest among those of a vLLM 0.33.0 wheel: 28,844 symbols, 607,232 B, 1,857 B and 1,032,285 B."""

_SYMBOL = struct.Struct("<IBBHQQ")
_STT_FUNC, _STO_CUDA_ENTRY = 2, 0x10
_FORMAT_SIZED = 4
_REGCOUNT, _FRAME_SIZE, _MAX_THREADS, _REQNTID, _CTA_PER_CLUSTER = 0x2F, 0x11, 0x05, 0x10, 0x3D
_CBANK_PARAM_SIZE = 0x19
_ARCH_NOTE = re.compile(rb"-arch (sm_\d{2,3}[af]?)\b")
_DEFAULT_MAX_THREADS = 1_024


class KernelFacts(Record, frozen=True, kw_only=True):
    """Resources of one compiled kernel.

    ``registers`` per thread, ``static_smem`` in bytes without what the system reserves,
    ``max_threads`` per block (1,024 where the source sets no launch bounds), ``required_cluster``
    the compiled ``__cluster_dims__``, ``local_bytes`` the stack frame (spills included) per thread,
    ``parameter_bytes`` the size of the parameter block, ``required_threads`` those of a block whose
    size is compiled in (0 where any size up to ``max_threads`` goes).
    """

    function: str
    registers: int
    static_smem: int = 0
    max_threads: int = _DEFAULT_MAX_THREADS
    required_cluster: tuple[int, int, int] | None = None
    local_bytes: int = 0
    target: str = ""
    parameter_bytes: int = 0
    required_threads: int = 0


class _MalformedError(ValueError):
    """A cubin breaks its own format; the text says where."""


class _NewerError(_MalformedError):
    """The cubin is of a version that this thorprobe does not know."""


def facts(cubin: bytes, function: str) -> KernelFacts:
    """Read the facts of ``function`` from a cubin.

    Raises ThorprobeError where the bytes are no sound cubin or hold no such kernel.
    """
    return _guarded(
        lambda: _facts(_opened(cubin), function),
        f"kernel `{function}` was looked up in a cubin of {len(cubin):,} bytes",
    )


def contents(cubin: bytes) -> tuple[str, tuple[KernelFacts, ...]]:
    """Read the target of a cubin, such as ``sm_110f``, and the facts of every kernel of it.

    Raises ThorprobeError where the bytes are no sound cubin.
    """

    def read() -> tuple[str, tuple[KernelFacts, ...]]:
        opened = _opened(cubin)
        return opened.target, _all_facts(opened)

    return _guarded(read, f"a cubin of {len(cubin):,} bytes was read")


_T = TypeVar("_T")


def _guarded(read: Callable[[], _T], asked: str) -> _T:
    # pyelftools raises whatever its parsers meet in broken input, so the net is wide on purpose.
    hint = "compile or extract the cubin again"
    try:
        return read()
    except _NewerError as error:
        reason, hint = str(error), "a newer thorprobe may read it; the file need not be damaged"
    except _MalformedError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001
        reason = f"its ELF structure is broken ({type(error).__name__})"
    raise ThorprobeError(f"{asked}, but {reason}", hint)


@dataclass(frozen=True)
class _Opened:
    """A cubin whose section headers were read; ``sections`` is by name."""

    data: bytes
    sections: dict[str, Any]
    target: str

    def read(self, name: str) -> bytes:
        return _bytes(self.data, self.sections, name)


def _opened(cubin: bytes) -> _Opened:
    sections, flags, abi = _sections(cubin)
    return _Opened(cubin, sections, _target(cubin, sections, flags, abi))


def _facts(cubin: _Opened, function: str) -> KernelFacts:
    if f".text.{function}" not in cubin.sections:
        raise _MalformedError("it holds no such kernel")
    for index, name, _ in _functions(cubin):
        if name == function:
            return _of_function(cubin, function, _shared_info(cubin).get(index, {}))
    raise _MalformedError("its symbol table lacks that kernel")


def _all_facts(cubin: _Opened) -> tuple[KernelFacts, ...]:
    shared = _shared_info(cubin)
    found: dict[str, KernelFacts] = {}
    for index, name, entry in _functions(cubin):
        if entry and name not in found and f".text.{name}" in cubin.sections:
            found[name] = _of_function(cubin, name, shared.get(index, {}))
    return tuple(found.values())


def _functions(cubin: _Opened) -> Iterator[tuple[int, str, bool]]:
    """Index, name and whether it is a kernel, for each function symbol."""
    table, names = cubin.read(".symtab"), cubin.read(".strtab")
    whole = len(table) - len(table) % _SYMBOL.size
    if whole > MAX_SYMBOLS * _SYMBOL.size:
        raise _MalformedError(f"it has more than {MAX_SYMBOLS:,} symbols")
    for index, (name, info, other, *_) in enumerate(_SYMBOL.iter_unpack(table[:whole])):
        if name and info & 0xF == _STT_FUNC:
            yield index, string_at(names, name), bool(other & _STO_CUDA_ENTRY)


def _shared_info(cubin: _Opened) -> dict[int, dict[int, int]]:
    """Return registers and stack frame by symbol index; a section of the whole cubin has them."""
    found: dict[int, dict[int, int]] = {}
    for attribute, payload in _attributes(cubin.read(".nv.info")):
        if attribute in (_REGCOUNT, _FRAME_SIZE):
            index, value = _words(payload, 2)
            found.setdefault(index, {})[attribute] = value
    return found


def _of_function(cubin: _Opened, function: str, shared_info: dict[int, int]) -> KernelFacts:
    if _REGCOUNT not in shared_info:
        raise _MalformedError("it states no register count for that kernel")
    own = dict(_attributes(cubin.read(f".nv.info.{function}")))
    bounds = own.get(_MAX_THREADS, own.get(_REQNTID))
    x, y, z = _words(bounds, 3) if bounds is not None else (_DEFAULT_MAX_THREADS, 1, 1)
    cluster = _words(own[_CTA_PER_CLUSTER], 3) if _CTA_PER_CLUSTER in own else None
    static = cubin.sections.get(f".nv.shared.{function}", {"sh_size": 0})["sh_size"]
    if static and _number(cubin.target) >= _FIRST_RESERVED_SM:
        static = max(0, static - RESERVED_SMEM)
    return KernelFacts(
        function=function,
        registers=shared_info[_REGCOUNT],
        static_smem=static,
        max_threads=min(x * y * z, _DEFAULT_MAX_THREADS) or _DEFAULT_MAX_THREADS,
        required_cluster=(cluster[0], cluster[1], cluster[2]) if cluster else None,
        local_bytes=shared_info.get(_FRAME_SIZE, 0),
        target=cubin.target,
        parameter_bytes=int.from_bytes(own.get(_CBANK_PARAM_SIZE, b""), "little"),
        required_threads=x * y * z if _MAX_THREADS not in own and _REQNTID in own else 0,
    )


def _sections(cubin: bytes) -> tuple[dict[str, Any], int, int]:
    """Section headers by name, e_flags and the ABI version."""
    from elftools.elf.elffile import ELFFile

    if len(cubin) > MAX_CUBIN:
        raise _MalformedError(f"more than {MAX_CUBIN:,} bytes are not read")
    if cubin[:4] != b"\x7fELF":
        raise _MalformedError("it does not begin as an ELF file")
    elf = ELFFile(io.BytesIO(cubin))
    if elf["e_machine"] not in CUDA_MACHINES or elf.elfclass != 64 or not elf.little_endian:
        raise _MalformedError("it is not ELF code for a CUDA device")
    count = elf.num_sections()
    if count > MAX_SECTIONS:
        raise _MalformedError(f"it claims {count:,} sections")
    names_index = elf["e_shstrndx"]
    if names_index >= count:
        raise _MalformedError("its section names are missing")
    headers = [elf._get_section_header(index) for index in range(count)]  # noqa: SLF001
    names = _range(cubin, headers[names_index])
    named = {}
    total = info = 0
    for header in headers:
        name = string_at(names, header["sh_name"])
        named[name] = header
        total += len(name)
        info += header["sh_size"] if name.startswith(".nv.info") else 0
        if total > MAX_NAMES or info > MAX_INFO:
            raise _MalformedError("its section names or attributes are of no sound size")
    return named, elf["e_flags"], elf["e_ident"]["EI_ABIVERSION"]


def _target(cubin: bytes, sections: dict[str, Any], flags: int, abi: int) -> str:
    """Target as compiled; the note of the compiler tells f from plain, the flags do not."""
    if abi > _NEWEST_ABI:
        raise _NewerError(
            f"its ABI version is {abi}, newer than {_NEWEST_ABI}, the newest this thorprobe reads"
        )
    if abi == _ABI_SM_IN_BYTE_1:
        own = flags & _ABI_8_SUFFIX_A_FLAG or _compatible_alone(cubin, sections)
        plain = f"sm_{flags >> 8 & 0xFF}" + ("a" if own else "")
    else:
        plain = f"sm_{flags & 0xFF}" + ("a" if flags & _SUFFIX_A_FLAG else "")
    note = _ARCH_NOTE.search(_bytes(cubin, sections, ".note.nv.tkinfo"))
    if note is None:
        return plain
    told = note[1].decode()
    if _number(told) != _number(plain):
        raise _MalformedError(f"its header says {plain} and its compiler's note {told}")
    return told


def _compatible_alone(cubin: bytes, sections: dict[str, Any]) -> bool:
    """Say whether ``.nv.compat`` is that of an `a` target (compared on NVRTC output)."""
    told = dict(_attributes(_bytes(cubin, sections, ".nv.compat")))
    return told.get(_COMPAT_SUFFIX, b"")[:1] == b"\1"


def _number(target: str) -> int:
    """Return the number in a target: 110 of ``sm_110f``."""
    return int(re.sub(r"\D", "", target))


def _range(cubin: bytes, header: Any) -> bytes:
    """Bytes of a section, which must lie inside the file; empty for one without bytes."""
    if header["sh_type"] in ("SHT_NOBITS", "SHT_NULL"):
        return b""
    start, size = header["sh_offset"], header["sh_size"]
    if start + size > len(cubin):
        raise _MalformedError("a section reaches beyond its end")
    return cubin[start : start + size]


def _bytes(cubin: bytes, sections: dict[str, Any], name: str) -> bytes:
    return _range(cubin, sections[name]) if name in sections else b""


def string_at(table: bytes, start: int) -> str:
    """Return the name at an offset of a string table; ValueError for one that does not end."""
    end = table.find(b"\0", start, start + MAX_NAME)
    if start >= len(table) or end < 0:
        raise _MalformedError("a name is broken")
    return table[start:end].decode(errors="replace")


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Walk ``.nv.info``: format (u8), attribute (u8), then a u16 that is the value or a size."""
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind == _FORMAT_SIZED:
            if at + size > len(info):
                raise _MalformedError("an attribute reaches beyond its section")
            payload = info[at : at + size]
            at += size
        else:  # The value stands in the place of the size.
            payload = size.to_bytes(2, "little")
        yield attribute, payload


def _words(payload: bytes, count: int) -> tuple[int, ...]:
    if len(payload) < 4 * count:
        raise _MalformedError("an attribute is too short")
    return struct.unpack_from(f"<{count}I", payload)
