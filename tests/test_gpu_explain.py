# SPDX-License-Identifier: Apache-2.0
"""Each misuse provoked on a GPU and explained from its record, and from the driver's own text."""

import pytest

from test_gpu_device import MISUSE
from thorprobe.explain.answer import explain
from thorprobe.explain.asked import Asked
from thorprobe.explain.evidence_file import told_of
from thorprobe.explain.weigh import OPEN, weigh
from thorprobe.judge.cause import judge, refusal
from thorprobe.run.gpu import GpuAnswerer

pytestmark = pytest.mark.gpu
REFUSED = [one for one in MISUSE if one[2]]


@pytest.fixture(scope="module")
def whole():
    """Open an answerer on the whole device."""
    answerer = GpuAnswerer(oracle="auto")
    yield answerer
    answerer.close()


@pytest.mark.parametrize(
    ("spec", "code", "cause"), [m[1:] for m in REFUSED], ids=[m[0] for m in REFUSED]
)
def test_a_provoked_misuse_is_explained(whole, spec, code, cause):
    """By its record, and by its pasted text with the launch's numbers, it is the judge's cause."""
    [outcome] = whole.ask([spec])
    judged = judge(outcome, whole.device)
    assert refusal(judged).code == code
    told = told_of(outcome, whole.device)
    assert weigh(told).cause == cause == judged.cause
    text = "\n".join((*(outcome.driver_log or ()), refusal(judged).name))
    given = Asked(
        grid=",".join(map(str, spec.grid)),
        block=",".join(map(str, spec.block)),
        cluster=",".join(map(str, spec.cluster)) if spec.cluster_attribute else "0",
        compiled_cluster=f"1,{spec.compiled_cluster},1" if spec.compiled_cluster else "0",
        smem=spec.dynamic_smem,
        static_smem=0,
        non_portable=spec.non_portable,
        setter_limit=spec.dynamic_smem if spec.smem_opt_in else None,
        cooperative=spec.cooperative,
        max_active=outcome.observed.max_active,
        capability="{}.{}".format(*whole.device.capability),
        smem_optin=whole.device.limits.max_smem_per_block_optin,
    )
    summary = explain(text, given).summary
    assert cause in (summary.cause, *summary.candidates), summary
    assert summary.cause == cause or (summary.cause == OPEN and summary.missing), summary


def test_an_ignored_cluster_is_explained_from_its_record(whole):
    """A kernel that ran without its cluster is told by what it saw, since no code tells."""
    (spec,) = (one[1] for one in MISUSE if one[3] == "cluster-ignored")
    [outcome] = whole.ask([spec])
    assert weigh(told_of(outcome, whole.device)).cause == "cluster-ignored"
