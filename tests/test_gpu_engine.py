# SPDX-License-Identifier: Apache-2.0
"""vLLM's own engine on a GPU, where there is one and a vLLM: one start, checked and compared."""

from importlib.util import find_spec

import pytest

from thorprobe.vllm import engine
from thorprobe.vllm.engine_plan import one

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("vllm") is None, reason="waived: no vLLM"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["", "always"])
def test_the_engine_selects_right_rows_and_transformers_tokens(mode):
    """Past the budget every checked row is a top-k; best tokens are transformers' or in a tie."""
    suite = one(
        requests=1,
        context=2_300,
        tokens=4,
        graphs="eager",
        drop_in=mode,
        partition="",
        repeat=6,
        hybrid=False,
        seed=0,
    )
    answer = engine.ask(suite)
    (run,) = answer.results
    assert run.death is None
    asked = run.cases[0]
    assert sum(check.rows for check in asked.checks.values()) >= 2 * (2_300 + 3)
    assert not any(check.wrong_rows for check in asked.checks.values())
    found = asked.likeness
    assert (found.positions, found.other) == (4, 0)
    assert found.prefill.past_budget == 2 * (2_300 - 2_051)
    assert found.prefill.wrong == found.decode.wrong == 0
    if mode == "always":
        assert (asked.repeats.sequences, asked.repeats.traces) == (1, 1)
