# SPDX-License-Identifier: Apache-2.0
"""Runs one step of the model for each drive, and sees what arrives at the selection."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from thorprobe.qwen4exp.model import Model
from thorprobe.qwen4exp.through_plan import CONTEXT, Drive
from thorprobe.qwen4exp.watch import LadderWatch, Taken
from thorprobe.topk.qwen4exp import Select, through_ladder

Progress = Callable[[int, int], None]


def rung_for(drive: Drive, *, on_gpu: bool) -> str:
    """Return the rung that is the drive's arm; a CPU has one of its own, and no clusters."""
    if not on_gpu or drive.path != "cooperative":
        return "auto"
    return f"cluster-{drive.cluster}"


def measure(
    model: Model,
    drives: Sequence[Drive],
    *,
    seed: int = 0,
    select: Select | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Iterator[tuple[Drive, str, Taken]]:
    """Yield each drive with the rung it asked for and what the selection saw.

    Every request holds the same ``CONTEXT`` tokens, prefilled once; the step's own tokens differ.
    On a GPU the ladder is asked for the arm's own rung, so that the arm itself is launched.
    """
    import torch

    source = torch.Generator().manual_seed(seed)
    on_gpu = model.place.torch_device.type == "cuda"
    with torch.no_grad():
        start = LadderWatch(model.place.settle, select, "auto")
        held = model.new_cache()
        with through_ladder(start):
            model(model.draw(source, 1, CONTEXT), held, 1)
        for number, drive in enumerate(drives):
            rung = rung_for(drive, on_gpu=on_gpu)
            watch = LadderWatch(model.place.settle, select, rung)
            tokens = model.draw(source, drive.requests, drive.tokens)
            with through_ladder(watch):
                model(tokens, _repeated(held, drive.requests, tokens.device), 1)
            yield drive, rung, watch.layers[0]
            progress(number + 1, len(drives))


def _repeated(cache: Any, requests: int, where: Any) -> Any:
    """Return a copy of one request's cache that holds it ``requests`` times."""
    import torch

    many = copy.deepcopy(cache)
    first = torch.zeros(requests, dtype=torch.long, device=where)
    # Reordering beams to the first one is the one operation that every layer's cache has.
    many.reorder_cache(first)
    # transformers up to 5.20 keeps positions beside the layers, [3, requests, tokens].
    if getattr(many, "position_ids", None) is not None:
        many.position_ids = many.position_ids.index_select(1, first)
    return many
