# SPDX-License-Identifier: Apache-2.0
"""Shipped kernels: recognised by data, asked as their host code asks, never launched by guess."""

import ctypes
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from thorprobe.cli.session import public
from thorprobe.cli.study import SweepStudy
from thorprobe.driver import compile as kernels
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.plan import layout as layouts
from thorprobe.plan import shipped as plans
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.arms import plan
from thorprobe.plan.shipped_kernel import ShippedFunction, ShippedKernel
from thorprobe.plan.sweep import SweepOptions
from thorprobe.plan.sweep import plan as sweep_plan
from thorprobe.record import LaunchSpec, Workload
from thorprobe.run.model import ModelAnswerer
from thorprobe.run.shipped import open_for, parse, recorded

BINARIES = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "binaries.py")))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Share a cache among these tests, apart from the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "shipped-cache"))


@pytest.fixture(scope="module")
def cubins():
    """Compile the stand-ins for an H200 and for Thor."""
    return {target: BINARIES.shipped_cubin(target) for target in ("sm_90", "sm_110f")}


@pytest.fixture(scope="module")
def vllm(cubins, tmp_path_factory):
    """Write a wheel that calls itself vLLM 0.33.0 and holds the stand-ins."""
    path = tmp_path_factory.mktemp("wheel") / "vllm-0.33.0-made.whl"
    members = {f"vllm/{target}.cubin": data for target, data in cubins.items()}
    return BINARIES.wheel(path, members, "vllm", "0.33.0")


@pytest.fixture(scope="module")
def unnamed(cubins, tmp_path_factory):
    """Write the cubin for an H200 alone, of which nobody knows the version."""
    path = tmp_path_factory.mktemp("cubin") / "unnamed.cubin"
    path.write_bytes(cubins["sm_90"])
    return path


def made(**changes):
    """Make a shipped kernel with a cluster of 2."""
    given = {
        "label": "k@0",
        "image": "0" * 64,
        "target": "sm_90",
        "functions": (ShippedFunction(symbol="k", name="k", cluster=(1, 2, 1), threads=1024),),
    }
    return ShippedKernel(**(given | changes))


def test_the_layouts_are_sound():
    """Every layout that comes with thorprobe has its policy, and blocks that add up."""
    found = {layout.name: layout for layout in layouts.layouts()}
    assert set(found) == {"vllm-0.24.0", "vllm-0.29.0", "vllm-0.33.0"}
    for layout in found.values():
        assert sum(layouts.FIELD_BYTES[f] for f in layout.parameters) == layout.parameter_bytes
        assert layout.parts("vllm::cooperative::cooperative_topk_cs16<512u>") == (16, 512)
        assert layout.parts("other::cooperative_topk_cs16<512u>") is None
    assert len(found["vllm-0.33.0"].images) == 7


def test_an_image_is_known_by_its_hash_or_its_wheel():
    """A hash decides, then the wheel's name and release; a likeness of names never does."""
    known = layouts.layouts()[-1].images[0].sha256
    assert layouts.of_image(known).name == "vllm-0.33.0"
    assert layouts.of_image("0" * 64) is None
    assert layouts.of_image("0" * 64, "vllm", "0.33.0+cu130").name == "vllm-0.33.0"
    assert layouts.of_image("0" * 64, "vllm", "0.33.1") is None
    assert layouts.of_image("0" * 64, "other", "0.33.0") is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cluster": (2, 1, 1)}, "compiled cluster"),
        ({"cluster": None}, "compiled cluster"),
        ({"parameter_bytes": 48}, "48 B and not 40"),
        ({"max_threads": 512}, "512 threads and not 1024"),
        ({"name": "vllm::cooperative::cooperative_topk_cs3<512u>"}, "no cluster of 3"),
        ({}, ""),
    ],
)
def test_code_that_differs_from_the_data_is_not_of_the_version(change, told):
    """What the cubin states must agree with the data before anything is launched by it."""
    given = {
        "name": "vllm::cooperative::cooperative_topk_cs2<512u>",
        "cluster": (1, 2, 1),
        "parameter_bytes": 40,
        "max_threads": 1024,
    } | change
    name = given.pop("name")
    assert told in layouts.layouts()[-1].disagrees(name, **given)
    assert bool(told) == bool(layouts.layouts()[-1].disagrees(name, **given))


