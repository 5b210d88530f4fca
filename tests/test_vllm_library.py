# SPDX-License-Identifier: Apache-2.0
"""vLLM's library: where it is found, what is said of it, and which are refused."""

import hashlib
import json
import platform
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from thorprobe.binary import operator_file as library_file
from thorprobe.binary.operator_file import FILE, MEMBER, LibraryFile, find
from thorprobe.cli.operator_option import VllmOperators
from thorprobe.driver import compile as kernels
from thorprobe.errors import CouldNotProbeError, ThorprobeError, UsageError
from thorprobe.run import operator_library as library
from thorprobe.run.operator_seat import GpuSeat, short

MACHINES = {"x86_64": 62, "aarch64": 183}
SCHEMA = (
    "(Tensor logits, Tensor lengths, Tensor(a!) output, Tensor workspace, int k, int max_seq_len)"
    " -> ()"
)


def elf(machine="", rest=b"code"):
    """Return the beginning of a library of a machine, this one's by default."""
    number = MACHINES[machine or platform.machine()]
    return b"\x7fELF" + bytes(14) + number.to_bytes(2, "little") + rest


def digest(data):
    """Return a SHA-256."""
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Keep what is extracted in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def wheel(tmp_path):
    """Return a wheel of vLLM 0.33.0 that holds a library."""
    path = tmp_path / "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, elf())
        archive.writestr("vllm/_moe_C.so", elf(rest=b"other"))
        archive.writestr("vllm-0.33.0.dist-info/METADATA", "Name: vllm\nVersion: 0.33.0\n")
    return path


def test_a_wheel_gives_its_library_and_nothing_else(wheel):
    """The library is put into the cache under its own hash, and a second time found there."""
    found = find(str(wheel))
    assert (found.version, found.sha256, found.of) == ("0.33.0", digest(elf()), "")
    assert found.path.read_bytes() == elf()
    assert sorted(p.name for p in kernels.cache_folder().iterdir()) == [found.path.name]
    assert found.inputs == {FILE: digest(elf()), wheel.name: digest(wheel.read_bytes())}
    found.path.write_bytes(b"spoilt")
    assert find(str(wheel)).path.read_bytes() == elf()


def test_a_library_by_itself_says_what_its_sidecar_says(tmp_path):
    """A pruned copy names the wheel, the released library and what it lacks."""
    path = tmp_path / FILE
    path.write_bytes(elf())
    assert (find(str(path)).version, find(str(path)).of) == ("", "")
    said = {"wheel": "vllm-0.33.0-cp38.whl", "sha256": "b" * 64, "pruned": "less code"}
    (tmp_path / f"{FILE}.origin.json").write_text(json.dumps(said))
    found = find(str(path))
    assert (found.version, found.of, found.pruned) == ("0.33.0", "b" * 64, "less code")
    assert found.sha256 == digest(elf())
    assert set(found.inputs.values()) == {digest(elf()), "b" * 64}


