# SPDX-License-Identifier: Apache-2.0
"""vLLM's own operators as a peer of a bench, played on the CPU."""

import runpy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from thorprobe.bench import device as bed
from thorprobe.bench.answer import inquire
from thorprobe.bench.check import expected
from thorprobe.bench.plan import BenchOptions, BenchShape
from thorprobe.bench.run import load as data_of
from thorprobe.bench.vllm_peer import WORKSPACE_BYTES, VllmPeer, policy_of
from thorprobe.binary import operator_file as library_file
from thorprobe.plan.policy import load
from thorprobe.record import Status
from thorprobe.run import operator_library as library

BED = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "bench_bed.py")))
OPTIONS = BenchOptions(
    rows=(1, 64, 65), columns=(1024, 4095), k=(512,), rungs=("auto",), host_calls=8
)
CPU = torch.device("cpu")
HOPPER, THOR, RTX = (9, 0), (11, 0), (12, 0)


@dataclass
class PlayedOperators:
    """Selects like vLLM, in an order of its own; ``wrong`` drops the last column of each row."""

    wrong: bool = False
    refused: str = ""
    version: str = "0.33.0"
    sha256: str = "1" * 64
    of: str = ""
    pruned: str = ""
    calls: list = field(default_factory=list)

    def cooperative_topk(self, *arguments):
        """Select, or raise what vLLM's host code says."""
        if self.refused:
            raise RuntimeError(self.refused)
        self._select("cooperative", *arguments)

    def persistent_topk(self, *arguments):
        """Select."""
        self._select("persistent", *arguments)

    def _select(self, name, *arguments):
        logits, lengths, output, workspace, k, max_seq_len = arguments
        assert workspace.dtype == torch.uint8
        assert workspace.numel() == WORKSPACE_BYTES
        assert output.shape == (logits.shape[0], k)
        assert max_seq_len == logits.shape[1]
        self.calls.append((name, *logits.shape, k, int(lengths.max())))
        if int(lengths.max()):
            scores = logits[:, : logits.shape[1] - self.wrong]
            output.copy_(expected(torch, scores, k).indices.flip(1))


def peer(operators=None, capability=HOPPER, policy="0.33.0"):
    """Return the peer on played operators."""
    return VllmPeer(operators or PlayedOperators(), load(policy), capability)


def shape(rows=1, columns=4096, k=512, dtype="float32"):
    """Return an input on the CPU."""
    asked = BenchShape(rows=rows, columns=columns, k=k, dtype=dtype, distribution="normal")
    return data_of(asked, torch, CPU)


@pytest.mark.parametrize(
    ("rows", "columns", "capability", "taken"),
    [
        (1, 4096, HOPPER, "cooperative"),
        (64, 4096, HOPPER, "cooperative"),
        (65, 4096, HOPPER, "persistent"),
        (1, 4095, HOPPER, "persistent"),
        (1, 4096, THOR, "cooperative"),
        (1, 4096, RTX, "persistent"),
        (1, 4096, (8, 9), "persistent"),
    ],
)
def test_the_operator_is_the_one_that_the_versions_gate_takes(rows, columns, capability, taken):
    """Rows, stride and capability decide, by the policy of the version and no number of here."""
    operators = PlayedOperators()
    ready = peer(operators, capability).prepare(shape(rows, columns))
    assert operators.calls == [(taken, rows, columns, 512, columns)]
    assert ready.choice == f"{taken}_topk"
    ready.call()
    assert operators.calls[-1] == (taken, rows, columns, 512, 0)


def test_an_older_version_lets_fewer_rows_through():
    """0.29.0 takes the cooperative operator up to 32 rows."""
    assert peer(policy="0.29.0").prepare(shape(32)).choice == "cooperative_topk"
    assert peer(policy="0.29.0").prepare(shape(33)).choice == "persistent_topk"


def test_it_is_timed_and_checked_like_any_peer():
    """A set in any order is right; its time, its operator and its host's cost are recorded."""
    answer = inquire(OPTIONS, opener=BED.opener(BED.PlayedLadder(), (peer(),)))
    taken = {}
    for point in answer.results:
        (time,) = [one for one in point.times if one.contender == "vllm"]
        assert (time.status, time.us, time.peer) == (Status.PASS, 12.0, True)
        assert time.host_us > 0
        taken[point.columns, point.rows] = time.choice
    assert taken == {
        (columns, rows): f"{'persistent' if columns == 4095 or rows == 65 else 'cooperative'}_topk"
        for columns in (1024, 4095, 4096)
        for rows in (1, 64, 65)
    }
    assert answer.summary.host_peers_us["vllm"] > 0


