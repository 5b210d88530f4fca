# SPDX-License-Identifier: Apache-2.0
"""The shipped kernel sources, and their compilation by NVRTC for a GPU that need not be here."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thorprobe.errors import CouldNotProbeError, ThorprobeError, UsageError
from thorprobe.record import Record

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class KernelFile(Record, frozen=True, kw_only=True):
    """Where a kernel is: file in the kernels folder, and its ``extern "C"`` function.

    ``options`` are options of NVRTC that its source needs on top of those of every kernel.
    """

    file: str
    function: str
    options: tuple[str, ...] = ()


class Source(Record, frozen=True, kw_only=True):
    """A kernel's source text and the SHA-256 of its bytes, in hexadecimal."""

    text: str
    sha256: str


KERNELS = {
    "trivial": KernelFile(file="trivial.cu", function="cluster_trivial"),
    "topk": KernelFile(file="topk.cu", function="cluster_topk"),
    "hang": KernelFile(file="hang.cu", function="cluster_hang"),
    "fault": KernelFile(file="fault.cu", function="cluster_fault"),
    # NVRTC 13.0 takes a generic lambda for a host function without it (13.5 does not).
    "select": KernelFile(file="select.cu", function="long_16", options=("-default-device",)),
}
"""Kernels by name. ``hang`` and ``fault`` exist to test the worker that launches them; ``select``
holds the rungs of the ladder (``thorprobe.topk``)."""

TARGETS = (
    "sm_90",
    "sm_100",
    "sm_103",
    "sm_110",
    "sm_120",
    "sm_121",
    "sm_100f",
    "sm_103f",
    "sm_110f",
    "sm_120f",
    "sm_121f",
)
"""Targets that have clusters; sm_90 has no f variant (tried with NVRTC 13.5). NVRTC before 13.0
calls sm_110 sm_101 (CUDA 13.0 release notes)."""

INSTALL_LINE = 'pip install "nvidia-cuda-nvrtc>=13,<14" "cuda-bindings>=13,<14"'
_DIGEST = hashlib.sha256().digest_size
_LOG_LINES = 6
_ELF_MAGIC = b"\x7fELF"


def source(kernel: str) -> Source:
    """Read the source of a kernel from the installed package, or from the checkout around it.

    Raises UsageError for an unknown kernel and ThorprobeError where its file is missing.
    """
    return _read(_known(kernel).file)


