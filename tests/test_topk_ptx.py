# SPDX-License-Identifier: Apache-2.0
"""No kernel of the ladder touches global memory before what ran ahead of it on the stream is done.

A launch may begin early (programmatic stream serialization), so that on every way through a kernel
``griddepcontrol.wait`` has to come first: before global memory, before a call, before the end. The
ways are walked in the PTX that NVRTC makes of each compilation.
"""

import itertools
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from cuda.bindings import nvrtc

from thorprobe.driver.compile import KERNELS, compile_options, source
from thorprobe.topk import kernel
from thorprobe.topk.contract import DTYPES
from thorprobe.topk.variant import MERGE
from thorprobe.topk.variant import variants as kernels_of

ARCH = "compute_90"
THREADS = (512, 1_024)
CASES = tuple(itertools.product(DTYPES, THREADS, (False, True)))
WAIT = "griddepcontrol.wait"
_MEMORY = {"ld", "ldu", "st", "atom", "red", "cp", "prefetch", "prefetchu", "multimem", "discard"}
# By the first part of an instruction's name; without another state space they are of global memory.
_ELSEWHERE = {"param", "const", "local", "shared", "shared::cta", "shared::cluster"}
_ENDS = {"ret", "exit", "trap"}


class Statement(NamedTuple):
    """One instruction: its guard (``%p1``, ``!%p1``, or empty), words, and the scopes around it."""

    guard: str
    words: tuple[str, ...]
    scopes: tuple[int, ...]


