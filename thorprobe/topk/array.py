# SPDX-License-Identifier: Apache-2.0
"""Arrays of torch, CuPy and NumPy seen alike: type, shape, strides, device, address, stream."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from thorprobe.record import Record
from thorprobe.topk.contract import DTYPES, MAX_COLUMNS, ArgumentError

TORCH, CUPY, NUMPY = "torch", "cupy", "numpy"
_MAX_COLUMN_STRIDE = 2**32 - 1
# The kernels take it as 32 bits.
WORKSPACE_ALIGNMENT = 8
"""Bytes: the kernels keep 64-bit words there."""

Traits = tuple[Any, Any, Any, Any]
"""What there is to know of an array but its address, in its library's own words.

Type of its elements, shape, strides, device: torch's own, CuPy's ordinal, or None for NumPy. Of
what has no strides in memory, nothing but its own type in the place of the device. Hashable, so
that what was found out about them can be remembered.
"""


class View(Record, frozen=True):
    """One array: strides in elements, ``device`` the CUDA ordinal or None on the host."""

    library: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None


@lru_cache(maxsize=64)
def _library(kind: Any) -> str:
    module = kind.__module__.partition(".")[0]
    return module if module in (TORCH, CUPY, NUMPY) else ""


def library_of(array: Any) -> str:
    """Return which library an array is of. Raises ArgumentError for another kind."""
    kind: Any = type(array)
    return _library(kind) or _refuse(kind)


def _refuse(kind: type) -> NoReturn:
    raise ArgumentError(
        f"an array of type `{kind.__name__}` was given",
        "select takes dense torch tensors, CuPy arrays and NumPy arrays; `torch.from_dlpack(array)`"
        " or `cupy.from_dlpack(array)` makes one without a copy",
    )


Reading = tuple[Traits, int]
"""An array's traits, and its address in bytes."""


def read(array: Any) -> Reading:
    """Return an array's traits and address; also of what is none, which ``view`` refuses."""
    kind: Any = type(array)
    return reader(kind)(array)


@lru_cache(maxsize=64)
def reader(kind: Any) -> Callable[[Any], Reading]:
    """Return what reads arrays of one type as ``read`` does, and nothing else: it is in the way."""
    return {TORCH: _read_torch, CUPY: _read_cupy, NUMPY: _read_numpy}.get(_library(kind), _unread)


def _unread(array: Any) -> Reading:
    return (None, None, None, type(array)), 0


def _read_torch(array: Any) -> Reading:
    try:
        return (array.dtype, array.shape, array.stride(), array.device), array.data_ptr()
    except (AttributeError, RuntimeError):
        return _unread(array)  # A sparse tensor has no strides.


def _read_cupy(array: Any) -> Reading:
    try:
        return (array.dtype, array.shape, array.strides, array.device.id), array.data.ptr
    except (AttributeError, RuntimeError):
        return _unread(array)


def _read_numpy(array: Any) -> Reading:
    try:
        return (array.dtype, array.shape, array.strides, None), array.ctypes.data
    except (AttributeError, RuntimeError):
        return _unread(array)  # A NumPy scalar has no memory of its own.


