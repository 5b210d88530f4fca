# SPDX-License-Identifier: Apache-2.0
"""The catalogue as a page, entries and terms, and how ``explain`` behaves on the command line."""

import json
import os
from pathlib import Path

import pytest

from thorprobe.explain.answer import explain
from thorprobe.explain.asked import Asked
from thorprobe.explain.page import catalogue_page
from thorprobe.explain.terms import TERMS
from thorprobe.judge.catalogue import CATALOGUE

PAGE = Path(__file__).parents[1] / "docs/causes.md"


def test_the_page_of_causes_is_the_catalogue():
    """docs/causes.md says what the catalogue says, entry by entry."""
    made = catalogue_page(CATALOGUE)
    if os.environ.get("THORPROBE_UPDATE_SNAPSHOTS") == "1":
        PAGE.write_text(made, encoding="utf-8")
    assert made == PAGE.read_text(encoding="utf-8")
    assert all(f"`{entry.key}`" in made for entry in CATALOGUE)


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.key)
def test_a_cause_prints_its_entry(entry, main):
    """`explain CAUSE` shows number, sentence, proof and next action."""
    told = main("explain", entry.key)
    text = " ".join(told.out.split())
    assert told.code == 0
    assert f"{entry.number} {entry.key}" in text
    assert entry.next_action in text


@pytest.mark.parametrize("word", TERMS)
def test_a_term_is_told(word, main):
    """`explain TERM` is the term's sentence, whatever its case."""
    for asked in (word, word.upper()):
        told = main("explain", asked)
        assert told.code == 0
        assert TERMS[word] in " ".join(told.out.split())


TEXTS = {
    "torch.AcceleratorError: CUDA error: no kernel image is available": "no-kernel-image",
    "cupy_backends.cuda.api.driver.CUDADriverError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the "
    "provided PTX was compiled with an unsupported toolchain.": "ptx-too-new",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 106496, "
    "Hardware limit: 101376. Reducing block sizes may help": "smem-over-optin",
    "nvrtc: error: invalid value for --gpu-architecture (-arch)": "compile-failed",
    "ptxas error: Entry function 'f' uses too much shared data (0xc980 bytes, 0xc000 max)": (
        "compile-failed"
    ),
    "too many blocks in cooperative launch": "cooperative-too-large",
    "cudaErrorInvalidValue: invalid argument": "undetermined",
    "Returning 912 (CUDA_ERROR_INVALID_CLUSTER_SIZE) from cuLaunchKernelEx\nRequested cluster size "
    "exceeds portable 8, non-portable sizes are not enabled on the function": (
        "non-portable-not-enabled"
    ),
    "CUDA error: an illegal memory access was encountered": "kernel-fault",
    "CUDA_ERROR_INVALID_PTX": "invalid-ptx",
    "PTX JIT compiler library not found": "ptx-compiler-missing",
    "device kernel image is invalid": "invalid-image",
    "the engine hung and the watchdog ended it": "hang",
    "912": "undetermined",
    "RuntimeError: CUDA runtime error runtime.hpp:108 '98'": "undetermined",
    "error: code=209": "no-kernel-image",
}


@pytest.mark.parametrize("text", TEXTS)
def test_sentences_are_recognised(text, main):
    """The sentences of driver, runtime, compilers and frameworks, as an argument."""
    told = main("explain", text, "--json")
    assert told.code == 0
    summary = json.loads(told.out)["summary"]
    assert summary["cause"] == TEXTS[text]
    assert summary["missing"] or summary["cause"] != "undetermined"


def test_a_log_is_read_from_a_file_and_its_first_error_counts(main, tmp_path):
    """What torch repeats after a refused launch does not hide it."""
    log = tmp_path / "vllm.log"
    log.write_text(
        "cooperative_topk launch failed: a kernel launch error has occurred due to cluster "
        "misconfiguration\n"
        * 2
        + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    )
    given = ("--cluster", "1,16,1", "--grid", "1,16,1", "--non-portable", "--profile", "thor")
    told = main("explain", str(log), *given, "--json")
    summary = json.loads(told.out)["summary"]
    assert summary["cause"] == "larger-than-any-gpc"
    assert any("illegal memory access" in line for line in summary["remarks"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("explain", "no such words"), "no such words"),
        (("explain", "--grid", "4,x,1"), "4,x,1"),
        (("explain", "--images", "sm_banana"), "sm_banana"),
        (("explain", "--profile", "atari", "--code", "1"), "atari"),
        (("explain", "--capability", "nine"), "nine"),
        (("explain", "--stage", "launch"), "launch"),
        (("explain", "--ptx-version", "new"), "new"),
    ],
)
def test_a_wrong_option_is_one_sentence(words, named, main):
    """Usage errors name what was given and hint at what is taken."""
    told = main(*words)
    assert told.code == 2
    assert named in told.err
    assert "hint:" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(("ctas", "cause"), [(93, "residency-exceeded"), (20, None)])
def test_whether_a_fallback_without_a_cluster_runs_on_20_sms(ctas, cause):
    """CTAs that wait for each other are counted against CTAs per SM x SMs of the profile."""
    asked = Asked(
        waits=True,
        grid=str(ctas),
        block="1024",
        cluster="0",
        profile="thor",
        compiled_cluster="0",
        registers=52,
        static_smem=0,
        smem=4_096,
        setter_limit=4_096,
        max_threads=1_024,
        cooperative=False,
        non_portable=False,
    )
    told = explain("", asked).summary
    assert told.cause == cause
    assert any(f"{ctas} CTAs, of which 20 are resident" in remark for remark in told.remarks)


def test_candidates_are_ranked_by_how_often_they_are_the_cause():
    """A bare `invalid argument` is shared memory first; a bare 912 the device or the opt-in."""
    value = explain("cudaErrorInvalidValue", Asked()).summary
    assert value.candidates[0] == "smem-over-optin"
    assert value.missing[0] == "smem"
    cluster = explain("CUDA_ERROR_INVALID_CLUSTER_SIZE", Asked()).summary
    assert cluster.candidates[:2] == ("larger-than-any-gpc", "non-portable-not-enabled")


def test_text_speaks_of_the_popular_reading():
    """A code 1 with a cluster on cc 12.x is not a lack of clusters, and the answer says so."""
    asked = Asked(capability="12.1", cluster="1,8,1", smem=156_416, code=1)
    told = explain("", asked).summary
    assert told.cause == "smem-over-optin"
    assert len(told.contradicted) == 2
    assert "101,376" in told.finding
