# SPDX-License-Identifier: Apache-2.0
"""Kernels compile for every target without a GPU, and their cubins are read soundly."""

import builtins
import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thorprobe.binary import cubin
from thorprobe.driver import compile as kernels
from thorprobe.errors import CouldNotProbeError, ThorprobeError, UsageError

FUNCTIONS = {name: kernel.function for name, kernel in kernels.KERNELS.items()}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an empty cache folder, with nothing remembered in the process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.compile_cubin.cache_clear()
    yield tmp_path / "thorprobe"
    kernels.compile_cubin.cache_clear()


@pytest.mark.parametrize("target", kernels.TARGETS)
@pytest.mark.parametrize("kernel", ["trivial", "topk"])
def test_shipped_kernels_compile_without_spills(kernel: str, target: str) -> None:
    """Each kernel compiles for each target within 64 registers and without local memory."""
    facts = cubin.facts(kernels.compile_cubin(kernel, target), FUNCTIONS[kernel])
    assert facts.target == target
    assert facts.max_threads == 1_024
    assert facts.required_cluster is None
    assert 0 < facts.registers <= 64
    assert facts.local_bytes == 0


@pytest.mark.parametrize("kernel", ["hang", "fault"])
def test_test_kernels_compile(kernel: str) -> None:
    """The kernels that test the worker compile as well."""
    facts = cubin.facts(kernels.compile_cubin(kernel, "sm_90"), FUNCTIONS[kernel])
    assert facts.static_smem == 0


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_compiled_cluster_dimensions_are_read_back(size: int) -> None:
    """The variant compiled with a cluster size says so in its cubin."""
    facts = cubin.facts(kernels.compile_cubin("trivial", "sm_110", size), FUNCTIONS["trivial"])
    assert facts.required_cluster == (1, size, 1)


@pytest.mark.parametrize("target", ["sm_90", "sm_110", "sm_120", "sm_121f"])
def test_reserved_shared_memory_is_not_counted(target: str) -> None:
    """33 declared words are 132 B of static shared memory, whatever the system reserves."""
    text = (
        'extern "C" __global__ void __launch_bounds__(96) words(unsigned* out) {'
        "  __shared__ unsigned held[33]; held[threadIdx.x % 33] = out[1]; __syncthreads();"
        "  out[0] = held[out[2]]; }"
    )
    code = kernels._compile(text, "words.cu", (f"-arch={target}", *kernels.compile_options()))
    facts = cubin.facts(code, "words")
    assert (facts.static_smem, facts.max_threads, facts.local_bytes) == (132, 96, 0)


def test_a_stack_frame_is_seen() -> None:
    """A kernel that indexes a local array at run time has local bytes."""
    text = (
        'extern "C" __global__ void stack(unsigned* out) { volatile unsigned held[64];'
        " for (unsigned i = 0; i < 64; ++i) held[i] = out[i]; out[0] = held[out[65] & 63]; }"
    )
    code = kernels._compile(text, "stack.cu", ("-arch=sm_90", *kernels.compile_options()))
    assert cubin.facts(code, "stack").local_bytes >= 256


def test_the_source_hash_is_of_the_file() -> None:
    """A source's SHA-256 is that of the bytes in the kernels folder."""
    found = kernels.source("trivial")
    assert hashlib.sha256(found.text.encode()).hexdigest() == found.sha256
    assert FUNCTIONS["trivial"] in found.text


def test_a_second_compilation_comes_from_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cubin is stored once, whole, and read back without the compiler."""
    first = kernels.compile_cubin("fault", "sm_90")
    (stored,) = cache.iterdir()
    assert stored.read_bytes().endswith(first)
    kernels.compile_cubin.cache_clear()
    monkeypatch.setattr(kernels, "_compile", lambda *_: pytest.fail("compiled again"))
    assert kernels.compile_cubin("fault", "sm_90") == first


@pytest.mark.parametrize("damage", [b"", b"half", None])
def test_a_damaged_cache_entry_is_compiled_anew(cache: Path, damage: bytes | None) -> None:
    """Truncated and altered entries are not trusted."""
    first = kernels.compile_cubin("fault", "sm_90")
    (stored,) = cache.iterdir()
    whole = stored.read_bytes()
    stored.write_bytes(damage if damage is not None else whole[:-1] + bytes([whole[-1] ^ 1]))
    kernels.compile_cubin.cache_clear()
    assert kernels.compile_cubin("fault", "sm_90") == first
    assert stored.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cache folder is a file, compilation goes on without one."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    kernels.compile_cubin.cache_clear()
    assert kernels.compile_cubin("fault", "sm_90").startswith(b"\x7fELF")
    kernels.compile_cubin.cache_clear()


def test_a_source_that_does_not_compile_shows_the_log() -> None:
    """The error holds NVRTC's own words and the options."""
    with pytest.raises(ThorprobeError) as caught:
        kernels._compile("__global__ void f() { nothing; }", "bad.cu", ("-arch=sm_90",))
    assert "nothing" in caught.value.sentence
    assert "-arch=sm_90" in caught.value.sentence


def test_unknown_kernels_and_targets_are_usage_errors() -> None:
    """Both are refused with what there is."""
    with pytest.raises(UsageError, match="trivial, topk"):
        kernels.compile_cubin("nothing", "sm_90")
    with pytest.raises(UsageError, match="sm_110"):
        kernels.compile_cubin("trivial", "sm_80")


def test_a_missing_nvrtc_is_told_with_the_line_that_installs_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the bindings the error says what to install, and no cached cubin hides it."""
    real = builtins.__import__

    def without_cuda(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("cuda"):
            raise ImportError("No module named 'cuda'")
        return real(name, *rest, **named)

    assert not cache.exists()
    monkeypatch.setattr(builtins, "__import__", without_cuda)
    kernels.nvrtc_version.cache_clear()
    with pytest.raises(CouldNotProbeError) as caught:
        kernels.compile_cubin("trivial", "sm_110")
    assert "pip install" in caught.value.hint
    assert "nvidia-cuda-nvrtc" in caught.value.hint


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_cubin_is_one_error(data: st.DataObject) -> None:
    """Any altered or truncated cubin is read or refused with one error, and quickly."""
    whole = bytearray(kernels.compile_cubin("fault", "sm_110"))
    edits = st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255))
    for at, value in data.draw(st.lists(edits, max_size=20)):
        whole[at] = value
    end = data.draw(st.just(len(whole)) | st.integers(0, len(whole)))
    told = ""
    try:
        told = cubin.facts(bytes(whole[:end]), "cluster_fault").function
    except ThorprobeError as error:
        told = error.sentence
    assert "cluster_fault" in told


def test_sizes_in_a_cubin_are_not_trusted() -> None:
    """A header that claims a vast section count is refused before anything is allocated."""
    whole = bytearray(kernels.compile_cubin("fault", "sm_90"))
    struct.pack_into("<H", whole, 60, 0xFFF0)  # e_shnum
    with pytest.raises(ThorprobeError, match="65,520 sections"):
        cubin.facts(bytes(whole), "cluster_fault")


def test_a_kernel_that_is_not_there_is_named() -> None:
    """Looking up another function says that the cubin does not hold it."""
    with pytest.raises(ThorprobeError, match=r"`nobody`.*holds no such kernel"):
        cubin.facts(kernels.compile_cubin("fault", "sm_90"), "nobody")
