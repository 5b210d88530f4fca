# SPDX-License-Identifier: Apache-2.0
"""What ``inspect`` says of a file is what a device would find in it."""

import json

import pytest

from binaries import hungry_cubin, most_threads, shipped_cubin, wheel
from thorprobe.binary import cubin as cubins


@pytest.fixture(scope="module")
def hungry():
    """Compile a kernel without a cluster that wants many registers."""
    return hungry_cubin()


@pytest.fixture
def file(hungry, tmp_path):
    """Write it to a file by itself."""
    path = tmp_path / "hungry.cubin"
    path.write_bytes(hungry)
    return path


def _summary(main, *words):
    return json.loads(main("inspect", *words, "--json", "--no-progress").out)["summary"]


def _without_note(cubin):
    """Take the compiler's note of its target out of a cubin, as some toolkits leave it out."""
    return cubin.replace(b"-arch sm_", b"-bark sm_")


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_121a"])
def test_a_cubin_without_a_note_still_tells_its_suffix(target):
    """What runs on one capability alone is told from the file itself, not only from its note."""
    held = shipped_cubin(target, 'extern "C" __global__ void f(int *p) { *p = 1; }')
    assert cubins.contents(held)[0] == target
    bare = _without_note(held)
    assert bare != held
    assert cubins.contents(bare)[0] == target


def test_the_flag_of_older_toolkits_is_read_as_well():
    """Bit 3 of the flags says the same where no section does."""
    held = _without_note(
        shipped_cubin("sm_100", 'extern "C" __global__ void f(int *p) { *p = 1; }')
    )
    flags = int.from_bytes(held[48:52], "little") | 0x8
    assert cubins.contents(held[:48] + flags.to_bytes(4, "little") + held[52:])[0] == "sm_100a"


def test_most_threads_are_those_whose_registers_fit(main, file):
    """A warp takes registers in eights a thread, of 65,536: 156 a thread leave 384 threads."""
    (kernel,) = _summary(main, file, "--kernel", "*")["kernels"]
    assert kernel["registers"] > 128
    assert kernel["max_threads"] == most_threads(kernel["registers"]) < 512


def test_a_file_without_a_compiled_cluster_still_says_what_loads(main, file):
    """Each device has an answer even where no kernel is listed."""
    found = _summary(
        main, file, "--profile", "thor", "--capability", "10.3", "--capability", "12.1"
    )
    told = {device["title"]: device["finding"] for device in found["devices"]}
    assert "no kernel image for cc 11.0: only sm_120" in told["NVIDIA Thor"]
    assert "no kernel image for cc 10.3: only sm_120" in told["cc 10.3"]
    assert "loads sm_120" in told["cc 12.1"]


def test_a_reason_names_all_targets_of_the_files(main, tmp_path):
    """Where nothing loads, the reason is about every image, not about the first library's."""
    for target in ("sm_90", "sm_100"):
        (tmp_path / f"{target}.cubin").write_bytes(shipped_cubin(target))
    found = _summary(main, *sorted(tmp_path.glob("*.cubin")), "--capability", "12.0")
    assert "only sm_90, sm_100, and no PTX" in found["devices"][0]["finding"]


def test_results_are_judged(main, tmp_path):
    """A cluster of 16 that Thor refuses is refused in `results[]` too, with its cause."""
    path = tmp_path / "thor.cubin"
    path.write_bytes(shipped_cubin("sm_110"))
    answer = json.loads(main("inspect", path, "--profile", "thor", "--json", "--no-progress").out)
    refused = [one for one in answer["results"] if one["observed"].get("launch_code") == 912]
    assert refused
    assert {(one["verdict"], one["cause"]) for one in refused} == {
        ("refused", "larger-than-any-gpc")
    }
    assert not [one for one in answer["results"] if one["verdict"] == "not probed"]


@pytest.mark.parametrize(("capability", "code"), [("12.1", 0), ("11.0", 1), ("10.3", 1)])
@pytest.mark.parametrize("pattern", [(), ("--kernel", "*")])
def test_a_missing_image_can_fail_a_build(pattern, capability, code, main, file):
    """`--fail-on no-image` is exit code 1, on stdout and in the JSON alike."""
    words = (file, *pattern, "--capability", capability, "--fail-on", "no-image", "--no-progress")
    told = main("inspect", *words, "--json")
    assert told.code == code
    assert json.loads(told.out)["exit_code"] == code


PTX = """
.version 8.8
.target {target}
.address_size 64

.visible .entry f(.param .u64 p)
.reqnctapercluster 8, 1, 1
{{
    ret;
}}
"""


@pytest.mark.parametrize(
    ("target", "capability", "loads"),
    [("sm_90", "11.0", True), ("sm_90a", "11.0", False), ("sm_110f", "11.0", True)],
)
def test_a_bare_ptx_text_is_read(target, capability, loads, main, tmp_path):
    """A `.ptx` holds PTX of its target, with the cluster that it requires."""
    path = tmp_path / "kernel.ptx"
    path.write_text(PTX.format(target=target))
    found = _summary(main, path, "--capability", capability)
    held = target.replace("sm_", "compute_")
    assert [(k["target"], k["required_cluster"]) for k in found["kernels"]] == [(held, [8, 1, 1])]
    assert (f"loads {held}" in found["devices"][0]["finding"]) == loads


@pytest.mark.parametrize("text", ["", "no PTX at all\n", "\n.version 8.8\n"])
def test_a_text_that_is_no_ptx_is_told(text, main, tmp_path):
    """A file of that name without version and target is a usage error in one sentence."""
    path = tmp_path / "kernel.ptx"
    path.write_text(text)
    told = main("inspect", path, "--no-progress")
    assert told.code == 2
    assert "kernel.ptx" in told.err
    assert "Traceback" not in told.err


def test_no_kernel_found_says_what_was_not_read(main, hungry, tmp_path):
    """Where a part of a wheel could not be read, that none was found is said of the rest alone."""
    members = {"a/whole.cubin": hungry, "a/part.cubin": hungry[:4_000]}
    finding = _summary(main, wheel(tmp_path / "made-1.0-py3-none-any.whl", members))["finding"]
    assert "No kernel with a cluster compiled in, of what was read; not read: " in finding
    assert "part.cubin" in finding
    whole = {"a/whole.cubin": hungry}
    finding = _summary(main, wheel(tmp_path / "whole-1.0-py3-none-any.whl", whole))["finding"]
    assert finding == "No kernel with a cluster compiled in"
