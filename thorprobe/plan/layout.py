# SPDX-License-Identifier: Apache-2.0
"""How shipped kernels are launched, per version, as data: what their host code passes to them.

One TOML file per version under ``shipped_layouts/``. A kernel is of a version if its image's hash
is listed there, or if it comes from a wheel of that version; and then only if what its code states
agrees with the data. Nothing is launched on a likeness of names.
"""

import re
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from thorprobe.plan.datafile import Folder
from thorprobe.plan.policy import load as load_policy
from thorprobe.record import Record

Field = Literal["logits", "output", "lengths", "workspace", "rows", "stride"]
"""A field of a parameter block: four device pointers, then 32-bit numbers."""

FIELD_BYTES: dict[str, int] = {
    "logits": 8,
    "output": 8,
    "lengths": 8,
    "workspace": 8,
    "rows": 4,
    "stride": 4,
}

Positive = Annotated[int, msgspec.Meta(ge=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class KnownImage(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The SHA-256 of one cubin of this version, and where it was read."""

    sha256: Sha256
    what: Text


class Layout(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The launch of one family of kernels in one version.

    ``entry`` is a pattern of the demangled name without parameters, with the groups ``cluster`` and
    ``k``. Threads, dynamic shared memory, row limit and stride are those of the dispatch policy.
    ``parameters`` are the fields of the block in order, without gaps; empty where it is not known.
    ``workspace_bytes`` is per row.
    """

    name: Text
    package: Text
    version: Text
    policy: Text
    family: Text
    entry: Text
    parameters: tuple[Field, ...] = ()
    parameter_bytes: Positive
    workspace_bytes: Positive
    source: Text
    images: tuple[KnownImage, ...] = msgspec.field(name="image", default=())

    def __post_init__(self) -> None:
        """Reject a block whose fields do not add up, and a pattern without its groups."""
        if self.parameters and sum(FIELD_BYTES[f] for f in self.parameters) != self.parameter_bytes:
            raise ValueError("the fields of the parameter block do not add up to its bytes")
        if {"cluster", "k"} - set(re.compile(self.entry).groupindex):
            raise ValueError("the entry pattern lacks a group")

    def parts(self, name: str) -> tuple[int, int] | None:
        """Return cluster size and k of an entry point's name, None for another kernel's."""
        found = re.match(self.entry, name)
        return (int(found["cluster"]), int(found["k"])) if found else None

    def disagrees(
        self,
        name: str,
        *,
        cluster: tuple[int, int, int] | None,
        parameter_bytes: int | None,
        max_threads: int,
    ) -> str:
        """Say what of an entry point is not as this version has it, '' where all is."""
        parts = self.parts(name)
        policy = load_policy(self.policy)
        if parts is None:
            return "its name is not of the family"
        if parts[0] not in policy.clusters or parts[1] not in policy.kernel.k:
            return f"{policy.version} has no cluster of {parts[0]} with k {parts[1]}"
        if cluster != (1, parts[0], 1):
            return f"its compiled cluster is {cluster} and not {(1, parts[0], 1)}"
        if parameter_bytes != self.parameter_bytes:
            return f"its parameter block has {parameter_bytes} B and not {self.parameter_bytes}"
        if max_threads != policy.kernel.threads:
            return f"it takes {max_threads} threads and not {policy.kernel.threads}"
        return ""


@lru_cache(maxsize=1)
def layouts() -> tuple[Layout, ...]:
    """Return every layout that comes with thorprobe, by name."""
    folder = Folder("layout", "plan", "shipped_layouts")
    return tuple(folder.load(name, Layout) for name in folder.names())


def of_image(sha256: str, package: str = "", version: str = "") -> Layout | None:
    """Return the layout of an image by its hash, else by the wheel that it comes from.

    A local version part (``0.33.0+cu130``) names another build of the same sources.
    """
    for layout in layouts():
        if any(known.sha256 == sha256 for known in layout.images):
            return layout
    released = version.partition("+")[0]
    for layout in layouts():
        if (layout.package, layout.version) == (package.lower(), released):
            return layout
    return None
