# SPDX-License-Identifier: Apache-2.0
"""Sentences of driver, runtime, compilers and frameworks, and what each says.

A sentence gives a code, or names a cause itself. Where a log holds several, the first counts: what
comes after a refused launch often only repeats it.
"""

import re
from dataclasses import dataclass

_FLAGS = re.IGNORECASE


@dataclass(frozen=True)
class Sentence:
    """Words to look for, who says them, and the code or the cause that they stand for."""

    words: re.Pattern[str]
    speaker: str
    code: int | None = None
    cause: str = ""


@dataclass(frozen=True)
class Heard:
    """What was recognised in a text: the sentence, where it starts, and the words themselves."""

    sentence: Sentence
    start: int
    words: str


def _says(words: str, speaker: str, code: int | None = None, cause: str = "") -> Sentence:
    return Sentence(re.compile(words, _FLAGS), speaker, code, cause)


_LOG, _DRIVER, _RUNTIME = "driver log", "driver or runtime", "runtime"

NAMING: tuple[Sentence, ...] = (
    _says(r"non-?portable[^.\n]{0,80}not (enabled|allowed)", _LOG, 912, "non-portable-not-enabled"),
    _says(
        r"do(es)? not evenly divide|not divisible by[^.\n]{0,20}cluster",
        _LOG,
        912,
        "grid-not-divisible",
    ),
    _says(
        r"cluster dim[^.\n]{0,80}not match|required cluster", _LOG, 912, "required-cluster-mismatch"
    ),
    _says(r"Required: *\d+, *Hardware limit: *\d+", "Triton", None, "smem-over-optin"),
    _says(r"out of resource: *(threads|registers)", "Triton", None, "out-of-resources"),
    _says(r"total_ctas *= *\d+ *> *num_sms *\* *occupancy", "vLLM", None, "residency-exceeded"),
    _says(
        r"Unsupported tile shape|(unsupported|not implemented)[^.\n]{0,40}(config|architecture)",
        "host code",
        None,
        "host-refused",
    ),
    _says(
        r"No valid (tactic|config|kernel)|no available kernel|is not compiled for",
        "host code",
        None,
        "host-refused",
    ),
    _says(r"uses too much shared data", "ptxas", None, "compile-failed"),
    _says(r"is not defined for option|ptxas (fatal|error)", "ptxas", None, "compile-failed"),
    _says(r"NVRTC_ERROR_\w+|invalid value for --gpu-architecture", "NVRTC", None, "compile-failed"),
    _says(
        r"cannot open source file|incomplete type \"|nvrtc: error|CompileException",
        "NVRTC or CuPy",
        None,
        "compile-failed",
    ),
    _says(
        r"MLIRError|CompilationError|PassManager::run failed",
        "Triton or CuTe",
        None,
        "compile-failed",
    ),
    _says(r"Arch conditional \w+ instruction used without", "CUTLASS", None, "body-without-code"),
)
"""Sentences that name the cause themselves."""

CODED: tuple[Sentence, ...] = (
    _says(r"cluster misconfiguration|Invalid_?Cluster_?Size", _DRIVER, 912),
    _says(r"invalid configuration argument|cudaErrorInvalidConfiguration", _RUNTIME, 9),
    _says(r"invalid device function|cudaErrorInvalidDeviceFunction", _RUNTIME, 98),
    _says(
        r"no (sm_\w+ )?kernel image|NoKernelImageForDevice|NO_BINARY_FOR_GPU",
        _DRIVER,
        209,
    ),
    _says(r"unsupported toolchain|unsupported PTX|Unsupported_?Ptx_?Version", _DRIVER, 222),
    _says(r"PTX JIT compilation failed|CUDA_ERROR_INVALID_PTX|cudaErrorInvalidPtx", _DRIVER, 218),
    _says(r"JIT compiler library not found|JIT_?COMPILER_?NOT_?FOUND", _DRIVER, 221),
    _says(r"kernel image is invalid|CUDA_ERROR_INVALID_IMAGE|InvalidKernelImage", _DRIVER, 200),
    _says(r"too many resources requested|LAUNCH_?OUT_?OF_?RESOURCES", _DRIVER, 701),
    _says(r"too many blocks in cooperative|COOPERATIVE_?LAUNCH_?TOO_?LARGE", _DRIVER, 720),
    _says(r"illegal memory access|ILLEGAL_?ADDRESS", _DRIVER, 700),
    _says(r"illegal instruction|ILLEGAL_?INSTRUCTION", _DRIVER, 715),
    _says(r"misaligned address|MISALIGNED_?ADDRESS", _DRIVER, 716),
    _says(r"hardware stack error|HARDWARE_?STACK_?ERROR", _DRIVER, 714),
    _says(r"invalid address space|INVALID_?ADDRESS_?SPACE", _DRIVER, 717),
    _says(r"invalid program counter|CUDA_ERROR_INVALID_PC\b|cudaErrorInvalidPc", _DRIVER, 718),
    _says(r"device-side assert|CUDA_ERROR_ASSERT", _DRIVER, 710),
    _says(r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED", _DRIVER, 719),
    _says(r"launch timed out|LAUNCH_?TIMEOUT", _DRIVER, 702),
    _says(r"invalid resource configuration|INVALID_RESOURCE_CONFIGURATION", _DRIVER, 914),
    _says(r"invalid resource handle|CUDA_ERROR_INVALID_HANDLE", _DRIVER, 400),
    _says(r"operation not supported|CUDA_ERROR_NOT_SUPPORTED", _DRIVER, 801),
    _says(r"\binvalid argument\b|CUDA_ERROR_INVALID_VALUE|cudaErrorInvalidValue", _DRIVER, 1),
)
"""Sentences and names that stand for a code."""

_NUMBER = _says(
    r"(?:cuda\w*|error|code|rc|result|returned|returning|status)\W{1,12}(?P<number>\d{1,3})\b"
    r"|error\b[^\n]{0,80}'(?P<quoted>\d{1,3})'|^\W*(?P<alone>\d{1,3})\W*$",
    "a number",
)
_HANG = _says(r"\bhangs?\b|\bhung\b|never (finishes|returns)|watchdog|deadlock", "a person")
FRAMEWORKS: tuple[Sentence, ...] = (
    _says(r"torch\.|TORCH_USE_CUDA_DSA|asynchronously reported|torch::", "torch"),
    _says(r"cupy", "CuPy"),
    _says(r"triton", "Triton"),
    _says(r"vllm|cooperative_topk|persistent_topk", "vLLM"),
)
"""Who passes a sentence on."""


def heard(text: str) -> list[Heard]:
    """Return the sentences recognised in a text, in its order; a bare number only if alone."""
    found = [
        Heard(one, match.start(), match[0])
        for one in (*NAMING, *CODED)
        if (match := one.words.search(text))
    ]
    if not found and (match := _NUMBER.words.search(text)):
        number = int(match["number"] or match["quoted"] or match["alone"])
        told = Sentence(_NUMBER.words, _NUMBER.speaker, number)
        found = [Heard(told, match.start(), match[0].strip())]
    return sorted(found, key=lambda one: one.start)


def hangs(text: str) -> bool:
    """Say whether a text speaks of something that does not come back."""
    return bool(_HANG.words.search(text))


def frameworks(text: str) -> list[str]:
    """Return the frameworks that a text names."""
    return [one.speaker for one in FRAMEWORKS if one.words.search(text)]
