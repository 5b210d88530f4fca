# SPDX-License-Identifier: Apache-2.0
"""Which image of a kernel a device loads, by its compute capability alone.

Rules of the CUDA documentation (compute capabilities, architecture- and family-specific targets):
``sm_XYa`` runs on X.Y alone, ``sm_XYf`` on its family (same major, same or higher minor), a plain
``sm_XY`` on the same major and the same or a higher minor; PTX is compiled by the driver for the
same or any higher capability, within the bounds of its own suffix. That a cubin of another family
answers 209 at module load was measured on an H200. Which of several images that fit a driver takes
was not: here the nearest cubin comes before PTX, and at equal numbers ``a`` before ``f`` before
plain.
"""

import re
from collections.abc import Iterable

from thorprobe.record import Record

Capability = tuple[int, int]

TEGRA = ((5, 3), (6, 2), (7, 2), (8, 7))
"""Capabilities of integrated parts, with which no other part shares binary code (CUDA programming
guide, binary compatibility). Thor's 11.0 shares its major with no other part."""

_TARGET = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_SUFFIX_RANK = {"": 0, "f": 1, "a": 2}


class Target(Record, frozen=True, kw_only=True):
    """A target taken apart: ``sm_110f`` is cc 11.0 with suffix f."""

    ptx: bool
    capability: Capability
    suffix: str

    def runs_on(self, device: Capability) -> bool:
        """Say whether a device of that capability runs it, PTX after compilation."""
        if self.suffix == "a":
            return self.capability == device
        same_family = self.capability[0] == device[0] and self.capability[1] <= device[1]
        if self.ptx and not self.suffix:
            return self.capability <= device
        if not self.ptx and (device in TEGRA or self.capability in TEGRA):
            return self.capability == device
        return same_family


class Choice(Record, frozen=True, kw_only=True):
    """The target a device loads, '' for none, and why in one sentence."""

    target: str
    reason: str


def parse(target: str) -> Target | None:
    """Take a target apart, None for a word that is none."""
    found = _TARGET.fullmatch(target)
    if found is None:
        return None
    kind, major, minor, suffix = found.groups()
    return Target(ptx=kind == "compute", capability=(int(major), int(minor)), suffix=suffix)


def choose(targets: Iterable[str], device: Capability) -> Choice:
    """Return which of a kernel's targets a device of that capability loads."""
    held = {name: parsed for name in targets if (parsed := parse(name)) is not None}
    fitting = {name: parsed for name, parsed in held.items() if parsed.runs_on(device)}
    cc = "{}.{}".format(*device)
    if fitting:
        best = max(fitting, key=lambda name: _rank(fitting[name]))
        how = "the driver compiles its PTX" if fitting[best].ptx else "its code runs as it is"
        return Choice(target=best, reason=f"cc {cc} loads {best}: {how}")
    told = ", ".join(sorted(held, key=lambda name: (held[name].capability, name)))
    if not told:
        return Choice(target="", reason=f"no image for cc {cc}: the file holds none")
    ptx = any(parsed.ptx for parsed in held.values())
    lack = "and no PTX that it could compile" if ptx else "and no PTX"
    return Choice(target="", reason=f"no kernel image for cc {cc}: only {told}, {lack}")


def meaning(target: str) -> str:
    """Say in words which devices a target runs on."""
    parsed = parse(target)
    if parsed is None:
        return "a target that this thorprobe does not know"
    major, minor = parsed.capability
    if parsed.suffix == "a":
        where = f"cc {major}.{minor} alone"
    elif parsed.suffix == "f":
        where = f"cc {major}.{minor} and its family, later minors of {major}"
    elif parsed.ptx:
        where = f"cc {major}.{minor} and any later"
    elif parsed.capability in TEGRA:
        where = f"cc {major}.{minor} alone, an integrated part"
    else:
        where = f"cc {major}.{minor} and later minors of {major}"
    return f"PTX, compiled by the driver: {where}" if parsed.ptx else f"code: {where}"


def _rank(target: Target) -> tuple[bool, Capability, int]:
    return not target.ptx, target.capability, _SUFFIX_RANK[target.suffix]