def test_kernels_of_a_known_version_are_asked_as_its_host_code_asks(vllm):
    """Clusters, threads, bytes and parameters of the version; inputs by name and hash."""
    found = open_for(vllm, "", (9, 0))
    by_k = {kernel.k: kernel for kernel in found.kernels}
    assert sorted(by_k) == [512, 1024]
    kernel = by_k[512]
    assert kernel.label.startswith("cooperative_topk<512>@")
    assert kernel.label.endswith(kernel.image[:12])
    assert [(f.size, f.dynamic_smem) for f in kernel.functions] == [
        (2, 221_952),
        (4, 221_952),
        (8, 156_416),
        (16, 156_416),
    ]
    assert (kernel.layout, kernel.row_limit, kernel.stride_multiple) == ("vllm-0.33.0", 64, 4)
    assert set(found.inputs) == {"vllm-0.33.0-made.whl", "sm_90 image of vllm/sm_90.cubin"}
    assert found.facts()[kernel.label, 8].required_cluster == (1, 8, 1)


def test_each_device_gets_its_own_image(vllm):
    """Thor gets sm_110f, and a device without an image is told which there are."""
    assert {k.target for k in open_for(vllm, "", (11, 0)).kernels} == {"sm_110f"}
    with pytest.raises(
        CouldNotProbeError, match=r"no kernel image for cc 12\.0: only sm_90, sm_110f"
    ):
        open_for(vllm, "", (12, 0))


def test_kernels_of_no_known_version_have_no_parameters(unnamed):
    """A cubin that nobody vouches for is queried; nothing tells how to launch it."""
    found = open_for(unnamed, "", (9, 0))
    assert len(found.kernels) == 8
    assert all(k.parameters == () and k.layout == "" for k in found.kernels)
    assert {f.threads for k in found.kernels for f in k.functions} == {plans.LEAST_THREADS}


def test_a_pattern_chooses_kernels(unnamed):
    """`shipped:FILE#PATTERN` asks about some; a pattern that names none is told."""
    assert parse(f"shipped:{unnamed}#*cs8<512u>") == (unnamed, "*cs8<512u>")
    (only,) = open_for(unnamed, "*cs8<512u>", (9, 0)).kernels
    assert only.label.startswith("vllm::cooperative::cooperative_topk_cs8<512u>@")
    with pytest.raises(UsageError, match="holds no kernel that `nothing` names"):
        open_for(unnamed, "nothing", (9, 0))


def test_a_spec_keeps_the_rules_of_the_host_code():
    """Too many rows, or a stride that the kernel cannot read, is refused before any launch."""
    kernel = made(row_limit=64, stride_multiple=4)
    work = Workload(rows=64, columns=4096, stride=4096, length=4096, k=512)
    spec = plans.spec(kernel, kernel.functions[0], workload=work)
    assert (spec.grid, spec.cluster, spec.compiled_cluster) == ((64, 2, 1), (1, 2, 1), 2)
    for change, told in (({"rows": 65}, "at most 64"), ({"stride": 4098}, "multiples of 4")):
        with pytest.raises(UsageError, match=told):
            plans.spec(
                kernel, kernel.functions[0], workload=msgspec.structs.replace(work, **change)
            )


def test_a_sweep_asks_only_what_was_compiled(vllm):
    """Each kernel is asked at its own sizes, with and without the opt-in; own kernels stay out."""
    held = open_for(vllm, "", (9, 0)).kernels
    specs = sweep_plan(SweepOptions(shipped=held, sizes=(8, 16)))
    assert {(s.cluster_size, s.non_portable) for s in specs} == {
        (size, opt) for size in (8, 16) for opt in (False, True)
    }
    assert len({s.id for s in specs}) == len(specs) == 8
    assert {s.kernel for s in specs} == {kernel.label for kernel in held}
    both = sweep_plan(SweepOptions(shipped=held, kernels=("trivial",), sizes=(8,)))
    assert {s.kernel for s in both} == {"trivial", *(kernel.label for kernel in held)}


def test_a_question_about_shipped_kernels_survives_its_store(vllm):
    """Options written to a store and read back plan the same launches, without the file."""
    asked = SweepStudy(SweepOptions(shipped=open_for(vllm, "", (9, 0)).kernels))
    options = msgspec.json.decode(msgspec.json.encode(asked.options))
    again = SweepStudy(msgspec.convert(options, SweepOptions, strict=False))
    assert [s.id for s in again.first()] == [s.id for s in asked.first()]


