# SPDX-License-Identifier: Apache-2.0
"""Puts the drop-in in: finds vLLM's operators, holds them against what is known, replaces them."""

import importlib
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

from thorprobe import __version__
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.plan.operator import COOPERATIVE, PERSISTENT
from thorprobe.vllm.dropin_answer import DropIn
from thorprobe.vllm.dropin_hosting import Host
from thorprobe.vllm.dropin_log import (
    LADDER,
    VLLM,
    Calls,
    DropInReport,
    Speaker,
    added,
    append,
    at_exit,
    check_path,
)
from thorprobe.vllm.dropin_release import KNOWN, LIBRARY, PACKAGE, installed, policy
from thorprobe.vllm.dropin_route import REPLACED
from thorprobe.vllm.dropin_variable import LOG_VARIABLE, MODES, VARIABLE

KEY = "CUDA"
"""The dispatch key whose kernels are replaced."""

DOES = {
    "fallback": "cooperative_topk stays vLLM's where the device hosts its cluster, and is "
    "thorprobe's exact top-k where it does not",
    "always": "cooperative_topk and persistent_topk are thorprobe's exact top-k, which gives the "
    "same order every time",
    "check": "both operators stay vLLM's, and thorprobe's exact top-k is compared with them",
    "report": "both operators stay vLLM's, and what would have been done is noted",
}
"""What each mode does, in words."""


@dataclass
class Active:
    """The drop-in as it stands in this process."""

    mode: str
    version: str
    drop_in: DropIn
    operators: tuple[Any, ...]
    speaker: Speaker
    log: str

    def report(self) -> DropInReport:
        """Return what was done so far; where something was compared, the devices are waited for."""
        import torch

        shapes = self.drop_in.routes.counted()
        return DropInReport(
            mode=self.mode,
            vllm=self.version,
            policy=self.drop_in.policy.name,
            torch=str(torch.__version__),
            thorprobe=__version__,
            pid=os.getpid(),
            replaced=tuple(f"{one.name}: {one.how}" for one in self.operators),
            said=tuple(self.speaker.said),
            calls=sum(one.calls for one in shapes),
            captured=sum(one.captured for one in shapes),
            rungs=added(shapes, lambda one: one.rung if one.answered in LADDER else ""),
            vllm_arms=added(
                shapes,
                lambda one: f"{one.operator}, {one.arm}" if one.answered in VLLM else "",
            ),
            falls=added(shapes, lambda one: one.reason),
            would=added(shapes if self.mode == "report" else [], _would),
            shapes=tuple(shapes),
            check=self.drop_in.check.told() if self.mode == "check" else None,
        )

    def write(self) -> None:
        """Add the report to the log file, if one was named; a failure is told, not raised."""
        if not self.log:
            return
        import msgspec

        try:
            append(self.log, msgspec.json.encode(self.report()))
        except Exception as error:  # noqa: BLE001  The process is ending.
            self.speaker.tell(f"{LOG_VARIABLE}={self.log} was not written: {error}", warning=True)


def _would(one: Calls) -> str:
    return f"ladder, {one.rung}" if one.hosted is False else "vllm"


_lock = threading.Lock()
_active: Active | None = None


def active() -> Active | None:
    """Return the drop-in of this process, None where there is none."""
    return _active


def start(mode: str, *, host: Host | None = None, key: str = "") -> Active:
    """Put the drop-in in, once; a second call returns what is there.

    ``host`` and ``key`` are for a test without a GPU. Raises UsageError for a mode that does not
    exist, CouldNotProbeError where vLLM, its library or its operators are not what is known; vLLM
    is then untouched.
    """
    global _active  # noqa: PLW0603  There is one vLLM a process.
    with _lock:
        if _active is None:
            _active = _started(mode, host, key or KEY)
        return _active


def stop() -> DropInReport | None:
    """Take the drop-in out again, and return what it did; graphs that were captured keep theirs."""
    global _active  # noqa: PLW0603
    with _lock:
        if _active is None:
            return None
        told = _active.report()
        for operator in _active.operators:
            operator.remove()
        _active = None
        return told


def _started(mode: str, host: Host | None, key: str) -> Active:
    if mode.lower() not in MODES:
        raise UsageError(
            f"{VARIABLE}={mode[:60]!r} was asked for, but the modes are {', '.join(MODES)}",
            "docs/vllm.md says what each does",
        )
    mode = mode.lower()
    version = installed()
    known = policy(version)
    _load(version, key)
    from thorprobe.vllm.dropin_ladder import Ladder
    from thorprobe.vllm.dropin_operator import Operator

    if host is None:
        from thorprobe.vllm.dropin_cuda import CudaHost

        host = CudaHost()
    speaker = Speaker()
    drop_in = DropIn(mode, known, host, Ladder(), speaker)
    placed: list[Operator] = []
    try:
        placed.extend(Operator(name, drop_in, key) for name in REPLACED[mode])
        made = Active(mode, version, drop_in, tuple(placed), speaker, _log(speaker))
        os.register_at_fork(after_in_child=drop_in.routes.forget)
        at_exit(lambda: _written(made))
    except BaseException:
        for operator in placed:
            operator.remove()
        raise
    speaker.tell(f"{VARIABLE}={mode}, vLLM {version}, process {os.getpid()}: {DOES[mode]}")
    return made


def _log(speaker: Speaker) -> str:
    """Return the file that was named, '' where none was, or where it cannot be written."""
    path = os.environ.get(LOG_VARIABLE, "")
    if not path:
        return ""
    try:
        check_path(path)
    except UsageError as error:
        speaker.tell(f"{error.sentence}; nothing will be logged", warning=True)
        return ""
    return path


def _written(made: Active) -> None:
    if _active is made:
        made.write()


def _load(version: str, key: str) -> None:
    """Import vLLM's library and hold its operators against what is known.

    Raises CouldNotProbeError.
    """
    try:
        import torch
    except ImportError as error:
        raise CouldNotProbeError(
            f"the drop-in was asked for, but torch is not here: {error}", "install vLLM's own torch"
        ) from error
    from thorprobe.run.operator_library import ARGUMENTS, check_torch
    from thorprobe.vllm.dropin_operator import signature

    if key == "CUDA":
        check_torch(str(torch.__version__), torch.version.cuda)
    _import(version)
    for name in (COOPERATIVE, PERSISTENT):
        found = signature(name)
        if found is None:
            raise CouldNotProbeError(
                f"the library of vLLM {version} has no operator {name}",
                "it is built for other devices, or is the library of another version",
            )
        if found != ARGUMENTS:
            raise CouldNotProbeError(
                f"the library of vLLM {version} has a {name} of another signature than that of "
                f"{KNOWN}",
                "it is the library of another version",
            )


def _import(version: str) -> None:
    from pathlib import Path

    import torch

    from thorprobe.run.operator_library import unloadable

    try:
        importlib.import_module(LIBRARY)
    except ModuleNotFoundError as error:
        raise CouldNotProbeError(
            f"vLLM {version} has no module {LIBRARY}: {error}",
            "its CUDA wheels have it; this is a build for other devices",
        ) from error
    except (ImportError, OSError, RuntimeError) as error:
        folder = Path(getattr(sys.modules.get(PACKAGE), "__file__", "") or ".").parent
        raise unloadable(error, folder, str(torch.__version__), torch.version.cuda or "") from error
