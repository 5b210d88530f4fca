# SPDX-License-Identifier: Apache-2.0
"""vLLM's library, loaded with torch: ``cooperative_topk`` and ``persistent_topk`` as shipped."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thorprobe.binary.operator_file import FILE, LibraryFile, find
from thorprobe.errors import CouldNotProbeError
from thorprobe.plan.operator import OPERATORS

if TYPE_CHECKING:
    from torch import Tensor

ARGUMENTS = (
    ("logits", "Tensor", False),
    ("lengths", "Tensor", False),
    ("output", "Tensor", True),
    ("workspace", "Tensor", False),
    ("k", "int", False),
    ("max_seq_len", "int", False),
)
"""Name, type and whether it is written, of both operators in 0.29 to 0.33 (read in the wheels)."""

_ABI_SIGNS = ("aoti_torch_", "torch_", "_ZN3c10", "_ZN2at", "_ZNK3c10", "GLIBCXX", "CXXABI")
# Undefined symbols and version names that an older torch, or an older C++ runtime, lacks.


@dataclass(frozen=True)
class Library:
    """vLLM's operators, ready to be called.

    ``version`` is vLLM's, '' where unknown; ``sha256`` is of the file that was loaded, and ``of``
    that of the released one where a sidecar says that ``path`` is a copy without some device code.
    ``operators`` is the namespace that holds both, ``torch.ops._C`` or one like it.
    """

    version: str
    path: str
    sha256: str
    operators: Any
    of: str = ""
    pruned: str = ""

    def cooperative_topk(  # noqa: PLR0917  the operator's own signature
        self,
        logits: "Tensor",
        lengths: "Tensor",
        output: "Tensor",
        workspace: "Tensor",
        k: int,
        max_seq_len: int,
    ) -> None:
        """Call vLLM's operator on the current stream.

        logits fp32 [rows, columns], lengths int32 [rows], output int32 [rows, k], workspace uint8.
        Raises RuntimeError with vLLM's own text where it refuses.
        """
        self.operators.cooperative_topk(logits, lengths, output, workspace, k, max_seq_len)

    def persistent_topk(  # noqa: PLR0917  the operator's own signature
        self,
        logits: "Tensor",
        lengths: "Tensor",
        output: "Tensor",
        workspace: "Tensor",
        k: int,
        max_seq_len: int,
    ) -> None:
        """Call vLLM's operator on the current stream; arguments as for ``cooperative_topk``."""
        self.operators.persistent_topk(logits, lengths, output, workspace, k, max_seq_len)


def load(source: str = "") -> Library:
    """Load the library of the installed vLLM ('') or of a wheel, library or folder at a path.

    Raises CouldNotProbeError where no vLLM is installed, where torch is missing, has no CUDA or
    lacks what the library needs, and where the operators are not those that are known here;
    UsageError for a path that is not there or holds no such library.
    """
    return load_file(find(source))


def load_file(file: LibraryFile) -> Library:
    """Load a library that was found; loading it a second time is no error.

    Raises CouldNotProbeError as ``load`` does.
    """
    try:
        import torch
    except ImportError as error:
        raise CouldNotProbeError(
            f"vLLM's library was to be loaded, but there is no torch in this environment: {error}",
            "install torch with CUDA; vLLM 0.33.0 pins 2.14.0, and 2.11 was seen to load it",
        ) from error
    check_torch(torch.__version__, torch.version.cuda)
    if not _mapped(file.path):
        if missing(torch.ops._C) != OPERATORS:  # noqa: SLF001  the namespace of vLLM's operators
            raise CouldNotProbeError(
                f"`{FILE}` was to be loaded, but this process already has operators of that name "
                "from another library",
                "load one vLLM a process",
            )
        try:
            torch.ops.load_library(str(file.path))
        except (OSError, RuntimeError) as error:
            raise unloadable(
                error, file.path.parent, torch.__version__, torch.version.cuda or ""
            ) from error
    return with_operators(file, torch.ops._C)  # noqa: SLF001


