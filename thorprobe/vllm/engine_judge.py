# SPDX-License-Identifier: Apache-2.0
"""What the engines came to: who runs, who dies and where, and what repeats."""

from collections.abc import Iterator, Sequence

import msgspec

from thorprobe.plan.policy import Capability, arm_name, load, reached
from thorprobe.vllm.dropin_release import policy_name
from thorprobe.vllm.engine_plan import Suite
from thorprobe.vllm.engine_words import (
    CaseRun,
    Death,
    EngineModel,
    EngineRun,
    EngineSummary,
)

_NEXT = "go on with `--resume FILE`"


def summarize(
    runs: Sequence[EngineRun], models: Sequence[EngineModel], suite: Suite
) -> EngineSummary:
    """Return the summary of the engines that started so far."""
    missing = tuple(_missing(runs, suite))
    first = (_plain(runs), *(_dead(run) for run in runs if run.death), *_carried(runs))
    found = tuple(filter(None, first))
    sentences = (*found, *_repeats(runs), *_times(runs))
    return EngineSummary(
        finding=_finding(runs),
        next_action=_NEXT if missing and runs else "",
        version=version(runs),
        models=tuple(models),
        sentences=sentences,
        notes=tuple(_notes(runs)),
        missing=missing,
    )


def version(runs: Sequence[EngineRun]) -> str:
    """Return vLLM's version, '' where no engine told it."""
    return next((run.versions["vllm"] for run in runs if "vllm" in run.versions), "")


def with_arm(run: EngineRun, capability: Capability | None) -> EngineRun:
    """Name the arm that the version's policy takes for the call in which an engine died."""
    found = run.death
    name = policy_name(run.versions.get("vllm", ""))
    if found is None or found.last is None or capability is None or not name:
        return run
    arm = reached(load(name), found.last.rows, 0, capability)
    told = arm_name(arm.cluster, arm.path)
    return msgspec.structs.replace(run, death=msgspec.structs.replace(found, arm=told))


def label(run: EngineRun) -> str:
    """Say what an engine is: graphs, drop-in, partition, model."""
    parts = [run.graphs]
    if run.drop_in:
        parts.append(f"drop-in {run.drop_in}")
    if run.partition:
        parts.append(f"the operators alone in {run.partition}")
    if run.model != "qsa":
        parts.append(f"{run.model} model")
    return ", ".join(parts)


def first_line(text: str) -> str:
    """Return the first line of a text that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def checked(runs: Sequence[EngineRun]) -> tuple[int, int]:
    """Rows that were held against torch.topk, and those that were wrong."""
    found = [check for run in runs for case in run.cases for check in case.checks.values()]
    return sum(check.rows for check in found), sum(check.wrong_rows for check in found)


def _finding(runs: Sequence[EngineRun]) -> str:
    """Say in a paragraph who runs, who dies, and what carries it past that."""
    if not runs:
        return "No engine was started"
    told = [_plain(runs)]
    own = [run for run in runs if not run.drop_in and run.death is not None]
    for run in own:
        told.append(_dead(run))
        keys = ("partition", "graphs", "model")
        carried = [
            other.drop_in
            for other in runs
            if other.drop_in and other.cases and other.death is None
            if all(getattr(other, key) == getattr(run, key) for key in keys)
        ]
        if carried:
            told.append(f"with the drop-in ({', '.join(dict.fromkeys(carried))}) it runs there")
    return "; ".join(filter(None, told)) or "No case of any engine has ended"


def _plain(runs: Sequence[EngineRun]) -> str:
    """Say what upstream's own engine does on the whole device."""
    own = [run for run in runs if not run.drop_in and not run.partition and run.cases]
    if not own:
        return ""
    rows, wrong = checked(own)
    modes = ", ".join(dict.fromkeys(run.graphs for run in own))
    told = f"vLLM {version(own)} runs the reduced model with random weights ({modes})"
    if rows:
        right = f"{rows - wrong:,} of {rows:,}"
        told += f", and {right} checked rows of its selection are a top-k"
    alike = [case.likeness for run in own for case in run.cases if case.likeness]
    if alike:
        positions = sum(one.positions for one in alike)
        equal = sum(one.equal for one in alike)
        ties = sum(one.ties for one in alike)
        told += f"; {equal:,} of {positions:,} best tokens are transformers'"
        if ties:
            told += f", {ties:,} more in ties"
        other = positions - equal - ties
        if other:
            told += f", {other:,} differ"
    return told


def _dead(run: EngineRun) -> str:
    found = run.death
    if found is None:
        return ""
    return f"{label(run)}: it dies {where(found)}: {first_line(found.text)}"


def where(found: Death) -> str:
    """Say when an engine died, and in which call."""
    moment = "at its start" if found.moment == "start-up" else f"in case {found.case}"
    if found.last is None:
        return moment
    call = f"{found.last.op} of {counted(found.last.rows, 'row')}"
    arm = f" ({found.arm})" if found.arm else ""
    return f"{moment}, at {call}{arm}"


def _carried(runs: Sequence[EngineRun]) -> Iterator[str]:
    """Say which drop-ins run where vLLM alone dies, and whether their tokens are the same."""
    dead = {
        (r.partition, r.graphs, r.model) for r in runs if r.partition and not r.drop_in and r.death
    }
    for run in runs:
        if not run.drop_in or (run.partition, run.graphs, run.model) not in dead or not run.cases:
            continue
        if run.death is not None:
            continue
        rows, wrong = checked([run])
        told = f"{label(run)}: it runs, {rows - wrong:,} of {rows:,} rows right"
        twin = next((r for r in runs if _twins(run, r)), None)
        if twin is not None:
            told += _same(run, twin)
        yield told


