# SPDX-License-Identifier: Apache-2.0
"""The closed catalogue of causes: why a launch was refused, went wrong, or was not judged.

Each entry says in one sentence what is wrong, which test separates it from its neighbours, and what
to do next. The codes and the order of judgement behind the entries were measured on an H200 with a
580-series driver (2026-11-30) unless the entry says otherwise; ``undetermined`` is an entry like
any other, and the one to use when the facts fit two causes.
"""

from thorprobe.errors import UsageError
from thorprobe.judge.cause_entry import API, H200, Cause
from thorprobe.judge.causes_unmeasured import UNMEASURED
from thorprobe.record import Verdict

CATALOGUE: tuple[Cause, ...] = (
    Cause(
        "larger-than-any-gpc",
        1,
        "larger than any GPC",
        "No group of SMs that the device schedules together has as many SMs as the cluster CTAs",
        "912 with every argument in order, max active clusters 0 and a silent driver log; "
        "a trivial kernel without shared memory is refused at the same size",
        "Use a size that launches; `thorprobe cluster-sweep` on the device measures which do",
        (912,),
        H200,
    ),
    Cause(
        "non-portable-not-enabled",
        2,
        "non-portable size not enabled",
        "The cluster has more than 8 CTAs and the function does not allow non-portable sizes",
        "912 without the opt-in; ask again with it: any other answer, or a 912 without the "
        "driver's sentence about portable sizes, is another cause",
        "Set CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED to 1 and check its return code",
        (912,),
        H200,
    ),
    Cause(
        "cluster-over-16",
        3,
        "cluster over 16",
        "The cluster has more than 16 CTAs, which no device launches",
        "912 at 17 and more whatever the opt-in; max active clusters may still be above 0 there",
        "Use at most 16 CTAs",
        (912,),
        H200,
    ),
    Cause(
        "grid-not-divisible",
        4,
        "grid not divisible",
        "The grid is no multiple of the cluster in every dimension",
        "912 that goes away when each grid dimension is rounded up to a multiple of the cluster's",
        "Round the grid up per dimension; the grid counts CTAs, not clusters",
        (912,),
        H200,
    ),
    Cause(
        "required-cluster-mismatch",
        5,
        "compiled cluster size differs",
        "The kernel is compiled for another cluster size than the launch asks for",
        "912 that goes away when the cluster attribute is left out or equals the compiled size",
        "Launch the compiled size (`cuobjdump -elf FILE` shows it), or compile without "
        "__cluster_dims__",
        (912,),
        H200,
    ),
    Cause(
        "smem-over-optin",
        6,
        "shared memory over the opt-in limit",
        "One CTA asks for more shared memory than the device allows a block, which is no fault "
        "of the cluster",
        "1 (invalid argument), not 912, at launch and already at the attribute setter; "
        "the same cluster launches without shared memory",
        "Use less dynamic shared memory, or a kernel built for this limit",
        (1,),
        H200,
    ),
    Cause(
        "smem-not-opted-in",
        7,
        "shared memory not opted in",
        "More than the default of dynamic shared memory is asked for and the function's limit "
        "was not raised",
        "1 (invalid argument) that goes away once MAX_DYNAMIC_SHARED_SIZE_BYTES is set",
        "Set CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and check its return code",
        (1,),
        H200,
    ),
    Cause(
        "block-too-large",
        8,
        "block too large",
        "The block has more threads than the device allows",
        "1 (invalid argument), judged before shared memory and cluster",
        "Use a smaller block",
        (1,),
        H200,
    ),
    Cause(
        "empty-grid",
        9,
        "empty grid",
        "A dimension of the grid or the block is 0, as for zero rows",
        "1 (invalid argument) that goes away with one row",
        "Skip the launch when there are no rows",
        (1,),
        H200,
    ),
    Cause(
        "cooperative-too-large",
        10,
        "cooperative grid too large",
        "A cooperative launch asks for more CTAs than fit on the device at once",
        "720 that goes away without the cooperative attribute or with a smaller grid",
        "Launch at most as many CTAs as are resident at once (CTAs per SM x SMs), or drop the "
        "cooperative attribute",
        (720,),
        H200,
    ),
    Cause(
        "out-of-resources",
        11,
        "out of resources",
        "One CTA needs more registers or threads than an SM has",
        "701, whatever the cluster size",
        "Compile with launch bounds for this block size, or use a smaller block",
        (701,),
        API,
    ),
    Cause(
        "no-kernel-image",
        12,
        "no kernel image",
        "The module holds no code for this device",
        "209 when the module is loaded: nothing was launched",
        "Build for this device's target; `cuobjdump -lelf FILE` lists the targets of a file",
        (209,),
        H200,
    ),
    Cause(
        "ptx-too-new",
        13,
        "PTX newer than the driver",
        "The module holds PTX of a newer version than the driver compiles",
        "222 when the module is loaded: nothing was launched",
        "Update the driver, or ship a cubin for this device",
        (222,),
        H200,
    ),
    Cause(
        "invalid-image",
        14,
        "invalid image",
        "The module is no code that the driver can read",
        "200 when the module is loaded: nothing was launched",
        "Check the file: it may be truncated, or no cubin, fatbin or PTX at all",
        (200,),
        H200,
    ),
    Cause(
        "no-cluster-launch",
        15,
        "no cluster launch",
        "The device does not launch clusters of any size",
        "device attribute CLUSTER_LAUNCH is 0 (compute capability below 9.0)",
        "Use a kernel without clusters",
        (912, 801),
        API,
    ),
    Cause(
        "cluster-ignored",
        16,
        "cluster ignored",
        "The launch was accepted and the kernel saw another cluster size than was asked for",
        "launch code 0, and the cluster size read back in the kernel differs",
        "Check that the launch carries the cluster attribute and that numAttrs counts it",
        (0,),
        H200,
    ),
    Cause(
        "prior-error",
        17,
        "earlier error",
        "The context already carried an error of an earlier launch, so this one was not judged",
        "the check before the launch, or the launch itself, answers the code of an earlier fault",
        "Ask again in a new process",
        (),
        H200,
    ),
    Cause(
        "kernel-fault",
        18,
        "kernel fault",
        "The launch was accepted and the kernel faulted while it ran",
        "launch code 0, and the synchronisation answers a fault such as 700 or 715",
        "Run it under compute-sanitizer; the cluster size itself was accepted",
        (700, 714, 715, 716, 717, 718, 719),
        H200,
    ),
    Cause(
        "hang",
        19,
        "hang",
        "Nothing came back before the deadline, and the probe was ended from outside",
        "a longer deadline, and no other process on the GPU: a kernel that is only slow finishes",
        "Look for a barrier that some CTA never reaches, or for a GPU that is busy",
        (702,),
        API,
    ),
    Cause(
        "wrong-result",
        20,
        "wrong result",
        "The kernel ran to its end and its result is wrong",
        "the kernel's own proof, or the comparison with the oracle row by row",
        "Repeat with the same seed: a result that changes points to a race",
        (0,),
        H200,
    ),
    Cause(
        "could-not-run",
        21,
        "could not run",
        "The probe ended without an answer, so nothing is known of the launch",
        "no launch code was recorded",
        "Read the note and the first call that failed; `thorprobe doctor` names what is missing",
        (),
    ),
    Cause(
        "undetermined",
        22,
        "undetermined",
        "The facts at hand fit more than one cause or answer",
        "the driver log, max active clusters, and the same size with a trivial kernel",
        "`thorprobe cluster-sweep --format markdown` on the device shows every call and the "
        "driver's log",
        (),
    ),
    *UNMEASURED,
)

