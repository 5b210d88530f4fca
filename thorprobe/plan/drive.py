# SPDX-License-Identifier: Apache-2.0
"""From what a user sets in vLLM, or asks on the command line, to the options of ``topk-arms``."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan import callsite
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.policy import Capability, Policy, arm_name, load, reached
from thorprobe.record import Record


def parse_capability(text: str) -> Capability:
    """Read ``11.0`` into (11, 0). Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d{1,2})\.(\d)", text.strip())
    if match is None:
        raise UsageError(
            f"`--as-capability {text}` was asked for, but a compute capability is like `11.0`",
            "9.0 is Hopper, 10.0 and 10.3 are datacenter Blackwell, 11.0 is Thor, 12.x is GB10",
        )
    return int(match[1]), int(match[2])


def parse_lengths(text: str) -> tuple[int, ...]:
    """Read ``0,512,16384`` into lengths. Raises UsageError for text, or a negative number."""
    return _numbers("--lengths", text)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    parts = text.replace(" ", "").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(
            f"`{option} {text}` was asked for, but that is no list of whole numbers",
            "write it as `1,2,4`",
        )
    return tuple(sorted({int(part) for part in parts}))


class Settings(Record, frozen=True, kw_only=True):
    """What a user sets in vLLM, as ``topk-arms`` takes it.

    ``requests`` None is no decode step, ``prefill_tokens`` None no prefill; ``max_logits_mb`` in
    MiB, None for each version's own bound; lengths in tokens; ``capture_sizes`` as text.
    """

    requests: int | None = None
    speculative_tokens: int = 0
    prefill_tokens: int | None = None
    max_logits_mb: int | None = None
    max_model_len: int = callsite.MAX_MODEL_LEN
    capture_sizes: str = ""

    @property
    def given(self) -> bool:
        """Whether they make a call at all."""
        return self.requests is not None or self.prefill_tokens is not None


def from_settings(options: ArmsOptions, settings: Settings) -> ArmsOptions:
    """Put rows, columns and stride of vLLM's calls into the options, and say which arm they reach.

    Nothing changes where the settings make no call.

    Raises UsageError for bad settings, for rows given as well, and for calls of different columns.
    """
    if not settings.given:
        if settings.speculative_tokens or settings.capture_sizes:
            raise UsageError(
                "`--speculative-tokens` and `--capture-sizes` say nothing without `--requests`",
                "add `--requests 1`",
            )
        return options
    if options.rows:
        raise UsageError(
            "`--rows` was given together with vLLM's settings, which make rows of their own",
            "leave out `--rows`, or the settings",
        )
    calls = [
        (policy, site)
        for policy in map(load, dict.fromkeys(options.policies))
        for site in _sites(policy, settings)
    ]
    columns = {site.columns for _, site in calls}
    if not calls:
        raise UsageError(
            f"{settings.prefill_tokens} prefill tokens were asked for, but under "
            f"{', '.join(options.policies)} prefill does not take this kernel",
            "`--requests N` asks for a decode step",
        )
    if len(columns) > 1:
        raise UsageError(
            "decode and prefill have different columns "
            f"({', '.join(f'{value:,}' for value in sorted(columns))}), so they are two drives",
            "give `--requests` or `--prefill-tokens`, one at a time",
        )
    shape = calls[0][1]
    made = msgspec.structs.replace(
        options,
        rows=tuple(sorted({site.rows for _, site in calls})),
        columns=shape.columns,
        stride=shape.stride,
    )
    reasons = dict.fromkeys(f"{site.kind}: {site.explanation}" for _, site in calls)
    arms = dict.fromkeys(
        f"{policy.name}: {site.rows} rows -> {_arm(policy, site.rows, made)}"
        for policy, site in calls
    )
    text = f"{'; '.join(reasons)}. Arm reached: {'; '.join(arms)}"
    return msgspec.structs.replace(made, call_site=text)


def _sites(policy: Policy, settings: Settings) -> Iterator[callsite.CallSite]:
    """Yield the calls of one step under one version; a prefill that has its own kernel has none."""
    if settings.requests is not None:
        text = settings.capture_sizes
        yield callsite.decode(
            settings.requests,
            settings.speculative_tokens,
            settings.max_model_len,
            capture_sizes=_numbers("--capture-sizes", text) if text else (),
        )
    if settings.prefill_tokens is not None and policy.prefill is not None:
        bound = settings.max_logits_mb
        yield from callsite.prefill(
            settings.prefill_tokens,
            min(settings.prefill_tokens, settings.max_model_len),
            settings.max_model_len,
            policy.prefill.logits_mib if bound is None else bound,
        )


def _arm(policy: Policy, rows: int, options: ArmsOptions) -> str:
    arm = reached(policy, rows, options.stride or options.columns, options.capability)
    kind = arm_name(arm.cluster, arm.path)
    return kind if arm.gate_open else f"{kind} (the gate is shut: {arm.reason})"


def reach_lines(
    policies: Sequence[str], capability: Capability, cluster: int, max_model_len: int
) -> Iterator[str]:
    """Say, a line each, which settings of vLLM reach the arm of this cluster size.

    Raises UsageError where none does under any of the policies.
    """
    failures: list[UsageError] = []
    for name in policies:
        try:
            settings = callsite.reach(load(name), capability, cluster, max_model_len)
        except UsageError as error:
            failures.append(error)
            continue
        major, minor = capability
        yield f"{name}, cc {major}.{minor}, {cluster} CTAs:"
        for setting in settings:
            yield f"  {setting.kind:8}{_asked(setting)}: {setting.explanation}"
    yield callsite.ANYWHERE
    if len(failures) == len(policies):
        raise failures[0]


def _asked(setting: callsite.Setting) -> str:
    if setting.logits_mib is not None:
        return f"VLLM_SPARSE_INDEXER_MAX_LOGITS_MB={setting.logits_mib}"
    if setting.requests is not None:
        first, last = setting.requests
        span = f"{first}" if first == last else f"{first}-{last}"
        return f"{span} requests, {setting.speculative_tokens} speculative tokens"
    first, last = setting.tokens or (0, 0)
    return f"{first} to {last} prefill tokens"
