# SPDX-License-Identifier: Apache-2.0
"""`thorprobe inspect`: what files hold, and what each device makes of it."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

BINARIES = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "binaries.py")))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Share a cache among these tests, apart from the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "inspect-cache"))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Write the least library with the fatbin of the tests."""
    path = tmp_path_factory.mktemp("lib") / "made.so"
    path.write_bytes(BINARIES.library(BINARIES.FATBIN))
    return path


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    """Write a wheel that calls itself vLLM 0.33.0, with stand-ins for Thor and for cc 12.x."""
    targets = ("sm_110f", "sm_120f")
    members = {f"vllm/{t}.cubin": BINARIES.shipped_cubin(t) for t in targets}
    path = tmp_path_factory.mktemp("wheel") / "vllm-0.33.0-made.whl"
    return BINARIES.wheel(path, members, "vllm", "0.33.0")


def answer(main, *arguments):
    """Run `inspect --json` and return its document."""
    ran = main("inspect", *arguments, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def rows(document, device=0):
    """Return the rows of one device by symbol."""
    return {row["symbol"]: row for row in document["summary"]["devices"][device]["kernels"]}


def test_the_summary_holds_what_the_contract_says(main, library):
    """Targets and kernels with name, target, registers, bytes, threads and required cluster."""
    summary = answer(main, library)["summary"]
    assert [t["target"] for t in summary["targets"]] == ["sm_90a", "sm_110f", "compute_90"]
    assert [t["isa"] for t in summary["targets"]] == [[], [], ["9.0"]]
    two = next(k for k in summary["kernels"] if k["name"] == "two" and k["target"] == "sm_110f")
    assert two["registers"] > 0
    assert (two["static_smem"], two["max_threads"], two["parameter_bytes"]) == (0, 256, 8)
    assert two["required_cluster"] == [1, 2, 1]
    assert two["dynamic_smem"] is None


def test_kernels_with_a_cluster_are_listed_unless_a_pattern_names_others(main, library):
    """By default the clustered ones, `*` all, a word those that have it in their name."""
    named = {k["name"] for k in answer(main, library)["summary"]["kernels"]}
    assert named == {"two", "four<512u>"}
    named = {k["name"] for k in answer(main, library, "--kernel", "*")["summary"]["kernels"]}
    assert named == {"two", "four<512u>", "plain"}
    named = {k["name"] for k in answer(main, library, "--kernel", "lain")["summary"]["kernels"]}
    assert named == {"plain"}


def test_a_capability_alone_says_which_image_is_loaded(main, library):
    """Rules decide the image; nothing is said of launches, of which nothing is known."""
    document = answer(main, library, "--capability", "8.9", "--capability", "11.0")
    assert (document["origin"], document["device"]) == ("published", None)
    old = rows(document, 0)["two"]
    assert (old["target"], old["verdict"], old["cause"]) == ("", "refused", "no-kernel-image")
    thor = rows(document, 1)["two"]
    assert (thor["target"], thor["verdict"]) == ("sm_110f", None)


def test_thor_refuses_sixteen_of_a_known_kernel_and_leaves_four_open(main, vllm):
    """The model answers for the image that Thor loads, at the footprint of the host code."""
    document = answer(main, vllm, "--profile", "thor")
    found = {(r["name"], r["cluster"]): r for r in rows(document).values()}
    by_size = {size: row for (name, size), row in found.items() if name.endswith("<512u>")}
    assert {row["target"] for row in by_size.values()} == {"sm_110f"}
    assert {size: row["verdict"] for size, row in by_size.items()} == {
        2: "launches",
        4: "undetermined",
        8: "undetermined",
        16: "refused",
    }
    assert (by_size[16]["code"], by_size[16]["cause"]) == (912, "larger-than-any-gpc")
    assert by_size[8]["under_claims"] == {"largest-cluster-8": "launches"}
    assert by_size[8]["max_active_range"] == [0, 2]
    assert not any(row["least"] for row in by_size.values())
    assert (document["origin"], document["device"]["profile"]) == ("predicted", "thor")
    assert set(document["inputs"]) == {vllm.name, "profile thor"}


def test_too_much_shared_memory_is_not_mixed_with_the_cluster(main, vllm):
    """On GB10 every size is refused with 1 for its bytes, whatever the cluster."""
    document = answer(main, vllm, "--profile", "gb10")
    seen = {(r["verdict"], r["code"], r["cause"]) for r in rows(document).values()}
    assert seen == {("refused", 1, "smem-over-optin")}


def test_what_is_not_known_of_a_launch_is_said(main, library):
    """A kernel of no known version is asked with the least it can take, and marked so."""
    document = answer(main, library, "--profile", "h200")
    assert all(row["least"] and row["verdict"] == "launches" for row in rows(document).values())
    ran = main("inspect", library, "--profile", "h200")
    assert "launches (least)" in ran.out
    assert "asked with one warp" in ran.out


def test_ptx_alone_promises_no_launch(main, library):
    """What the driver has yet to compile is undetermined at best."""
    document = answer(main, library, "--profile", "gb10")
    assert {r["target"] for r in rows(document).values()} == {"compute_90"}
    assert {r["verdict"] for r in rows(document).values()} == {"undetermined"}


def test_a_device_is_asked_and_launches_nothing(fake_gpu, main, library, monkeypatch):
    """`--device` attaches the kernels without parameters, so that the worker can only query."""
    fake, _ = fake_gpu
    loads = []

    class Watching(fake):
        def __init__(self, ordinal):
            super().__init__(ordinal, "", oracle="numpy", deadline_s=10.0)

        def attach(self, shipped):
            loads.append(shipped)
            super().attach(shipped)

    monkeypatch.setattr("thorprobe.inspect.device.GpuAnswerer", Watching)
    document = answer(main, library, "--device", "0")
    assert document["origin"] == "measured"
    assert all(kernel.parameters == () for load in loads for kernel in load.kernels)
    assert [len(load.images) for load in loads] == [1]


def test_several_files_are_told_apart(main, library, vllm):
    """Rows name their file, and the inputs hold both hashes."""
    document = answer(main, library, vllm)
    assert {f["name"] for f in document["summary"]["files"]} == {library.name, vllm.name}
    assert set(document["inputs"]) == {library.name, vllm.name}
    files = {k["file"] for k in document["summary"]["kernels"]}
    assert files == {
        "made.so",
        f"{vllm.name}: vllm/sm_110f.cubin",
        f"{vllm.name}: vllm/sm_120f.cubin",
    }


def test_the_page_is_made_anew_from_the_answer(main, library, tmp_path):
    """`report` renders the stored answer; neither holds a folder of this machine."""
    stored = tmp_path / "a.json"
    assert main("inspect", library, "--profile", "thor", "--json", "-o", stored).code == 0
    shown = main("report", stored)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("# Inspection")
    assert "thorprobe inspect made.so --profile thor" in shown.out
    for text in (shown.out, stored.read_text()):
        assert str(library.parent) not in text


def test_nothing_matching_is_an_answer(main, library):
    """A pattern that names no kernel ends well and says so."""
    ran = main("inspect", library, "--kernel", "nothing")
    assert ran.code == 0
    assert "No kernel that `nothing` names" in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--capability", "eleven"), "eleven"),
        (("--device", "x"), "a device is a number"),
        (("--profile", "nothing"), "the profiles are"),
        (("--format", "junit"), "junit` was asked for, but this answer has"),
    ],
)
def test_a_bad_option_is_told(main, library, arguments, told):
    """Each bad option is one sentence with a hint."""
    ran = main("inspect", library, *arguments)
    assert ran.code == 2
    assert told in ran.err
    assert "hint: " in ran.err
    assert ran.out == ""
