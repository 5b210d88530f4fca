# SPDX-License-Identifier: Apache-2.0
"""What an inspection found, in one sentence, and in one for each device."""

from collections.abc import Iterable, Sequence

from thorprobe.inspect.records import DeviceAnswer, KernelRow, LoadRow
from thorprobe.judge.catalogue import cause
from thorprobe.judge.cause import CODE_NAMES
from thorprobe.judge.finding import are, code_text
from thorprobe.judge.ranges import sizes_text
from thorprobe.record import Claim, Verdict
from thorprobe.summary import Refusal

FIRST_CLUSTERS = (9, 0)
"""First compute capability with clusters (CUDA programming guide)."""

_ROOM = ("has room", "have room")

_WORDS = {
    Verdict.LAUNCHES: ("launches", "launch"),
    Verdict.UNDETERMINED: ("is undetermined", "are undetermined"),
    Verdict.NOT_PROBED: ("has no answer", "have no answer"),
    Verdict.REFUSED: ("is refused", "are refused"),
}


def finding(
    kernels: Sequence[KernelRow],
    devices: Iterable[DeviceAnswer],
    pattern: str,
    unread: Sequence[str] = (),
) -> str:
    """Say how many kernels there are and for what, then what each device makes of them.

    Where none is found, ``unread`` says what was not read and may hold some.
    """
    names = {kernel.symbol for kernel in kernels}
    many = "1 kernel" if len(names) == 1 else f"{len(names):,} kernels"
    if not names:
        what = (
            f"no kernel that `{pattern}` names"
            if pattern
            else "no kernel with a cluster compiled in"
        )
        parts = [f"{what}, of what was read", f"not read: {unread[0]}"] if unread else [what]
        parts += [f"and {len(unread) - 1} more"] if len(unread) > 1 else []
        told = "; ".join((*parts, *(device.finding for device in devices)))
        return told[:1].upper() + told[1:]
    sizes = sorted({_size(k) for k in kernels} - {1})
    clusters = f" with a compiled cluster of {sizes_text(sizes)} CTAs" if sizes else ""
    if sizes and any(_size(k) == 1 for k in kernels):
        clusters = f", some{clusters}"
    targets = ", ".join(dict.fromkeys(k.target for k in kernels))
    parts = [f"{many}{clusters}, for {targets}", *(device.finding for device in devices)]
    return "; ".join(parts)


def device_finding(
    title: str, rows: Sequence[LoadRow], reason: str, claims: Iterable[Claim]
) -> str:
    """Say what one device loads, and which of the clusters it launches.

    ``reason`` says what it makes of all images; it counts where no kernel is listed, or none loads.
    """
    missing = [row for row in rows if not row.target]
    if len(missing) == len(rows):
        return reason if title in reason else f"{title}: {reason}"
    held = [row for row in rows if row.target]
    images = ", ".join(dict.fromkeys(row.target for row in held))
    lack = f" and lacks an image of {len(missing):,} of {len(rows):,}" if missing else ""
    parts = [told for verdict in Verdict if (told := _told(held, verdict))]
    for claim in claims:
        changed = [
            row for row in held if row.under_claims.get(claim.id, row.verdict) != row.verdict
        ]
        texts = [
            _does(group, verdict)
            for verdict in Verdict
            if (group := [r for r in changed if r.under_claims[claim.id] is verdict])
        ]
        if texts:
            parts.append(f"with the published claim {claim.id}: {' and '.join(texts)}")
    does = f": {', '.join(parts)}" if parts else ""
    return f"{title} loads {images}{lack}{does}"


def next_action(devices: Iterable[DeviceAnswer]) -> str:
    """Advise on the first device that has no image, else on a refused cluster; '' for neither."""
    for device in devices:
        if (
            device.capability >= FIRST_CLUSTERS
            and device.kernels
            and not any(row.target for row in device.kernels)
        ):
            major, minor = device.capability
            return f"Use a build with code for cc {major}.{minor}: these kernels have none for it"
    keys = [row.cause for device in devices for row in device.kernels if _refused(row)]
    return cause(keys[0]).next_action if keys and keys[0] else ""


def _told(rows: Iterable[LoadRow], verdict: Verdict) -> str:
    """Tell the sizes of one verdict; refusals by code and cause."""
    group = [row for row in rows if row.verdict is verdict]
    if not group:
        return ""
    if verdict is Verdict.NOT_PROBED:
        return _queried(group)
    if verdict is not Verdict.REFUSED:
        least = ", asked with the least they can take" if all(row.least for row in group) else ""
        return _does(group, verdict) + least
    texts = []
    for code, key in dict.fromkeys((row.code, row.cause) for row in group):
        sizes = _sizes(row for row in group if (row.code, row.cause) == (code, key))
        told = Refusal(code=code, name=CODE_NAMES.get(code or 0, ""), cause=key or "undetermined")
        texts.append(
            f"{sizes_text(sizes)} {are(sizes)} refused: {code_text(told, with_cause=True)}"
        )
    return ", ".join(texts)


def _queried(rows: Sequence[LoadRow]) -> str:
    """Tell the sizes that a device said it holds, then those of which it said nothing."""
    held = [row for row in rows if row.max_active]
    lost = [row for row in rows if not row.max_active]
    parts = [_sized(held, _ROOM) + ", by the occupancy query"] if held else []
    parts += [_sized(lost, _WORDS[Verdict.NOT_PROBED])] if lost else []
    return ", ".join(parts)


def _does(rows: Sequence[LoadRow], verdict: Verdict) -> str:
    return _sized(rows, _WORDS.get(verdict, (verdict.value, verdict.value)))


def _sized(rows: Iterable[LoadRow], words: tuple[str, str]) -> str:
    sizes = _sizes(rows)
    one, several = words
    return f"{sizes_text(sizes)} {one if len(sizes) == 1 else several}"


def _refused(row: LoadRow) -> bool:
    return bool(row.target) and row.verdict is Verdict.REFUSED


def _sizes(rows: Iterable[LoadRow]) -> list[int]:
    return sorted({row.cluster for row in rows})


def _size(kernel: KernelRow) -> int:
    x, y, z = kernel.required_cluster or (1, 1, 1)
    return x * y * z
