# SPDX-License-Identifier: Apache-2.0
"""The vLLM of this environment, and whether the drop-in knows its operators."""

import re
import sys
from importlib import metadata

from thorprobe.errors import CouldNotProbeError
from thorprobe.plan.policy import Policy, load, names

PACKAGE = "vllm"
LIBRARY = "vllm._C_stable_libtorch"
"""The module that registers the operators, in 0.29.0 to 0.33.0 (read in the wheels)."""

KNOWN = "0.29 to 0.33"
_MINORS = range(29, 34)
_LATEST = "0.33.0"
# Its operators take the same arms for the same rows from 0.30.0 on (immediates in the binaries);
# what differs from release to release is the gate before them, which is not the drop-in's.
_RELEASE = re.compile(r"0\.(\d+)\.\d+(?:\.post\d+)?(?:\+(?!g[0-9a-f]{7})[a-z0-9.]+)?")
_COMMIT = re.compile(r"\+g([0-9a-f]{7,40})(?:[.+]|$)")
_COMMITS = ("e126687a9a",)
# The first commit with the model has policies of its own, and is what the first report ran.


def installed() -> str:
    """Return the version of the vLLM that runs here, or else of the one that is installed.

    Raises CouldNotProbeError where there is none.
    """
    running = getattr(sys.modules.get(PACKAGE), "__version__", None)
    if isinstance(running, str):
        return running
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise CouldNotProbeError(
            "the drop-in was asked for, but there is no vLLM in this environment",
            "install thorprobe into the environment of the vLLM",
        ) from error


def policy_name(version: str) -> str:
    """Return the policy that says which arm this version's operator takes, '' where none is known.

    A release candidate or a build between two releases is not known, whatever it resembles.
    """
    found = _RELEASE.fullmatch(version)
    if found is not None and int(found[1]) in _MINORS:
        own = f"0.{found[1]}.0"
        return own if own in names() else _LATEST
    commit = _COMMIT.search(version)
    if commit is not None:
        for known in _COMMITS:
            if known.startswith(commit[1]) or commit[1].startswith(known):
                return known
    return ""


def policy(version: str) -> Policy:
    """Return the policy of a version.

    Raises CouldNotProbeError for a version that is not known.
    """
    name = policy_name(version)
    if not name:
        raise CouldNotProbeError(
            f"the drop-in was asked for, but vLLM {version[:60]} is none that it knows",
            f"it knows the releases {KNOWN}; unset the variable, or install one of them",
        )
    return load(name)
