# SPDX-License-Identifier: Apache-2.0
"""The gate of an installed vLLM as sections of a sheet: what was read, and how it compares."""

from collections.abc import Iterator

from thorprobe.audit.installed_records import Installed, SourceGate
from thorprobe.judge.ranges import ranges
from thorprobe.render.sheet import Section
from thorprobe.render.table import Column, Table


def installed_sections(installed: Installed) -> Iterator[Section]:
    """Yield a section on every call site that was read, and one on the comparison."""
    version = f"vLLM {installed.version}" if installed.version else "vLLM of unknown version"
    yield Section(
        heading=f"Read from {installed.source}: {version}",
        paragraphs=(
            installed.finding,
            "Nothing was imported or run: the constants are read from the sources",
        ),
        pairs=tuple((site.role.value, _site(site)) for site in installed.sites),
    )
    if installed.compared:
        yield Section(
            heading=f"Beside the data of {installed.policy}",
            table=Table(
                title="",
                columns=tuple(
                    Column((text,), numeric=False)
                    for text in ("constant", "in the source", "in the data", "so it")
                ),
                rows=tuple(
                    ((c.constant,), (c.in_source,), (c.in_data,), (c.match.value,))
                    for c in installed.compared
                ),
            ),
        )


def _site(site: SourceGate) -> str:
    read = [
        *([f"rows <= {site.rows}"] if site.rows is not None else []),
        *([f"stride % {site.stride_multiple} == 0"] if site.stride_multiple is not None else []),
        *(["cc >= {}.{}".format(*site.min_capability)] if site.min_capability else []),
        *(f"only family {family}" for family in site.required_families),
        *(f"not family {family}" for family in site.excluded_families),
        *([f"k of {', '.join(map(str, site.k))}"] if site.k else []),
        *(["CUDA"] if site.cuda_only else []),
    ]
    unread = f"; not understood: line {ranges(site.unread_lines)}" if site.unread_lines else ""
    where = f"{site.path} line {site.line}{f', {site.function}' if site.function else ''}"
    return f"{where}: {', '.join(read) or 'no condition'}{unread}"
