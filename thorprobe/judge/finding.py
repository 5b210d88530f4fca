# SPDX-License-Identifier: Apache-2.0
"""The finding of a cluster sweep in one sentence."""

from collections.abc import Mapping, Sequence

from thorprobe.judge.catalogue import BY_KEY
from thorprobe.judge.kernel_name import kernels_text
from thorprobe.judge.query import is_query
from thorprobe.judge.ranges import sizes_text
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import MAX_CLUSTER, Device, Footprint, Outcome, Verdict
from thorprobe.summary import GpcMap, KernelSummary, Refusal, UnderClaim

Summaries = Mapping[Footprint, KernelSummary]
_States = dict[int, tuple[str, Refusal | None]]
_GPC = "larger-than-any-gpc"


def are(sizes: Sequence[int]) -> str:
    """Return the verb for that many sizes."""
    return "is" if len(set(sizes)) == 1 else "are"


def code_text(refusal: Refusal, *, with_cause: bool) -> str:
    """Write a refusal: code, name and, if wanted, the cause's name."""
    words = "" if refusal.code is None else f"{refusal.code} {refusal.name}".strip()
    cause = BY_KEY[refusal.cause].name if refusal.cause in BY_KEY else refusal.cause
    if not words:
        return cause
    return f"{words} ({cause})" if with_cause else words


def nothing_measured(outcomes: Sequence[Outcome]) -> str:
    """Say that no probe was answered, and what the first says of it; '' where one was."""
    unanswered = [o for o in outcomes if o.verdict is Verdict.NOT_PROBED and not is_query(o)]
    if not outcomes or len(unanswered) < len(outcomes):
        return ""
    note = next((o.note for o in outcomes if o.note), "")
    many = "1 probe" if len(outcomes) == 1 else f"{len(outcomes):,} probes"
    first = f" (first: {note})" if note else ""
    return f"Nothing was measured: {many} ended without an answer{first}"


def measured_finding(
    summaries: Summaries,
    gpc_map: GpcMap,
    device: Device,
    *,
    opted_in: bool,
    queried: frozenset[Footprint] = frozenset(),
) -> str:
    """Tell what launches, what is refused with which code, and the largest GPC, once.

    Footprints and kernels that answer alike are told together, the others by name. ``queried`` are
    the footprints that were asked about and never launched.
    """
    gpc = gpc_sentence(gpc_map, device)
    groups = _groups(summaries, queried)
    told = [_measured_group(states, gpc_known=bool(gpc)) for _, states in groups]
    subjects = _subjects([members for members, _ in groups])
    parts = [
        f"{subject}: {text}" if subject else text
        for subject, text in zip(subjects, told, strict=True)
    ]
    parts += [gpc] if gpc else []
    parts += ["nothing was launched"] if queried and queried >= summaries.keys() else []
    parts += [] if opted_in else ["asked without the non-portable opt-in"]
    return _sentence(parts)


def predicted_finding(
    summaries: Summaries, under: Sequence[tuple[UnderClaim, Summaries]], *, several_maps: bool
) -> str:
    """Tell what is refused or launches on every admissible map, what is open, and each claim.

    That nothing was launched is for the page to say, and what a claim says and who says it.
    """
    groups = _groups(summaries)
    subjects = _subjects([members for members, _ in groups])
    parts = []
    for subject, (_, states) in zip(subjects, groups, strict=True):
        text = _predicted_group(states, several_maps=several_maps)
        parts.append(f"{subject}: {text}" if subject else text)
    for claim, claimed in under:
        groups = _groups(claimed)
        # Where all kernels answer alike their names were told above.
        alike = len(groups) == 1
        subjects = [""] if alike else _subjects([members for members, _ in groups])
        texts = [
            f"{', ' if subject else ''}{subject}: {_claimed_group(states)}"
            for subject, (members, states) in zip(subjects, groups, strict=True)
            if any(summaries.get(footprint) != claimed[footprint] for footprint in members)
        ] or [": nothing changes"]
        parts.append(f"with the published claim {claim.claim.id}{''.join(texts)}")
    return _sentence(parts)


def gpc_sentence(gpc_map: GpcMap, device: Device) -> str:
    """Name the largest group of SMs, '' when no map is known.

    The solved map decides launches. That its groups are GPCs is known only where the SM ids agree;
    where these join more SMs, both are named.
    """
    where = " in this partition" if device.partition else ""
    solved = max(gpc_map.solved) if gpc_map.solved else None
    seen = max(gpc_map.measured) if gpc_map.measured else None
    if solved is None and seen is None:
        return ""
    if solved is not None and (seen is None or seen < solved):
        return f"largest co-scheduled group{where} has {solved} SMs"
    if solved is not None and seen != solved:
        return (
            f"the largest group that hosts a cluster{where} has {solved} SMs, "
            f"though {seen} SMs share a GPC"
        )
    return f"largest GPC{where} has {seen} SMs"


def _groups(
    summaries: Summaries, queried: frozenset[Footprint] = frozenset()
) -> list[tuple[list[Footprint], _States]]:
    """Join footprints that answer alike at every size they were both asked."""
    groups: list[tuple[list[Footprint], _States]] = []
    for footprints, states in _units(summaries, queried):
        for members, known in groups:
            common = states.keys() & known.keys()
            if common and all(states[size] == known[size] for size in common):
                members.extend(footprints)
                known.update(states)
                break
        else:
            groups.append((footprints, states))
    return groups


