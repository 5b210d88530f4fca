# SPDX-License-Identifier: Apache-2.0
"""Several rendered documents as one: an output that has to parse still does."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET


def together(form: str, rendered: Sequence[str]) -> str:
    """Return one text of format ``form`` from the texts of one or more documents.

    One document is left as it is. Several JSON documents become an array of them, several JUnit
    files one root with all suites and the sums of their counts; the other formats are laid end to
    end. Raises ValueError where JUnit text is no XML.
    """
    if len(rendered) < 2:
        return "".join(rendered)
    if form == "json":
        return "[\n" + ",\n".join(text.strip() for text in rendered) + "\n]\n"
    if form == "junit":
        return _junit(rendered)
    return "".join(rendered)


def _junit(rendered: Sequence[str]) -> str:
    # What is parsed here was made by thorprobe.render.junit a moment ago.
    roots = [ET.fromstring(text) for text in rendered]  # noqa: S314
    counts = ("tests", "failures", "errors", "skipped")
    sums = {name: str(sum(int(root.get(name, "0")) for root in roots)) for name in counts}
    seconds = sum(float(root.get("time", "0")) for root in roots)
    whole = ET.Element("testsuites", {"name": "thorprobe", **sums, "time": f"{seconds:.6f}"})
    whole.extend(suite for root in roots for suite in root)
    ET.indent(whole)
    body = ET.tostring(whole, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'
