# SPDX-License-Identifier: Apache-2.0
"""The options of ``explain`` as they were typed, and the facts that they are.

A wrong option is one UsageError that says what it takes.
"""

import re

from thorprobe.binary.image import parse as parse_target
from thorprobe.errors import UsageError
from thorprobe.model.launch_facts import NO_CLUSTER, Dims, LaunchFacts
from thorprobe.record import Record

STAGES = {"compile": "compile-failed", "host": "host-refused"}
"""Where it ended before the driver was asked, and the cause that this is."""

_MOST = 1 << 40


class Asked(Record, frozen=True, kw_only=True):
    """One launch in the words of the options; None is what was not given."""

    grid: str | None = None
    block: str | None = None
    cluster: str | None = None
    compiled_cluster: str | None = None
    smem: int | None = None
    static_smem: int | None = None
    registers: int | None = None
    max_threads: int | None = None
    cooperative: bool | None = None
    non_portable: bool | None = None
    setter_limit: int | None = None
    setter_code: int | None = None
    profile: str | None = None
    capability: str | None = None
    sms: int | None = None
    smem_optin: int | None = None
    max_active: int | None = None
    largest_cluster: int | None = None
    resident: int | None = None
    images: str | None = None
    code: int | None = None
    sync_code: int | None = None
    earlier_code: int | None = None
    hang: bool = False
    waits: bool = False
    stage: str | None = None
    observed_cluster: int | None = None
    observed_ctas: int | None = None
    wrong_rows: int | None = None
    ptx_version: str | None = None
    driver_version: str | None = None

    def launch(self) -> LaunchFacts:
        """Return the launch itself, without what a device or a file adds.

        Raises UsageError for dimensions that are none.
        """
        cluster = dims(self.cluster, "cluster")
        if cluster in ((0, 1, 1), NO_CLUSTER):
            cluster = NO_CLUSTER
        compiled = dims(self.compiled_cluster, "compiled-cluster")
        if compiled in ((0, 1, 1), NO_CLUSTER):
            compiled = NO_CLUSTER
        return LaunchFacts(
            grid=dims(self.grid, "grid"),
            block=dims(self.block, "block"),
            cluster=cluster,
            compiled_cluster=compiled,
            dynamic_smem=self.smem,
            static_smem=self.static_smem,
            registers=self.registers,
            max_threads=self.max_threads,
            cooperative=self.cooperative,
            non_portable=self.non_portable,
            setter_limit=self.setter_limit,
            setter_code=self.setter_code,
            sms=self.sms,
            hosted=None if self.max_active is None else (self.max_active, self.max_active),
            largest_cluster=self.largest_cluster,
            resident=self.resident,
        )


def dims(text: str | None, option: str) -> Dims | None:
    """Read ``4,33,1``, ``4x33`` or ``128``: what is left out is 1. Raises UsageError."""
    if text is None:
        return None
    parts = re.split(r"[,x]", text.replace(" ", "").strip("()[]{}"))
    good = 1 <= len(parts) <= 3 and all(re.fullmatch(r"\d{1,12}", p, re.ASCII) for p in parts)
    if not good or any(int(part) > _MOST for part in parts):
        raise UsageError(
            f"`--{option} {text}` was given, but it is one to three numbers such as 4,33,1",
            f"`--{option} 128` is 128,1,1; 0 stands for none",
        )
    x, y, z = ([int(part) for part in parts] + [1, 1])[:3]
    return x, y, z


def stage(text: str | None) -> tuple[str, ...]:
    """Return the cause of a refusal before anything was launched. Raises UsageError."""
    if text is None:
        return ()
    if text not in STAGES:
        raise UsageError(
            f"`--stage {text}` was given, but the stages before a launch are {', '.join(STAGES)}",
            "leave it out where a module was loaded or a launch was made, and give `--code`",
        )
    return (STAGES[text],)


def images(text: str | None) -> tuple[str, ...] | None:
    """Read targets such as ``sm_90a,sm_100f``; `none` is a file without any. Raises UsageError."""
    if text is None:
        return None
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if found == ("none",):
        return ()
    wrong = next((name for name in found if parse_target(name) is None), "")
    if wrong or not found:
        raise UsageError(
            f"`--images {text}` was given, but {wrong or 'it'} is no target",
            "targets are sm_90a, sm_100f, sm_120 or compute_90, with commas between",
        )
    return found


def version(text: str | None, option: str) -> tuple[int, int] | None:
    """Read ``13.0``. Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,2})\.(\d{1,2})", text.strip(), re.ASCII)
    if found is None:
        raise UsageError(
            f"`--{option} {text}` was given, but it is two numbers such as 13.0",
            f"`--{option} 13.0`",
        )
    return int(found[1]), int(found[2])
