# SPDX-License-Identifier: Apache-2.0
"""Whether the drop-in is active in this environment, as ``doctor`` says it."""

import os
from collections.abc import Iterator
from importlib import metadata

from thorprobe.errors import CouldNotProbeError
from thorprobe.record import Record
from thorprobe.vllm.dropin import wanted
from thorprobe.vllm.dropin_release import KNOWN, installed, policy_name
from thorprobe.vllm.dropin_variable import MODES, VARIABLE

GROUP = "vllm.general_plugins"
_MODULE = "thorprobe.vllm.dropin"


class DropInStatus(Record, frozen=True, kw_only=True):
    """What ``doctor`` shows; ``mend`` is the line that mends what keeps it from what is asked."""

    value: str
    mend: str = ""


def status() -> DropInStatus:
    """Say whether a vLLM that is started here would have the drop-in. Nothing is imported of it."""
    mode = wanted()
    try:
        version = installed()
    except CouldNotProbeError:
        version = ""
    if not mode:
        here = f"vLLM {version[:60]} is {_known(version)}" if version else "no vLLM is here"
        return DropInStatus(value=f"off: {VARIABLE} is not set; {here}")
    asked = f"{VARIABLE}={mode[:60]}"
    for why, mend in _hindrances(mode, version):
        return DropInStatus(value=f"not active: {asked}, but {why}", mend=mend)
    return DropInStatus(value=f"active: {asked}; vLLM {version} is {_known(version)}")


def _known(version: str) -> str:
    return "known to it" if policy_name(version) else f"not known to it ({KNOWN} are)"


def _hindrances(mode: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield what keeps the drop-in from its place, each with the line that mends it."""
    if mode.lower() not in MODES:
        yield f"the modes are {', '.join(MODES)}", f"export {VARIABLE}=fallback"
    if not version:
        yield "no vLLM is in this environment", "install thorprobe into the environment of the vLLM"
    elif not policy_name(version):
        yield f"vLLM {version[:60]} is {_known(version)}", f"unset {VARIABLE}"
    names = declared()
    if not names:
        yield (
            f"no entry point of {GROUP} is installed",
            "pip install --force-reinstall --no-deps thorprobe",
        )
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and not names & {name.strip() for name in allowed.split(",")}:
        yield "VLLM_PLUGINS leaves it out", "add `thorprobe` to VLLM_PLUGINS"


def declared() -> set[str]:
    """Return the names under which vLLM would find it."""
    found = metadata.entry_points(group=GROUP)
    return {point.name for point in found if point.value.partition(":")[0] == _MODULE}