def test_an_unpacked_wheel_states_its_version(tmp_path):
    """The metadata beside the package counts, whether the site folder or the library is named."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / MEMBER).write_bytes(elf())
    (tmp_path / "vllm-0.32.0.dist-info").mkdir()
    (tmp_path / "vllm-0.32.0.dist-info" / "METADATA").write_text("Name: vllm\nVersion: 0.32.0\n")
    for named in (tmp_path, tmp_path / "vllm", tmp_path / MEMBER):
        assert find(str(named)).version == "0.32.0"


def test_the_installed_vllm_is_found_without_importing_it(tmp_path, monkeypatch):
    """Its package would raise if it were imported."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    with pytest.raises(CouldNotProbeError, match="has no `_C_stable"):
        find("")
    (tmp_path / MEMBER).write_bytes(elf())
    assert find("").path == tmp_path / MEMBER
    assert "vllm" not in sys.modules


def test_what_lies_in_the_current_folder_is_not_installed(tmp_path, monkeypatch):
    """A package planted there is not loaded, though the search path begins with that folder."""
    planted, site = tmp_path / "planted", tmp_path / "site"
    for folder in (planted, site):
        (folder / "vllm").mkdir(parents=True)
        (folder / "vllm" / "__init__.py").write_text("")
        (folder / MEMBER).write_bytes(elf(rest=folder.name.encode()))
    monkeypatch.chdir(planted)
    monkeypatch.syspath_prepend(str(planted))
    with pytest.raises(CouldNotProbeError, match="no vLLM in this environment"):
        find("")
    monkeypatch.setattr(sys, "path", ["", str(planted), *sys.path[1:], str(site)])
    assert find("").path == site / MEMBER


def test_a_folder_that_is_only_named_so_is_no_installed_vllm(tmp_path, monkeypatch):
    """A bare folder on the search path is no package."""
    (tmp_path / "vllm").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CouldNotProbeError, match="no vLLM in this environment"):
        find("")


def _refused(tmp_path, kind):
    path = tmp_path / "file.whl"
    if kind == "empty wheel":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("vllm/other.so", elf())
    elif kind == "other machine":
        other = next(name for name in MACHINES if name != platform.machine())
        path.write_bytes(elf(other))
    elif kind == "text":
        path.write_text("no library")
    elif kind == "cut":
        path.write_bytes(b"\x7fELF")
    elif kind == "broken wheel":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(MEMBER, elf())
        data = bytearray(path.read_bytes())
        data[data.index(elf())] ^= 1
        path.write_bytes(data)
    elif kind == "bad sidecar":
        path.write_bytes(elf())
        (tmp_path / f"{path.name}.origin.json").write_text("[")
    elif kind == "empty folder":
        path.mkdir()
    return str(path)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("missing", "there is no such file"),
        ("empty wheel", "it holds no `vllm/_C_stable"),
        ("other machine", "it is built for"),
        ("text", "begins like no wheel"),
        ("cut", "it is no library"),
        ("broken wheel", "it is damaged"),
        ("bad sidecar", "should say where"),
        ("empty folder", "is in it"),
    ],
)
def test_what_is_no_library_of_vllm_is_refused_in_one_sentence(tmp_path, kind, told):
    """With a hint, and without the folder."""
    with pytest.raises(UsageError) as caught:
        find(_refused(tmp_path, kind))
    assert told in caught.value.sentence
    assert str(tmp_path) not in caught.value.sentence
    assert caught.value.hint


def test_a_torch_without_cuda_is_refused(tmp_path):
    """Before the loader is asked."""
    path = tmp_path / FILE
    path.write_bytes(elf())
    if torch.version.cuda is None:
        with pytest.raises(CouldNotProbeError, match="built without CUDA"):
            library.load(str(path))
    with pytest.raises(CouldNotProbeError, match=r"2\.13\.0"):
        library.check_torch("2.13.0+cpu", None)
    library.check_torch("2.11.0", "13.0")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/x/y/a.so: undefined symbol: aoti_torch_library_def", "too old for the stable ABI"),
        ("/x/y/a.so: undefined symbol: torch_new_list_reserve_size", "too old for the stable ABI"),
        ("/x/y/a.so: undefined symbol: _ZN9other3fooEv", "not the one that it needs"),
        ("libcuda.so.1: cannot open shared object file", "no CUDA driver here"),
        ("libcudart.so.13: cannot open shared object file", "is for CUDA 12.8"),
        ("/x/y/a.so: invalid ELF header", "the loader refuses it"),
    ],
)
def test_what_the_loader_says_becomes_a_sentence(said, told):
    """Torch hides the loader's words behind its own; they are found, without the folder."""
    error = OSError("Could not load this library: /x/y/a.so")
    error.__cause__ = OSError(said)
    made = library.unloadable(error, Path("/x/y"), "2.9.0", "12.8")
    assert told in made.sentence
    assert "/x/y" not in made.sentence
    assert made.hint


