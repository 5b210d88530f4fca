# SPDX-License-Identifier: Apache-2.0
"""What a file with device code holds is read whole, within bounds, and once."""

import os
import runpy
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thorprobe.binary import cubin, cuobjdump, inventory
from thorprobe.driver import compile as kernels
from thorprobe.errors import CouldNotProbeError, ThorprobeError, UsageError

BINARIES = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "binaries.py")))
LIBRARY = BINARIES.library(BINARIES.FATBIN)
E_FLAGS, ABI_VERSION = 48, 8
"""Where an ELF header keeps both."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "thorprobe"


@pytest.fixture
def fatbin(tmp_path):
    """Write the fatbin of the tests to a file."""
    path = tmp_path / "clusters.fatbin"
    path.write_bytes(BINARIES.FATBIN)
    return path


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Put a script in the place of cuobjdump."""

    def play(body):
        script = tmp_path / "played"
        script.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(cuobjdump, "tool", lambda: script)
        return script

    return play


def shape(found):
    """Return target, PTX version and the clusters of each image."""
    return {
        (image.target, image.isa): sorted(
            (k.symbol, k.required_cluster) for k in found.kernels if k.image == number
        )
        for number, image in enumerate(found.images)
    }


KERNELS = [("_Z4fourILj512EEvPi", (1, 4, 1)), ("plain", None), ("two", (1, 2, 1))]
HELD = {("sm_90a", ""): KERNELS, ("sm_110f", ""): KERNELS, ("compute_90", "9.0"): KERNELS}


def test_a_fatbin_is_read_whole(fatbin):
    """Targets with their suffixes, PTX with its version, and every kernel with its cluster."""
    found = inventory.take(fatbin)
    assert shape(found) == HELD
    two = next(k for k in found.kernels if k.symbol == "two")
    assert (two.max_threads, two.parameter_bytes, two.static_smem) == (256, 8, 0)
    ptx = next(k for k in found.kernels if found.images[k.image].is_ptx and k.symbol == "two")
    assert (ptx.registers, ptx.max_threads) == (None, 256)


@pytest.mark.parametrize("kind", ["library", "wheel", "folder"])
def test_a_library_a_wheel_and_a_folder_hold_the_same(tmp_path, kind):
    """Where the fatbin lies makes no difference to what it holds."""
    path = tmp_path / "made.so"
    path.write_bytes(LIBRARY)
    member = "made.so"
    if kind == "wheel":
        path = BINARIES.wheel(tmp_path / "made.whl", {"pkg/made.so": LIBRARY, "pkg/a.py": b""})
        member = "pkg/made.so"
    elif kind == "folder":
        (tmp_path / "pkg" / "deep").mkdir(parents=True)
        path.rename(tmp_path / "pkg" / "deep" / "made.so")
        path, member = tmp_path / "pkg", "deep/made.so"
    found = inventory.take(path)
    assert shape(found) == HELD
    assert {image.file for image in found.images} == {member}


def test_a_cubin_needs_no_tool(tmp_path, monkeypatch):
    """A plain cubin is read where cuobjdump is missing."""

    def missing():
        raise CouldNotProbeError("none", "none")

    monkeypatch.setattr(cuobjdump, "tool", missing)
    path = tmp_path / "a.cubin"
    path.write_bytes(kernels.compile_cubin("trivial", "sm_110f", 8))
    found = inventory.take(path)
    assert [image.target for image in found.images] == ["sm_110f"]
    assert [k.required_cluster for k in found.kernels] == [(1, 8, 1)]


def test_content_that_was_read_before_is_not_read_again(fatbin, tmp_path, monkeypatch):
    """The cache is keyed by content: another name of the same bytes needs no tool."""
    first = inventory.take(fatbin)
    monkeypatch.setattr(cuobjdump, "listing", lambda *_: pytest.fail("read again"))
    other = tmp_path / "other.fatbin"
    other.write_bytes(BINARIES.FATBIN)
    again = inventory.take(other)
    assert (again.name, again.kernels) == ("other.fatbin", first.kernels)


def test_a_damaged_cache_entry_is_read_anew(fatbin, cache):
    """An entry whose digest does not match counts as missing, and is replaced whole."""
    first = inventory.take(fatbin)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-3] + b"xxx")
    assert inventory.take(fatbin) == first
    assert entry.read_bytes() == whole