@lru_cache(maxsize=1_024)
def view(traits: Traits) -> View:
    """See an array's traits. Raises ArgumentError where it is none with strides in memory."""
    dtype, shape, strides, device = traits
    if dtype is None:
        _refuse(device)
    if library_of(dtype) == TORCH:
        ordinal = device.index if device.type == "cuda" else None
        return View(TORCH, str(dtype).removeprefix("torch."), shape, strides, ordinal)
    # CuPy's types of elements are NumPy's.
    library = NUMPY if device is None else CUPY
    elements = tuple(stride // dtype.itemsize for stride in strides)
    if device is not None and any(
        stride % dtype.itemsize for stride, size in zip(strides, shape, strict=True) if size > 1
    ):
        raise ArgumentError(
            f"an array of type {dtype} with strides of {strides} B was given",
            "a kernel steps by whole elements; copy the array first",
        )
    return View(library, str(dtype), shape, elements, device)


def check(logits: View, lengths: View) -> None:
    """Raise ArgumentError where the two arrays are not what ``select`` takes."""
    if logits.dtype not in DTYPES:
        raise ArgumentError(
            f"logits of type {logits.dtype} were given", f"the types are {', '.join(DTYPES)}"
        )
    if len(logits.shape) != 2:
        raise ArgumentError(
            f"logits of shape {tuple(logits.shape)} were given", "logits is [rows, columns]"
        )
    rows, columns = logits.shape
    if columns > MAX_COLUMNS:
        raise ArgumentError(
            f"rows of {columns:,} scores were given", f"a row has at most {MAX_COLUMNS:,}"
        )
    if any(stride < 0 for stride in logits.strides):
        raise ArgumentError("logits with a negative stride were given", "copy the array first")
    if columns > 1 and logits.strides[1] > _MAX_COLUMN_STRIDE:
        raise ArgumentError(
            f"logits with {logits.strides[1]:,} scores from one column to the next were given",
            f"a column stride is at most {_MAX_COLUMN_STRIDE:,}; copy the array first",
        )
    if lengths.dtype != "int32" or lengths.shape != (rows,):
        raise ArgumentError(
            f"lengths of type {lengths.dtype} and shape {tuple(lengths.shape)} were given",
            f"lengths is int32 [{rows}], a valid prefix for each row of logits",
        )
    if rows > 1 and lengths.strides != (1,):
        raise ArgumentError("lengths with gaps were given", "make lengths contiguous")
    if (lengths.library, lengths.device) != (logits.library, logits.device):
        raise ArgumentError(
            f"logits are on {where(logits)} and lengths on {where(lengths)}",
            "both belong on one device, as arrays of one library",
        )


def check_out(out: View, logits: View, k: int) -> None:
    """Raise ArgumentError where ``out`` cannot hold the result."""
    if out.dtype != "int32" or out.shape != (logits.shape[0], k):
        raise ArgumentError(
            f"out of type {out.dtype} and shape {tuple(out.shape)} was given",
            f"out is int32 [{logits.shape[0]}, {k}]",
        )
    if out.shape[0] and k > 1 and out.strides[1] != 1:
        raise ArgumentError("out with gaps inside a row was given", "its rows must be contiguous")
    if out.shape[0] > 1 and abs(out.strides[0]) < k:
        raise ArgumentError("out whose rows overlap was given", "each row needs a place of its own")
    if (out.library, out.device) != (logits.library, logits.device):
        raise ArgumentError(
            f"logits are on {where(logits)} and out on {where(out)}",
            "both belong on one device, as arrays of one library",
        )


def check_status(status: View, logits: View) -> None:
    """Raise ArgumentError where ``status`` cannot hold a word for each row."""
    rows = logits.shape[0]
    if (status.dtype, status.shape) != ("int32", (rows,)) or (rows > 1 and status.strides != (1,)):
        raise ArgumentError(
            f"status of type {status.dtype}, shape {tuple(status.shape)} and strides "
            f"{status.strides} was given",
            f"status is int32 [{rows}], contiguous",
        )
    if status.device != logits.device:
        raise ArgumentError(
            f"logits are on {where(logits)} and status on {where(status)}",
            "both belong on one device",
        )


def check_workspace(workspace: View, offset: int, logits: View, size: int) -> None:
    """Raise ArgumentError where the kernels cannot keep ``size`` bytes in ``workspace``.

    ``offset``: bytes from an aligned address to the workspace's.
    """
    if (
        workspace.dtype != "uint8"
        or len(workspace.shape) != 1
        or workspace.shape[0] < size
        or workspace.strides != (1,)
        or offset
    ):
        raise ArgumentError(
            f"a workspace of type {workspace.dtype}, shape {tuple(workspace.shape)} and strides "
            f"{workspace.strides} was given",
            f"this shape needs uint8 [{size}], contiguous and aligned to {WORKSPACE_ALIGNMENT} B; "
            "see `workspace_bytes`",
        )
    if workspace.device != logits.device:
        raise ArgumentError(
            f"logits are on {where(logits)} and the workspace on {where(workspace)}",
            "both belong on one device",
        )


def where(array: View) -> str:
    """Name the library and device of an array."""
    return f"{array.library} {'cpu' if array.device is None else f'cuda:{array.device}'}"


def empty(logits: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return a new array of the library and device of ``logits``."""
    library = library_of(logits)
    if library == TORCH:
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=logits.device)
    if library == CUPY:
        import cupy

        with logits.device:
            return cupy.empty(shape, dtype=dtype)
    import numpy as np

    return np.empty(shape, dtype=dtype)


@lru_cache(maxsize=8)
def stream_reader(library: str) -> Callable[[int], int]:
    """Return what gives the handle of the caller's stream on a device, by its ordinal."""
    if library == TORCH:
        import torch

        # The public way makes a Stream first: 1.99 us a call against 0.10 (torch 2.11, 2026-11-30).
        # torch's own compiler writes calls of this one into what it generates.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001
        return raw or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))
    import cupy

    return lambda device: int(cupy.cuda.get_current_stream(device).ptr)
