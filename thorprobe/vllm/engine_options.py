# SPDX-License-Identifier: Apache-2.0
"""The options of ``model-topk`` that make an engine answer."""

from pathlib import Path
from typing import Annotated

import typer

PANEL = "vLLM's engine (with --engine)"

EngineOption = Annotated[
    str,
    typer.Option("--engine", metavar="vllm", help="Who runs the model", rich_help_panel=PANEL),
]
SuiteOption = Annotated[
    str,
    typer.Option(
        "--suite",
        metavar="NAME|FILE",
        help="Engines and cases of a TOML file, such as h200, in place of one engine",
        rich_help_panel=PANEL,
    ),
]
GraphsOption = Annotated[
    str,
    typer.Option(
        "--graphs", help="eager, full-and-piecewise or full-decode-only", rich_help_panel=PANEL
    ),
]
DropInOption = Annotated[
    str,
    typer.Option(
        "--drop-in",
        metavar="MODE",
        help="THORPROBE_VLLM in the engine: fallback, always, check or report",
        rich_help_panel=PANEL,
    ),
]
RepeatOption = Annotated[
    int,
    typer.Option(
        "--repeat", help="Run the same prompts so often again, and count", rich_help_panel=PANEL
    ),
]
HybridOption = Annotated[
    bool,
    typer.Option("--hybrid", help="A model with GDN and QSA layers", rich_help_panel=PANEL),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="Keep the whole answer there (JSON), written anew after each case",
        rich_help_panel=PANEL,
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FILE",
        help="Go on with such an answer, in its place",
        rich_help_panel=PANEL,
    ),
]
