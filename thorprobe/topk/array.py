# SPDX-License-Identifier: Apache-2.0
"""Arrays of torch, CuPy and NumPy seen alike: pointer, type, shape, strides, device, stream."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from thorprobe.topk.contract import DTYPES, MAX_COLUMNS, ArgumentError

TORCH, CUPY, NUMPY = "torch", "cupy", "numpy"
_MAX_COLUMN_STRIDE = 2**32 - 1
# The kernels take it as 32 bits.
_WORKSPACE_ALIGNMENT = 8
# The kernels keep 64-bit words there.


@dataclass(slots=True)
class View:
    """One array: strides in elements, ``device`` the CUDA ordinal or None on the host.

    Not frozen: three are made a call, and a frozen one takes several times as long to make.
    """

    library: str
    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None


def library_of(array: Any) -> str:
    """Return which library an array is of. Raises ArgumentError for another kind."""
    module = type(array).__module__.partition(".")[0]
    if module in (TORCH, CUPY, NUMPY):
        return module
    raise _no_array(array)


def _no_array(array: Any) -> ArgumentError:
    return ArgumentError(
        f"an array of type `{type(array).__name__}` was given",
        "select takes dense torch tensors, CuPy arrays and NumPy arrays; `torch.from_dlpack(array)`"
        " or `cupy.from_dlpack(array)` makes one without a copy",
    )


def view(array: Any) -> View:
    """Look at an array. Raises ArgumentError where it is none with strides in memory."""
    library = library_of(array)
    try:
        return _view(array, library)
    except (AttributeError, RuntimeError) as error:
        # A NumPy scalar has no memory of its own, a sparse tensor no strides.
        raise _no_array(array) from error


@lru_cache(maxsize=64)
def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _view(array: Any, library: str) -> View:
    if library == TORCH:
        device = array.device.index if array.is_cuda else None
        return View(
            TORCH, array.data_ptr(), _name(array.dtype), array.shape, array.stride(), device
        )
    item = array.dtype.itemsize
    strides = tuple(stride // item for stride in array.strides)
    if library == CUPY:
        return View(CUPY, array.data.ptr, str(array.dtype), array.shape, strides, array.device.id)
    return View(NUMPY, array.ctypes.data, str(array.dtype), array.shape, strides, None)


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


def check_workspace(workspace: View, logits: View, size: int) -> None:
    """Raise ArgumentError where the kernels cannot keep ``size`` bytes in ``workspace``."""
    if (
        workspace.dtype != "uint8"
        or len(workspace.shape) != 1
        or workspace.shape[0] < size
        or workspace.strides != (1,)
        or workspace.pointer % _WORKSPACE_ALIGNMENT
    ):
        raise ArgumentError(
            f"a workspace of type {workspace.dtype}, shape {tuple(workspace.shape)} and strides "
            f"{workspace.strides} was given",
            f"this shape needs uint8 [{size}], contiguous and aligned to {_WORKSPACE_ALIGNMENT} B; "
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


def current_stream(array: View) -> int:
    """Return the handle of the caller's stream on the array's device."""
    if array.library == TORCH:
        import torch

        return int(torch.cuda.current_stream(array.device).cuda_stream)
    import cupy

    return int(cupy.cuda.get_current_stream(array.device).ptr)
