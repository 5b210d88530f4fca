# SPDX-License-Identifier: Apache-2.0
"""The drop-in answers vLLM's operators as each mode says, before fake operators on the CPU."""

import pytest
import torch

from dropin_bed import NAMES, REFUSED, VERSIONS, Host, batch, best, call, dropped_in, picked
from thorprobe.vllm import dropin_start


def shapes():
    """Return what was counted, by operator, rows and who answered."""
    told = dropin_start.active().report()
    return {(one.operator, one.num_rows, one.answered): one for one in told.shapes}


@pytest.mark.parametrize("version", VERSIONS)
def test_fallback_keeps_vllms_operator_where_its_cluster_is_hosted(monkeypatch, version):
    """On a Thor that hosts 8, rows 1 to 4 want 16 and go to the ladder, 5 and more are vLLM's."""
    with dropped_in(monkeypatch, "fallback", Host(largest=8), version, largest=8) as vllm:
        for rows in (1, 4, 5, 9, 33):
            logits, lengths = batch(rows)
            assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(NAMES[0], 5), (NAMES[0], 9), (NAMES[0], 33)]
        found = shapes()
        assert {key for key in found if key[2] == "ladder"} == {
            (NAMES[0], 1, "ladder"),
            (NAMES[0], 4, "ladder"),
        }
        assert found[NAMES[0], 1, "ladder"].hosted is False
        assert found[NAMES[0], 5, "vllm"].hosted is True


def test_without_the_drop_in_the_same_call_dies(monkeypatch):
    """The fake dies as vLLM does, so that the fallback's answer means something."""
    with dropped_in(monkeypatch, "fallback", Host(largest=8), largest=8):
        dropin_start.stop()
        with pytest.raises(RuntimeError, match="cluster misconfiguration"):
            call(NAMES[0], *batch(1))


def test_fallback_asks_occupancy_once_a_size_and_place_and_never_tries(monkeypatch):
    """Four sizes with their bytes are asked at the first call, and again in another partition."""
    host = Host(largest=2)
    with dropped_in(monkeypatch, "fallback", host, largest=2) as vllm:
        for _ in range(3):
            call(NAMES[0], *batch(1))
            call(NAMES[0], *batch(16))
        asked = [(16, 156_416), (8, 156_416), (4, 221_952), (2, 221_952)]
        assert [(cluster, smem) for _, cluster, _, smem in host.asked] == asked
        assert {threads for _, _, threads, _ in host.asked} == {1_024}
        assert vllm.calls == []
        host.place_now = (0, 77)
        call(NAMES[0], *batch(1))
        assert [place for place, *_ in host.asked] == [(0, 0)] * 4 + [(0, 77)] * 4


def test_fallback_leaves_the_persistent_operator_alone(monkeypatch):
    """It launches no cluster, so it is not replaced at all."""
    with dropped_in(monkeypatch, "fallback", Host(largest=0)) as vllm:
        logits, lengths = batch(70)
        assert picked(call(NAMES[1], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(NAMES[1], 70)]
        assert dropin_start.active().report().calls == 0


def test_fallback_asks_for_the_arm_of_the_devices_major(monkeypatch):
    """On cc 9.0 rows 1 to 4 take 8 CTAs, so a device that hosts 8 keeps all of vLLM's."""
    host = Host(largest=8, major=9)
    with dropped_in(monkeypatch, "fallback", host, major=9, largest=8) as vllm:
        call(NAMES[0], *batch(1))
        assert vllm.calls == [(NAMES[0], 1)]
        assert 16 not in {cluster for _, cluster, *_ in host.asked}


@pytest.mark.parametrize("name", NAMES)
def test_always_gives_the_same_order_every_time(monkeypatch, name):
    """Best first, equal scores by index, -1 behind them; vLLM's fake shuffles."""
    with dropped_in(monkeypatch, "always") as vllm:
        logits = torch.tensor([[3.0, 1.0, 3.0, 2.0, 9.0, 9.0, 0.0, 0.0]] * 2)
        lengths = torch.tensor([7, 3], dtype=torch.int32)
        wanted = [[4, 5, 0, 2], [0, 1, 2, -1]]
        for _ in range(3):
            assert call(name, logits, lengths, k=4).tolist() == wanted
        assert vllm.calls == []


def test_always_serves_rows_that_end_at_the_operators_own_bound(monkeypatch):
    """persistent_topk ends every row at max_seq_len; cooperative_topk does not look at it."""
    with dropped_in(monkeypatch, "always"):
        logits, lengths = batch(3, columns=100)
        cut = call(NAMES[1], logits, lengths, max_seq_len=40)
        assert picked(cut) == best(logits[:, :40], lengths.clamp(max=40))
        assert picked(call(NAMES[0], logits, lengths, max_seq_len=40)) == best(logits, lengths)
        assert picked(call(NAMES[1], logits, lengths, max_seq_len=0)) == [set()] * 3


def test_lengths_of_two_dimensions_are_served(monkeypatch):
    """Another user of the operator passes lengths as [requests, tokens]."""
    with dropped_in(monkeypatch, "always") as vllm:
        logits, lengths = batch(6, length=50)
        assert picked(call(NAMES[0], logits, lengths.view(3, 2))) == best(logits, lengths)
        assert vllm.calls == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: a | {"logits": a["logits"].double()}, "float64"),
        (lambda a: a | {"logits": a["logits"][:, ::2]}, "columns are 2 scores apart"),
        (lambda a: a | {"lengths": a["lengths"].long()}, "lengths are int64"),
        (lambda a: a | {"lengths": a["lengths"][:1]}, "lengths are int32"),
        (lambda a: a | {"output": a["output"].t().contiguous().t()}, "output is int32"),
    ],
)
def test_what_the_ladder_does_not_serve_stays_vllms(monkeypatch, change, why):
    """Other types, strides and shapes go to vLLM's operator unchanged, with the reason noted."""
    with dropped_in(monkeypatch, "always") as vllm:
        seen = []
        vllm._select = lambda *arguments: seen.append(arguments)
        logits, lengths = batch(4)
        arguments = change(
            {
                "logits": logits,
                "lengths": lengths,
                "output": torch.zeros(4, 8, dtype=torch.int32),
                "workspace": torch.empty(8, dtype=torch.uint8),
                "k": 8,
                "max_seq_len": 200,
            }
        )
        torch.ops._C.cooperative_topk(**arguments)
        assert len(seen) == 1
        (fall,) = dropin_start.active().report().falls
        assert why in fall.name
        assert fall.calls == 1


