# SPDX-License-Identifier: Apache-2.0
"""Whole numbers as text: cluster sizes and rows, neighbours joined."""

from collections.abc import Iterable

Span = tuple[int, int | None]
"""First and last of a range; None is an open end."""


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the ranges in order, those that touch or overlap joined: 5-8 and 9-32 are 5-32."""
    found: list[Span] = []
    for first, last in sorted(spans, key=lambda pair: pair[0]):
        start, end = found[-1] if found else (0, -1)
        if not found or (end is not None and first > end + 1):
            found.append((first, last))
        else:
            found[-1] = (start, None if end is None or last is None else max(end, last))
    return found


def span(first: int, last: int | None) -> str:
    """Return one range as ``1-4``, ``33`` or ``65+``."""
    if last is None:
        return f"{first}+"
    return str(first) if first == last else f"{first}-{last}"


def spans(found: Iterable[Span]) -> str:
    """Return ranges as text, joined: ``1-32, 65+``."""
    return ", ".join(span(*pair) for pair in joined(found))


def ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers as text: (1, 2, 3, 8) gives ``1-3, 8``."""
    return spans((number, number) for number in numbers)


def sizes_text(sizes: Iterable[int]) -> str:
    """Write whole numbers for a sentence: (4, 8, 9, 10, 16) gives ``4, 8 to 10 and 16``."""
    words: list[str] = []
    for first, last in joined((size, size) for size in sizes):
        end = first if last is None else last
        words += [f"{first} to {end}"] if end - first > 1 else map(str, range(first, end + 1))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
