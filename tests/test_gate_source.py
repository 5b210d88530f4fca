# SPDX-License-Identifier: Apache-2.0
"""The gate read from Python sources: every way of writing it that is understood, and what is not.

The sources are written for these tests; constants are those of vLLM, wording is not.
"""

import pytest

from thorprobe.audit.gate_source import read_gates, role_of
from thorprobe.audit.installed_records import Role
from thorprobe.errors import UsageError

QSA = "vllm/models/qwen4_exp/nvidia/ops/qsa_indexer.py"


def read(text, path=QSA, **others):
    """Read one source; ``others`` are further files by their path with dots for slashes."""
    files = {name.replace("__", "/") + ".py": source for name, source in others.items()}
    return read_gates(path, text, files.get)


def one(text, path=QSA, **others):
    """Read the only gate of a source."""
    (gate,) = read(text, path, **others)
    return gate


def guarded(condition):
    """Write a function that takes the operator under a condition."""
    return (
        f"def pick(scores, out):\n    if {condition}:\n"
        "        torch.ops._C.cooperative_topk(scores, out)\n"
        "    else:\n        torch.ops._C.persistent_topk(scores, out)\n"
    )


PLATFORM = "here.has_device_capability(90) and not here.is_device_capability_family(120)"


def test_a_direct_condition_gives_every_constant():
    """Rows, stride, capability and family are read from one test around the call."""
    gate = one(guarded(f"scores.shape[0] <= 64 and scores.stride(0) % 4 == 0 and {PLATFORM}"))
    assert (gate.function, gate.line, gate.role) == ("pick", 3, Role.QSA)
    assert (gate.rows, gate.stride_multiple) == (64, 4)
    assert (gate.min_capability, gate.excluded_families) == ((9, 0), (120,))
    assert not gate.unread_lines


@pytest.mark.parametrize(
    ("condition", "field", "value"),
    [
        ("num_rows < 65", "rows", 64),
        ("64 >= num_rows", "rows", 64),
        ("not num_rows > 32", "rows", 32),
        ("not (num_rows >= 33)", "rows", 32),
        ("0 < num_rows <= 64", "rows", 64),
        ("num_rows <= 64 and num_rows <= 32", "rows", 32),
        ("scores.size(0) <= 16", "rows", 16),
        ("not scores.stride(0) % 8", "stride_multiple", 8),
        ("not (scores.stride(0) % 4 != 0)", "stride_multiple", 4),
        ("here.has_device_capability((9, 0))", "min_capability", (9, 0)),
        ("here.has_device_capability(capability=100)", "min_capability", (10, 0)),
        ("capability >= 90", "min_capability", (9, 0)),
        ("not here.is_device_capability_family(110)", "excluded_families", (110,)),
        (
            "not (here.is_device_capability_family(121) or here.is_device_capability_family(110))",
            "excluded_families",
            (110, 120),
        ),
        ("here.is_device_capability_family(100)", "required_families", (100,)),
        ("k in (512, 1024, 2048)", "k", (512, 1024, 2048)),
        ("k in {2048}", "k", (2048,)),
        ("here.is_cuda()", "cuda_only", True),
    ],
)
def test_a_condition_is_read_however_it_is_written(condition, field, value):
    """Each spelling of one condition gives the one constant, and nothing stays unread."""
    gate = one(guarded(condition))
    assert getattr(gate, field) == value
    assert not gate.unread_lines
    others = {"rows", "stride_multiple", "min_capability", "excluded_families"} - {field}
    assert not any(getattr(gate, other) for other in others)


@pytest.mark.parametrize(
    "condition",
    [
        "num_rows <= limit",
        "num_rows >= 5",
        "num_rows <= 64 or fast",
        "scores.stride(0) % unit == 0",
        "scores.stride(0) % 4 == 1",
        "here.has_device_capability(least)",
        "not here.has_device_capability(90)",
        "here.is_device_capability(110)",
        "not here.is_cuda()",
        "ready",
        "k not in (512,)",
        "f(num_rows)",
    ],
)
def test_what_is_not_understood_is_said_so_and_not_guessed(condition):
    """A condition of another kind leaves its line as unread, and no constant."""
    gate = one(guarded(condition))
    assert gate.unread_lines == (2,)
    assert (gate.rows, gate.stride_multiple, gate.min_capability) == (None, None, None)
    assert not gate.excluded_families
    assert not gate.cuda_only


def test_names_are_followed_in_the_function_the_module_and_the_package():
    """A local name, a module constant and an imported one are what they were assigned."""
    text = (
        "from vllm.limits import MOST as TOP\nUNIT = 4\n"
        "def pick(scores):\n"
        "    fits = scores.shape[0] <= TOP and scores.stride(0) % UNIT == 0\n"
        "    op = torch.ops._C.cooperative_topk if fits else torch.ops._C.persistent_topk\n"
        "    op(scores)\n"
    )
    gate = one(text, vllm__limits="MOST: int = 64\n")
    assert (gate.rows, gate.stride_multiple, gate.unread_lines) == (64, 4, ())
    relative = text.replace("vllm.limits", "...limits")
    at = "vllm/models/qwen4_exp/qsa.py"
    assert (
        one(relative, at, vllm__limits="from .more import MOST\n", vllm__more="MOST = 48\n").rows
        == 48
    )
    # Without the file that defines it the name stays unread.
    assert one(text).rows is None


