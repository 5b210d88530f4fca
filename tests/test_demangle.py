# SPDX-License-Identifier: Apache-2.0
"""Kernel names are read within bounds, whatever a symbol says."""

import string
import time

import pytest

from thorprobe.binary import demangle
from thorprobe.binary.demangle import names, short
from thorprobe.errors import CouldNotProbeError

TOPK = "_ZN4vllm11cooperative20cooperative_topk_cs2ILj2048EEEvNS0_21CooperativeTopKParamsIXT_EEE"
DIGITS = string.digits + string.ascii_uppercase


def swollen(levels):
    """Make a symbol whose type doubles with every template argument."""
    back = ["S_", *(f"S{digit}_" for digit in DIGITS)]
    return "_Z1f1AIiiE" + "".join(f"S_I{back[n]}{back[n]}E" for n in range(1, levels + 1))


def test_names_lose_return_type_and_parameters():
    """A kernel is called by its name with template arguments alone."""
    found = names([TOPK, "cluster_topk", "_Z4fourILj512EEvPi"])
    assert found[TOPK] == "vllm::cooperative::cooperative_topk_cs2<2048u>"
    assert found["_Z4fourILj512EEvPi"] == "four<512u>"
    assert found["cluster_topk"] == "cluster_topk"


def test_a_symbol_that_swells_is_shown_as_it_is_and_the_rest_is_read():
    """A symbol of 310 bytes that names gigabytes costs neither memory nor the names after it."""
    bomb = swollen(30)
    assert len(bomb) < 400
    began = time.monotonic()
    found = names([bomb, TOPK, "_Zbroken", "_Z3twoPi"])
    assert time.monotonic() - began < 60
    assert found[bomb] == bomb
    assert found["_Zbroken"] == "_Zbroken"
    assert found["_Z3twoPi"] == "two"
    assert found[TOPK].endswith("cs2<2048u>")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("void a::b<int>(int, c::d<(e)1>)", "a::b<int>"),
        ("(anonymous namespace)::k(float*)", "(anonymous namespace)::k"),
        ("void ns::f<(ns::E)2, float>(float)", "ns::f<(ns::E)2, float>"),
        ("void call::operator()<int>(int)", "call::operator()<int>"),
        ("plain", "plain"),
        ("", ""),
        ("(((", "((("),
        ("f()", "f"),
    ],
)
def test_a_long_name_is_cut_to_its_function(name, wanted):
    """Parentheses and angle brackets inside a name do not confuse the cut."""
    assert short(name) == wanted


def test_a_missing_demangler_is_told(monkeypatch):
    """Without the package the line that installs it is the hint."""
    monkeypatch.setattr(demangle, "find_spec", lambda _name: None)
    with pytest.raises(CouldNotProbeError) as caught:
        names([TOPK])
    assert "pip install" in caught.value.hint