def entries(text):
    """Return the bodies of the kernels of a PTX text by name."""
    text = re.sub(r"//[^\n]*", "", text)
    found = {}
    for match in re.finditer(r"\.entry\s+(\w+)", text):
        depth, begin = 0, text.index("{", match.end())
        for at in range(begin, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if not depth:
                break
        found[match[1]] = text[begin + 1 : at]
    return found


def parse(body):
    """Return the statements of a body, and where each label of each scope points.

    A brace that begins a statement opens a scope, whose labels are its own; others are operands.
    """
    statements, labels, scopes, opened = [], {}, (0,), itertools.count(1)
    tokens = re.findall(r"\s*(\$?\w+\s*:(?!:)|[{}]|(?:[^;{}]|\{[^{};]*\})+;)", body)
    assert "".join("".join(tokens).split()) == "".join(body.split())
    for token in tokens:
        words = tuple(token.strip(" \t\n;").replace(",", " ").split())
        if token == "{":
            scopes = (*scopes, next(opened))
        elif token == "}":
            scopes = scopes[:-1]
        elif token[-1] == ":":
            labels[scopes[-1], token[:-1].strip()] = len(statements)
        elif words and not words[0].startswith("."):
            guard = words[0][1:] if words[0][0] == "@" else ""
            statements.append(Statement(guard, words[1:] if guard else words, scopes))
    assert scopes == (0,)
    return statements, labels


def unwaited(body):
    """Return the instructions that some way through a body meets before the wait, and should not.

    Those of global memory, calls, ends, and jumps to places that are looked up.
    """
    statements, labels = parse(body)
    wrong, seen, ahead = [], set(), [0]
    while ahead:
        at = ahead.pop()
        if at in seen:
            continue
        seen.add(at)
        if at == len(statements):
            wrong.append("the end")
            continue
        guard, words, scopes = statements[at]
        name = words[0].split(".")
        if words[0] == WAIT and not guard:
            continue
        if name[0] in {"call", "brx"} | _ENDS or (
            name[0] in _MEMORY and not _ELSEWHERE & set(name[1:])
        ):
            wrong.append(" ".join(words))
        if name[0] == "bra":
            places = (labels.get((scope, words[-1])) for scope in reversed(scopes))
            ahead.append(next(place for place in places if place is not None))
        if guard or name[0] not in {"bra"} | _ENDS:
            ahead.append(at + 1)
    return wrong


def _ptx(dtype, threads, strided):
    """Compile to PTX, with the options of the cubins that are launched."""
    options = (
        f"-arch={ARCH}",
        *compile_options(),
        *KERNELS[kernel.KERNEL].options,
        *kernel.defines(dtype, threads, strided=strided),
    )
    text = source(kernel.KERNEL).text.encode()
    code, program = nvrtc.nvrtcCreateProgram(text, b"select.cu", 0, None, None)
    assert not int(code)
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
    assert not int(code)
    code, size = nvrtc.nvrtcGetPTXSize(program)
    assert not int(code)
    held = bytearray(size)
    (code,) = nvrtc.nvrtcGetPTX(program, held)
    assert not int(code)
    nvrtc.nvrtcDestroyProgram(program)
    return held.decode().rstrip("\0")


@pytest.fixture(scope="module")
def compiled():
    """Compile all that the ladder launches on all cores, and return the kernels of each."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {case: pool.submit(_ptx, *case) for case in CASES}
        yield lambda case: entries(found[case].result())
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}{'-strided' * c[2]}")
def test_a_kernel_waits_before_it_touches_global_memory(compiled, case):
    """On every way, in every kernel that is launched; and without the wait each would be found."""
    dtype, threads, _ = case
    every = compiled(case)
    variants = (*kernels_of(dtype), MERGE)
    assert set(every) >= {f"{v.function}_{v.scores}" for v in variants if v.threads == threads}
    for name, body in every.items():
        assert not unwaited(body), name
        without = unwaited(body.replace(f"{WAIT};", ""))
        assert any(one.startswith("ld.global") for one in without), name
        assert any(one.startswith("st.global") for one in without), name
        # Not where a condition may pass it by.
        assert unwaited(re.sub(rf"(?<!@)\b{re.escape(WAIT)};", f"@%p1 {WAIT};", body)), name


LOAD = "ld.global.u32 %r2, [%rd1];"
STORE = "st.global.u32 [%rd1], %r1;"
SPIN = "{.reg .pred p; again: mbarrier.try_wait.b64 p, [%r1]; @!p bra again; }"


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (f"ld.param.u64 %rd1, [k_0]; {WAIT}; {LOAD} ret;", []),
        (f"{LOAD} {WAIT}; ret;", ["ld.global.u32 %r2 [%rd1]"]),
        (f"st.shared.u32 [%r1], %r1; ld.u32 %r2, [%rd1]; {WAIT}; ret;", ["ld.u32 %r2 [%rd1]"]),
        (f"@%p1 bra $L_1; {WAIT}; $L_1: ret;", ["ret"]),
        (f"@%p1 bra $L_1; {WAIT}; bra.uni $L_2; $L_1: {WAIT}; $L_2: {LOAD} ret;", []),
        (f"$L_1: @!%p1 bra $L_1; {WAIT}; {STORE} ret;", []),
        (f"{SPIN} {WAIT}; {SPIN} {STORE} ret;", []),
        (f"{SPIN} {STORE} {WAIT}; {SPIN} ret;", ["st.global.u32 [%rd1] %r1"]),
        (f"bra.uni $L_2; $L_1: {WAIT}; $L_2: {STORE} bra $L_1;", ["st.global.u32 [%rd1] %r1"]),
        (f"ld.global.v2.u32 {{%r1, %r2}}, [%r3]; {WAIT};", ["ld.global.v2.u32 {%r1 %r2} [%r3]"]),
        (f"{{ call.uni f, (a, b); }} {WAIT}; ret;", ["call.uni f (a b)"]),
        (f"@%p1 {WAIT}; {STORE} {WAIT}; ret;", ["st.global.u32 [%rd1] %r1"]),
        ("mov.u32 %r1, %tid.x;", ["the end"]),
    ],
)
def test_the_ways_through_a_body_are_walked(body, wrong):
    """Branches, guards, loops, labels of scopes, vectors of registers, and calls."""
    assert unwaited(body) == wrong
