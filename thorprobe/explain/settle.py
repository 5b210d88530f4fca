# SPDX-License-Identifier: Apache-2.0
"""The command that settles what the facts leave open, or proves what they say."""

from collections.abc import Sequence

_INSPECT = "thorprobe inspect FILE --kernel NAME"
_SWEEP = "thorprobe cluster-sweep --format markdown"
_BY_FACT = {
    "images": _INSPECT,
    "loaded-file": "grep -o '/[^ ]*[.]so[^ ]*' /proc/PID/maps, then thorprobe inspect each",
    "registers": _INSPECT,
    "static-smem": _INSPECT,
    "max-threads": _INSPECT,
    "compiled-cluster": _INSPECT,
    "profile": "thorprobe doctor",
    "max-active": _SWEEP,
    "driver-log": "CUDA_LOG_FILE=driver.log PROGRAM, then thorprobe explain driver.log",
    "failing-call": "CUDA_LOG_FILE=driver.log PROGRAM, then thorprobe explain driver.log",
}
_BY_CAUSE = {
    "kernel-fault": "compute-sanitizer --tool memcheck PROGRAM",
    "early-exit": "compute-sanitizer --tool synccheck PROGRAM",
    "hang": "compute-sanitizer --tool synccheck PROGRAM",
    "wrong-result": "compute-sanitizer --tool racecheck PROGRAM",
    "prior-error": "CUDA_LAUNCH_BLOCKING=1 PROGRAM",
    "compile-failed": "thorprobe doctor",
    "ptx-too-new": "thorprobe doctor",
    "ptx-compiler-missing": "thorprobe doctor",
    "no-kernel-image": _INSPECT,
    "invalid-image": _INSPECT,
    "invalid-ptx": _INSPECT,
    "body-without-code": _INSPECT,
    "out-of-resources": _INSPECT,
}


def settles(cause: str | None, missing: Sequence[str]) -> str:
    """Return the command that finds the first missing fact, or shows the cause; '' for neither."""
    if cause is None:
        return ""
    if cause in _BY_CAUSE:
        return _BY_CAUSE[cause]
    found = next((_BY_FACT[name] for name in missing if name in _BY_FACT), "")
    if found:
        return found
    asked = [name for name in missing if name != "driver-log"]
    if asked:
        return "thorprobe explain ... " + " ".join(f"--{name} ..." for name in asked)
    return _SWEEP
