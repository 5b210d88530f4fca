# SPDX-License-Identifier: Apache-2.0
"""JSON Lines: the header, one outcome a line, the footer, as the store of a run has them."""

import msgspec

from thorprobe.record import Footer, Header
from thorprobe.render.escape import json_text
from thorprobe.summary import Document


def render(document: Document) -> str:
    """Return the document as the lines of a store, finished if no planned launch lacks a record.

    The summary is left out: it follows from the outcomes. So is the header's ``plan``, which a
    document does not carry.
    """
    header = Header(
        schema=document.schema,
        tool=document.tool,
        command=document.command,
        argv=document.argv,
        started=document.started,
        origin=document.origin,
        device=document.device,
        software=document.software,
        inputs=document.inputs,
        options=document.options,
    )
    footer = Footer(
        ended=document.ended,
        exit_code=document.exit_code,
        probes=len(document.results),
        wall_s=document.wall_s,
    )
    # A footer would say that nothing is left to ask.
    records = (header, *document.results, *(() if document.missing else (footer,)))
    return "".join(json_text(msgspec.json.encode(record)) + "\n" for record in records)
