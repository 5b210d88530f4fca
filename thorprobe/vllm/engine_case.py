# SPDX-License-Identifier: Apache-2.0
"""Runs one case in an engine that has started: tokens, checks, repeats, times."""

import importlib
import re
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from struct import pack
from time import perf_counter
from typing import Any, Literal

from thorprobe.vllm.engine_plan import MODELS, Case, prompts, wanted
from thorprobe.vllm.engine_start import can_force
from thorprobe.vllm.engine_watch import Keeper, Watch, muted
from thorprobe.vllm.engine_wire import Best, Done, Go
from thorprobe.vllm.engine_words import CaseRun, KernelTime, Repeats, Times

BEST = 20
"""Log-probabilities asked for a token: the most that vLLM gives by default."""

_RUNS, _RUNS_OF_MANY, _MANY = 5, 2, 50_000
# Timed runs, and those of a batch of so many prompt tokens, which take seconds each.
_KERNEL = re.compile(r"top_?k", re.IGNORECASE)
_OTHER = re.compile(r"moe|gating|sbtopk|mbtopk|gatherTopK|sampl", re.IGNORECASE)
# The experts' gates and the sampler have a top-k too.
_LADDER = re.compile(r"^(short|long|part|merge)_\d+$")
# Names of kernels/select.cu.


class _NoProfilerError(Exception):
    """torch's profiler does not start here."""


@dataclass(frozen=True)
class Trace:
    """One request's answer: its tokens, and at each position its best tokens, best first."""

    tokens: tuple[int, ...]
    best: tuple[Best, ...]

    def bits(self) -> bytes:
        """Every bit of every log-probability, token by token."""
        parts = [pack("<qd", token, value) for best in self.best for token, value in sorted(best)]
        return b"".join(parts)


