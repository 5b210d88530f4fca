# SPDX-License-Identifier: Apache-2.0
"""How it is shown: one renderer file per format, each a view of the same document.

Renderers are imported when they are called, so that naming the formats costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from thorprobe.render.expectation import Line
    from thorprobe.summary import Document


def _document(name: str) -> "Callable[[Document], str]":
    def render(document: "Document") -> str:
        rendered: str = import_module(f"thorprobe.render.{name}").render(document)
        return rendered

    return render


def _expectations(name: str) -> "Callable[[Sequence[Line]], str]":
    def render(lines: "Sequence[Line]") -> str:
        rendered: str = import_module(f"thorprobe.render.{name}").render_expectations(lines)
        return rendered

    return render


FORMATS: "dict[str, Callable[[Document], str]]" = {
    name: _document(name) for name in ("text", "json", "jsonl", "markdown", "junit", "github")
}
"""Renderer of a document by the name of its format."""

EXPECTATION_FORMATS: "dict[str, Callable[[Sequence[Line]], str]]" = {
    name: _expectations(name) for name in ("text", "json", "junit", "github")
}
"""Renderer of the expectations of scenarios by the name of its format."""