BY_KEY: dict[str, Cause] = {entry.key: entry for entry in CATALOGUE}

_LATER = (
    *("smem-limit-lowered", "grid-too-large", "invalid-ptx", "ptx-compiler-missing"),
    "attribute-rejected",
)
REFUSALS: frozenset[str] = frozenset(
    entry.key for entry in CATALOGUE if entry.number <= BY_KEY["no-cluster-launch"].number
) | {"undetermined", *_LATER}
"""Keys that may stand beside the verdict *refused*."""

CONSISTENT: dict[Verdict, frozenset[str | None]] = {
    Verdict.LAUNCHES: frozenset({None}),
    Verdict.REFUSED: REFUSALS,
    Verdict.WRONG: frozenset({"cluster-ignored", "wrong-result", "body-without-code", "grid-unit"}),
    Verdict.FAULTS: frozenset({"kernel-fault", "early-exit"}),
    Verdict.HANGS: frozenset({"hang", "residency-exceeded"}),
    Verdict.UNDETERMINED: frozenset({"undetermined"}),
    Verdict.NOT_PROBED: frozenset(
        {None, "could-not-run", "prior-error", "host-refused", "compile-failed"}
    ),
}
"""The causes that each verdict admits; every judged outcome obeys it. A launch that a device was
only queried about is not probed for no cause: nothing went wrong."""


FAILING = (Verdict.REFUSED, Verdict.FAULTS, Verdict.HANGS, Verdict.WRONG)
"""Verdicts with which a launch fails whoever called it."""

SEVERITY: tuple[Verdict, ...] = (
    Verdict.LAUNCHES,
    Verdict.NOT_PROBED,
    Verdict.UNDETERMINED,
    Verdict.REFUSED,
    Verdict.FAULTS,
    Verdict.HANGS,
    Verdict.WRONG,
)
"""Verdicts from harmless to worst: what counts when several launches are told as one."""


def cause(key: str) -> Cause:
    """Look an entry up by its key; raises UsageError for a key that the catalogue lacks."""
    try:
        return BY_KEY[key]
    except KeyError:
        raise UsageError(
            f"cause {key!r} was asked for and is not in the catalogue",
            "known causes: " + ", ".join(BY_KEY),
        ) from None