def with_operators(file: LibraryFile, operators: Any) -> Library:
    """Return the library with its operators, once their signatures are those that are known.

    Raises CouldNotProbeError for a namespace that lacks one, or whose signature differs.
    """
    name = f"`{FILE}`" + (f" of vLLM {file.version}" if file.version else "")
    lacking = missing(operators)
    if lacking:
        raise CouldNotProbeError(
            f"{name} was loaded, but it has no operator {' and no '.join(lacking)}",
            "both are in the CUDA wheels of vLLM 0.29 to 0.33; this is another version or build",
        )
    for operator in OPERATORS:
        found = signature(getattr(operators, operator))
        if found != ARGUMENTS:
            shown = ", ".join(f"{kind}{'!' * written} {name}" for name, kind, written in found)
            raise CouldNotProbeError(
                f"{name} was loaded, but its `{operator}` takes ({shown}), which is not the "
                "signature of vLLM 0.29 to 0.33",
                "this is the library of another version: nothing of it is called",
            )
    return Library(
        version=file.version,
        path=str(file.path),
        sha256=file.sha256,
        operators=operators,
        of=file.of,
        pruned=file.pruned,
    )


def missing(operators: Any) -> tuple[str, ...]:
    """Return which of the two operators a namespace lacks."""
    return tuple(name for name in OPERATORS if not hasattr(operators, name))


def signature(operator: Any) -> tuple[tuple[str, str, bool], ...]:
    """Return name, type and whether it is written of each argument, () where nothing states it."""
    schema = getattr(getattr(operator, "default", None), "_schema", None)
    if schema is None or schema.returns:
        return ()
    return tuple(
        (a.name, str(a.type), bool(a.alias_info and a.alias_info.is_write))
        for a in schema.arguments
    )


def check_torch(version: str, cuda: str | None) -> None:
    """Raise CouldNotProbeError for a torch that was built without CUDA."""
    if not cuda:
        raise CouldNotProbeError(
            f"vLLM's library was to be loaded, but this torch ({version}) is built without CUDA",
            "install a torch with CUDA 13; vLLM 0.33.0 pins 2.14.0, and 2.11 was seen to load it",
        )


def unloadable(error: BaseException, folder: Path, version: str, cuda: str) -> CouldNotProbeError:
    """Return the sentence for a library in ``folder`` that the loader of this torch refuses."""
    deepest = error  # torch says only that it could not; the loader's words are behind it.
    while (cause := deepest.__cause__ or deepest.__context__) is not None:
        deepest = cause
    lines = str(deepest).strip().splitlines() or [type(deepest).__name__]
    said = lines[0].replace(f"{folder}/", "")
    if "libcuda.so" in said:
        return CouldNotProbeError(
            f"vLLM's library was to be loaded, but there is no CUDA driver here: {said}",
            "it needs a GPU machine; `thorprobe inspect FILE` reads it anywhere",
        )
    if "libcudart" in said:
        return CouldNotProbeError(
            f"vLLM's library was to be loaded, but this torch ({version}) is for CUDA {cuda}: "
            f"{said}",
            "install the torch of the same CUDA as the wheel, 13 for vLLM 0.33.0",
        )
    if "undefined symbol" in said or "version `" in said:
        old = any(sign in said for sign in _ABI_SIGNS)
        why = "too old for the stable ABI that it needs" if old else "not the one that it needs"
        return CouldNotProbeError(
            f"vLLM's library was to be loaded, but this torch ({version}) is {why}: {said}",
            "install a newer torch; vLLM 0.33.0 pins 2.14.0, and 2.11 was seen to load it",
        )
    return CouldNotProbeError(
        f"vLLM's library was to be loaded, but the loader refuses it: {said}",
        "fetch the wheel again, or name the library of a vLLM that runs here",
    )


def _mapped(path: Path) -> bool:
    """Say whether a library is already part of this process."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(line.endswith(f" {path}") for line in maps.splitlines())