def test_an_output_of_another_shape_is_vllms_to_refuse(monkeypatch):
    """The ladder does not write rows that are not [rows, k]."""
    with dropped_in(monkeypatch, "always") as vllm:
        vllm._select = lambda *arguments: None
        logits, lengths = batch(2)
        output = torch.zeros(2, 9, dtype=torch.int32)
        torch.ops._C.cooperative_topk(logits, lengths, output, logits, 8, 200)
        assert vllm.calls == [(NAMES[0], 2)]
        assert output.eq(0).all()


def test_report_calls_vllms_operator_alone_and_says_what_would_have_been(monkeypatch):
    """The refused call dies as before; the log says that the ladder would have answered."""
    with dropped_in(monkeypatch, "report", Host(largest=8), largest=8) as vllm:
        logits, lengths = batch(6)
        assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        with pytest.raises(RuntimeError, match="cluster misconfiguration"):
            call(NAMES[0], *batch(2))
        assert vllm.calls == [(NAMES[0], 6), (NAMES[0], 2)]
        told = dropin_start.active().report()
        assert {one.name: one.calls for one in told.would} == {"ladder, torch": 1, "vllm": 1}
        assert told.rungs == ()
        assert any(REFUSED in one.reason for one in told.shapes)


def test_a_device_that_cannot_be_asked_keeps_vllms_operator(monkeypatch):
    """Nothing is known, so nothing is changed; the reason is a fall and one warning."""
    from thorprobe.errors import CouldNotProbeError

    host = Host(error=CouldNotProbeError("NVRTC cannot be loaded"))
    with dropped_in(monkeypatch, "fallback", host) as vllm:
        call(NAMES[0], *batch(1))
        assert vllm.calls == [(NAMES[0], 1)]
        told = dropin_start.active().report()
        assert "NVRTC cannot be loaded" in told.falls[0].name
        assert any("NVRTC cannot be loaded" in line for line in told.said)


def test_callers_of_the_overload_and_compiled_graphs_meet_the_drop_in(monkeypatch):
    """The dispatcher's kernel is replaced, not only the name in torch.ops."""
    with dropped_in(monkeypatch, "always") as vllm:
        logits, lengths = batch(2)
        output = torch.zeros(2, 8, dtype=torch.int32)
        torch.ops._C.cooperative_topk.default(logits, lengths, output, logits, 8, 200)
        assert picked(output) == best(logits, lengths)

        def step(scores, many, out):
            torch.ops._C.cooperative_topk(scores * 1.0, many, out, scores, 8, 200)
            return out + 0

        compiled = torch.compile(step, backend="eager", fullgraph=True)
        again = torch.zeros(2, 8, dtype=torch.int32)
        assert picked(compiled(logits, lengths, again)) == best(logits, lengths)
        assert vllm.calls == []


def test_the_operators_are_given_back(monkeypatch):
    """After ``stop`` vLLM's own kernels answer, whoever kept the name meanwhile."""
    with dropped_in(monkeypatch, "always") as vllm:
        kept = torch.ops._C.cooperative_topk
        told = dropin_start.stop()
        assert told.mode == "always"
        logits, lengths = batch(2)
        call(NAMES[0], logits, lengths)
        kept(logits, lengths, torch.zeros(2, 8, dtype=torch.int32), logits, 8, 200)
        assert vllm.calls == [(NAMES[0], 2)] * 2
        assert isinstance(torch.ops._C.cooperative_topk, torch._ops.OpOverloadPacket)


def test_who_stood_there_before_keeps_the_name(monkeypatch):
    """Another wrapper of the operator stays; its calls meet the drop-in in the dispatcher."""
    from dropin_bed import operators, vllm

    with operators() as made, vllm(monkeypatch):
        packet, seen = torch.ops._C.cooperative_topk, []

        def wrapper(*arguments):
            seen.append(arguments)
            packet(*arguments)

        torch.ops._C.cooperative_topk = wrapper
        dropin_start.start("always", host=Host(), key="CPU")
        logits, lengths = batch(2)
        assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert torch.ops._C.cooperative_topk is wrapper
        assert len(seen) == 1
        assert made.calls == []


def test_an_older_torch_has_the_name_replaced_alone(monkeypatch):
    """Without ``torch.library.get_kernel`` callers by name are served, and vLLM's still called."""
    monkeypatch.delattr(torch.library, "get_kernel")
    with dropped_in(monkeypatch, "fallback", Host(largest=8), largest=8) as vllm:
        for rows in (2, 6):
            logits, lengths = batch(rows)
            assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)
        assert vllm.calls == [(NAMES[0], 6)]
        assert dropin_start.active().report().replaced == ("cooperative_topk: for callers by name",)