def _units(
    summaries: Summaries, queried: frozenset[Footprint]
) -> list[tuple[list[Footprint], _States]]:
    """Return what is told as one: a footprint, or a shipped kernel with those of all its sizes.

    Each size of a shipped kernel was compiled with its own bytes, so that none is left to compare.
    """
    units: dict[Footprint | str, tuple[list[Footprint], _States]] = {}
    for footprint in sorted(summaries, key=lambda f: (_trivial_first(f.kernel), f)):
        key = footprint.kernel if is_shipped(footprint.kernel) else footprint
        members, known = units.setdefault(key, ([], {}))
        members.append(footprint)
        states = _states(summaries[footprint])
        if footprint in queried:
            states |= dict.fromkeys(summaries[footprint].not_probed, ("room", None))
        known.update(states)
    return list(units.values())


def _states(summary: KernelSummary) -> _States:
    states: _States = dict.fromkeys(summary.launches, ("launches", None))
    states |= dict.fromkeys(summary.undetermined, ("undetermined", None))
    states |= dict.fromkeys(summary.wrong, ("wrong", None))
    states |= dict.fromkeys(summary.not_probed, ("not probed", None))
    states |= {int(size): ("refused", refusal) for size, refusal in summary.refused.items()}
    return states


def _subjects(groups: Sequence[Sequence[Footprint]]) -> list[str]:
    """Name each group by what tells it from the others: kernel, else memory, else in full.

    A shipped kernel is always named: it is not thorprobe's own.
    """
    if len(groups) < 2 and not any(is_shipped(f.kernel) for found in groups for f in found):
        return [""] * len(groups)
    kernels = [sorted({f.kernel for f in members}, key=_trivial_first) for members in groups]
    if _disjoint(kernels):
        return [kernels_text(names) for names in kernels]
    memory = [sorted({f.dynamic_smem for f in members}) for members in groups]
    if _disjoint(memory):
        return [
            f"at {' and '.join(f'{size:,}' for size in sizes)} B of dynamic shared memory"
            for sizes in memory
        ]
    return [", ".join(f.label for f in members) for members in groups]


def _trivial_first(kernel: str) -> tuple[bool, str]:
    return kernel != "trivial", kernel


def _disjoint(sets: Sequence[Sequence[object]]) -> bool:
    return sum(map(len, sets)) == len({item for members in sets for item in members})


def _with(states: _States, state: str) -> list[int]:
    return sorted(size for size, (word, _) in states.items() if word == state)


def _refusals(states: _States) -> list[tuple[Refusal, list[int]]]:
    found: dict[tuple[int | None, str, str], tuple[Refusal, list[int]]] = {}
    for size in _with(states, "refused"):
        refusal = states[size][1]
        if refusal is not None:
            key = (refusal.code, refusal.name, refusal.cause)
            found.setdefault(key, (refusal, []))[1].append(size)
    return list(found.values())


def _measured_group(states: _States, *, gpc_known: bool) -> str:
    wrong, unknown = _with(states, "wrong"), _with(states, "undetermined")
    lost, room = _with(states, "not probed"), _with(states, "room")
    launches = _launching(states)
    parts = [launches] if launches else []
    if room:
        parts.append(f"{sizes_text(room)} {'has' if len(room) == 1 else 'have'} room, by query")
    if not (launches or unknown or lost or room):
        parts = ["no size launches"]
    for refusal, sizes in _refusals(states):
        answered = code_text(refusal, with_cause=not (gpc_known and refusal.cause == _GPC))
        parts.append(f"{sizes_text(sizes)} {are(sizes)} refused: {answered}")
    if wrong:
        parts.append(f"{sizes_text(wrong)} launched, then faulted, hung or gave a wrong result")
    if unknown:
        parts.append(f"{sizes_text(unknown)} {are(unknown)} undetermined")
    if lost:
        parts.append(f"{sizes_text(lost)} {are(lost)} not known: the probe ended without an answer")
    return "; ".join(parts)


def _launching(states: _States) -> str:
    """Say what launches; "up to" only where the next size was asked as well, or is none."""
    launches = _with(states, "launches")
    if not launches:
        return ""
    last = launches[-1]
    whole = launches == list(range(1, last + 1))
    bounded = last == MAX_CLUSTER or last + 1 in states
    if whole and last > 1 and not bounded:
        return f"{last} and the smaller sizes asked launch"
    unit = "CTA" if last == 1 else "CTAs"
    upto = f"up to {last}" if whole and bounded else sizes_text(launches)
    text = f"launches {upto} {unit}"
    return f"{text}, the architecture's maximum" if last == MAX_CLUSTER else text


def _predicted_group(states: _States, *, several_maps: bool) -> str:
    every = " on every admissible map" if several_maps else ""
    parts = []
    for refusal, sizes in _refusals(states):
        where = every if refusal.cause == _GPC else ""
        answered = code_text(refusal, with_cause=True)
        parts.append(f"{sizes_text(sizes)} {are(sizes)} refused{where}: {answered}")
    unknown = _with(states, "undetermined")
    if unknown:
        parts.append(f"{sizes_text(unknown)} {are(unknown)} undetermined by the layout")
    launches = _with(states, "launches")
    if launches:
        verb = "launches" if len(launches) == 1 else "launch"
        parts.append(f"{sizes_text(launches)} {verb}{every}")
    return ", ".join(parts)


def _claimed_group(states: _States) -> str:
    launches, unknown = _with(states, "launches"), _with(states, "undetermined")
    parts = []
    if launches:
        verb = "launches" if len(launches) == 1 else "launch"
        parts.append(f"{sizes_text(launches)} {verb}")
    if unknown:
        parts.append(f"{sizes_text(unknown)} {are(unknown)} still undetermined")
    refused = _with(states, "refused")
    if refused and not launches:
        parts.append(f"{sizes_text(refused)} {are(refused)} refused")
    return " and ".join(parts)


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] if text else "Nothing was probed"