def test_arms_take_the_shipped_kernel_and_its_policy_alone(vllm):
    """Every cooperative arm and alternative is the shipped kernel; another policy is refused."""
    held = tuple(k for k in open_for(vllm, "", (9, 0)).kernels if k.k == 512)
    options = ArmsOptions(policies=("0.33.0",), capability=(11, 0), shipped=held)
    probes = plan(options)
    cooperative = {p.spec.kernel for p in probes if p.path == "cooperative"}
    assert cooperative == {held[0].label}
    assert {p.spec.kernel for p in probes if p.path == "persistent"} == {"topk"}
    assert {p.rows for p in probes} == {1, 4, 5, 8, 9, 33, 34, 64, 65}
    with pytest.raises(UsageError, match=r"is launched by 0\.33\.0"):
        plan(msgspec.structs.replace(options, policies=("0.24.0",)))
    with pytest.raises(UsageError, match="multiples of 4"):
        plan(msgspec.structs.replace(options, stride=65_537))
    with pytest.raises(UsageError, match="the file holds kernels for 512"):
        plan(msgspec.structs.replace(options, k=(2048,)))


def test_the_model_answers_from_the_shipped_cubin(vllm):
    """In 8 SMs of an H200 16 CTAs of the shipped kernel are refused and 8 launch."""
    model = ModelAnswerer("h200", "sms=8")
    held = open_for(vllm, "", (9, 0))
    model.attach(held)
    specs = sweep_plan(SweepOptions(shipped=held.kernels, partition="sms=8"))
    seen = {(o.spec.cluster_size, o.spec.non_portable): o.observed for o in model.ask(specs)}
    assert seen[16, True].launch_code == 912
    assert seen[16, True].max_active == 0
    assert seen[8, True].launch_code == 0
    assert seen[8, True].max_active == 1
    assert "vllm-0.33.0-made.whl" in model.inputs


def test_the_model_answers_a_store_without_the_file(vllm):
    """What a store's options say of shipped kernels is enough to predict its launches again."""
    held = open_for(vllm, "", (9, 0))
    asked = SweepStudy(SweepOptions(shipped=held.kernels))
    with_file, without = ModelAnswerer("h200"), ModelAnswerer("h200")
    with_file.attach(held)
    without.attach(recorded(msgspec.json.decode(msgspec.json.encode(asked.options))))
    told = [[o.observed for o in model.ask(asked.first())] for model in (with_file, without)]
    assert told[0] == told[1]
    with pytest.raises(UsageError, match="cannot be read"):
        recorded({"shipped": [{"label": 1}]})


def test_a_cluster_in_another_dimension_is_judged_by_its_own(tmp_path):
    """A kernel compiled for clusters along x is asked along x, and is no mismatch."""
    text = 'extern "C" __global__ void __cluster_dims__(4, 1, 1) wide(int* p) { p[0] = 1; }'
    path = tmp_path / "wide.cubin"
    path.write_bytes(BINARIES.shipped_cubin("sm_110", text))
    held = open_for(path, "", (11, 0))
    (spec,) = {
        s.id: s for s in sweep_plan(SweepOptions(shipped=held.kernels)) if s.non_portable
    }.values()
    assert (spec.cluster, spec.grid) == ((4, 1, 1), (4, 1, 1))
    model = ModelAnswerer("thor")
    model.attach(held)
    assert [o.observed.launch_code for o in model.ask([spec])] == [None, 0]


def test_the_parameter_block_is_one_structure():
    """Four pointers and two numbers lie in 40 bytes, in the layout's order."""
    from thorprobe.run.shipped_module import parameters

    names = ("logits", "output", "lengths", "workspace", "rows", "stride")
    values = {name: number * 0x11 for number, name in enumerate(names, 1)}
    (block,), (kind,) = parameters(made(parameters=names), values)
    assert kind is None
    assert ctypes.sizeof(block) == 40
    words = [int.from_bytes(bytes(block)[at : at + 8], "little") for at in range(0, 32, 8)]
    assert words == [0x11, 0x22, 0x33, 0x44]
    assert bytes(block)[32:] == (0x55).to_bytes(4, "little") + (0x66).to_bytes(4, "little")