class Runner:
    """An engine that answers cases. ``vllm`` is the module, ``llm`` its engine."""

    def __init__(self, vllm: Any, llm: Any, watch: Watch, model: str, seed: int) -> None:
        """Take the engine and who watches its operators."""
        self._vllm, self._llm, self._watch = vllm, llm, watch
        self._model, self._seed = MODELS[model], seed

    def run(self, go: Go) -> Done:
        """Run a case. Whatever vLLM raises comes through."""
        began = perf_counter()
        case = go.case
        asked = prompts(self._seed, case)
        shape: dict[str, Any] = {
            "case": case.name,
            "requests": case.requests,
            "prompt_tokens": case.prompt,
            "new_tokens": case.tokens,
        }
        if case.timed:
            times = self._times(asked, case)
            took = round(perf_counter() - began, 2)
            return Done(case=CaseRun(**shape, times=times, wall_s=took))
        self._watch.begin(check=True)
        first = self._generate(asked, case.tokens)
        ops, more, checks = tuple(self._watch.runs), self._watch.more, dict(self._watch.checks)
        alone, forced = Trace((), ()), False
        if case.forced:
            alone, forced = self._forced(asked[0], go)
        done = CaseRun(
            **shape,
            tokens=first[0].tokens,
            sequence=_digest(_tokens(trace) for trace in first),
            trace=_digest(trace.bits() for trace in first),
            ops=ops,
            more_ops=more,
            checks=checks,
            repeats=self._repeats(asked, case) if case.repeat else None,
            wall_s=round(perf_counter() - began, 2),
        )
        return Done(case=done, best=alone.best, emitted=alone.tokens, was_forced=forced)

    def _forced(self, prompt: Sequence[int], go: Go) -> tuple[Trace, bool]:
        """Run the first prompt alone, emitting the given tokens where the engine can."""
        case = go.case
        keeper = Keeper(
            len(self._model.indexers),
            lambda first, tokens: (
                range(tokens) if first >= case.prompt else wanted(case.prompt, first, tokens)
            ),
        )
        self._watch.begin(keep=keeper)
        able = bool(go.forced) and can_force(self._llm)
        more: dict[str, Any] = {"trace_decode_token_ids": list(go.forced)} if able else {}
        traces = self._generate([prompt], case.tokens, **more)
        self._watch.begin()
        if go.keep:
            save(go.keep, keeper)
        return traces[0], able

    def _repeats(self, asked: Sequence[Sequence[int]], case: Case) -> Repeats:
        sequences: list[list[str]] = []
        traces: list[list[str]] = []
        with muted(self._watch):
            for _ in range(case.repeat):
                run = self._generate(asked, case.tokens)
                sequences.append([_digest([_tokens(trace)]) for trace in run])
                traces.append([_digest([trace.bits()]) for trace in run])
        return Repeats(
            runs=case.repeat,
            sequences=len(set(map(tuple, sequences))),
            traces=len(set(map(tuple, traces))),
            worst_sequences=max(len(set(one)) for one in zip(*sequences, strict=True)),
            worst_traces=max(len(set(one)) for one in zip(*traces, strict=True)),
        )

    def _times(self, asked: Sequence[Sequence[int]], case: Case) -> Times:
        """Time runs up to the first token and up to the last, in turn, then profile one of each."""
        short: list[float] = []
        whole: list[float] = []
        tokens = max(case.tokens, 2)
        runs = _RUNS if case.requests * case.prompt <= _MANY else _RUNS_OF_MANY
        with muted(self._watch):
            for number in range(runs + 1):
                for length, kept in ((1, short), (tokens, whole)):
                    began = perf_counter()
                    self._generate(asked, length, logprobs=None)
                    if number:  # The first pass compiles and warms up.
                        kept.append((perf_counter() - began) * 1e6)
            kernels: tuple[KernelTime, ...] = ()
            unprofiled = ""
            try:
                kernels = self._kernels(asked, tokens)
            except _NoProfilerError as error:
                unprofiled = str(error)
        each = [(b - a) / (tokens - 1) for a, b in zip(short, whole, strict=True)]
        return Times(
            runs=runs,
            prefill_us=statistics.median(short),
            prefill_spread_us=max(short) - min(short),
            token_us=statistics.median(each),
            token_spread_us=max(each) - min(each),
            kernels=kernels,
            unprofiled=unprofiled,
        )

    def _kernels(self, asked: Sequence[Sequence[int]], tokens: int) -> tuple[KernelTime, ...]:
        """Profile the selection's kernels; those of decoding are what a longer run has more."""
        prefill = self._profiled(asked, 1)
        whole = self._profiled(asked, tokens)
        decode = {}
        for name, (calls, us) in whole.items():
            before = prefill.get(name, (0, 0.0))
            if calls > before[0]:
                decode[name] = (calls - before[0], max(us - before[1], 0.0))
        told: list[KernelTime] = []
        phases: tuple[tuple[Literal["prefill", "decode"], dict[str, tuple[int, float]]], ...] = (
            ("prefill", prefill),
            ("decode", decode),
        )
        for phase, found in phases:
            told += [
                KernelTime(phase=phase, name=name, calls=calls, total_us=round(us, 1))
                for name, (calls, us) in sorted(found.items())
            ]
        return tuple(told)

    def _profiled(
        self, asked: Sequence[Sequence[int]], tokens: int
    ) -> dict[str, tuple[int, float]]:
        from torch.profiler import ProfilerActivity, profile

        seen = profile(activities=[ProfilerActivity.CUDA])
        try:
            seen.start()
        except Exception as error:
            raise _NoProfilerError(" ".join(str(error).split())[:300]) from error
        try:
            self._generate(asked, tokens, logprobs=None)
        finally:
            seen.stop()
        found: dict[str, tuple[int, float]] = {}
        for event in seen.key_averages():
            name = str(event.key)
            if _LADDER.match(name) or (_KERNEL.search(name) and not _OTHER.search(name)):
                # torch before 2.6 calls it cuda_time_total.
                own = getattr(event, "device_time_total", None)
                total = own if own is not None else getattr(event, "cuda_time_total", 0.0)
                found[name[:200]] = (int(event.count), float(total))
        return found

    def _generate(
        self,
        asked: Sequence[Sequence[int]],
        tokens: int,
        logprobs: int | None = BEST,
        **more: Any,
    ) -> list[Trace]:
        params = self._vllm.SamplingParams(
            temperature=0.0,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=logprobs,
            **more,
        )
        given = [{"prompt_token_ids": list(prompt)} for prompt in asked]
        answers = self._llm.generate(given, params, use_tqdm=False)
        with suppress(ImportError, AttributeError, AssertionError):
            importlib.import_module("torch").cuda.synchronize()
        return [_trace(answer.outputs[0]) for answer in answers]


def _trace(output: Any) -> Trace:
    best = tuple(
        tuple(
            sorted(
                ((int(token), float(one.logprob)) for token, one in position.items()),
                key=lambda pair: (-pair[1], pair[0]),
            )
        )
        for position in output.logprobs or ()
    )
    return Trace(tokens=tuple(int(token) for token in output.token_ids), best=best)


def _tokens(trace: Trace) -> bytes:
    return b"".join(pack("<q", token) for token in trace.tokens)


def _digest(parts: Any) -> str:
    made = sha256()
    for part in parts:
        made.update(sha256(part).digest())
    return made.hexdigest()


def save(path: str, keeper: Keeper) -> None:
    """Write what was kept as an .npz file: scores and blocks under ``s-LAYER-POSITION``, ``b-``."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for (layer, position), (scores, blocks) in keeper.rows.items():
        arrays[f"s-{layer}-{position}"] = scores
        arrays[f"b-{layer}-{position}"] = blocks
    np.savez(path, **arrays)