def _space(name, schema, operators=("cooperative_topk", "persistent_topk")):
    made = torch.library.Library(name, "DEF")
    for operator in operators:
        made.define(operator + schema)
    return getattr(torch.ops, name), made


@pytest.mark.parametrize(
    ("name", "schema", "told"),
    [
        (
            "lib_renamed",
            SCHEMA.replace("logits", "scores"),
            "takes",
        ),
        ("lib_readonly", SCHEMA.replace("(a!)", ""), "takes"),
        ("lib_more", SCHEMA.replace("int k,", "int k, int extra,"), "int extra"),
        ("lib_returns", SCHEMA.replace("()", "Tensor"), "takes"),
    ],
)
def test_operators_of_another_signature_are_never_called(name, schema, told):
    """The sentence says that the library is of another version."""
    space, _keep = _space(name, schema)
    file = LibraryFile(path=Path(FILE), version="9.9", sha256="0" * 64)
    with pytest.raises(CouldNotProbeError, match=r"of vLLM 9\.9") as caught:
        library.with_operators(file, space)
    assert told in caught.value.sentence


def test_a_library_without_one_of_the_operators_is_refused():
    """The one that is missing is named."""
    space, _keep = _space("lib_lacks", SCHEMA, ("persistent_topk",))
    file = LibraryFile(path=Path(FILE), version="", sha256="0" * 64)
    with pytest.raises(CouldNotProbeError, match="no operator cooperative_topk"):
        library.with_operators(file, space)


def test_the_known_operators_are_called_with_their_six_arguments():
    """Both, in the order of the schema."""
    seen = []
    space, keep = _space("lib_right", SCHEMA)
    for operator in ("cooperative_topk", "persistent_topk"):
        keep.impl(operator, lambda *given: seen.append(given[4:]), "CPU")
    file = LibraryFile(path=Path(FILE), version="0.33.0", sha256="1" * 64, of="2" * 64)
    held = library.with_operators(file, space)
    given = [torch.zeros(1, 4), torch.zeros(1), torch.zeros(1, 2), torch.zeros(1), 2, 4]
    held.cooperative_topk(*given)
    held.persistent_topk(*given)
    assert seen == [(2, 4), (2, 4)]
    assert (held.version, held.sha256, held.of) == ("0.33.0", "1" * 64, "2" * 64)


def test_the_policy_of_the_host_code_is_the_versions_own(wheel, tmp_path):
    """A local version part names the same sources; an unknown version needs `--policy`."""
    named = VllmOperators(f"vllm:{wheel}")
    assert named.library.policy == "0.33.0"
    assert named.policies == ("e126687a9a", "0.33.0")
    path = tmp_path / FILE
    path.write_bytes(elf())
    with pytest.raises(UsageError, match="does not say which vLLM"):
        VllmOperators(f"vllm:{path}")
    asked = VllmOperators(f"vllm:{path}", ["e126687a9a", "0.33.0"])
    assert asked.library.policy == "0.33.0"


def test_a_model_calls_no_operator(wheel):
    """Who answers from a profile says so in one sentence."""
    with pytest.raises(ThorprobeError, match="where a model answers"):
        VllmOperators(f"vllm:{wheel}").attach(SimpleNamespace())


@pytest.mark.parametrize(
    ("demangled", "told"),
    [
        (
            "void vllm::cooperative::cooperative_topk_cs8<512u>(vllm::Params<512u>)",
            "cooperative_topk_cs8<512>",
        ),
        (
            "void vllm::persistent::persistent_topk_kernel<512, 4>(vllm::P)",
            "persistent_topk_kernel<512, 4>",
        ),
        ("void (anonymous namespace)::a::f<(unsigned int)512, true>(int)", "f<512, true>"),
        ("plain_topk", "plain_topk"),
    ],
)
def test_kernels_are_named_shortly(demangled, told):
    """Without return type, namespaces, parameters and suffixes of numbers."""
    assert short(demangled) == told


