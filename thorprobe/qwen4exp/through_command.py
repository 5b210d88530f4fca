# SPDX-License-Identifier: Apache-2.0
"""``thorprobe topk-arms --through-model``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thorprobe.cli.options import Format
from thorprobe.errors import UsageError

if TYPE_CHECKING:
    from thorprobe.plan.arm_probe import ArmsOptions

_TAKEN = {"through_model", "policy", "as_capability", "device", "partition"} | {
    *("form", "json", "output", "no_progress")
}
# What else topk-arms takes says how a launch is made; here the model makes it.


def answer(
    context: Any,
    wanted: "ArmsOptions",
    capability: tuple[int, int] | None,
    form: Format,
    output: Path | None,
    *,
    progress: bool,
) -> None:
    """Reach every arm through the model, and show it.

    ``context`` is Typer's, of ``topk-arms``. Raises UsageError for options that say how a launch
    is made, and what ``thorprobe.qwen4exp.through_answer.inquire`` raises.
    """
    for name, option in ((p.name, p.opts[0]) for p in context.command.params):
        given = context.get_parameter_source(name).name == "COMMANDLINE"
        if given and name not in _TAKEN:
            raise UsageError(
                f"`{option}` was given together with `--through-model`, whose launches are those "
                "that the model makes",
                f"leave out `{option}`",
            )
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import progress as bar
    from thorprobe.cli.session import public
    from thorprobe.qwen4exp.through_answer import inquire

    with bar("topk-arms", shown=progress) as advance:
        found = inquire(
            wanted.policies,
            capability,
            context.params["device"],
            wanted.partition,
            argv=public(sys.argv[1:]),
            progress=advance,
        )
    show_evidence([found], form, output)
