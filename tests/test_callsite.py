# SPDX-License-Identifier: Apache-2.0
"""The call site: settings of vLLM to rows, columns and stride, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thorprobe.errors import UsageError
from thorprobe.plan.callsite import (
    MAX_MODEL_LEN,
    Setting,
    columns_of,
    decode,
    prefill,
    reach,
)
from thorprobe.plan.policy import load, names, reached

THOR = (11, 0)


@pytest.mark.parametrize(
    ("requests", "speculative", "rows"),
    [(1, 0, 1), (1, 3, 4), (2, 3, 8), (3, 3, 12), (8, 3, 32), (11, 2, 33), (16, 3, 64)],
)
def test_decode_rows_are_requests_times_query_length(
    requests: int, speculative: int, rows: int
) -> None:
    """Speculative tokens multiply the rows; columns are those of the whole max_model_len."""
    site = decode(requests, speculative, MAX_MODEL_LEN)
    assert (site.rows, site.columns, site.stride) == (rows, 65_536, 65_536)
    assert f"{requests} x {speculative + 1} = {rows}" in site.explanation


@pytest.mark.parametrize(
    ("requests", "speculative", "sizes", "rows", "word"),
    [
        (3, 0, (1, 2, 4, 8), 4, "padded to capture size 4"),
        (4, 0, (1, 2, 4, 8), 4, "fits exactly"),
        (9, 0, (1, 2, 4, 8), 9, "no capture size holds"),
        (2, 2, (1, 2, 4, 8, 16), 6, "no capture size holds"),
        (2, 2, (8, 9, 12), 9, "padded to capture size 9"),
        (3, 0, (), 3, "no CUDA graph"),
    ],
)
def test_decode_pads_to_the_capture_size_that_holds_whole_requests(
    requests: int, speculative: int, sizes: tuple[int, ...], rows: int, word: str
) -> None:
    """With CUDA graphs on, rows are those of the least capture size of whole requests."""
    site = decode(requests, speculative, 4096, capture_sizes=sizes)
    assert site.rows == rows
    assert word in site.explanation


def test_columns_round_up_to_whole_blocks() -> None:
    """Columns are the block table's width times a block's compressed size."""
    assert columns_of(262_144, 4, 16) == 65_536
    assert columns_of(100, 4, 16) == 28
    assert columns_of(100, 4, 64) == 32


def test_prefill_chunks_follow_the_logits_bound() -> None:
    """Full chunks have max(1, MiB // (4 x width)) rows, and the rest is the last chunk."""
    for mib, rows in [(1, 4), (2, 8), (8, 32), (16, 64), (512, 2048)]:
        site = prefill(10_000, 262_144, 262_144, mib)[0]
        assert (site.rows, site.calls, site.columns) == (rows, 10_000 // rows, 65_536)
    full, last = prefill(2_300, 262_144, 262_144, 8)
    assert (full.rows, full.calls, last.rows, last.calls) == (32, 71, 28, 1)
    (short,) = prefill(7, 7, 262_144)
    assert (short.rows, short.columns) == (7, 64)
    (narrow,) = prefill(7, 90, 100)
    assert narrow.columns == 28
    assert [s.rows for s in prefill(3, 4_000_000, 4_000_000, 1)] == [1]


@given(st.integers(1, 5_000), st.integers(1, 300_000), st.integers(1, 64))
def test_prefill_chunks_hold_every_token_once(tokens: int, length: int, mib: int) -> None:
    """Rows over all calls sum to the tokens, and no chunk but a single row exceeds the bound."""
    sites = prefill(tokens, length, 300_000, mib)
    assert sum(site.rows * site.calls for site in sites) == tokens
    for site in sites:
        assert site.rows == 1 or site.rows * site.columns * 4 <= mib << 20
        assert site.columns % 4 == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: decode(0, 0, 4096),
        lambda: decode(-1, 0, 4096),
        lambda: decode(1.5, 0, 4096),
        lambda: decode(1, -1, 4096),
        lambda: decode(1, 0, 0),
        lambda: decode(1, 0, 4096, compress_ratio=0),
        lambda: decode(1, 0, 4096, block_size=18),
        lambda: decode(1, 0, 4096, capture_sizes=(0,)),
        lambda: prefill(0, 10, 4096),
        lambda: prefill(1, 0, 4096),
        lambda: prefill(1, 4097, 4096),
        lambda: prefill(1, 10, 4096, 0),
        lambda: reach(load("0.33.0"), THOR, 3),
    ],
)
def test_bad_settings_are_usage_errors_with_a_hint(call: object) -> None:
    """Nothing, negatives, booleans and what does not divide give one sentence and a hint."""
    assert callable(call)
    with pytest.raises(UsageError) as error:
        call()
    assert error.value.sentence
    assert not error.value.sentence.endswith(".")
    assert error.value.hint


def _rows_of(setting: Setting) -> set[int]:
    if setting.kind == "decode":
        assert setting.requests is not None
        assert setting.speculative_tokens is not None
        low, high = setting.requests
        return {
            decode(n, setting.speculative_tokens, MAX_MODEL_LEN).rows for n in range(low, high + 1)
        }
    if setting.logits_mib is not None:
        return {prefill(100_000, MAX_MODEL_LEN, MAX_MODEL_LEN, setting.logits_mib)[0].rows}
    assert setting.tokens is not None
    return {
        prefill(n, MAX_MODEL_LEN, MAX_MODEL_LEN, 128)[0].rows
        for n in range(setting.tokens[0], setting.tokens[1] + 1)
    }


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("capability", [(9, 0), (11, 0)])
@pytest.mark.parametrize("cluster", [16, 8, 4, 2, 1])
def test_a_setting_reaches_the_arm_it_was_asked_for(
    name: str, capability: tuple[int, int], cluster: int
) -> None:
    """Driving each setting forwards lands on the asked arm; an arm out of reach is an error."""
    policy = load(name)
    within = {reached(policy, rows, 65_536, capability).cluster for rows in range(1, 200)}
    if cluster not in within:
        with pytest.raises(UsageError, match=f"No num_rows reaches a cluster of {cluster}"):
            reach(policy, capability, cluster)
        return
    settings = reach(policy, capability, cluster)
    for setting in settings:
        rows = _rows_of(setting)
        assert (min(rows), max(rows)) == setting.rows
        arms = {reached(policy, n, setting.columns, capability).cluster for n in rows}
        assert arms == {cluster} == {setting.cluster}
    assert {s.kind for s in settings} == ({"decode", "prefill"} if policy.prefill else {"decode"})


def test_the_prefill_bound_reaches_each_arm_of_0_33_0() -> None:
    """Bounds of 1, 2, 8 and 16 MiB make chunks of 4, 8, 32 and 64 rows at full length."""
    policy = load("0.33.0")
    found = {
        cluster: [(s.logits_mib, s.rows[0]) for s in reach(policy, THOR, cluster) if s.logits_mib]
        for cluster in (16, 8, 4, 2)
    }
    assert found == {16: [(1, 4)], 8: [(2, 8)], 4: [(8, 32)], 2: [(16, 64)]}


def test_a_family_outside_the_gate_reaches_the_persistent_kernel_only() -> None:
    """On SM12x 0.33.0 never takes a cluster, and the hint says what is reached."""
    with pytest.raises(UsageError) as error:
        reach(load("0.33.0"), (12, 1), 16)
    assert error.value.hint.startswith("reached there: 1 ")
    assert {s.path for s in reach(load("0.33.0"), (12, 1), 1)} == {"persistent"}
