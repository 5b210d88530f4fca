# SPDX-License-Identifier: Apache-2.0
"""Names of kernels for a sentence: natural order, and of shipped ones what tells them apart."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Outcome

MOST_NAMES = 6
"""Kernels that a sentence names; of more it says how many."""

_NUMBERS = re.compile(r"(\d{1,18})", re.ASCII)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which numbers in names count by their value: cs2 before cs16."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in _NUMBERS.split(name)]


def bare(label: str) -> str:
    """Return the label of a shipped kernel without its image's hash; another name as it is."""
    return label.rpartition("@")[0] if is_shipped(label) else label


def image(label: str) -> str:
    """Return the digits of an image's SHA-256 in the label of a shipped kernel, '' for another."""
    return label.rpartition("@")[2] if is_shipped(label) else ""


def shipped_only(results: Iterable[Outcome]) -> bool:
    """Say whether every cluster that was asked about is a shipped kernel's."""
    asked = [o for o in results if o.spec.cluster_attribute]
    return bool(asked) and all(is_shipped(o.spec.kernel) for o in asked)


def told(labels: Iterable[str]) -> dict[str, str]:
    """Map labels to names to show: without the hash, unless their images differ."""
    found = list(dict.fromkeys(labels))
    images = {image(label) for label in found} - {""}
    return {label: bare(label) if len(images) < 2 else label for label in found}


def kernels_text(labels: Iterable[str]) -> str:
    """Write kernels for a sentence: own names, then ``shipped cooperative_topk<512> and <1024>``.

    Names that differ in their template argument alone share their beginning.
    """
    names = told(labels)
    own = sorted((n for label, n in names.items() if not is_shipped(label)), key=_trivial_first)
    shipped = sorted({n for label, n in names.items() if is_shipped(label)}, key=natural)
    parts = list(own)
    if len(shipped) > MOST_NAMES:
        parts.append(f"{len(shipped)} shipped kernels")
    elif shipped:
        parts.append(f"shipped {_listed(shipped)}")
    return " and ".join(parts)


def _listed(names: Sequence[str]) -> str:
    words = [names[0]]
    for before, name in pairwise(names):
        family, angle, rest = name.partition("<")
        shared = angle and before.partition("<")[0] == family
        words.append(f"<{rest}" if shared else name)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _trivial_first(name: str) -> tuple[bool, str]:
    return name != "trivial", name