def _twins(run: EngineRun, other: EngineRun) -> bool:
    keys = ("model", "graphs", "drop_in")
    return not other.partition and all(getattr(run, k) == getattr(other, k) for k in keys)


def _same(run: EngineRun, twin: EngineRun) -> str:
    """Say whether two engines gave the same tokens, and the same log-probabilities to the bit."""
    cases = {case.case: case for case in twin.cases if case.trace}
    both = [(case, cases[case.case]) for case in run.cases if case.case in cases]
    if not both:
        return ""
    tokens = sum(one.sequence == other.sequence for one, other in both)
    bits = sum(one.trace == other.trace for one, other in both)
    total = counted(len(both), "case")
    return (
        f"; against the same engine on the whole device {tokens:,} of {total} give the same "
        f"tokens, {bits:,} the same log-probabilities to the bit"
    )


def _repeats(runs: Sequence[EngineRun]) -> Iterator[str]:
    """Say for each way of selecting how many answers the same prompts had."""
    modes = dict.fromkeys(run.drop_in for run in runs)
    for mode in modes:
        found = [
            (case.requests, case.repeats)
            for run in runs
            if run.drop_in == mode
            for case in run.cases
            if case.repeats is not None
        ]
        if not found:
            continue
        name = f"drop-in {mode}" if mode else "vLLM alone"
        once = [repeats for _, repeats in found if repeats.sequences == repeats.traces == 1]
        if len(once) == len(found):
            total = sum(repeats.runs for _, repeats in found)
            yield (
                f"{name} repeats itself: one token sequence and one trace of log-probabilities a "
                f"case, in {counted(len(found), 'case')} and {counted(total, 'run')}"
            )
            continue
        parts = [
            f"{repeats.sequences:,} token sequences and {repeats.traces:,} traces in "
            f"{repeats.runs:,} runs of {counted(requests, 'request')}"
            for requests, repeats in found
        ]
        yield f"{name} does not repeat itself: {', '.join(dict.fromkeys(parts))}"


def _times(runs: Sequence[EngineRun]) -> Iterator[str]:
    """Compare each drop-in's times with vLLM alone, in the same graphs, partition and model."""
    for run in runs:
        if not run.drop_in:
            continue
        keys = ("model", "graphs", "partition")
        alone = next(
            (
                other
                for other in runs
                if not other.drop_in and all(getattr(run, k) == getattr(other, k) for k in keys)
            ),
            None,
        )
        if alone is None:
            continue
        before = {case.case: case for case in alone.cases if case.times}
        ratios = [
            _ratio(case, before[case.case])
            for case in run.cases
            if case.times and case.case in before
        ]
        if ratios:
            yield f"{label(run)}, its time over vLLM's: {'; '.join(ratios)}"


def _ratio(case: CaseRun, before: CaseRun) -> str:
    if case.times is None or before.times is None:
        return ""
    told = [
        f"prefill {_over(case.times.prefill_us, before.times.prefill_us)}",
        f"token {_over(case.times.token_us, before.times.token_us)}",
    ]
    for phase in ("prefill", "decode"):
        mine, its = (selection_us(one, phase) for one in (case, before))
        if mine and its:
            told.append(f"its selection in {phase} {_over(mine, its)}")
    requests = counted(case.requests, "request")
    return f"{requests} of {case.prompt_tokens:,} tokens {', '.join(told)}"


def selection_us(case: CaseRun, phase: str) -> float:
    """Microseconds of the selection's kernels in a phase, as the profiler saw them."""
    if case.times is None:
        return 0.0
    return sum(kernel.total_us for kernel in case.times.kernels if kernel.phase == phase)


def _over(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else "-"


def _missing(runs: Sequence[EngineRun], suite: Suite) -> Iterator[str]:
    found = {run.engine: run for run in runs}
    for engine in suite.engines:
        run = found.get(engine.name)
        if run is not None and run.death is not None:
            continue
        done = {case.case for case in run.cases} if run else set()
        left = [case for case in engine.cases if case not in done]
        if left:
            yield f"{engine.name}: {', '.join(left)}"


def _notes(runs: Sequence[EngineRun]) -> Iterator[str]:
    yield from dict.fromkeys(told for run in runs for told in run.workarounds)
    if any(run.partition for run in runs):
        yield (
            "Of an engine with a partition only the two operators run in it; all else of vLLM runs "
            "on the whole device"
        )
    if any(run.beside > 1 for run in runs):
        yield (
            "Untimed cases of the engines of one wave ran at the same time on the device; timed "
            "ones alone"
        )
    if any(case.times for run in runs for case in run.cases):
        yield (
            "Times are the host's, waiting for the tokens; a token's is the difference of a long "
            "and a short run. Kernel times are torch's profiler's, replays of graphs included"
        )
    reasons = (c.times.unprofiled for run in runs for c in run.cases if c.times)
    yield from dict.fromkeys(f"No kernel was seen: {told}" for told in reasons if told)
    if any(case.repeats for run in runs for case in run.cases):
        yield (
            "The same prompts in another batch may give other log-probabilities: batch invariance "
            "is not promised, and was not asked for"
        )
    if any(run.death for run in runs):
        yield "Of a death the frames are vLLM's and torch's; thorprobe's own are left out"
    yield "No Thor was measured. On a device of major 9 vLLM never takes 16 CTAs"


def counted(number: int, noun: str) -> str:
    """Return ``1 row`` or ``2,300 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
