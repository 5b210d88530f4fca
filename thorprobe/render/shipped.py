# SPDX-License-Identifier: Apache-2.0
"""Shipped kernels on the pages of a sweep and of a drive: what was asked, a row per entry point."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from thorprobe.judge.kernel_name import image, kernels_text, natural, told
from thorprobe.plan.shipped_kernel import ShippedKernel, is_shipped
from thorprobe.record import Claim, Outcome
from thorprobe.render import cells
from thorprobe.render.escape import plain
from thorprobe.render.kernel_name import shortened
from thorprobe.render.table import Column, Table
from thorprobe.summary import Document

TITLE = "Shipped kernels at the sizes that they are compiled for"

OFF = "no opt-in"

MEANINGS = {
    "thr": "threads a CTA",
    "bytes": "dynamic shared memory a CTA asks for",
    OFF: "the same launch without the non-portable opt-in",
}
"""Legend of the headings that a sweep's other tables do not have."""


@dataclass(frozen=True)
class Row:
    """One entry point: its outcomes by opt-in, and with each claim added."""

    label: str
    by_opt_in: Mapping[bool, Outcome]
    claimed: Mapping[str, Outcome]

    @property
    def outcome(self) -> Outcome:
        """The answer with the opt-in, where it was asked with it."""
        return self.by_opt_in[max(self.by_opt_in)]


def kernels(document: Document) -> str:
    """Say which shipped kernels were asked about, of which image and how; '' for none."""
    labels = sorted({o.spec.kernel for o in document.results if is_shipped(o.spec.kernel)})
    if not labels:
        return ""
    held = {kernel.label: kernel for kernel in _recorded(document)}
    images = dict.fromkeys(image(label) for label in labels)
    targets = {held[label].target for label in labels if label in held}
    target = f"{targets.pop()} " if len(targets) == 1 else ""
    several = "images" if len(images) > 1 else "image"
    layouts = {held[label].layout for label in labels if label in held}
    text = (
        f"{kernels_text(labels)}, {target}{several} {', '.join(images)} "
        f"(SHA-256, whole among the inputs); {_asked(layouts)}"
    )
    return plain(text)


def _asked(layouts: set[str]) -> str:
    known = sorted(layouts - {""})
    if not known:
        return (
            "no layout is known of them: asked about with their compiled cluster, one warp or "
            "their compiled block, and no dynamic shared memory"
        )
    return (
        f"asked about with grid, cluster, threads, bytes and parameter block of layout "
        f"{' and '.join(known)}"
    )


def _recorded(document: Document) -> tuple[ShippedKernel, ...]:
    """Return the kernels that the options name; what cannot be read is left out, not guessed."""
    try:
        return msgspec.convert(document.options.get("shipped", ()), tuple[ShippedKernel, ...])
    except msgspec.ValidationError:
        return ()


def table(document: Document) -> Table | None:
    """Return a row per entry point of a sweep's shipped kernels, None where it has none."""
    rows = _rows(document.results)
    if not rows:
        return None
    names = told(row.label for row in rows)
    columns: list[tuple[Column, Callable[[Row], str]]] = [
        (Column(("kernel",), numeric=False), lambda row: plain(shortened(names[row.label]))),
        (Column(("size",)), lambda row: str(row.outcome.spec.cluster_size)),
        (Column(("thr",)), lambda row: f"{row.outcome.spec.threads:,}"),
        (Column(("bytes",)), lambda row: f"{row.outcome.spec.dynamic_smem:,}"),
        (Column(("pot",)), lambda row: cells.potential(row.outcome)),
        (Column(("act",)), lambda row: cells.active(row.outcome)),
        (Column(("run",), numeric=False), lambda row: cells.launch(row.outcome)),
    ]
    if any(len(row.by_opt_in) > 1 for row in rows):
        off = Column((OFF,), numeric=False)
        columns.append((off, lambda row: cells.launch(row.by_opt_in.get(False))))
    for claim, heading in claim_headings(document.device.claims).items():
        columns.append((Column((heading,), numeric=False), _under(claim)))
    return Table(
        title=TITLE,
        columns=tuple(column for column, _ in columns),
        rows=tuple(tuple((cell(row),) for _, cell in columns) for row in rows),
    )


def claim_headings(claims: Iterable[Claim]) -> dict[str, str]:
    """Return the column heading of each claim id."""
    ids = [claim.id for claim in claims]
    return {name: "claimed" if len(ids) == 1 else f"claim {i}" for i, name in enumerate(ids, 1)}


def meanings(document: Document) -> list[tuple[str, str]]:
    """Return the legend of the headings of the table, empty where there is none."""
    shown = table(document)
    if shown is None:
        return []
    headings = {line for column in shown.columns for line in column.heading}
    found = [(word, text) for word, text in MEANINGS.items() if word in headings]
    return found + [
        (heading, f"the launch with the claim {plain(claim)} added to the layout")
        for claim, heading in claim_headings(document.device.claims).items()
    ]


def _under(claim: str) -> Callable[[Row], str]:
    return lambda row: cells.launch(row.claimed.get(claim))


def _rows(results: Iterable[Outcome]) -> list[Row]:
    """Collect the outcomes of each entry point, kernels and sizes in natural order."""
    plainly: dict[tuple[str, int], dict[bool, Outcome]] = {}
    claimed: dict[tuple[str, int], dict[str, Outcome]] = {}
    for outcome in results:
        spec = outcome.spec
        if not is_shipped(spec.kernel) or spec.spin_cycles or len(outcome.assumes) > 1:
            continue
        key = (spec.kernel, spec.cluster_size)
        if not outcome.assumes:
            plainly.setdefault(key, {})[spec.non_portable] = outcome
        elif spec.non_portable:
            claimed.setdefault(key, {})[outcome.assumes[0]] = outcome
    return [
        Row(key[0], plainly[key], claimed.get(key, {}))
        for key in sorted(plainly, key=lambda k: (natural(k[0]), k[1]))
    ]
