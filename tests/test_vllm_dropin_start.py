# SPDX-License-Identifier: Apache-2.0
"""vLLM starts whatever is asked of the drop-in and whatever is found; off, it costs nothing."""

import contextlib
import logging
import sys
import textwrap
import types
from importlib.machinery import ModuleSpec

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dropin_bed import NAMES, SCHEMA, VERSIONS, Host, batch, best, call, operators, picked, vllm
from thorprobe.errors import CouldNotProbeError
from thorprobe.vllm import dropin, dropin_release, dropin_start
from thorprobe.vllm.dropin_variable import LOG_VARIABLE, MODES, OFF, VARIABLE


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Unset both variables, and put the fake device in the place of CUDA's."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv(LOG_VARIABLE, raising=False)
    monkeypatch.setattr(dropin_start, "KEY", "CPU")
    monkeypatch.setattr("thorprobe.vllm.dropin_cuda.CudaHost", Host)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("nonsense", "THORPROBE_VLLM='nonsense' was asked for, but the modes are fallback, always"),
        ("fallback", "the drop-in was asked for, but there is no vLLM in this environment"),
    ],
)
def test_what_cannot_be_done_is_one_warning(caplog, monkeypatch, value, sentence):
    """A value that is no mode, and no vLLM: one sentence, and nothing is raised."""
    monkeypatch.setattr(dropin_release.metadata, "version", _none)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setenv(VARIABLE, value)
    with caplog.at_level(logging.INFO):
        dropin.register()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(sentence)
    assert "; vLLM is untouched (hint: " in record.getMessage()
    assert dropin_start.active() is None


def _none(name):
    raise dropin_release.metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("version", "policy"),
    [
        ("0.29.0", "0.29.0"),
        ("0.29.3", "0.29.0"),
        ("0.33.0+cu130", "0.33.0"),
        ("0.33.0.post1", "0.33.0"),
        ("0.28.1rc1.dev215+ge126687a9", "e126687a9a"),
        ("0.28.0", ""),
        ("0.34.0", ""),
        ("1.29.0", ""),
        ("0.33.0rc1", ""),
        ("0.33.1.dev7+g4ba787ec9.d20261101", ""),
        ("0.33.0+g4ba787ec9", ""),
        ("dev", ""),
        ("", ""),
    ],
)
def test_only_known_versions_are_known(version, policy):
    """Final releases of 0.29 to 0.33, and the commit of the first report; nothing alike."""
    assert dropin_release.policy_name(version) == policy


@pytest.mark.parametrize("version", VERSIONS)
def test_every_known_release_has_the_arms_of_its_operator(version):
    """Rows 1 to 4, 5 to 8, 9 to 33 and 34 to 64 in every release: the policy says so."""
    from thorprobe.vllm.dropin_hosting import arm

    found = dropin_release.policy(version)
    clusters = {rows: arm(found, rows, 11).cluster for rows in (1, 4, 5, 8, 9, 33, 34, 64, 65)}
    assert clusters == {1: 16, 4: 16, 5: 8, 8: 8, 9: 4, 33: 4, 34: 2, 64: 2, 65: 1}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"names": NAMES[1:]}, "has no operator cooperative_topk"),
        ({"names": ()}, "has no operator cooperative_topk"),
        ({"schema": SCHEMA.replace("int k", "int topk")}, "of another signature"),
        ({"schema": SCHEMA.replace("Tensor workspace, ", "")}, "of another signature"),
        ({"schema": SCHEMA.replace("-> ()", "-> Tensor")}, "of another signature"),
        ({"schema": SCHEMA.replace("(a!)", "")}, "of another signature"),
        ({"schema": ".out" + SCHEMA}, "of another signature"),
    ],
)
def test_a_changed_library_is_one_warning_and_stays_vllms(monkeypatch, caplog, options, sentence):
    """Whatever is not the operator that is known is not touched."""
    monkeypatch.setenv(VARIABLE, "always")
    with operators(**options), vllm(monkeypatch):
        before = dict(torch.ops._C.__dict__)
        dropin.register()
        (record,) = caplog.records
        assert sentence in record.getMessage()
        assert dropin_start.active() is None
        assert dict(torch.ops._C.__dict__) == before