def test_an_oversized_library_is_not_unpacked(wheel, monkeypatch):
    """The bound holds while it is streamed, whatever the archive says of itself."""
    monkeypatch.setattr(library_file, "MAX_MEMBER", 4)
    with pytest.raises(UsageError, match="unpacks to more"):
        find(str(wheel))


class _PlayedGraph:
    """A driver whose graph has a node of memory and two kernels, one by each kind of handle."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUgraphNodeType = SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL=0, CU_GRAPH_NODE_TYPE_MEMSET=2)
    CUkernelNodeAttrID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4)
    CUstream = int

    def __init__(self):
        self.did = []

    def __getattr__(self, name):
        def ask(*given):
            self.did.append(name)
            return self.answers(name, *given)

        return ask

    def answers(self, name, *given):
        node = given[0]
        size = {1: 8, 2: 0}.get(node, 0)
        params = SimpleNamespace(
            func=77 if node == 1 else 0,
            kern=0 if node == 1 else 88,
            gridDimX=3,
            gridDimY=size or 1,
            gridDimZ=1,
            blockDimX=1024,
            blockDimY=1,
            blockDimZ=1,
            sharedMemBytes=156_416,
        )
        dim = SimpleNamespace(x=size and 1, y=size, z=size and 1)
        return {
            "cuStreamEndCapture": (0, "graph"),
            "cuGraphGetNodes": (0, [0, 1, 2] if len(given) > 1 else [], 3),
            "cuGraphNodeGetType": (0, 2 if node == 0 else 0),
            "cuGraphKernelNodeGetParams": (0, params),
            "cuGraphKernelNodeGetAttribute": (0, SimpleNamespace(clusterDim=dim)),
            "cuFuncGetName": (0, b"_ZN4vllm20cooperative_topk_cs8ILj512EEEvv"),
            "cuKernelGetName": (0, b"persistent_topk_kernel"),
        }.get(name, (0,))


@pytest.fixture
def played_seat(monkeypatch):
    """Return a seat on a played driver, without a GPU behind it."""
    driver = _PlayedGraph()
    monkeypatch.setattr("cuda.bindings.driver", driver)
    seat = object.__new__(GpuSeat)
    seat._handle, seat._torch = 5, torch
    seat._runtime = SimpleNamespace(cudaGetLastError=lambda: driver.did.append("cleared"))
    return seat, driver


def test_the_nodes_of_a_capture_name_what_a_call_launches(played_seat):
    """Kernels by either handle, with grid and cluster; the graph is never launched."""
    seat, driver = played_seat
    first, second = seat.captured(lambda: driver.did.append("call"))
    assert (first.name, first.cluster, first.grid) == (
        "cooperative_topk_cs8<512>",
        (1, 8, 1),
        (3, 8, 1),
    )
    assert (second.name, second.cluster, second.block) == (
        "persistent_topk_kernel",
        None,
        (1024, 1, 1),
    )
    assert driver.did[:4] == ["cuStreamBeginCapture", "call", "cuStreamEndCapture", "cleared"]
    assert driver.did[-1] == "cuGraphDestroy"
    assert not {"cuGraphInstantiate", "cuGraphLaunch"} & set(driver.did)


def test_a_call_that_raises_in_a_capture_leaves_the_stream(played_seat):
    """The capture is ended whatever becomes of the call, and its error is not left behind."""
    seat, driver = played_seat
    with pytest.raises(RuntimeError, match="refused"):
        seat.captured(_refusing)
    ended = ["cuStreamBeginCapture", "cuStreamEndCapture", "cleared", "cuGraphDestroy"]
    assert driver.did == ended


def _refusing():
    message = "refused"
    raise RuntimeError(message)
