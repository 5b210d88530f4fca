# SPDX-License-Identifier: Apache-2.0
"""Runs the model twice over the same tokens: with transformers' own selection, and the ladder's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from thorprobe.qwen4exp import plan as plans
from thorprobe.qwen4exp.model import Model
from thorprobe.qwen4exp.plan import ModelOptions, Step
from thorprobe.qwen4exp.watch import LadderWatch, ReferenceWatch, Taken, Visited
from thorprobe.topk.qwen4exp import Batched, Select, through_ladder, watched

Progress = Callable[[int, int], None]
_WARM_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """One step in both runs. ``logits`` are compared where they are, so differences are kept.

    ``different_tokens`` counts greedy tokens that differ, of ``compared_tokens``; times are in
    microseconds.
    """

    step: Step
    requests: int
    visited: tuple[Visited, ...]
    taken: tuple[Taken, ...]
    compared_tokens: int
    different_tokens: int
    max_logit_difference: float
    max_logit: float
    reference_us: float
    ladder_us: float


@dataclass(frozen=True, kw_only=True)
class _Referred:
    """What a step of the first run leaves for the second: tokens fed, what was seen, the answer."""

    step: Step
    fed: Any
    visited: tuple[Visited, ...]
    logits: Any
    us: float


def measure(
    model: Model,
    options: ModelOptions,
    select: Select | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Iterator[Stepped]:
    """Run both and yield each step once the second has done it.

    Both are fed the prompt, then the reference's greedy token followed by draft tokens, all of
    which are taken as accepted; so each step compares two answers to the same input. ``select``
    takes the place of the ladder's own selection, for tests. The model is called without gradients.
    """
    import torch

    steps = plans.steps(options)
    total = 2 * len(steps)
    with torch.no_grad():
        _warm(model, options, select)
        referred = list(_reference(model, options, lambda done: progress(done, total)))
        watch = LadderWatch(model.place.settle, select, options.rung)
        cache = model.new_cache()
        with through_ladder(watch):
            for number, before in enumerate(referred):
                watch.layers = []
                watch.wanted = tuple(before.visited[0].rows)
                logits, us = _call(model, before.fed, cache, _keep(before.step), watch)
                yield _stepped(before, watch, logits, us)
                progress(len(steps) + number + 1, total)


def _reference(
    model: Model, options: ModelOptions, done: Callable[[int], None]
) -> Iterator[_Referred]:
    import torch

    source = torch.Generator().manual_seed(options.seed)
    prompt = model.draw(source, options.requests, options.context)
    watch = ReferenceWatch(model.place.settle, Batched())
    cache = model.new_cache()
    logits: Any = None
    with watched(watch):
        for number, step in enumerate(plans.steps(options)):
            if step.phase == "prefill":
                tokens = prompt[:, step.first : step.first + step.tokens]
            else:
                drafts = model.draw(source, options.requests, step.tokens - 1)
                tokens = torch.cat([logits[:, -1].argmax(-1, keepdim=True), drafts], 1)
            chosen = plans.compared(options, step)
            watch.wanted = None if len(chosen) == step.tokens else chosen
            watch.layers = []
            logits, us = _call(model, tokens, cache, _keep(step), watch)
            yield _Referred(
                step=step, fed=tokens, visited=tuple(watch.layers), logits=logits, us=us
            )
            done(number + 1)


def _keep(step: Step) -> int:
    """Logits of a step that are kept: those of a prefill's last token, and of every decoded one."""
    return 1 if step.phase == "prefill" else step.tokens


def _call(
    model: Model, tokens: Any, cache: Any, keep: int, watch: ReferenceWatch | LadderWatch
) -> tuple[Any, float]:
    """Feed tokens; return logits, and the microseconds that were not spent on watching."""
    watched_before = watch.watching_s
    model.place.settle()
    began = perf_counter()
    logits = model(tokens, cache, keep)
    model.place.settle()
    took = perf_counter() - began - (watch.watching_s - watched_before)
    return logits, took * 1e6


def _stepped(before: _Referred, watch: LadderWatch, logits: Any, us: float) -> Stepped:
    expected = before.logits
    apart = (logits.float() - expected.float()).abs().max()
    differ = (logits.argmax(-1) != expected.argmax(-1)).sum()
    return Stepped(
        step=before.step,
        requests=expected.shape[0],
        visited=before.visited,
        taken=tuple(watch.layers),
        compared_tokens=expected.shape[0] * expected.shape[1],
        different_tokens=int(differ),
        max_logit_difference=float(apart),
        max_logit=float(expected.float().abs().max()),
        reference_us=before.us,
        ladder_us=us,
    )


def _warm(model: Model, options: ModelOptions, select: Select | None) -> None:
    """Do once what only the first call pays.

    On a GPU that is more than loading: libraries choose or compile kernels for each length that
    they meet first (a decoded step of a first pass took 49 to 447 ms on an H200, and 25 ms in the
    second, 2026-11-30). So all steps are taken there with other tokens before, and neither of the
    runs that are timed is the first.
    """
    import torch

    source = torch.Generator().manual_seed(options.seed)
    steps = plans.steps(options) if model.place.torch_device.type == "cuda" else ()
    cache = model.new_cache()
    with through_ladder(LadderWatch(model.place.settle, select, options.rung)):
        for step in steps:
            model(model.draw(source, options.requests, step.tokens), cache, _keep(step))
    model(model.draw(source, 1, _WARM_TOKENS), model.new_cache(), 1)
    model.place.settle()