def test_a_torch_without_cuda_is_one_warning(monkeypatch, caplog):
    """The real dispatch key needs a torch with CUDA; this one has none."""
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    monkeypatch.setattr(dropin_start, "KEY", "CUDA")
    monkeypatch.setenv(VARIABLE, "fallback")
    with operators(), vllm(monkeypatch):
        dropin.register()
    assert "is built without CUDA" in caplog.records[0].getMessage()


class Broken:
    """A finder whose module of vLLM's library raises when it is imported."""

    def __init__(self, error):
        self.error = error

    def find_spec(self, name, path, target=None):
        """Find the library's module alone."""
        return ModuleSpec(name, self) if name == dropin_release.LIBRARY else None

    def create_module(self, spec):
        """Let Python make it."""

    def exec_module(self, module):
        """Raise what was given."""
        raise self.error


@contextlib.contextmanager
def broken(monkeypatch, error):
    """Let the import of vLLM's library raise."""
    finder = Broken(error)
    sys.modules.pop(dropin_release.LIBRARY, None)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ImportError("x.so: undefined symbol: aoti_torch_get_thing"), "too old for the stable ABI"),
        (ImportError("libcudart.so.13: cannot open shared object file"), "is for CUDA"),
        (ImportError("libcuda.so.1: cannot open shared object file"), "no CUDA driver"),
        (ModuleNotFoundError("No module named 'vllm._C_stable_libtorch'"), "has no module"),
        (OSError("file too short"), "file too short"),
        (SystemExit(3), "SystemExit"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_a_library_that_does_not_load_is_one_warning(monkeypatch, caplog, error, sentence):
    """Each in a sentence of its own; nothing is raised."""
    monkeypatch.setenv(VARIABLE, "fallback")
    with operators(), vllm(monkeypatch), broken(monkeypatch, error):
        dropin.register()
    (record,) = caplog.records
    assert sentence in record.getMessage()


def test_a_log_that_cannot_be_written_does_not_turn_the_drop_in_off(monkeypatch, caplog, tmp_path):
    """A person's vLLM would die of it; one warning instead."""
    monkeypatch.setenv(VARIABLE, "always")
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path / "none" / "log"))
    with operators(), vllm(monkeypatch):
        dropin.register()
        assert dropin_start.active().log == ""
    assert "cannot be written: no such file" in caplog.records[0].getMessage()


def test_a_failure_half_way_gives_the_operators_back(monkeypatch, caplog):
    """The second operator cannot be replaced, so the first is vLLM's again."""
    from thorprobe.vllm import dropin_operator

    placed = dropin_operator.Operator.__init__

    def once(self, name, drop_in, key):
        if name == NAMES[1]:
            raise RuntimeError("no second")
        placed(self, name, drop_in, key)

    monkeypatch.setattr(dropin_operator.Operator, "__init__", once)
    monkeypatch.setenv(VARIABLE, "always")
    with operators() as made, vllm(monkeypatch):
        dropin.register()
        call(NAMES[0], *batch(2))
        assert made.calls == [(NAMES[0], 2)]
        assert dropin_start.active() is None
    assert "no second" in caplog.text


