# SPDX-License-Identifier: Apache-2.0
"""Entries of the catalogue of causes that thorprobe's own launches seldom show.

They are documented, or reported by others; ``explain`` names them from what a person has.
"""

from thorprobe.judge.cause_entry import API, GUIDE, H200, REPORTED, Cause

UNMEASURED: tuple[Cause, ...] = (
    Cause(
        "smem-limit-lowered",
        23,
        "shared memory limit lowered",
        "The function's limit of dynamic shared memory was last set below what the launch asks",
        "1 (invalid argument); the value last set of MAX_DYNAMIC_SHARED_SIZE_BYTES is below the "
        "launch's bytes, and these are within the device's opt-in limit",
        "Set the limit to the largest any launch of the function asks, once, before all of them",
        (1,),
        API,
    ),
    Cause(
        "grid-too-large",
        24,
        "grid too large",
        "A grid dimension is over its limit: 2,147,483,647 in x, 65,535 in y and z",
        "1 (invalid argument) whatever block and cluster; the grid by axis shows it",
        "Put the long dimension in x, or split the launch",
        (1,),
        GUIDE,
    ),
    Cause(
        "invalid-ptx",
        25,
        "PTX that does not compile",
        "The driver could not compile the module's PTX for this device",
        "218 when the module is loaded; the log of the driver's own compiler names the line",
        "Load it with an error log buffer, or compile it with `ptxas` of the driver's version",
        (218,),
        API,
    ),
    Cause(
        "ptx-compiler-missing",
        26,
        "no PTX compiler",
        "The module holds PTX only for this device and the driver's compiler was not found",
        "221 when the module is loaded; a cubin for the device loads",
        "Install the driver's whole package (libnvidia-ptxjitcompiler), or ship a cubin",
        (221,),
        API,
    ),
    Cause(
        "attribute-rejected",
        27,
        "launch attribute rejected",
        "The driver does not take one of the launch's attributes",
        "1 (invalid argument) that goes away once that attribute is left out",
        "Leave the attributes out one by one; check that numAttrs counts those that are set",
        (1,),
        H200,
    ),
    Cause(
        "body-without-code",
        28,
        "kernel body empty",
        "The image that was loaded has an empty body of this kernel, or one that only traps",
        "launch code 0 and nothing done, or a trap; `thorprobe inspect` shows the code's size "
        "beside the other targets'",
        "Build the kernel for this device's own target (`a` or `f` where it needs one)",
        (0, 710, 715, 719),
        REPORTED,
    ),
    Cause(
        "early-exit",
        29,
        "CTA left its cluster early",
        "A CTA returned while its peers still use its shared memory or wait for it",
        "launch code 0, a fault or a hang; it goes away with a cluster barrier before the exit",
        "Let every CTA of a cluster reach a cluster barrier before it returns",
        (700, 716, 719),
        GUIDE,
    ),
    Cause(
        "residency-exceeded",
        30,
        "not resident together",
        "CTAs wait for each other and are not all resident at once, which no code tells",
        "launch code 0 and a hang: the CTAs are more than CTAs per SM x SMs, or others hold SMs",
        "Launch it cooperatively, so that the driver checks, or launch fewer CTAs",
        (0,),
        REPORTED,
    ),
    Cause(
        "grid-unit",
        31,
        "grid counted in another unit",
        "One side counts the grid in clusters and the other in CTAs",
        "launch code 0 and a number of CTAs in the kernel that is a multiple of the one meant",
        "The driver counts CTAs; look up which unit the launching library takes",
        (0,),
        REPORTED,
    ),
    Cause(
        "host-refused",
        32,
        "refused by host code",
        "The library's own host code refused before anything was launched",
        "no driver call failed: the sentence is none of the driver's",
        "Read the check that raised it; the device was not asked",
        (),
        REPORTED,
    ),
    Cause(
        "compile-failed",
        33,
        "did not compile",
        "The kernel was not built for this device: nothing was loaded or launched",
        "the sentence is a compiler's: a header, a target's name, static shared memory over "
        "49,152 B",
        "Check which compiler was loaded, its version and its targets; `thorprobe doctor` lists "
        "NVRTC",
        (),
        REPORTED,
    ),
)
