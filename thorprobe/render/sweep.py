# SPDX-License-Identifier: Apache-2.0
"""A cluster sweep as tables: sizes down, footprints across, three words a cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thorprobe.judge.kernel_name import shipped_only
from thorprobe.judge.ranges import ranges
from thorprobe.plan.shipped_kernel import is_shipped
from thorprobe.record import Footprint, LaunchSpec, Outcome
from thorprobe.render import cells as words
from thorprobe.render import shipped
from thorprobe.render.escape import plain
from thorprobe.render.table import Column, Table
from thorprobe.summary import Document, GpcMap, SweepSummary

PARTS = ("pot", "act", "run")
"""Names of the three words of a cell."""

PART_MEANINGS = {
    "pot": "largest cluster in CTAs, by cuOccupancyMaxPotentialClusterSize",
    "act": "clusters resident at once, by cuOccupancyMaxActiveClusters",
    "run": "the launch itself: launched and verified, or the driver's code",
}

NOT_ENABLED = "non-portable-not-enabled"
"""Cause of a size above 8 without the opt-in; one line says it instead of eight rows."""

Key = tuple[int, bool]
"""Cluster size and whether the non-portable opt-in was set."""


@dataclass(frozen=True)
class Grid:
    """Outcomes of one column (a footprint, in one variant) by size and opt-in."""

    footprint: Footprint
    variant: str
    cells: Mapping[Key, Outcome]

    @property
    def order(self) -> tuple[bool, str, int, int, str]:
        """Sort key: the trivial kernel first, then by kernel, threads, bytes and variant."""
        f = self.footprint
        return (f.kernel != "trivial", f.kernel, f.threads, f.dynamic_smem, self.variant)

    @property
    def heading(self) -> tuple[str, ...]:
        """Three or four heading lines: kernel, threads, bytes, and the variant if any."""
        f = self.footprint
        lines = (plain(f.kernel), f"{f.threads:,} thr", f"{f.dynamic_smem:,} B")
        return (*lines, self.variant) if self.variant else lines


def grids(results: Iterable[Outcome], assumes: tuple[str, ...] = ()) -> list[Grid]:
    """Return the columns of the outcomes that rest on exactly ``assumes``.

    Probes that hold their SMs to read the GPC map are left out: they repeat a size. Shipped kernels
    have a table of their own, with a row for each size that they are compiled for.
    """
    found: dict[tuple[Footprint, str], dict[Key, Outcome]] = {}
    for outcome in results:
        spec = outcome.spec
        own = not spec.spin_cycles and not is_shipped(spec.kernel)
        if outcome.assumes == assumes and own:
            column = found.setdefault((spec.footprint, _variant(spec)), {})
            column[spec.cluster_size, spec.non_portable] = outcome
    columns = [Grid(footprint, variant, cells) for (footprint, variant), cells in found.items()]
    return sorted(columns, key=lambda grid: grid.order)


def tables(document: Document) -> list[Table]:
    """Return the table of the sweep, one per claim with the rows that it changes, and the shipped.

    A table that would have no row is left out.
    """
    base = grids(document.results)
    alone = shipped.table(document)
    if not base:
        return [] if alone is None else [alone]
    opted = _opted(base)
    title = "With the non-portable opt-in" if opted else "Without the non-portable opt-in"
    found = [_table(title, base, _shown(base), opted=opted)]
    for claim in document.device.claims:
        under = grids(document.results, (claim.id,))
        changed = [key for key in _keys(under) if key[1] == opted and _differ(base, under, key)]
        if changed:
            name = f"With the claim {plain(claim.id)} added: what changes"
            found.append(_table(name, under, changed, opted=opted))
    return found if alone is None else [*found, alone]


def without_opt_in(document: Document) -> str:
    """Return one sentence on the rows without the opt-in that the table leaves out, or ''."""
    base = grids(document.results)
    if not _opted(base):
        return ""
    hidden = [key for key in _keys(base) if not key[1] and key not in _shown(base)]
    refused = [size for size, _ in hidden if any(_not_enabled(grid, size) for grid in base)]
    same = [size for size, _ in hidden if size not in refused]
    parts = []
    if same:
        potentials = sorted({words.potential(g.cells.get((s, False))) for g in base for s in same})
        known = f" (potential {', '.join(potentials)})" if words.UNKNOWN not in potentials else ""
        parts.append(f"{ranges(same)} answer the same{known}")
    if refused:
        off = [(grid, size) for grid in base for size in refused if _not_enabled(grid, size)]
        codes = sorted({words.launch(grid.cells.get((size, False))) for grid, size in off})
        rest = ", or answer the same" if len(off) < len(base) * len(refused) else ""
        parts.append(f"{ranges(refused)} refused: {', '.join(codes)}, {NOT_ENABLED}{rest}")
    return "; ".join(parts)


def gpc_map(document: Document, summary: SweepSummary) -> str:
    """Return the GPC map in words: as measured, as solved, and how many maps are admissible."""
    found: GpcMap = summary.gpc_map
    parts = [
        f"{name} {' '.join(map(str, groups))}"
        for name, groups in (("measured", found.measured), ("solved", found.solved))
        if groups is not None
    ]
    if found.admissible == 1 and not summary.under_claims:
        parts.append("that of the profile")
    elif found.admissible is not None:
        counts = [f"{found.admissible} admissible by the layout"]
        counts += [f"{u.admissible} with {plain(u.claim.id)}" for u in summary.under_claims]
        parts.append(", ".join(counts))
    if not parts and shipped_only(document.results):
        return "not solved: that takes all sizes from 1 to 16, a sweep of thorprobe's own kernels"
    return "; ".join(parts) or "unknown"


def _variant(spec: LaunchSpec) -> str:
    marks = (
        (spec.compiled_cluster > 0, "compiled"),
        (not spec.cluster_attribute, "no attribute"),
        (spec.cooperative, "cooperative"),
        (spec.captured, "graph"),
        (not spec.smem_opt_in, "smem not set"),
    )
    return ", ".join(mark for applies, mark in marks if applies)


def _opted(columns: list[Grid]) -> bool:
    return any(opted for grid in columns for _, opted in grid.cells)


def _keys(columns: list[Grid]) -> list[Key]:
    found = {key for grid in columns for key in grid.cells}
    return sorted(found, key=lambda key: (key[0], not key[1]))


def _shown(columns: list[Grid]) -> list[Key]:
    """Return the rows that say something: without the opt-in only what one line cannot.

    That is a row in which some column answers otherwise than with the opt-in, for another reason
    than that it is missing.
    """
    opted = _opted(columns)
    return [
        key
        for key in _keys(columns)
        if key[1] == opted
        or not all(_same(grid, key[0]) or _not_enabled(grid, key[0]) for grid in columns)
    ]


def _same(grid: Grid, size: int) -> bool:
    return _cell(grid, (size, False))[1:] == _cell(grid, (size, True))[1:]


def _not_enabled(grid: Grid, size: int) -> bool:
    outcome = grid.cells.get((size, False))
    return outcome is not None and outcome.cause == NOT_ENABLED


def _differ(base: list[Grid], under: list[Grid], key: Key) -> bool:
    """Say whether the clusters resident or the launch differ; the claim itself sets potential."""
    before = {grid.order: _cell(grid, key)[1:] for grid in base}
    return any(before.get(grid.order) != _cell(grid, key)[1:] for grid in under)


def _cell(grid: Grid, key: Key) -> tuple[str, ...]:
    outcome = grid.cells.get(key)
    return (words.potential(outcome), words.active(outcome), words.launch(outcome))


def _table(title: str, columns: list[Grid], keys: list[Key], *, opted: bool) -> Table:
    headings = [Column(("size",)), *(Column(grid.heading, PARTS) for grid in columns)]
    runs: list[tuple[list[int], bool, tuple[tuple[str, ...], ...]]] = []
    for size, on in keys:
        cells = tuple(_cell(grid, (size, on)) for grid in columns)
        # Neighbours that answer alike share a row, so that where it changes is seen.
        if runs and runs[-1][0][-1] == size - 1 and runs[-1][1:] == (on, cells):
            runs[-1][0].append(size)
        else:
            runs.append(([size], on, cells))
    rows = tuple(
        ((ranges(sizes) if on == opted else f"{ranges(sizes)} off",), *cells)
        for sizes, on, cells in runs
    )
    return Table(title=title, columns=tuple(headings), rows=rows)
