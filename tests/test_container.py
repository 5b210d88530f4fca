# SPDX-License-Identifier: Apache-2.0
"""Files to inspect are untrusted: each bad one is one sentence, bounded, and leaves nothing."""

import os
import runpy
import struct
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from thorprobe.binary import container
from thorprobe.binary.container import open_container
from thorprobe.errors import UsageError

BINARIES = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "binaries.py")))
LIBRARY = BINARIES.library(BINARIES.FATBIN)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "thorprobe"


def refusal(ran):
    """Check the form of a refusal and return its sentence."""
    lines = ran.err.rstrip("\n").split("\n")
    assert (ran.code, ran.out, len(lines)) == (2, "", 3), ran
    assert lines[0].startswith("error: ")
    assert not lines[0].endswith(".")
    assert lines[2].startswith("hint: ")
    assert len(lines[2]) > len("hint: ")
    return lines[0]


def bomb(folder):
    """Make a wheel whose library unpacks to a thousand times its packed size."""
    path = BINARIES.wheel(folder / "bomb.whl", {"pkg/a.so": bytes(50_000_000)})
    assert path.stat().st_size < 100_000
    return path


def lying(folder):
    """Make a wheel whose directory claims another size of a library than its data has."""
    path = BINARIES.wheel(folder / "lying.whl", {"pkg/a.so": LIBRARY * 3})
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, len(LIBRARY))
    path.write_bytes(bytes(data))
    return path


def cut(folder):
    """Make a wheel that a broken download cut in half."""
    path = BINARIES.wheel(folder / "cut.whl", {"pkg/a.so": LIBRARY * 9})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def flipped(folder):
    """Make a wheel with one wrong byte inside a library."""
    path = folder / "flipped.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("pkg/a.so", LIBRARY)
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(bytes(data))
    return path


def leading_out(name):
    """Make a maker of wheels with an entry of that name."""

    def make(folder):
        return BINARIES.wheel(folder / "out.whl", {"pkg/a.so": LIBRARY, name: LIBRARY})

    return make


def vast_directory(folder):
    """Make a wheel whose end claims a directory of 4 GB."""
    path = BINARIES.wheel(folder / "vast.whl", {"pkg/a.so": LIBRARY})
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rfind(b"PK\x05\x06") + 12, 0xFFFF_FFFF)
    path.write_bytes(bytes(data))
    return path


def odd_packing(folder):
    """Make a wheel packed with LZMA, which no wheel is."""
    path = folder / "odd.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("pkg/a.so", LIBRARY)
    return path


def written(name, data):
    """Make a maker of a plain file."""

    def make(folder):
        path = folder / name
        path.write_bytes(data)
        return path

    return make


def looped(folder):
    """Make a link that leads to itself."""
    path = folder / "loop.so"
    path.symlink_to(path)
    return path


def piped(folder):
    """Make a pipe, which nobody ever writes into."""
    path = folder / "pipe.so"
    os.mkfifo(path)
    return path


def bare_folder(folder):
    """Make a folder with text alone."""
    path = folder / "bare"
    path.mkdir()
    (path / "a.py").write_text("pass\n")
    return path


BAD = {
    "zip bomb": (bomb, "unpacks from"),
    "sizes that lie": (lying, "damaged"),
    "cut wheel": (cut, "its end is missing"),
    "damaged member": (flipped, "damaged: Bad CRC-32"),
    "leads up": (leading_out("../evil.so"), "leads out of it"),
    "leads up inside": (leading_out("pkg/../../evil.so"), "leads out of it"),
    "absolute": (leading_out("/evil.so"), "leads out of it"),
    "backslashes": (leading_out("pkg\\..\\evil.so"), "leads out of it"),
    "vast directory": (vast_directory, "directory claims 4,294,967,295 B"),
    "odd packing": (odd_packing, "packed in a way that no wheel is"),
    "empty": (written("a.so", b""), "is empty"),
    "text": (written("a.so", b"hello, this is no library"), "begins like no wheel"),
    "zip of text": (lambda f: BINARIES.wheel(f / "t.whl", {"a.py": b"pass"}), "no library"),
    "host library": (written("a.so", BINARIES.library(b"x" * 64, b".rodata")), "no device code"),
    "truncated library": (written("a.so", LIBRARY[:-100]), "truncated"),
    "half a header": (written("a.so", LIBRARY[:40]), "ELF structure is broken"),
    "garbage behind the magic": (
        written("a.so", b"\x7fELF\x02\x01\x01" + b"\xff" * 900),
        "truncated",
    ),
    "truncated fatbin": (written("a.fatbin", BINARIES.FATBIN[:900]), "cuobjdump"),
    "link to itself": (looped, "cannot be read"),
    "pipe": (piped, "neither a file nor a folder"),
    "folder without libraries": (bare_folder, "no library"),
    "nothing": (lambda folder: folder / "missing.so", "no such file"),
}


@pytest.mark.parametrize(("make", "told"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_one_sentence_and_leaves_nothing(main, tmp_path, cache, make, told):
    """Each bad file ends in one sentence and a hint, and nothing is left or written elsewhere."""
    folder = tmp_path / "here"
    folder.mkdir()
    path = make(folder)
    before = sorted(str(p) for p in folder.rglob("*"))
    assert told in refusal(main("inspect", path))
    assert sorted(str(p) for p in folder.rglob("*")) == before
    assert not (tmp_path / "evil.so").exists()
    left = list(cache.iterdir()) if cache.exists() else []
    assert [p for p in left if not p.name.startswith("inventory-")] == []


def test_a_folder_is_read_once_however_links_lead_around(tmp_path):
    """Links inside a folder are not followed, so that loops end and no file counts twice."""
    folder = tmp_path / "pkg"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.so").write_bytes(LIBRARY)
    (folder / "deep" / "around").symlink_to(folder)
    (folder / "b.so").symlink_to(folder / "deep" / "a.so")
    os.mkfifo(folder / "pipe.so")
    assert open_container(folder).members == ("deep/a.so",)


def test_a_folder_of_too_many_entries_is_refused(tmp_path, monkeypatch):
    """A folder tree is walked up to a bound."""
    for number in range(12):
        (tmp_path / f"{number}.py").write_text("")
    monkeypatch.setattr(container, "MAX_ENTRIES", 10)
    with pytest.raises(UsageError, match="holds more than 10 entries"):
        open_container(tmp_path)


def test_a_wheel_names_its_package(tmp_path):
    """Name, version and libraries of a wheel are read, and nothing of it is unpacked."""
    path = BINARIES.wheel(tmp_path / "w.whl", {"pkg/a.so": LIBRARY, "pkg/a.py": b""}, "vllm", "9.1")
    found = open_container(path)
    assert (found.package, found.version, found.members) == ("vllm", "9.1", ("pkg/a.so",))
    assert [p.name for p in tmp_path.iterdir()] == ["w.whl"]


def test_the_hash_of_a_folder_changes_with_its_libraries(tmp_path):
    """A folder is known by the names and contents of its libraries."""
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "a.so").write_bytes(LIBRARY)
    first = open_container(folder).sha256
    (folder / "note.txt").write_text("no library")
    assert open_container(folder).sha256 == first
    (folder / "a.so").write_bytes(LIBRARY + b"\0")
    assert open_container(folder).sha256 != first