def test_a_name_of_two_values_is_no_constant():
    """What is assigned twice, in a loop or as a parameter, is not taken for a constant."""
    for before in (
        "TOP = 64\nTOP = 32\n",
        "for TOP in (1, 64):\n    pass\n",
        "TOP = 1\nTOP += 63\n",
    ):
        assert one(before + guarded("num_rows <= TOP")).unread_lines
    taken = guarded("num_rows <= out").replace("def pick", "out = 64\ndef pick")
    assert one(taken).rows is None


def test_asserts_and_early_returns_count_as_conditions():
    """What is asserted, or has returned before, holds at the call."""
    text = (
        "def fits(num_rows, k):\n"
        "    '''Say whether.'''\n"
        "    return 0 < num_rows <= 64 and k in (512, 1024)\n"
        "def pick(scores, num_rows, k):\n"
        "    assert fits(num_rows, k)\n"
        "    if scores.stride(0) % 4 != 0:\n        return None\n"
        "    if here.is_device_capability_family(120):\n        raise RuntimeError\n"
        "    return ops._C.cooperative_topk(scores)\n"
    )
    gate = one(text)
    assert (gate.rows, gate.k, gate.stride_multiple) == (64, (512, 1024), 4)
    assert (gate.excluded_families, gate.unread_lines) == ((120,), ())


def test_a_class_that_collects_reasons_against_is_followed():
    """A backend name leads to the method that answers with it, and to its list of failures."""
    text = (
        "MOST = 64\n"
        "class Choice:\n"
        "    def __init__(self):\n"
        "        self._cuda = here.is_cuda()\n"
        "        self._able = self._cuda and (\n"
        f"            {PLATFORM}\n"
        "        )\n"
        "    def choose(self, scores, k, num_rows):\n"
        "        if not self._against(scores, k, num_rows):\n"
        "            return 'cooperative'\n"
        "        return 'persistent'\n"
        "    def _against(self, scores, k, num_rows):\n"
        "        reasons = []\n"
        "        if not self._cuda:\n            reasons.append('no CUDA')\n"
        "        if k not in (512, 1024, 2048):\n            reasons.append('k')\n"
        "        if num_rows > MOST:\n            reasons.append('rows')\n"
        "        if scores.stride(0) % 4 != 0:\n            reasons.append('stride')\n"
        "        if self._cuda and not self._able:\n            reasons.append('device')\n"
        "        return reasons\n"
        "    def run(self, scores, k):\n"
        "        name = self.choose(scores, k, scores.shape[0])\n"
        "        if name == 'other':\n            pass\n"
        "        elif name == 'cooperative':\n"
        "            torch.ops._C.cooperative_topk(scores)\n"
    )
    gate = one(text, "vllm/model_executor/layers/indexer_topk.py")
    assert gate.role is Role.GENERIC
    assert (gate.rows, gate.stride_multiple, gate.k) == (64, 4, (512, 1024, 2048))
    assert (gate.min_capability, gate.excluded_families, gate.cuda_only) == ((9, 0), (120,), True)
    assert not gate.unread_lines


def test_an_unguarded_call_has_no_condition():
    """A call without any test is open to every row, and every place is told."""
    text = "def a(s):\n    ops._C.cooperative_topk(s)\ndef b(s):\n    ops._C.cooperative_topk(s)\n"
    first, second = read(text)
    assert (first.function, second.function, first.rows) == ("a", "b", None)
    assert not read("x = 'cooperative_topk'  # only named\n")


@pytest.mark.parametrize(
    ("path", "role"),
    [
        (QSA, Role.QSA),
        ("vllm/models/qwen4_exp/amd/ops/qsa.py", Role.AMD),
        ("vllm/model_executor/layers/sparse_attn_indexer.py", Role.GENERIC),
        ("vllm/v1/attention/ops/rocm_sparse.py", Role.AMD),
        ("vllm/models/other/topk.py", Role.OTHER),
    ],
)
def test_a_file_is_one_call_site(path, role):
    """The path of a file says which call site it is."""
    assert role_of(path) is role


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def pick(:\n    pass\n", "line 1 is no Python"),
        ("x = 1\n\n    y = 2\n", "line 3 is no Python"),
        ("x = '\0'\n", "is no Python"),
        ("x = " + "(" * 5_000 + ")" * 5_000, "is no Python"),
        ("x = " + "-" * 200_000 + "1", "is no Python"),
        ("x = y" + " + 1" * 3_000, "is no Python"),
    ],
)
def test_a_source_that_is_no_python_is_told_in_one_sentence(text, told):
    """Broken, binary and endlessly nested sources name the file, with a hint."""
    with pytest.raises(UsageError, match=r"qsa_indexer\.py") as caught:
        read(text)
    assert told in caught.value.sentence
    assert "\n" not in caught.value.sentence
    assert caught.value.hint


def test_sources_made_to_blow_up_end_soon():
    """Names that multiply, functions that call themselves and imports in a circle end unread."""
    names = "".join(f"n{i} = {' and '.join([f'n{i + 1}'] * 30)}\n" for i in range(20))
    assert one(names + "n20 = num_rows <= 64\n" + guarded("n0")).unread_lines
    assert one("def f(x):\n    return f(x)\n" + guarded("f(num_rows)")).unread_lines
    ring = one(
        "from vllm.a import TOP\n" + guarded("num_rows <= TOP"),
        vllm__a="from vllm.b import TOP\n",
        vllm__b="from vllm.a import TOP\n",
    )
    assert ring.unread_lines
