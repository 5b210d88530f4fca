# SPDX-License-Identifier: Apache-2.0
"""Draws groups of cases from a seed: shapes around every boundary of every kernel.

A group is one shape with a few inputs and the calls that each input gets: calls of one shape share
their plans, and calls of one input share its reference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from thorprobe.bench.verify_case import BOUND, LENGTHS, MODES, WHOLE, Case
from thorprobe.bench.verify_scores import DISTRIBUTIONS
from thorprobe.topk.contract import DTYPES, MAX_K, RUNGS
from thorprobe.topk.ladder import CLUSTERS, choices
from thorprobe.topk.variant import VARIANTS

NEAR = 9
"""Columns on either side of a boundary."""

KS = (1, 7, 512, 1_024, 2_048)
ROWS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 34, 64, 65, 130, 131, 132, 133, 1_000)
SIDES = 4
"""Streams and threads of the modes that have several at once."""

INPUTS = 14
"""Inputs of a group."""

_CANDIDATES = (4_096, 8_192)
# That a row may have in shared memory, by k; room beyond k for what ties with the last is 512.
_CHOICES = 6
# Kernels forced one by one, a group.
_SCORES, _MANY_SCORES = 2**18, 2**22
_RESULTS = 2**19
# Most scores and indices of an input; one group in 24 has many scores.


@dataclass(frozen=True)
class Group:
    """Inputs alike in rows, k, types and options; each gets every call: kernel and partition.

    In the modes of ``BOUND`` they are alike in columns, strides and offset too.
    """

    inputs: tuple[Case, ...]
    calls: tuple[tuple[str, str], ...]

    def case(self, number: int, call: int) -> Case:
        """Return one call of one input as a case of its own."""
        kernel, partition = self.calls[call]
        return replace(self.inputs[number], kernel=kernel, partition=partition)


def edges(k: int, dtype: str) -> dict[str, tuple[int, ...]]:
    """Return the boundaries in columns by kind.

    ``capacity``: what a kernel holds in registers at once, over one CTA and every cluster; ``k``;
    ``unit``: what a warp loads at once; ``batch``: the second and third batch of one CTA;
    ``candidates``: what shared memory holds.
    """
    unit = 32 * (4 if dtype == "float32" else 8)
    sizes = sorted({variant.capacity for variant in VARIANTS})
    return {
        "capacity": tuple(sorted({size * n for size in sizes for n in (1, *CLUSTERS)})),
        "k": (k,),
        "unit": tuple(unit * n for n in (1, 2, 3, 15, 16, 17, 33)),
        "batch": tuple(size * n for size in sizes for n in (2, 3)),
        "candidates": (k + 512, *_CANDIDATES),
    }


def draw(seed: str, partitions: Sequence[str], rungs: Sequence[str] = RUNGS) -> Iterator[Group]:
    """Yield groups without end, the same for the same arguments.

    ``rungs`` are those that there are; without any kernel among them none is forced.
    """
    chance = Random(seed)  # noqa: S311  no secret
    while True:
        yield _group(chance, tuple(partitions), tuple(rungs))


def _group(chance: Random, partitions: tuple[str, ...], rungs: tuple[str, ...]) -> Group:
    dtype = chance.choice(DTYPES)
    k = _k(chance)
    columns = _columns(chance, k, dtype)
    rows = _rows(chance, columns, k)
    shape = Case(
        rows=rows,
        columns=columns,
        k=k,
        dtype=dtype,
        row_stride=columns,
        nan=chance.choice(("largest", "largest", "last")),
        ordered=chance.random() < 0.25,
        ties="any" if chance.random() < 0.06 else "lowest",
        out_left=chance.choice((0, 0, 1, 2, 3)),
        out_gap=chance.choice((0, 0, 1, 3, 7)),
        mode=chance.choices(MODES, (74, 5, 5, 10, 6))[0],
    )
    if shape.mode not in BOUND and chance.random() < 0.15:
        shape = replace(shape, workspace="none")
    first = _layout(chance, shape)
    inputs = [_input(chance, first)]
    while len(inputs) < INPUTS:
        layout = first if shape.mode in BOUND else _again(chance, first)
        inputs.append(_input(chance, layout))
    return Group(tuple(inputs), _calls(chance, inputs, partitions, rungs))


def _k(chance: Random) -> int:
    if chance.random() < 0.75:
        return chance.choice(KS)
    return min(MAX_K, max(1, round(2 ** chance.uniform(0, 11))))


def _columns(chance: Random, k: int, dtype: str) -> int:
    kind = chance.choices(
        ("capacity", "k", "unit", "batch", "candidates", "any", "few"), (40, 8, 14, 8, 4, 20, 6)
    )[0]
    if kind == "any":
        return round(2 ** chance.uniform(0, 16.2))
    if kind == "few":
        return chance.choice((0, 1, 2, 3, chance.randint(4, 70)))
    found = edges(k, dtype)[kind]
    if kind == "capacity" and chance.random() < 0.6:
        # Most often what one CTA holds: longer rows cost more, and differ less.
        found = tuple(sorted({variant.capacity for variant in VARIANTS}))
    near = NEAR if kind == "capacity" else chance.choice((1, NEAR))
    return max(0, chance.choice(found) + chance.randint(-near, near))


def _rows(chance: Random, columns: int, k: int) -> int:
    scores = _MANY_SCORES if chance.random() < 1 / 24 else _SCORES
    most = max(1, min(1_000, scores // max(1, columns), _RESULTS // k))
    if chance.random() < 1 / 200:
        return 0
    if chance.random() < 0.7:
        return chance.choice([rows for rows in ROWS if rows <= most])
    return round(2 ** chance.uniform(0, most.bit_length() - 1))


def _layout(chance: Random, shape: Case) -> Case:
    """Give a shape its place: rows side by side, padded, with gaps, transposed, expanded, sliding.

    Rows side by side, and any offset, come most often: that is where a kernel loads 16 bytes.
    """
    rows, columns = shape.rows, shape.columns
    kind = chance.choices(
        ("dense", "padded", "gaps", "transposed", "expanded", "sliding", "column"),
        (36, 36, 9, 9, 5, 3, 2),
    )[0]
    offset = chance.choice((0, chance.randint(0, 2 * shape.vector - 1)))
    place = {
        "dense": (columns, 1),
        "padded": (columns + chance.randint(1, 9), 1),
        "gaps": (columns * 2 + chance.randint(0, 3), 2),
        "transposed": (1, max(1, rows + chance.choice((0, 1, 5)))),
        "expanded": (0, 1),
        "sliding": (max(1, columns // chance.choice((2, 3, 64))), 1),
        "column": (1, 0),
    }[kind]
    if kind == "gaps":
        gap = chance.choice((2, 3, 5))
        place = (columns * gap + chance.randint(0, 3), gap)
    return replace(shape, offset=offset, row_stride=place[0], column_stride=place[1])


def _again(chance: Random, first: Case) -> Case:
    """Return the layout of a further input: another offset, and columns of the same class."""
    columns = first.columns
    step = max(8, 1 << max(0, columns.bit_length() - 5))
    if first.column_stride == 1 and first.row_stride >= columns and chance.random() < 0.5:
        low = (columns - 1) // step * step + 1
        least, most = max(1, low, columns - NEAR), min(low + step - 1, columns + NEAR)
        columns = chance.randint(least, max(least, most))
    gap = first.row_stride - first.columns
    dense = first.column_stride == 1 and gap >= 0
    if dense and gap:
        gap = chance.randint(1, 9)
    return replace(
        first,
        columns=columns,
        row_stride=columns + gap if dense else first.row_stride,
        offset=chance.randint(0, 2 * first.vector - 1),
    )


def _input(chance: Random, layout: Case) -> Case:
    return replace(
        layout,
        lengths=chance.choices(LENGTHS, (30, 20, 20, 2, 2, 4, 4, 4, 10, 4))[0],
        beyond="hot" if not layout.sliding and chance.random() < 0.7 else "plain",
        distribution=chance.choice(tuple(DISTRIBUTIONS)),
        seed=chance.randrange(2**31),
    )


def _calls(
    chance: Random, inputs: Sequence[Case], partitions: tuple[str, ...], rungs: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return who selects and where: every rung everywhere, and a few kernels by themselves."""
    first = inputs[0]
    kernels = tuple(rung for rung in rungs if rung != "torch")
    if first.mode in ("streams", "threads"):
        names = ("auto", *kernels) if kernels else ("auto", "torch")
        return tuple((name, WHOLE) for name in names for _ in range(SIDES))
    if not kernels:
        return tuple((name, place) for place in partitions for name in ("auto", "torch"))
    calls = [(name, place) for place in partitions for name in ("auto", *kernels)]
    if first.rows and first.columns:
        held = max(case.columns for case in inputs)
        fitting = choices(held, first.dtype)
        if any(case.columns > 1 and case.column_stride != 1 for case in inputs):
            fitting = [choice for choice in fitting if choice.variant.threads <= 512]
        chosen = chance.sample(fitting, min(_CHOICES, len(fitting)))
        calls += [(choice.name, chance.choice(partitions)) for choice in chosen]
    if first.mode == "stream":
        calls.append(("torch", WHOLE))
    return tuple(calls)
