# SPDX-License-Identifier: Apache-2.0
"""JSON: the document itself, schema first; every other format is a view of it."""

from collections.abc import Sequence

import msgspec

from thorprobe.record import Status
from thorprobe.render.escape import json_text
from thorprobe.render.expectation import Line
from thorprobe.summary import Document


def render(document: Document) -> str:
    """Return the document as indented JSON that decodes to the same document."""
    return json_text(msgspec.json.format(msgspec.json.encode(document), indent=2)) + "\n"


def render_expectations(lines: Sequence[Line]) -> str:
    """Return the expectations as an indented JSON array of scenario, sentence and status."""
    found = [
        {"scenario": scenario, "sentence": sentence, "status": Status(status)}
        for scenario, sentence, status in lines
    ]
    return json_text(msgspec.json.format(msgspec.json.encode(found), indent=2)) + "\n"
