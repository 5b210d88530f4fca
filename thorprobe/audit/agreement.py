# SPDX-License-Identifier: Apache-2.0
"""What the sources of an installed vLLM say of its gate, beside the data of that version."""

from collections.abc import Iterable, Iterator

import msgspec

from thorprobe.audit.installed_records import Comparison, Installed, Match, Role, SourceGate
from thorprobe.judge.ranges import span
from thorprobe.plan.gate import AuditGate
from thorprobe.plan.policy import Gate, Policy, load, names

_ROLES = {"qsa": Role.QSA, "generic": Role.GENERIC}
_NONE = "none"


def policy_of(version: str) -> str:
    """Return the name of the policy of a version, empty where there is no data of it.

    A release is known by its number, whatever local label it carries; a build of a commit by the
    commit in that label (``0.28.1rc1.dev388+ge126687a9``).
    """
    public, _, local = version.partition("+")
    for name in names():
        policy = load(name)
        if public and policy.version == f"vLLM {public}":
            return name
        commit = local.split(".")[0].removeprefix("g")
        if len(commit) >= 7 and policy.commit.startswith(commit):
            return name
    return ""


def compare(source: str, version: str, sites: Iterable[SourceGate]) -> Installed:
    """Compare the constants that were read with the data of that version, if there is any.

    Only the call site that the data is about is compared; of the others the constants are reported.
    """
    found = tuple(sites)
    name = policy_of(version)
    policy = load(name) if name else None
    compared: tuple[Comparison, ...] = ()
    if policy is not None:
        own = [site for site in found if site.role is _ROLES[policy.gate.site]]
        compared = tuple(c for site in own for c in _compared(site, policy.gate))
    installed = Installed(
        source=source, version=version, policy=name, sites=found, compared=compared
    )
    return msgspec.structs.replace(installed, finding=_finding(installed, policy))


def as_gate(installed: Installed) -> tuple[AuditGate, Gate] | None:
    """Return the gate as it was read, to be audited over the version's dispatch.

    None where there is no data of the version (its dispatch is then not known), where nothing
    differs, and where a condition was not understood.
    """
    if not installed.policy or not installed.mismatches:
        return None
    policy = load(installed.policy)
    own = [s for s in installed.sites if s.role is _ROLES[policy.gate.site]]
    if len(own) != 1 or own[0].unread_lines or own[0].required_families or own[0].rows is None:
        return None
    site = own[0]
    audited = AuditGate(
        name="installed",
        title=f"as read from {installed.source}, vLLM {installed.version}",
        status="installed",
        policy=installed.policy,
        source=f"{site.path} line {site.line}",
    )
    bounds = Gate(
        site=policy.gate.site,
        rows=site.rows or 1,
        stride_multiple=site.stride_multiple,
        min_capability=site.min_capability,
        excluded_families=site.excluded_families,
        source=audited.source,
    )
    return audited, bounds


def _compared(site: SourceGate, gate: Gate) -> Iterator[Comparison]:
    families = ", ".join
    rows = (
        ("row limit", site.rows, gate.rows, ""),
        ("stride multiple", site.stride_multiple, gate.stride_multiple, "stride multiple"),
        (
            "least capability",
            _dotted(site.min_capability),
            _dotted(gate.min_capability),
            "least capability",
        ),
        (
            "excluded families",
            families(map(str, site.excluded_families)),
            families(map(str, gate.excluded_families)),
            "excluded family",
        ),
        ("required families", families(map(str, site.required_families)), "", "excluded family"),
    )
    for constant, read, known, open_name in rows:
        if constant == "required families" and not read:
            continue
        established = open_name not in gate.not_established
        yield Comparison(
            path=site.path,
            constant=constant,
            in_source=str(read or _NONE),
            in_data=str(known or _NONE) if established else "not established",
            match=_match(site, read, known, established=established),
        )


def _dotted(capability: tuple[int, int] | None) -> str:
    return "" if capability is None else "{}.{}".format(*capability)


def _match(site: SourceGate, read: object, known: object, *, established: bool) -> Match:
    if not established:
        return Match.NEW if read else Match.MISSING
    if read == known:
        return Match.AGREES
    # A condition that was not understood may be the one that is missed.
    return Match.MISSING if not read and site.unread_lines else Match.DIFFERS


def _finding(installed: Installed, policy: Policy | None) -> str:
    version = f"vLLM {installed.version}" if installed.version else "a vLLM of unknown version"
    if not installed.sites:
        return f"{version}: no source takes cooperative_topk, so no row can reach it"
    if policy is None:
        return f"{version} has no data here: its constants are shown, and nothing is assumed"
    if not installed.compared:
        return (
            f"{version}: its call site ({policy.call_site}) was not found in the sources, so the "
            "data cannot be compared"
        )
    if installed.mismatches:
        told = [
            f"{c.constant} {c.in_source} where the data has {c.in_data}"
            for c in dict.fromkeys(installed.mismatches)
        ]
        return f"MISMATCH: {version} is not the gate that the data describes: {'; '.join(told)}"
    open_ = [c.constant for c in installed.compared if c.match is not Match.AGREES]
    rest = f"; not compared: {', '.join(dict.fromkeys(open_))}" if open_ else ""
    role = _ROLES[policy.gate.site]
    lines = sorted({site.line for site in installed.sites if site.role is role})
    where = f" (line {', '.join(span(n, n) for n in lines)})" if lines else ""
    return f"{version}: the constants of its gate{where} are those of the data{rest}"
