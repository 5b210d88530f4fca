# SPDX-License-Identifier: Apache-2.0
"""What the words of the answers mean, for ``explain TERM``."""

TERMS: dict[str, str] = {
    "cluster": "CTAs that run at the same time and read each other's shared memory; their SMs must "
    "be ones that the device schedules together",
    "cta": "a thread block; a grid counts CTAs, a cluster is so many of them",
    "gpc": "graphics processing cluster, a set of SMs that are scheduled together; a part of one "
    "may be a group of its own",
    "group": "SMs that the device schedules together: those of a GPC, or of a part of one; a "
    "cluster of c CTAs needs a group of at least c SMs",
    "potential": "the largest cluster of a kernel, as cuOccupancyMaxPotentialClusterSize answers",
    "active": "clusters of one size that run at once, as cuOccupancyMaxActiveClusters answers",
    "portable": "a cluster of up to 8 CTAs; above, the function must allow non-portable sizes",
    "opt-in": "a function attribute that must be set before a launch: more than 49,152 B of "
    "dynamic shared memory, or more than 8 CTAs a cluster",
    "setter": "cuFuncSetAttribute; the limit it sets belongs to the function and stays until it is "
    "set again, by whichever launch",
    "resident": "CTAs that are on the SMs at the same time: CTAs per SM x SMs; CTAs that wait for "
    "each other need it for all of them",
    "cooperative": "a launch that the driver refuses (720) unless all of its CTAs are resident",
    "image": "the code of a module for one target; sm_90a runs on 9.0 alone, sm_100f on its "
    "family, a plain sm_100 on later minors, compute_90 is PTX that the driver compiles",
    "ptx": "text that the driver compiles when it loads the module; PTX newer than the driver is "
    "refused with 222 whatever the device",
    "sticky": "an error that stays with the context: after a fault such as 700 every call repeats "
    "it; after a refused launch the next one is judged anew",
    "pending": "an error of the runtime that is reported once more by whoever asks next, though "
    "the launch that had it is over",
    "partition": "part of the SMs of a device: a green context here; MIG and MPS make others",
    "num_rows": "requests x (1 + speculative tokens) in a decode step; what an arm is chosen by",
    "wave": "the CTAs or clusters that run at once; work takes as many waves as it has of them",
}
"""Sentences by term, in lower case."""


def term(word: str) -> str:
    """Return the sentence of a term, '' for a word that is none."""
    return TERMS.get(word.strip().lower(), "")
