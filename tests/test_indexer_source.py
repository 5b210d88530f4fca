# SPDX-License-Identifier: Apache-2.0
"""What of transformers is replaced, and that nothing else ever is."""

import ast
import inspect
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
import transformers

from thorprobe.errors import CouldNotProbeError
from thorprobe.plan.qwen4exp import TINY
from thorprobe.topk import indexer_source as sources
from thorprobe.topk import qwen4exp

MODULE = import_module("transformers.models.qwen4_exp.modeling_qwen4_exp")
SOURCE = inspect.getsource(MODULE)
LOOP = "torch.relu(scores)"


class _Never:
    """Stands in for a loop that is never reached."""

    def replace(self, reads):
        raise AssertionError


def test_the_installed_version_is_known():
    """The source that the tests run with passes the check, and names one loop to take out."""
    forward = sources.check(SOURCE, transformers.__version__)
    assert "for batch_idx" not in ast.unparse(sources.without_loop(forward))
    assert "for batch_idx" in ast.unparse(sources.observed_loop(forward))


def test_comments_and_spacing_do_not_count():
    """A digest is of the tokens, so that a comment or a blank line changes nothing."""
    plain = "def f(a):\n    return a + 1\n"
    assert sources.digest(plain) == sources.digest("def f(a):  # why\n\n    return a+1")
    assert sources.digest(plain) != sources.digest("def f(a):\n    return a + 2\n")
    assert sources.digest("if a:\n    b\nc\n") != sources.digest("if a:\n    b\n    c\n")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (LOOP, "torch.abs(scores)", "forward differs"),
        ("self.block_topk = self.token_budget //", "self.block_topk = 1 +", "__init__ differs"),
        ("def rotate_half(x):\n", "def rotate_half(x):\n    x = -x\n", "rotate_half differs"),
        ("class Qwen4ExpTextQSAIndexer", "class Qwen4ExpTextIndexer", "forward is missing"),
    ],
)
def test_a_changed_source_is_refused_and_named(old, new, named):
    """Whatever the replacement relies on, a change of it is found, and the known ones are named."""
    assert old in SOURCE
    with pytest.raises(CouldNotProbeError) as refused:
        sources.check(SOURCE.replace(old, new), "9.9.9")
    assert named in refused.value.sentence
    assert "9.9.9" in refused.value.sentence
    assert "5.24.0" in refused.value.hint


def test_the_method_comes_back_whatever_happens():
    """The class is as before after the block, and after an error inside it."""
    kind = MODULE.Qwen4ExpTextQSAIndexer
    before = kind.forward
    with qwen4exp.through_ladder(_Never()):
        assert kind.forward is not before
    assert kind.forward is before
    with pytest.raises(ZeroDivisionError), qwen4exp.watched(_Never()):
        raise ZeroDivisionError
    assert kind.forward is before


def test_a_method_that_someone_else_replaced_is_left_alone(monkeypatch):
    """Neither another library's method nor thorprobe's own is replaced once more."""
    kind = MODULE.Qwen4ExpTextQSAIndexer

    def theirs(self, hidden_states):
        return hidden_states

    with (
        qwen4exp.through_ladder(_Never()),
        pytest.raises(CouldNotProbeError, match="already"),
        qwen4exp.through_ladder(_Never()),
    ):
        pass
    monkeypatch.setattr(kind, "forward", theirs)
    with (
        pytest.raises(CouldNotProbeError, match="already"),
        qwen4exp.through_ladder(_Never()),
    ):
        pass
    assert kind.forward is theirs


def test_a_changed_transformers_is_not_patched(monkeypatch):
    """With a source that is not known the class keeps its method, and the message says why."""
    monkeypatch.setattr(inspect, "getsource", lambda _module: SOURCE.replace(LOOP, "scores"))
    qwen4exp._maker.cache_clear()
    before = MODULE.Qwen4ExpTextQSAIndexer.forward
    with (
        pytest.raises(CouldNotProbeError, match="forward differs"),
        qwen4exp.through_ladder(_Never()),
    ):
        pass
    assert MODULE.Qwen4ExpTextQSAIndexer.forward is before


@pytest.mark.parametrize(
    ("version", "absent", "told"),
    [
        ("5.30.0", "transformers", "cannot be imported"),
        ("4.57.1", "qwen4_exp", "transformers 4.57.1 has no qwen4_exp, which it carries from 5.16"),
        ("5.24.0", "qwen4_exp", "transformers 5.24.0 cannot import its qwen4_exp"),
    ],
)
def test_a_missing_or_old_transformers_is_named(monkeypatch, version, absent, told):
    """What is missing is said in a sentence, with the line that installs it."""

    def importing(name):
        if absent in name:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return SimpleNamespace(__version__=version)

    monkeypatch.setattr(qwen4exp, "import_module", importing)
    with pytest.raises(CouldNotProbeError) as missing:
        qwen4exp.modeling()
    assert told in missing.value.sentence
    assert "pip install torch 'transformers>=5.16'" in missing.value.hint


def test_the_loop_that_is_watched_gives_what_the_untouched_one_gives():
    """Watching adds calls and nothing else: bit for bit the same mask."""
    torch.manual_seed(0)
    config = transformers.Qwen4ExpTextConfig(**TINY.config | {"indexer_budget": 16})
    indexer = MODULE.Qwen4ExpTextQSAIndexer(config, 3).eval()
    hidden = torch.randn(2, 40, config.hidden_size)
    rotary = MODULE.Qwen4ExpTextRotaryEmbedding(config)
    places = rotary(hidden, torch.arange(40).expand(3, 2, 40))
    mask = torch.ones(40, 40, dtype=torch.bool).tril().expand(2, 1, 40, 40)
    seen = []

    class Watch:
        def begin(self, reads):
            seen.append(reads.indexer.layer_idx)

        def queries(self, request, count):
            return range(count)

        def seen(self, request, query, scores, blocks):
            seen.append((request, query, len(scores), len(blocks)))

        def end(self):
            seen.append("end")

    with torch.no_grad():
        untouched = indexer(hidden, places, mask, None)
        with qwen4exp.watched(Watch()):
            watched = indexer(hidden, places, mask, None)
    assert torch.equal(untouched, watched)
    assert (seen[0], seen[-1], len(seen)) == (3, "end", 2 + 2 * 37)
    assert seen[-2] == (1, 39, 10, 4)
