# SPDX-License-Identifier: Apache-2.0
"""Results of the CUDA driver that the catalogue of causes speaks of."""

INVALID_VALUE = 1
INVALID_CLUSTER_SIZE = 912
NOT_SUPPORTED = 801
LAUNCH_TIMEOUT = 702
NOT_READY = 600
NO_BINARY_FOR_GPU = 209

MODULE_CAUSES = {
    NO_BINARY_FOR_GPU: "no-kernel-image",
    222: "ptx-too-new",
    200: "invalid-image",
    218: "invalid-ptx",
    221: "ptx-compiler-missing",
}
CODE_NAMES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    200: "CUDA_ERROR_INVALID_IMAGE",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    218: "CUDA_ERROR_INVALID_PTX",
    221: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    720: "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    912: "CUDA_ERROR_INVALID_CLUSTER_SIZE",
}
"""Names of the results that the catalogue speaks of, for outcomes without driver calls (CUDA driver
API reference)."""

LAUNCH_CAUSES = {720: "cooperative-too-large", 701: "out-of-resources", **MODULE_CAUSES}

MODULE_NAMES = {CODE_NAMES[code]: cause for code, cause in MODULE_CAUSES.items()}
"""Causes by name: a compiler front end such as CuPy loads the module itself and leaves the name in
its message only."""

FAULTS = frozenset({214, 700, 710, 714, 715, 716, 717, 718, 719})
"""Results that only a running kernel raises and that stay with its context (CUDA driver API
reference, CUresult)."""
