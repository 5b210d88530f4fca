# SPDX-License-Identifier: Apache-2.0
"""Device profiles: what is measured or published of a device, every number with its source."""

import hashlib
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec

from thorprobe.driver import partition as partitions
from thorprobe.errors import UsageError
from thorprobe.model.gpc_maps import Admissible, Constraints
from thorprobe.plan import claim as claim_register
from thorprobe.record import Claim, Device, Limits, Origin, Record

MAX_FILE = 256 << 10
"""Largest profile file read, in bytes."""

MAX_SMS = 1_024

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 24)]


class _Sourced(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a value comes from; ``source`` is a key of the profile's ``sources``."""

    origin: Origin
    source: Text


class Number(_Sourced, frozen=True, kw_only=True):
    """One number."""

    value: Count


class Flag(_Sourced, frozen=True, kw_only=True):
    """One yes or no."""

    value: bool


class Sizes(_Sourced, frozen=True, kw_only=True):
    """Group sizes in SMs, largest first."""

    value: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1, max_length=512)]


class ProfileLimits(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of record.Limits, each with its source.

    ``max_cluster_ctas_per_sm`` caps the CTAs per SM of launches that carry a cluster.
    """

    max_smem_per_block_optin: Number
    max_smem_per_sm: Number
    reserved_smem_per_block: Number
    max_threads_per_sm: Number
    max_blocks_per_sm: Number
    registers_per_sm: Number
    max_threads_per_block: Number
    max_smem_per_block: Number
    max_cluster_ctas_per_sm: Number


class Layout(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either the groups, as measured, or what is known of them."""

    sms_per_tpc: Number
    groups: Sizes | None = None
    max_gpcs: Number | None = None
    max_sms_per_gpc: Number | None = None
    groups_may_split: Flag | None = None


class PartitionMap(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The groups measured in one partition, spelled as ``--partition`` takes it."""

    spec: Text
    groups: Sizes


class Profile(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device as a file describes it. ``sha256`` is of the file, hexadecimal.

    A file names claims by their ids in the register (``thorprobe claims``), or states its own.
    """

    name: Text
    title: Text
    description: Text
    capability: tuple[Count, Count]
    integrated: bool = False
    sms: Number
    limits: ProfileLimits
    layout: Layout
    sources: dict[str, Text]
    claims: tuple[Claim, ...] = ()
    partitions: tuple[PartitionMap, ...] = ()
    sha256: str = ""

    @property
    def target(self) -> str:
        """Compile target, such as ``sm_110``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def max_cluster_ctas(self) -> int:
        """CTAs of cluster launches that one SM holds at most."""
        return self.limits.max_cluster_ctas_per_sm.value

    def without_layout(self) -> "Profile":
        """Return the profile with nothing left of its layout but TPCs and the number of SMs."""
        bare = Layout(sms_per_tpc=self.layout.sms_per_tpc)
        return msgspec.structs.replace(self, layout=bare, partitions=())

    def admissible(self, claim: Claim | None = None, partition: str = "") -> Admissible:
        """Return the maps the profile admits, with a claim added to its layout if one is given.

        Raises UsageError for a partition whose groups were not measured.
        """
        if partition:
            groups = self._partition(partition).groups.value
            return Admissible(sms=sum(groups), known=groups)
        if self.layout.groups is not None:
            return Admissible(sms=self.sms.value, known=self.layout.groups.value)
        layout = self.layout
        largest = claim.largest_cluster if claim else 0
        return Admissible(
            sms=self.sms.value,
            constraints=Constraints(
                sms_per_tpc=layout.sms_per_tpc.value,
                max_gpcs=layout.max_gpcs.value if layout.max_gpcs else None,
                max_sms_per_gpc=layout.max_sms_per_gpc.value if layout.max_sms_per_gpc else None,
                groups_may_split=layout.groups_may_split is None or layout.groups_may_split.value,
                largest_at_least=largest,
                largest_at_most=largest if claim and not claim.at_least else None,
            ),
        )

    def device(self, partition: str = "") -> Device:
        """Return the record of the device, or of a partition of it.

        Raises UsageError for a partition whose groups were not measured.
        """
        inside = self._partition(partition) if partition else None
        fields = msgspec.structs.fields(Limits)
        numbers = {f.name: getattr(self.limits, f.name, None) for f in fields}
        return Device(
            name=self.title,
            capability=self.capability,
            sms=self.sms.value,
            limits=Limits(**{key: n.value for key, n in numbers.items() if n is not None}),
            partition=str(partitions.parse(partition) or ""),
            partition_sms=sum(inside.groups.value) if inside else 0,
            profile=self.name,
            integrated=self.integrated,
            basis=self.basis(partition),
            claims=() if inside or self.layout.groups else self.claims,
        )

    def basis(self, partition: str = "") -> str:
        """Say in one sentence what a prediction from this profile rests on."""
        layout, groups, where = self.layout, self.layout.groups, f"{self.sms.value} SMs"
        if partition:
            inside = self._partition(partition)
            groups, where = inside.groups, f"partition {inside.spec} of {where}"
        if groups is not None:
            sizes = "+".join(map(str, groups.value))
            return f"{where} in co-scheduling groups of {sizes} SMs ({self.sources[groups.source]})"
        known = [f"{self.sms.value} SMs ({self.sources[self.sms.source]})"]
        gpcs, room = layout.max_gpcs, layout.max_sms_per_gpc
        if gpcs is not None:
            known.append(f"at most {gpcs.value} GPCs")
        if room is not None:
            known.append(f"at most {room.value} SMs per GPC ({self.sources[room.source]})")
        if gpcs is None and room is None:
            known.append("no published layout")
        if layout.groups_may_split is None or layout.groups_may_split.value:
            known.append("a GPC possibly exposed as several groups")
        known.append(f"TPCs of {layout.sms_per_tpc.value} SMs")
        cap = self.limits.max_cluster_ctas_per_sm
        if cap.origin is Origin.RECORDED:  # Of another device, which the source names.
            source = self.sources[cap.source]
            known.append(f"CTAs per SM in clusters capped at {cap.value}, {source}")
        return "; ".join(known)

    def _partition(self, text: str) -> PartitionMap:
        for known in self.partitions:
            if partitions.same(known.spec, text):
                return known
        measured = ", ".join(p.spec for p in self.partitions)
        raise UsageError(
            f"`--partition {text}` was asked for, but profile `{self.name}` does not model it",
            f"it models {measured}"
            if measured
            else "`--profile h200` models the partitions that were measured on an H200",
        )


def names() -> tuple[str, ...]:
    """Return the names of the profiles that come with thorprobe."""
    folder = resources.files("thorprobe.model") / "profiles"
    found = (entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(sorted(name.removesuffix(".toml") for name in found))


def load(name: str) -> Profile:
    """Load a profile by name, or from a file where ``name`` is a path or ends in ``.toml``.

    Raises UsageError for an unknown name and for a file that breaks the schema, lacks a source or
    contradicts itself.
    """
    if name.endswith(".toml") or "/" in name or "\\" in name:
        return parse(_read_file(Path(name)), name)
    if name not in names():
        raise UsageError(
            f"`--profile {name}` was asked for, but the profiles are {', '.join(names())}",
            "a file of your own is given by its path, such as `--profile ./mine.toml`",
        )
    file = resources.files("thorprobe.model") / "profiles" / f"{name}.toml"
    return parse(file.read_bytes(), name)


def parse(data: bytes, asked: str) -> Profile:
    """Check the bytes of a profile file; ``asked`` is what the user called it. See ``load``."""
    try:
        tables = tomllib.loads(data.decode())
        tables["claims"] = _registered(tables.get("claims", []))
        profile = msgspec.convert(tables, Profile)
    # A TOML file nested deep enough exhausts the parser's stack.
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(asked, f"it is not TOML: {error or 'nested too deeply'}") from error
    except msgspec.ValidationError as error:
        raise _bad(asked, str(error)) from error
    except UsageError as error:
        raise _bad(asked, error.sentence) from error
    reason = _contradiction(profile)
    if reason:
        raise _bad(asked, reason)
    return msgspec.structs.replace(profile, sha256=hashlib.sha256(data).hexdigest())


def _registered(claims: object) -> object:
    """Put what the register says in the place of each id; anything else is left to the schema."""
    if not isinstance(claims, list):
        return claims
    return [
        msgspec.to_builtins(claim_register.by_id(entry).as_layout())
        if isinstance(entry, str)
        else entry
        for entry in claims
    ]


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"`--profile {path}` was asked for, but the file cannot be read: {reason}",
            f"the profiles known by name are {', '.join(names())}",
        ) from error
    if len(data) > MAX_FILE:
        raise _bad(str(path), f"it is larger than {MAX_FILE:,} bytes")
    return data


def _bad(asked: str, reason: str) -> UsageError:
    return UsageError(
        f"`--profile {asked}` was asked for, but {reason}",
        "each number is written `{ value = ..., origin = ..., source = ... }` with a key of "
        "[sources]; thorprobe/model/profiles/thor.toml is an example",
    )


def _contradiction(profile: Profile) -> str:
    """Return the first thing in a profile that cannot be, or an empty text."""
    checks = (_unsourced, _misfitting_groups, _impossible_layout)
    return next((reason for check in checks if (reason := check(profile))), "")


def _unsourced(profile: Profile) -> str:
    limits = [getattr(profile.limits, f.name) for f in msgspec.structs.fields(ProfileLimits)]
    layout = [getattr(profile.layout, f.name) for f in msgspec.structs.fields(Layout)]
    for value in (profile.sms, *limits, *layout, *(p.groups for p in profile.partitions)):
        if value is not None and value.source not in profile.sources:
            return f"source `{value.source}` is not in [sources]"
    for claim in profile.claims:
        if not claim.source.strip():
            return f"claim `{claim.id}` names no source"
    return ""


def _misfitting_groups(profile: Profile) -> str:
    sms, unit = profile.sms.value, profile.layout.sms_per_tpc.value
    if not 1 <= sms <= MAX_SMS or unit < 1 or sms % unit:
        return f"{sms} SMs cannot be in TPCs of {unit} (at most {MAX_SMS:,} SMs are modelled)"
    layout = profile.layout
    if layout.groups is not None:
        if layout.max_gpcs or layout.max_sms_per_gpc or layout.groups_may_split:
            return "[layout] gives both the groups and constraints on them"
        if sum(layout.groups.value) != sms:
            return f"the groups hold {sum(layout.groups.value)} SMs and the device {sms}"
    for part in profile.partitions:
        if str(partitions.parse(part.spec)) != part.spec or sum(part.groups.value) > sms:
            return f"partition `{part.spec}` is misspelt or larger than the device"
    return ""


def _impossible_layout(profile: Profile) -> str:
    for claim in (None, *profile.claims):
        if not profile.admissible(claim).exists:
            under = f" under claim `{claim.id}`" if claim else ""
            return f"no layout of {profile.sms.value} SMs meets its constraints{under}"
    return ""
