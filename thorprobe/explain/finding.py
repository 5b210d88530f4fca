# SPDX-License-Identifier: Apache-2.0
"""The finding on one launch in a sentence, with the numbers that decide."""

from thorprobe.explain.records import Told
from thorprobe.explain.weigh import OPEN, Weighed
from thorprobe.judge.catalogue import BY_KEY
from thorprobe.model.launch_facts import LaunchFacts, volume
from thorprobe.model.occupancy import most_threads


def finding(told: Told, weighed: Weighed) -> str:
    """Return the finding: the cause with its numbers, or what is open."""
    if weighed.cause is None:
        told_by = weighed.remarks[0] if weighed.remarks else "nothing is wrong"
        return f"No cause: {told_by}"
    if weighed.cause == OPEN:
        names = [BY_KEY[key].name for key in weighed.candidates]
        could = f": {', '.join(names)}" if names else ""
        lacking = ", ".join(weighed.missing)
        return f"Undetermined{could}; what decides is not known: {lacking}"
    entry = BY_KEY[weighed.cause]
    numbers = _numbers(told, weighed.cause)
    sentence = f"{entry.name[0].upper()}{entry.name[1:]}: {lowered(entry.sentence)}"
    return f"{sentence} ({numbers})" if numbers else sentence


def lowered(sentence: str) -> str:
    """Return a sentence as it goes on after a colon; an abbreviation keeps its letters."""
    return sentence if sentence[1:2].isupper() else f"{sentence[:1].lower()}{sentence[1:]}"


def residency(told: Told) -> tuple[str, ...]:
    """Say how many of the CTAs are resident at once, where it is known of a launch."""
    facts = told.launch
    if facts.grid is None or facts.resident is None:
        return ()
    return (f"{volume(facts.grid):,} CTAs, of which {facts.resident:,} are resident at once",)


def next_action(told: Told, weighed: Weighed) -> str:
    """Return what to do: the catalogue's advice, or the fact to find first."""
    if weighed.cause is None:
        return ""
    if weighed.cause == OPEN:
        return f"Find out {weighed.missing[0]} and ask again"
    size = told.launch.largest_cluster
    if weighed.cause == "larger-than-any-gpc" and size:
        return f"No flag mends it: launch at most {size} CTAs a cluster here"
    return BY_KEY[weighed.cause].next_action


def _numbers(told: Told, cause: str) -> str:
    """Return the launch's own numbers that the cause is about, '' where they are not known."""
    facts, limits = told.launch, told.launch.limits
    if cause.startswith("smem-"):
        return _bytes(facts, cause)
    if cause == "out-of-resources" and facts.registers and limits:
        most = most_threads(facts.registers, limits.max_threads_per_block, limits.registers_per_sm)
        return f"{facts.registers} registers a thread: at most {most:,} threads"
    if cause in ("cooperative-too-large", "residency-exceeded") and facts.grid and facts.resident:
        return f"{volume(facts.grid):,} CTAs, {facts.resident:,} resident"
    if cause in ("grid-not-divisible", "grid-too-large") and facts.grid:
        return f"grid {facts.grid}, cluster {facts.dims}" if facts.dims else f"grid {facts.grid}"
    if cause == "larger-than-any-gpc" and facts.size:
        hosts = f", the device hosts {facts.largest_cluster}" if facts.largest_cluster else ""
        return f"{facts.size} CTAs{hosts}"
    return ""


def _bytes(facts: LaunchFacts, cause: str) -> str:
    if facts.dynamic_smem is None:
        return ""
    if cause == "smem-limit-lowered":
        return f"{facts.dynamic_smem:,} B asked for, limit set to {facts.setter_limit or 0:,}"
    asked = facts.dynamic_smem + (facts.static_smem or 0)
    if cause == "smem-over-optin" and facts.limits is not None:
        return f"{asked:,} of {facts.limits.max_smem_per_block_optin:,} B"
    return f"{asked:,} B"