def test_topk_arms_shows_the_shipped_kernel(main, vllm, tmp_path):
    """The page names the shipped kernel, and the store neither folder nor guess."""
    page = tmp_path / "page.json"
    ran = main(
        "topk-arms", "--profile", "thor", "--kernel", f"shipped:{vllm}", "--json", "-o", page
    )
    assert ran.code == 0, ran.err
    document = json.loads(page.read_text())
    assert str(vllm.parent) not in page.read_text()
    assert f"shipped:{vllm.name}" in document["argv"]
    assert vllm.name in document["inputs"]
    arms = {tuple(arm["rows"]): arm for arm in document["summary"]["arms"]}
    assert arms[1, 4]["verdict"] == "refused"
    assert arms[1, 4]["kernel"].startswith("cooperative_topk<512>@")
    assert arms[34, 64]["verdict"] == "launches"
    text = main("topk-arms", "--profile", "thor", "--kernel", f"shipped:{vllm}").out
    assert "shipped cooperative_topk<512>" in text
    assert "layout vllm-0.33.0" in text
    assert "thorprobe's cluster_topk" not in text


def test_a_store_of_shipped_kernels_needs_no_file_to_be_shown(main, vllm, tmp_path):
    """`report` renders such a store alone; `--resume` asks for the file again."""
    store = tmp_path / "run.jsonl"
    ran = main(
        "cluster-sweep", "--profile", "h200", "--kernel", f"shipped:{vllm}", "--store", store
    )
    assert ran.code == 0, ran.err
    shown = main("report", store)
    assert shown.code == 0, shown.err
    assert "cooperative_topk" in shown.out
    refused = main("cluster-sweep", "--resume", store)
    assert refused.code == 2
    assert "no file that was named holds" in refused.err
    resumed = main("cluster-sweep", "--resume", store, "--kernel", f"shipped:{vllm}")
    assert resumed.code == 0, resumed.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("cluster-sweep", "--kernel", "shipped:"), 2, "names no file"),
        (("cluster-sweep", "--kernel", "shipped:none.so"), 2, "there is no such file"),
        (("topk-arms", "--kernel", "topk"), 2, "or with a shipped one"),
        (
            ("cluster-sweep", "--kernel", "shipped:a", "--kernel", "shipped:b"),
            2,
            "one file is asked about at a time",
        ),
    ],
)
def test_a_bad_shipped_file_is_a_usage_error(main, arguments, code, told):
    """Each way to name no file is one sentence with a hint, before a device is touched."""
    ran = main(*arguments)
    assert ran.code == code
    assert told in ran.err
    assert "hint: " in ran.err


def test_kernels_of_no_known_version_have_no_arms(main, unnamed):
    """No num_rows leads to a kernel whose version is not known; the sweep still asks about it."""
    ran = main("topk-arms", "--profile", "h200", "--kernel", f"shipped:{unnamed}")
    assert ran.code == 2
    assert "belong to no version whose arms are known" in ran.err
    swept = main("cluster-sweep", "--profile", "h200", "--kernel", f"shipped:{unnamed}")
    assert swept.code == 0, swept.err
    assert "16 launch" in swept.out


def test_a_device_without_an_image_is_could_not_probe(main, vllm):
    """A profile whose image the file lacks ends with exit code 3 and the reason."""
    ran = main("cluster-sweep", "--profile", "gb10", "--kernel", f"shipped:{vllm}")
    assert ran.code == 3
    assert "no kernel image for cc 12.1" in ran.err


def test_ids_of_launches_of_own_kernels_are_as_they_were():
    """Nothing about shipped kernels enters the record of other launches."""
    spec = LaunchSpec(kernel="trivial", grid=(1, 4, 1), block=(32, 1, 1), cluster=(1, 4, 1))
    assert spec.id == "trivial/g1x4x1/b32x1x1/c1x4x1/s0/np0"
    assert "shipped" not in msgspec.json.encode(spec).decode()
    assert kernels.hashes(["trivial"])


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("shipped:/deep/folder/a.so", "shipped:a.so"),
        ("shipped:folder/a.so", "shipped:a.so"),
        ("--kernel=shipped:folder/a.so", "--kernel=shipped:a.so"),
        ("shipped:a.so", "shipped:a.so"),
    ],
)
def test_evidence_names_the_shipped_file_without_its_folder(word, shown):
    """The command that a page shows has the file's name alone."""
    assert public([word]) == (shown,)
