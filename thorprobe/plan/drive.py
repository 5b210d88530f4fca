# SPDX-License-Identifier: Apache-2.0
"""From what a user sets in vLLM, or asks on the command line, to the options of ``topk-arms``."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from thorprobe.errors import UsageError
from thorprobe.plan import callsite
from thorprobe.plan.arms import ArmsOptions
from thorprobe.plan.policy import Capability, Policy, load, reached


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


def from_settings(
    options: ArmsOptions,
    *,
    requests: int | None,
    speculative_tokens: int,
    prefill_tokens: int | None,
    max_logits_mb: int,
    max_model_len: int,
    capture_sizes: str,
) -> ArmsOptions:
    """Put the rows, columns and stride of vLLM's call into the options.

    Nothing changes where neither ``requests`` nor ``prefill_tokens`` is given. max_logits_mb is in
    MiB, max_model_len and prefill_tokens in tokens.

    Raises UsageError for bad settings, or for rows given as well.
    """
    if requests is None and prefill_tokens is None:
        if speculative_tokens or capture_sizes:
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
    sites: list[callsite.CallSite] = []
    if requests is not None:
        captured = _numbers("--capture-sizes", capture_sizes) if capture_sizes else ()
        sites.append(
            callsite.decode(requests, speculative_tokens, max_model_len, capture_sizes=captured)
        )
    if prefill_tokens is not None:
        length = min(prefill_tokens, max_model_len)
        sites += callsite.prefill(prefill_tokens, length, max_model_len, max_logits_mb)
    columns = {site.columns for site in sites}
    if len(columns) > 1:
        raise UsageError(
            "decode and prefill have different columns "
            f"({', '.join(f'{value:,}' for value in sorted(columns))}), so they are two drives",
            "give `--requests` or `--prefill-tokens`, one at a time",
        )
    text = "; ".join(f"{site.kind}: {site.explanation}" for site in sites)
    return msgspec.structs.replace(
        options,
        rows=tuple(sorted({site.rows for site in sites})),
        columns=sites[0].columns,
        stride=sites[0].stride,
        call_site=text,
    )


def with_arm_reached(options: ArmsOptions) -> ArmsOptions:
    """Add to the call-site sentence the arm that its rows really reach under each policy."""
    if not options.call_site:
        return options
    parts = [
        f"{policy.name}: {rows} rows -> {_arm(policy, rows, options)}"
        for policy in map(load, options.policies)
        for rows in options.rows
    ]
    return msgspec.structs.replace(
        options, call_site=f"{options.call_site}. Arm reached: {'; '.join(parts)}"
    )


def _arm(policy: Policy, rows: int, options: ArmsOptions) -> str:
    arm = reached(policy, rows, options.stride or options.columns, options.capability)
    kind = f"{arm.cluster} CTAs" if arm.path == "cooperative" else "persistent, no cluster"
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
            asked = _asked(setting)
            yield f"  {setting.kind:8}{asked}: {setting.explanation}"
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