VALUES = st.one_of(
    st.sampled_from(MODES),
    st.sampled_from((*MODES, *OFF, "Always", "fallback ", "nonsense")),
    st.text(st.characters(min_codepoint=1, exclude_categories=("Cs",)), max_size=30),
)
ERRORS = st.none() | st.sampled_from(
    (
        ImportError(),
        ImportError("undefined symbol: torch_call"),
        OSError(5, "no"),
        RuntimeError("\n"),
        ValueError(b"\xff"),
        SystemExit("bye"),
        RecursionError(),
        MemoryError(),
        CouldNotProbeError("no", "yes"),
    )
)
WHOLE = st.just({}) | st.sampled_from(
    (
        {"names": ()},
        {"names": NAMES[:1]},
        {"schema": SCHEMA.replace("-> ()", "-> int")},
        {"schema": "() -> ()"},
    )
)
SUITED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SUITED
@given(
    texts=st.tuples(VALUES, VALUES, VALUES | st.sampled_from(VERSIONS)),
    error=ERRORS,
    library=WHOLE,
)
def test_nothing_keeps_vllm_from_starting(tmp_path, texts, error, library):
    """Any values, versions, broken modules and libraries: nothing is raised, selections are right.

    Registered twice, as vLLM may.
    """
    value, log, version = texts
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.chdir(tmp_path)
        patch.setattr(dropin_start, "KEY", "CPU")
        patch.setattr("thorprobe.vllm.dropin_cuda.CudaHost", Host)
        stack.enter_context(operators(**library))
        stack.enter_context(vllm(patch, version))
        if error is not None:
            stack.enter_context(broken(patch, error))
        patch.setenv(VARIABLE, value)
        patch.setenv(LOG_VARIABLE, log)
        for _ in range(2):
            dropin.register()
        known = value.strip().lower() in MODES and version in VERSIONS
        assert (dropin_start.active() is not None) == (known and error is None and not library)
        if not library:
            logits, lengths = batch(2)
            assert picked(call(NAMES[0], logits, lengths)) == best(logits, lengths)


SITES = {
    "0.29.0": """
        import torch
        def qsa_select_paged_tokens(logits, lengths, blocks, workspace, block_topk, columns):
            if blocks.shape[0] <= 32 and logits.stride(0) % 4 == 0:
                torch.ops._C.cooperative_topk(
                    logits, lengths, blocks, workspace, block_topk, columns)
            else:
                torch.ops._C.persistent_topk(
                    logits, lengths, blocks, workspace, block_topk, columns)
        """,
    "0.33.0": """
        import torch
        def _topk(logits, visible_blocks, token_topk, ratio, block_indices, workspace):
            few = logits.shape[0] <= 64 and logits.stride(0) % 4 == 0
            op = torch.ops._C.cooperative_topk if few else torch.ops._C.persistent_topk
            op(logits, visible_blocks, block_indices, workspace,
               token_topk // ratio, logits.shape[1])
        """,
}


def site(version):
    """Return a call site as of a version: (logits, lengths, k) -> output."""
    name = "0.29.0" if version == "0.29.0" else "0.33.0"
    module = types.ModuleType("qsa")
    exec(textwrap.dedent(SITES[name]), module.__dict__)

    def run(logits, lengths, k):
        output = torch.full((logits.shape[0], k), -7, dtype=torch.int32)
        workspace = torch.empty(64, dtype=torch.uint8)
        if name == "0.29.0":
            columns = logits.shape[1]
            module.qsa_select_paged_tokens(logits, lengths, output, workspace, k, columns)
        else:
            module._topk(logits, lengths, 4 * k, 4, output, workspace)
        return output

    return run


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", MODES)
def test_the_call_sites_of_every_release_meet_the_drop_in(monkeypatch, version, mode):
    """Each mode before each release's call site, decode and prefill; a Thor hosts 8 CTAs."""
    monkeypatch.setenv(VARIABLE, mode)
    with operators(largest=8) as made, vllm(monkeypatch, version):
        run = site(version)
        dropin.register()
        for rows in (1, 8, 70):
            logits, lengths = batch(rows)
            if mode == "report" and rows == 1:
                with pytest.raises(RuntimeError, match="cluster misconfiguration"):
                    run(logits, lengths, 8)
                continue
            assert picked(run(logits, lengths, 8)) == best(logits, lengths)
        both = [(NAMES[0], 8), (NAMES[1], 70)]
        wanted = {"fallback": both, "always": [], "check": both, "report": [(NAMES[0], 1), *both]}
        assert made.calls == wanted[mode]
        told = dropin_start.active().report()
        if mode == "check":
            assert (told.check.rows, told.check.different) == (78, 0)
