# SPDX-License-Identifier: Apache-2.0
"""The plan of ``topk-arms``: which launches tell the arms of the dispatch policies apart."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from thorprobe.errors import UsageError
from thorprobe.plan import operator_arms as operator_plan
from thorprobe.plan import shipped
from thorprobe.plan.arm_probe import DEFAULT_POLICIES, ArmProbe, ArmsOptions, Role
from thorprobe.plan.policy import (
    ArmPath,
    Policy,
    dispatch,
    gate,
    load,
    row_ranges,
)
from thorprobe.record import PORTABLE_CLUSTER, LaunchSpec, Verdict, Workload

MAX_ROWS = 65_535
"""Most rows a plan takes; upstream's row indices are 32-bit elements and its arms end at 64."""

MAX_LAUNCH_ELEMENTS = 1 << 32
"""rows x stride stays below this: upstream computes row offsets in 32 bits (PR #43008)."""

STAND_IN_SMEM = 98_304
"""Bytes of the persistent stand-in: one CTA that stages 20,480 scores and reads longer rows again.
It fits the 101,376 B a block of cc 12.x, so that the stand-in says nothing about shared memory."""

STAND_IN_NOTE = (
    "stand-in: one CTA per row without a cluster; upstream's persistent_topk was not launched"
)

DISTRIBUTIONS = ("normal", "uniform", "ten-values", "all-equal", "relu-sum", "masked")
"""What scores can be drawn from; thorprobe/run/workload.py draws them."""

MAX_REPEATS = 10_000
"""Most launches timed at once: each is a node of one CUDA graph."""


def parse_rows(text: str) -> tuple[int, ...]:
    """Read ``1-8,33,64`` into sorted row counts without repeats.

    Raises UsageError for 0, a negative or too large number, a range that runs backwards, or text.
    """
    rows: set[int] = set()
    for part in text.replace(" ", "").split(","):
        low, dash, high = part.partition("-")
        ends = (low, high) if dash and low else (part, part)
        if not all(end.isascii() and end.isdigit() and len(end) < 9 for end in ends):
            raise UsageError(
                f"Rows {text!r} were asked for, but {part!r} is no number of rows",
                "write rows as `1-8,33,64`",
            )
        first, last = int(ends[0]), int(ends[1])
        for end in (first, last):
            _check_rows(end)
        if first > last:
            raise UsageError(
                f"Rows {text!r} were asked for, but {part!r} runs backwards",
                f"write `{last}-{first}`",
            )
        rows.update(range(first, last + 1))
    return tuple(sorted(rows))


def _check_rows(rows: int) -> None:
    if rows == 0:
        raise UsageError(
            "0 rows were asked for, but a grid of 0 rows is no valid launch", "start at 1"
        )
    if not 0 < rows <= MAX_ROWS:
        raise UsageError(
            f"{rows:,} rows were asked for, but a plan takes 1 to {MAX_ROWS:,}",
            "every cooperative arm ends at 64 rows",
        )


def default_rows(policies: Iterable[Policy], major: int) -> tuple[int, ...]:
    """First and last row of every range of every policy, and the first of the open one."""
    rows: set[int] = set()
    for policy in policies:
        for item in row_ranges(policy, major):
            rows.update({item.first, item.first if item.last is None else item.last})
    return tuple(sorted(rows))


