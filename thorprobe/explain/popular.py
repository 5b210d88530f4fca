# SPDX-License-Identifier: Apache-2.0
"""Popular readings of a refusal that measurements or documents contradict, each with its source."""

from thorprobe.explain.records import Told

_NO_CLUSTERS = (
    "'This device has no clusters': clusters and distributed shared memory run on cc 12.x "
    "(CUDA programming guide; quack #91 on an RTX 5090)"
)
_CLUSTER_CODE = (
    "'The cluster is refused': where clusters exist a refused cluster answers 912, and 1 is judged "
    "before it (measured on an H200, driver 580, 2026-11-30)"
)
_BY_CAUSE: dict[str, str] = {
    "larger-than-any-gpc": (
        "'The device launches no clusters': a size is refused, smaller ones may launch (4 and 8 on "
        "Thor: reported by FlashInfer #5293, TIRx-kernels #169)"
    ),
    "cooperative-too-large": (
        "'Several GPUs are not supported': the driver counts the CTAs that fit on the device that "
        "launches, and a plan made for another one counts other SMs (FlashInfer #938)"
    ),
    "out-of-resources": (
        "'The architecture is not supported': 701 counts registers x threads of one CTA (MAX "
        "#6590; CUDA driver API reference)"
    ),
    "ptx-too-new": (
        "'Minor-version compatibility covers it': it covers cubins, not PTX that the driver "
        "compiles (CUDA compatibility guide)"
    ),
    "no-kernel-image": (
        "'The file's name says what it holds' and 'the operator exists, so it runs': only the "
        "images inside count (FlashInfer #3466, vLLM #53462)"
    ),
    "kernel-fault": (
        "'The device cannot launch it': a fault comes from a kernel that runs; a refusal answers "
        "at the launch (measured on an H200, driver 580, 2026-11-30)"
    ),
    "smem-limit-lowered": (
        "'A race of host threads': the limit belongs to the function, whoever sets it last "
        "(DeepJIT #15)"
    ),
    "compile-failed": (
        "'48 KiB is all that the hardware has': it is the most *static* shared memory a compiler "
        "takes; dynamic shared memory has the opt-in (CUDA programming guide)"
    ),
}


def contradicted(told: Told, cause: str | None) -> tuple[str, ...]:
    """Return the popular readings that the facts, or what is published, contradict."""
    found = []
    clusters = told.capability is None or told.capability >= (9, 0)
    if cause in _BY_CAUSE and (cause != "compile-failed" or told.launch.static_smem):
        found.append(_BY_CAUSE[cause])
    if told.code == 1 and clusters and (told.launch.size or 2) > 1:
        found.append(_CLUSTER_CODE)
    if told.capability and told.capability[0] == 12 and (told.launch.size or 1) > 1:
        found.append(_NO_CLUSTERS)
    return tuple(found)