def test_an_image_can_be_extracted_and_stays_in_the_cache(fatbin, cache):
    """The cubin of one target comes out as it is, and the second time from the cache."""
    found = inventory.take(fatbin)
    image = next(i for i in found.images if i.target == "sm_110f")
    path = inventory.extract(fatbin, image)
    assert path.parent == cache
    assert cubin.contents(path.read_bytes())[0] == "sm_110f"
    fatbin.unlink()
    assert inventory.extract(fatbin, image) == path


def test_nothing_but_the_entry_is_left_in_the_cache(fatbin, cache):
    """What was unpacked on the way is deleted."""
    inventory.take(fatbin)
    assert [p.name[:10] for p in cache.iterdir()] == ["inventory-"]


def test_a_broken_image_is_left_out_with_a_remark(tmp_path):
    """One image that cannot be read does not hide the others."""
    (tmp_path / "pkg").mkdir()
    broken = bytearray(kernels.compile_cubin("fault", "sm_90"))
    broken[ABI_VERSION] = 9
    (tmp_path / "pkg" / "a.cubin").write_bytes(bytes(broken))
    (tmp_path / "pkg" / "b.so").write_bytes(LIBRARY)
    found = inventory.take(tmp_path / "pkg")
    assert shape(found) == HELD
    assert len(found.remarks) == 1
    assert "`a.cubin`" in found.remarks[0]
    assert "ABI version is 9" in found.remarks[0]


def test_a_cubin_of_a_future_abi_is_named(tmp_path):
    """An ABI version that nobody knows is refused, not read as if it were known."""
    data = bytearray(kernels.compile_cubin("fault", "sm_90"))
    data[ABI_VERSION] = 9
    path = tmp_path / "future.cubin"
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match="ABI version is 9, newer than 8") as refused:
        inventory.take(path)
    assert "newer thorprobe" in refused.value.hint


def test_a_cubin_whose_header_and_note_differ_is_refused(tmp_path):
    """A target in the header that the compiler's note contradicts is no target."""
    data = bytearray(kernels.compile_cubin("fault", "sm_90"))
    data[E_FLAGS + 1] = 200
    path = tmp_path / "odd.cubin"
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match="header says sm_200 and its compiler's note sm_90"):
        inventory.take(path)


def test_an_architecture_that_cuobjdump_does_not_know_is_listed(tmp_path):
    """An image of a future architecture is counted, and its kernels are said to be unknown."""
    data = bytearray(BINARIES.FATBIN)
    at = data.index((90).to_bytes(4, "little"))
    data[at] = 200
    path = tmp_path / "future.fatbin"
    path.write_bytes(bytes(data))
    found = inventory.take(path)
    targets = {image.target: image.kernels for image in found.images}
    assert targets["sm_110f"] == 3
    assert [kernels_ for target, kernels_ in targets.items() if target.startswith("sm_200")] == [0]
    assert any("listed, and not extracted" in remark for remark in found.remarks)


def test_a_truncated_cubin_is_refused(tmp_path):
    """Half a cubin is one sentence."""
    path = tmp_path / "half.cubin"
    path.write_bytes(kernels.compile_cubin("fault", "sm_90")[:900])
    with pytest.raises(UsageError, match="was to be inspected"):
        inventory.take(path)


def test_without_cuobjdump_the_line_that_installs_it_is_told(fatbin, monkeypatch):
    """A library without the tool ends with the pip line; exit code 3."""
    from cuda import pathfinder

    cuobjdump.tool.cache_clear()
    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda _name: None)
    with pytest.raises(CouldNotProbeError) as caught:
        inventory.take(fatbin)
    cuobjdump.tool.cache_clear()
    assert "pip install" in caught.value.hint
    assert "nvidia-cuda-cuobjdump" in caught.value.hint


PLAYS = {
    "fails": ("print('cuobjdump fatal   : it broke'); sys.exit(1)", "status 1: it broke"),
    "dies": ("os.kill(os.getpid(), 11)", "ended with signal 11"),
    "hangs": ("time.sleep(60)", "did not finish within 1 s"),
    "writes without end": (
        "open('a.cubin', 'wb').truncate(3 << 20)\ntime.sleep(60)",
        "unpacks more than 1,048,576 B",
    ),
    "finds nothing": (
        "print('does not contain device code'); sys.exit(255)",
        "it holds no device code",
    ),
}


