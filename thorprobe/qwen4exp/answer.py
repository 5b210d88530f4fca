# SPDX-License-Identifier: Apache-2.0
"""Puts the question of ``model-topk``: runs the model, judges each step, and makes the answer."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from thorprobe.answer import Evidence
from thorprobe.cli.measure import now
from thorprobe.driver.torch_device import TorchDevice, open_device
from thorprobe.qwen4exp import judge
from thorprobe.qwen4exp import plan as plans
from thorprobe.qwen4exp.model import Model, build, enough_memory
from thorprobe.qwen4exp.plan import ModelOptions
from thorprobe.qwen4exp.records import ModelStep, ModelSummary, Selection
from thorprobe.qwen4exp.run import Progress, Stepped, measure
from thorprobe.qwen4exp.selection import Pair, compare
from thorprobe.qwen4exp.watch import Taken, Visited
from thorprobe.record import Origin, Status
from thorprobe.topk.contract import check_rung
from thorprobe.topk.qwen4exp import modeling

Answer = Evidence[ModelStep, ModelSummary]
COMMAND = "model-topk"


def inquire(
    options: ModelOptions,
    device: str | None = None,
    *,
    argv: Sequence[str] = (),
    select: Callable[..., Any] | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Answer:
    """Run the model with both selections on a device, and judge what they selected.

    ``select`` takes the place of the ladder's own, for tests. Raises UsageError for bad options,
    CouldNotProbeError where the device, a package or memory is missing.
    """
    plans.check(options)
    check_rung(options.rung)
    started, began = now(), perf_counter()
    with open_device(device, options.partition) as where, enough_memory():
        model = build(options, where)
        steps = tuple(
            _judged(stepped, model) for stepped in measure(model, options, select, progress)
        )
        summary = msgspec.structs.replace(
            judge.summarize(
                steps, options, numbers(model), where.device.capability if where.device else None
            ),
            peak_memory_bytes=where.peak_bytes(),
        )
    return Evidence(
        command=COMMAND,
        argv=tuple(argv),
        started=started,
        ended=now(),
        origin=Origin.MEASURED,
        device=where.device,
        software=where.software,
        inputs=inputs(),
        options=public(options, where),
        results=steps,
        summary=summary,
        wall_s=perf_counter() - began,
    )


def numbers(model: Model) -> judge.ModelNumbers:
    """Return what the judge needs to know of a model."""
    return judge.ModelNumbers(
        sentence=model.sentence,
        parameters=model.parameters,
        layers=model.layers,
        last_layer=model.last_layer,
        k=model.k,
        budget=model.k * model.ratio,
    )


def inputs() -> dict[str, str]:
    """Return the SHA-256 of the modeling source that ran."""
    source = inspect.getsource(modeling())
    return {"transformers modeling_qwen4_exp.py": sha256(source.encode()).hexdigest()}


def public(options: ModelOptions, where: TorchDevice) -> dict[str, Any]:
    """Return the options as JSON, without folders of this machine."""
    told: dict[str, Any] = msgspec.to_builtins(options)
    told["checkpoint"] = Path(options.checkpoint).name
    if options.checkpoint:
        told["size"] = "checkpoint"
    return told | {"device": str(where.torch_device)}


def _judged(stepped: Stepped, model: Model) -> ModelStep:
    step = stepped.step
    selections = tuple(
        _selection(visited, taken, model.k)
        for visited, taken in zip(stepped.visited, stepped.taken, strict=True)
    )
    wrong = any(s.agreement.wrong or (s.check and s.check.wrong_rows) for s in selections)
    return ModelStep(
        id=step.id,
        status=Status.FAIL if wrong else Status.PASS,
        origin=Origin.MEASURED,
        phase=step.phase,
        first=step.first,
        tokens=step.tokens,
        requests=stepped.requests,
        selections=selections,
        compared_tokens=stepped.compared_tokens,
        different_tokens=stepped.different_tokens,
        max_logit_difference=_finite(stepped.max_logit_difference),
        max_logit=_finite(stepped.max_logit),
        reference_us=stepped.reference_us,
        duration_us=stepped.ladder_us,
    )


def _selection(visited: Visited, taken: Taken, k: int) -> Selection:
    agreement = compare(_pairs(visited, taken), k)
    return Selection(
        layer=taken.layer,
        num_rows=taken.rows,
        columns=taken.columns,
        lengths=taken.lengths,
        rung=taken.rung,
        falls=taken.falls,
        ties_at_cut=taken.ties_at_cut,
        check=taken.check,
        agreement=msgspec.structs.replace(
            agreement, max_score_difference=_finite(agreement.max_score_difference)
        ),
        reference_queries=visited.queries,
        reference_us=visited.us,
        ladder_us=taken.ladder_us,
        select_us=taken.select_us,
    )


def _pairs(visited: Visited, taken: Taken) -> Iterator[Pair]:
    """Yield the queries that both runs selected for, in the order in which they were visited."""
    for row, (scores, blocks) in visited.rows.items():
        kept = taken.kept[row]
        yield Pair(
            reference_scores=np.asarray(scores),
            reference_blocks=np.asarray(blocks),
            ladder_scores=np.asarray(kept[0]),
            ladder_blocks=np.asarray(kept[1]),
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