def hashes(names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each kernel's source, keyed by its file."""
    return {f"kernels/{_known(n).file}": source(n).sha256 for n in sorted(set(names))}


def compile_options(compiled_cluster: int = 0) -> tuple[str, ...]:
    """Return the options of every compilation, on a device or for one that is not here.

    ``compiled_cluster`` n > 0 compiles the variant with ``__cluster_dims__(1, n, 1)``.
    """
    options: tuple[str, ...] = ("-std=c++17",)
    if compiled_cluster:
        options += (f"-DTHORPROBE_CLUSTER={compiled_cluster}",)
    return options


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Return the version of the NVRTC that would compile, such as ``13.5``.

    Raises CouldNotProbeError where there is none.
    """
    code, major, minor = _call(_nvrtc().nvrtcVersion)
    _require(code, "nvrtcVersion")
    return f"{major}.{minor}"


@lru_cache(maxsize=256)
def compile_cubin(
    kernel: str, target: str, compiled_cluster: int = 0, defines: tuple[str, ...] = ()
) -> bytes:
    """Return the cubin of a kernel for ``target``, from the cache on disk or from NVRTC.

    ``defines`` are macros of the kernel's own, such as ``-DTHREADS=512``.

    Raises UsageError for an unknown kernel or target, CouldNotProbeError where NVRTC is missing,
    ThorprobeError with NVRTC's log where the source does not compile. A cache that cannot be read
    or written is no error.
    """
    text = source(kernel)
    if target not in TARGETS:
        raise UsageError(
            f"kernel `{kernel}` was asked for as `{target}`, but the targets with clusters are "
            f"{', '.join(TARGETS)}",
            "thread-block clusters need compute capability 9.0 or later",
        )
    options = (
        f"-arch={target}",
        *compile_options(compiled_cluster),
        *KERNELS[kernel].options,
        *defines,
    )
    key = hashlib.sha256("\n".join((text.sha256, *options, nvrtc_version())).encode()).hexdigest()
    path = cache_folder() / f"{kernel}-{target}-{key[:32]}.cubin"
    cubin = _load(path)
    if cubin is None:
        cubin = _compile(text.text, KERNELS[kernel].file, options)
        _store(path, cubin)
    return cubin


def cache_folder() -> Path:
    """Return the folder of compiled cubins: ``$XDG_CACHE_HOME/thorprobe``, or under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification says that relative paths are to be ignored.
    if not os.path.isabs(base):  # noqa: PTH117
        base = os.path.expanduser("~/.cache")  # noqa: PTH111  (never raises, unlike Path.home)
    return Path(base) / "thorprobe"


def _known(kernel: str) -> KernelFile:
    found = KERNELS.get(kernel)
    if found is None:
        raise UsageError(
            f"kernel `{kernel}` was asked for, but the kernels are {', '.join(KERNELS)}",
            "`thorprobe list` describes each of them",
        )
    return found


@lru_cache(maxsize=16)
def _read(file: str) -> Source:
    package = resources.files("thorprobe")
    places: list[Traversable] = [package / "kernels" / file]
    if isinstance(package, Path):
        places.append(package.parent / "kernels" / file)
    for place in places:
        if place.is_file():
            data = place.read_bytes()
            return Source(text=data.decode(), sha256=hashlib.sha256(data).hexdigest())
    raise ThorprobeError(
        f"kernel file `{file}` was asked for, but this installation does not hold it",
        "reinstall thorprobe; its wheel carries every kernel source",
    )


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise _missing(error) from error
    return nvrtc


def _missing(error: Exception) -> CouldNotProbeError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return CouldNotProbeError(
        f"a kernel was to be compiled, but NVRTC cannot be loaded: {reason}", INSTALL_LINE
    )


def _call(function: Any, *arguments: Any) -> Any:
    """Call NVRTC; its library is loaded at the first call and may turn out to be missing."""
    try:
        return function(*arguments)
    except (ImportError, OSError, RuntimeError) as error:
        raise _missing(error) from error


def _require(code: Any, call: str) -> None:
    if int(code):
        raise ThorprobeError(f"{call} answered {int(code)} {getattr(code, 'name', '')}".rstrip())


def _compile(text: str, file: str, options: tuple[str, ...]) -> bytes:
    nvrtc = _nvrtc()
    code, program = _call(nvrtc.nvrtcCreateProgram, text.encode(), file.encode(), 0, None, None)
    _require(code, "nvrtcCreateProgram")
    try:
        encoded = [option.encode() for option in options]
        (code,) = _call(nvrtc.nvrtcCompileProgram, program, len(encoded), encoded)
        if int(code):
            raise ThorprobeError(
                f"`{file}` was compiled with `{' '.join(options)}`, but NVRTC {nvrtc_version()} "
                f"answered {int(code)} {code.name}: {_log(nvrtc, program)}",
                f"a newer NVRTC may know the target: {INSTALL_LINE}",
            )
        code, size = _call(nvrtc.nvrtcGetCUBINSize, program)
        _require(code, "nvrtcGetCUBINSize")
        cubin = bytearray(size)
        (code,) = _call(nvrtc.nvrtcGetCUBIN, program, cubin)
        _require(code, "nvrtcGetCUBIN")
        return bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    code, size = _call(nvrtc.nvrtcGetProgramLogSize, program)
    if int(code):
        return "no log"
    log = bytearray(size)
    _call(nvrtc.nvrtcGetProgramLog, program, log)
    lines = [line.strip() for line in log.decode(errors="replace").strip("\0 \n").splitlines()]
    return " / ".join([line for line in lines if line][:_LOG_LINES]) or "no log"


def _load(path: Path) -> bytes | None:
    """Return a cached cubin whose digest is right, or None."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, cubin = data[:_DIGEST], data[_DIGEST:]
    if not cubin.startswith(_ELF_MAGIC) or hashlib.sha256(cubin).digest() != digest:
        return None
    return cubin


def _store(path: Path, cubin: bytes) -> None:
    """Write digest and cubin in one step, so that no reader sees half of it."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(cubin).digest() + cubin)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
