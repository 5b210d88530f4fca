# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show of a bench: real launches, captured, timed and checked."""

import runpy
from pathlib import Path

import msgspec
import pytest

from thorprobe.bench.answer import inquire
from thorprobe.bench.calibration_answer import inquire as calibrate
from thorprobe.bench.calibration_plan import CalibrationOptions
from thorprobe.bench.plan import DISTRIBUTIONS, BenchOptions
from thorprobe.record import Status

pytestmark = pytest.mark.gpu
BINARIES = runpy.run_path(str(Path(__file__).parent / "binaries.py"))
REAL = Path(__file__).parents[1] / ".carry" / "cooperative_topk_sm90a.cubin"
"""The sm_90a image of the vLLM 0.33.0 wheel, where someone put it; it is not ours to ship."""
LIBRARY = Path(__file__).parents[1] / ".vllm" / "_C_stable_libtorch.abi3.so"
"""The library of the vLLM 0.33.0 wheel, where someone put it; it is not ours to ship either."""
SMALL = BenchOptions(
    rows=(1, 5), columns=(4096, 65536), launches=5, replays=3, ties="both", host_calls=400
)


@pytest.mark.parametrize("partition", ["", "sms=8"])
def test_every_contender_that_fits_is_right_and_timed(partition):
    """Every rung but those refused, auto and torch.topk have a time; the floor is below them."""
    answer = inquire(msgspec.structs.replace(SMALL, partition=partition), "0")
    refused = {one.contender for one in answer.summary.missing}
    assert refused <= ({"cluster-16"} if partition else set()), answer.summary.missing
    assert answer.device.partition_sms == (8 if partition else 0)
    for point in answer.results:
        assert point.status is Status.PASS, point
        auto = point.times[0]
        assert auto.us > 0
        assert auto.choice
        assert point.floor.empty_us > 0
        # Rows of this size stay in the L2 cache, which is faster than a copy: no more than a sign.
        assert point.floor.us < 3 * auto.us
        assert 0 < point.host.auto_us < 1_000
    assert answer.summary.compared("torch.topk").shapes == 4
    assert answer.summary.compared('auto with ties="any"').shapes == 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_types_of_scores_are_timed(dtype):
    """Every rung takes 16-bit scores."""
    options = msgspec.structs.replace(SMALL, dtypes=(dtype,), rows=(5,), columns=(65536,))
    answer = inquire(options, "0")
    assert answer.summary.missing == ()
    assert answer.summary.wrong == 0


def test_unaligned_rows_are_right_and_held_against_their_neighbour():
    """Every rung takes rows that start off 16 B, of several k and types, and auto has a ratio."""
    options = msgspec.structs.replace(
        SMALL, columns=(4095, 65537), k=(512, 2048), dtypes=("float32", "float16"), peers=()
    )
    answer = inquire(options, "0")
    assert answer.summary.wrong == 0, answer.summary.missing
    odd = [group for group in answer.summary.groups if not group.aligned]
    assert len(odd) == 4
    assert all(0.3 < group.over_neighbour < 3 for group in odd)
    assert all(point.host.prepared_us > 0 for point in answer.results)


@pytest.mark.skipif(not LIBRARY.exists(), reason="vLLM's own library is not there")
def test_vllms_own_operators_are_right_and_timed():
    """Both operators, as the gate of their version takes them, in a graph and as a call."""
    options = msgspec.structs.replace(
        SMALL,
        rows=(1, 65),
        columns=(4095, 65536),
        k=(512, 2048),
        peers=(f"vllm:{LIBRARY}",),
        rungs=("auto",),
        ties="lowest",
    )
    answer = inquire(options, "0")
    assert answer.summary.missing == ()
    taken = {(p.columns, p.rows): p.times[-1].choice for p in answer.results}
    assert taken[65536, 1] == "cooperative_topk"
    assert {taken[65536, 65], taken[4095, 1]} == {"persistent_topk"}
    assert 0 < answer.summary.host_peers_us["vllm"] < 1_000


def test_every_distribution_is_right_on_every_rung():
    """Ties in masses, sorted rows, NaN and infinities: the same indices as a stable sort."""
    options = msgspec.structs.replace(
        SMALL, distributions=tuple(DISTRIBUTIONS), rows=(3,), peers=(), launches=2, replays=1
    )
    answer = inquire(options, "0")
    assert answer.summary.wrong == 0
    assert answer.summary.missing == ()


def test_a_file_of_shipped_kernels_is_timed_beside_the_ladder(tmp_path, monkeypatch):
    """Stand-ins that call themselves vLLM's, and vLLM's own where they are: right and timed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from thorprobe.bench.device import gpu

    torch, _ = gpu("0")
    major, minor = torch.cuda.get_device_capability(0)
    cubin = BINARIES["shipped_cubin"](f"sm_{major}{minor}")
    made = tmp_path / "vllm-0.33.0-made.whl"
    BINARIES["wheel"](made, {"vllm/made.cubin": cubin}, "vllm", "0.33.0")
    files = [made, *([REAL] if REAL.exists() and (major, minor) == (9, 0) else [])]
    for file in files:
        # The stand-ins rank every score by counting: longer rows would take seconds.
        options = msgspec.structs.replace(
            SMALL, columns=(4096, 8192), peers=(f"shipped:{file}",), rungs=("auto",)
        )
        answer = inquire(options, "0")
        timed = {t.contender for p in answer.results for t in p.times if t.peer and t.us}
        assert timed >= {"shipped-2", "shipped-4", "shipped-8"}, answer.summary.missing
        assert answer.options["peers"] == [f"shipped:{file.name}"]
        assert answer.summary.compared("upstream's own choice").shapes == 4


def test_a_calibration_times_every_choice_on_the_whole_device_and_on_parts():
    """Each choice has a time wherever it fits, all results are right, and the costs choose."""
    options = CalibrationOptions(rows=(1, 33), columns=(4096, 65536))
    answer = calibrate(options, "0")
    assert answer.summary.wrong == 0, [one for one in answer.results if one.note]
    assert {one.partition for one in answer.results} == {"", "sms=24", "sms=8"}
    refused = {one.choice.rpartition("/")[2] for one in answer.results if not one.slots}
    assert refused <= {"16"}
    assert answer.summary.error.points > 100
    assert {one.shapes for one in answer.summary.auto} == {4}