def test_a_wrong_result_of_it_has_no_time():
    """A dropped column is seen; the ladder's point stands, and the reason is told."""
    answer = inquire(
        msgspec.structs.replace(OPTIONS, rows=(64,), columns=(1024,)),
        opener=BED.opener(BED.PlayedLadder(), (peer(PlayedOperators(wrong=True)),)),
    )
    (missing,) = answer.summary.missing
    assert (missing.contender, missing.status) == ("vllm", Status.FAIL)
    assert "of 64 rows are wrong" in missing.reason
    assert answer.results[0].status is Status.PASS


def test_what_it_does_not_take_is_waived():
    """16-bit scores and another k are refused before vLLM would raise."""
    for options, reason in (
        ({"dtypes": ("float16",)}, "it takes float32 scores and k 512, 1,024, 2,048"),
        ({"k": (500,)}, "it takes float32 scores and k 512, 1,024, 2,048"),
    ):
        asked = msgspec.structs.replace(OPTIONS, rows=(1,), columns=(1024,), **options)
        answer = inquire(asked, opener=BED.opener(BED.PlayedLadder(), (peer(),)))
        (missing,) = answer.summary.missing
        assert (missing.status, missing.reason) == (Status.WAIVED, reason)


def test_a_refusal_is_told_in_vllms_words_and_leaves_nothing_pending(monkeypatch):
    """The error that waits for torch's next call is taken, so that no other contender gets it."""
    said = "cooperative_topk launch failed: a kernel launch error has occurred"
    pending = ["cudaErrorInvalidClusterSize"]
    zeros = torch.zeros

    def raising(*arguments, **words):
        if pending and arguments == (1,):
            raise RuntimeError(pending.pop())
        return zeros(*arguments, **words)

    asked = msgspec.structs.replace(OPTIONS, rows=(1,), columns=(1024,), peers=("torch",))
    monkeypatch.setattr(torch, "zeros", raising)
    peers = (peer(PlayedOperators(refused=said)), BED.TorchTopk())
    answer = inquire(asked, opener=BED.opener(BED.PlayedLadder(), peers))
    (missing,) = answer.summary.missing
    assert (missing.contender, missing.status) == ("vllm", Status.ERROR)
    assert missing.reason == f"RuntimeError: {said}"
    assert not pending
    assert answer.results[0].time("torch.topk") == 12.0


@pytest.mark.parametrize(
    ("version", "policy", "said"),
    [
        ("0.33.0", "0.33.0", ""),
        ("0.33.0+cu130", "0.33.0", ""),
        ("0.29.0", "0.29.0", ""),
        ("9.9.9", "", "of version 9.9.9"),
        ("", "", "does not tell"),
        ("e126687a9a", "", "of version e126687a9a"),
        ("../x.toml", "", "of version ../x.toml"),
    ],
)
def test_a_version_without_a_policy_gets_the_newest_and_a_remark(version, policy, said):
    """No version is taken for another one silently, and none is read as a path."""
    found, remark = policy_of(version)
    assert found.name == (policy or "0.33.0")
    assert (said in remark) if said else (remark == "")


def test_what_was_loaded_is_named_with_its_hashes(monkeypatch):
    """The file's hash is an input; a copy without some device code names what was released."""
    file = library_file.LibraryFile(
        path=Path("x.so"), version="0.33.0", sha256="1" * 64, of="2" * 64, pruned="less code"
    )
    asked = []
    monkeypatch.setattr(library_file, "find", lambda source: asked.append(source) or file)
    monkeypatch.setattr(
        library, "load_file", lambda _file: PlayedOperators(of="2" * 64, pruned="less code")
    )
    for text, source in (("vllm", ""), ("vllm:a/b.so", "a/b.so")):
        options = BenchOptions(peers=(text,))
        found = bed._Peers(options, BED.cpu_place(), 0, lambda _done, _total: None)
        assert [one.name for one in found.contenders] == ["vllm"]
        assert set(found.inputs.values()) == {"1" * 64, "2" * 64}
        (note,) = found.notes
        assert "vLLM 0.33.0" in note
        assert f"SHA-256 as released {'2' * 64}" in note
        assert asked.pop() == source