def default_lengths(policy: Policy, k: int, columns: int) -> tuple[int, ...]:
    """Return valid lengths for every path at this k: 0, k // 2, the one-CTA bound, all columns.

    Length 0 is among them because padded rows of a CUDA graph have it and must come out as -1.
    """
    wanted = (0, k // 2, policy.kernel.one_cta_columns, columns)
    return tuple(sorted({min(length, columns) for length in wanted}))


def plan(options: ArmsOptions) -> tuple[ArmProbe, ...]:
    """Every probe of every policy; equal specs may appear under several policies and roles.

    Only the greatest length is timed, and only there the alternatives are asked.

    Raises UsageError: an unknown policy or distribution, or rows, lengths, k, dtype or repeats that
    no launch can have.
    """
    if not options.policies:
        raise UsageError("No policy was asked for", f"try {', '.join(DEFAULT_POLICIES)}")
    policies = [load(name) for name in dict.fromkeys(options.policies)]
    stride = options.stride or options.columns
    rows = options.rows or default_rows(policies, options.capability[0])
    _check_shape(options, stride, rows)
    _check_shipped(options, stride)
    if options.library:
        operator_plan.check(options, options.library)
    probes: list[ArmProbe] = []
    for policy in policies:
        for k in options.k:
            _check_kernel(policy, k, options.dtype)
            wanted = options.lengths or default_lengths(policy, k, options.columns)
            lengths = sorted(set(wanted))
            for count in sorted(set(rows)):
                probes += _probes(options, policy, count, k=k, stride=stride, lengths=lengths)
    return tuple(probes)


def specs(probes: Iterable[ArmProbe]) -> tuple[LaunchSpec, ...]:
    """Return the launches to ask, each once, in the order of the probes."""
    return tuple({probe.spec.id: probe.spec for probe in probes}.values())


def _check_shape(options: ArmsOptions, stride: int, rows: Iterable[int]) -> None:
    if options.columns < 1:
        raise UsageError(f"{options.columns} columns were asked for, fewer than 1", "try 65536")
    if stride >= MAX_LAUNCH_ELEMENTS:
        raise UsageError(
            f"Rows of stride {stride:,} were asked for, more than 32 bits can index",
            "the stride is a row's pitch in elements, at least the number of columns",
        )
    if stride < options.columns:
        raise UsageError(
            f"Stride {stride:,} was asked for, but a row has {options.columns:,} columns",
            "the stride is at least the number of columns",
        )
    if not 0 <= options.repeats <= MAX_REPEATS:
        raise UsageError(
            f"{options.repeats:,} repeats were asked for, but a plan takes 0 to {MAX_REPEATS:,}",
            "try 20",
        )
    if options.distribution not in DISTRIBUTIONS:
        raise UsageError(
            f"Distribution {options.distribution!r} was asked for, but there is no such one",
            f"scores are drawn from {', '.join(DISTRIBUTIONS)}",
        )
    for length in options.lengths:
        if not 0 <= length <= options.columns:
            raise UsageError(
                f"Length {length:,} was asked for, but a row has {options.columns:,} columns",
                f"a length is 0 to {options.columns}",
            )
    for count in rows:
        _check_rows(count)
        if count * stride >= MAX_LAUNCH_ELEMENTS:
            raise UsageError(
                f"{count:,} rows of stride {stride:,} were asked for, more than 32 bits can index",
                f"at this stride at most {(MAX_LAUNCH_ELEMENTS - 1) // stride:,} rows fit",
            )


def _check_kernel(policy: Policy, k: int, dtype: str) -> None:
    if k not in policy.kernel.k:
        raise UsageError(
            f"k {k} was asked for, but the kernel of {policy.name} does not take it",
            f"k is one of {', '.join(map(str, policy.kernel.k))}",
        )
    if dtype != policy.kernel.dtype:
        raise UsageError(
            f"dtype {dtype!r} was asked for, but the kernel of {policy.name} takes "
            f"{policy.kernel.dtype}",
            f"use {policy.kernel.dtype}",
        )


def _check_shipped(options: ArmsOptions, stride: int) -> None:
    """Refuse what the shipped kernels' host code would: only its own launches are made."""
    for kernel in options.shipped:
        if set(options.policies) != {kernel.policy}:
            raise UsageError(
                f"Policy {', '.join(options.policies)} was asked for, but `{kernel.label}` is "
                f"launched by {kernel.policy or 'no policy that is known'}",
                "leave out `--policy`: a shipped kernel brings its own",
            )
        shipped.check(kernel, (), stride)
    held = {kernel.k for kernel in options.shipped}
    if options.shipped and not set(options.k) <= held:
        raise UsageError(
            f"k {', '.join(map(str, options.k))} was asked for, but the file holds kernels for "
            f"{', '.join(map(str, sorted(held)))}",
            "choose one of these with `--k`",
        )


def _probes(
    options: ArmsOptions, policy: Policy, rows: int, *, k: int, stride: int, lengths: list[int]
) -> list[ArmProbe]:
    if options.library:
        asked = (options, options.library, policy, rows)
        return list(operator_plan.probes(*asked, k=k, stride=stride, lengths=lengths))
    cluster, path = dispatch(policy, rows, options.capability[0])
    is_open, reason = gate(policy, rows, stride, options.capability)

    def probe(size: int, length: int, role: Role) -> ArmProbe:
        workload = Workload(
            rows=rows,
            columns=options.columns,
            stride=stride,
            length=length,
            k=k,
            dtype=options.dtype,
            distribution=options.distribution,
            seed=options.seed,
        )
        return ArmProbe(
            policy=policy.name,
            rows=rows,
            k=k,
            dtype=options.dtype,
            length=length,
            role=role,
            path=path,
            cluster=size,
            gate=is_open,
            gate_reason=reason,
            note=STAND_IN_NOTE if path == "persistent" else "",
            spec=_spec(options, policy, path, size, workload, timed=length == lengths[-1]),
        )

    probes = [probe(cluster, length, "arm") for length in lengths]
    if path == "cooperative" and options.alternatives:
        others = [size for size in policy.clusters if size != cluster]
        probes += [probe(size, lengths[-1], "alternative") for size in others]
    return probes


def _spec(
    options: ArmsOptions,
    policy: Policy,
    path: ArmPath,
    cluster: int,
    workload: Workload,
    *,
    timed: bool,
) -> LaunchSpec:
    clustered = path == "cooperative"
    kernel = next((one for one in options.shipped if one.k == workload.k), None)
    function = kernel.function(cluster) if kernel else None
    if clustered and kernel is not None:
        if function is None:
            raise UsageError(
                f"Cluster {cluster} is an arm of {policy.name}, but `{kernel.label}` has none",
                "the file is another version's: name its wheel",
            )
        return shipped.spec(
            kernel,
            function,
            workload=workload,
            partition=options.partition,
            repeats=options.repeats if timed else 0,
        )
    return LaunchSpec(
        kernel="topk",
        grid=(workload.rows, cluster, 1),
        block=(policy.kernel.threads, 1, 1),
        cluster=(1, cluster, 1),
        dynamic_smem=policy.footprint(cluster).dynamic_smem if clustered else STAND_IN_SMEM,
        non_portable=cluster > PORTABLE_CLUSTER,
        compiled_cluster=cluster if clustered and options.compiled else 0,
        cluster_attribute=clustered,
        partition=options.partition,
        workload=workload,
        repeats=options.repeats if timed else 0,
    )


def next_rows(verdicts: Mapping[int, Verdict]) -> tuple[int, ...]:
    """Rows to ask next: the middle of every gap between neighbours with different verdicts.

    Empty once every such pair is adjacent. A row that stayed ``not probed`` bounds its gaps
    without opening them, so that asking again ends.
    """
    probed = sorted(verdicts)
    return tuple(
        (low + high) // 2
        for low, high in pairwise(probed)
        if high - low > 1
        and verdicts[low] != verdicts[high]
        and Verdict.NOT_PROBED not in (verdicts[low], verdicts[high])
    )