@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS.keys())
def test_a_tool_that_misbehaves_is_ended_and_told(fatbin, cache, played, monkeypatch, play):
    """Whatever the tool does ends in one sentence, in bounded time, and leaves nothing."""
    monkeypatch.setattr(cuobjdump, "DEADLINE_S", 1.0)
    monkeypatch.setattr(cuobjdump, "MAX_WRITTEN", 1 << 20)
    body, told = play
    played(body)
    began = time.monotonic()
    with pytest.raises(UsageError) as caught:
        inventory.take(fatbin)
    assert told in caught.value.sentence
    assert time.monotonic() - began < 20
    assert list(cache.iterdir()) == []


def test_a_tool_for_another_machine_is_told(fatbin, played):
    """A tool that cannot be started is a missing one."""
    played("").write_bytes(b"\x7fELF not for this machine")
    with pytest.raises(CouldNotProbeError, match="cannot be started"):
        inventory.take(fatbin)


def test_what_needs_too_much_memory_is_listed_one_architecture_at_a_time(fatbin, played):
    """A listing that the memory bound ends is made again for each architecture alone."""
    block = "Fatbin elf code:\\n================\\narch = sm_90\\ncode version = [1,8]\\n"
    played(
        "if '--help' in sys.argv: print(\"'sm_80','sm_90','sm_90a'\"); sys.exit(0)\n"
        "if '--version' in sys.argv: sys.exit(0)\n"
        "if '--gpu-architecture' not in sys.argv:\n"
        "    print('cuobjdump fatal   : Memory allocation failure'); sys.exit(1)\n"
        f"if 'sm_90' in sys.argv and '--extract-elf' not in sys.argv: print('{block}')\n"
    )
    cuobjdump._known_architectures.cache_clear()
    folder = fatbin.parent / "list"
    folder.mkdir()
    listed = cuobjdump.listing(fatbin, "clusters.fatbin", folder)
    cuobjdump._known_architectures.cache_clear()
    assert [(one.arch, one.ptx) for one in listed] == [("sm_90", False)]


def test_a_cache_that_cannot_be_written_is_told(fatbin, tmp_path, monkeypatch):
    """Images are extracted inside the cache or not at all."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(ThorprobeError, match="cache folder"):
        inventory.take(fatbin)


@given(st.data())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_library_is_read_or_refused(tmp_path, data):
    """Any altered or truncated library is one error or an answer, never anything else."""
    whole = bytearray(LIBRARY)
    edits = st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255))
    for at, value in data.draw(st.lists(edits, max_size=12)):
        whole[at] = value
    end = data.draw(st.just(len(whole)) | st.integers(1, len(whole)))
    path = tmp_path / "damaged.so"
    path.write_bytes(bytes(whole[:end]))
    told = ""
    try:
        told = inventory.take(path).name
    except ThorprobeError as error:
        told = error.sentence
    assert "damaged.so" in told


def test_a_workspace_that_a_killed_run_left_is_swept(fatbin, cache):
    """What is a day old is removed by the next run; what is new is another run's."""
    old, new = cache / ".work-old", cache / ".work-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "part.cubin").write_bytes(b"x")
    os.utime(old, (1, 1))
    inventory.take(fatbin)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("name", ["MAX_SYMBOLS", "MAX_INFO", "MAX_NAMES", "MAX_SECTIONS"])
def test_a_cubin_beyond_a_bound_is_refused(tmp_path, monkeypatch, name):
    """Each size that a cubin claims is bounded before it is believed."""
    path = tmp_path / "a.cubin"
    path.write_bytes(kernels.compile_cubin("fault", "sm_90"))
    monkeypatch.setattr(cubin, name, 3)
    with pytest.raises(UsageError, match="was to be inspected"):
        inventory.take(path)


def test_too_many_kernels_are_refused(fatbin, monkeypatch):
    """A file that holds more kernels than any sound one ends in one sentence."""
    monkeypatch.setattr(inventory, "MAX_KERNELS", 5)
    with pytest.raises(UsageError, match="more than 5 kernels"):
        inventory.take(fatbin)
