# SPDX-License-Identifier: Apache-2.0
"""The documentation: its commands run, and its links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?:bash|console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page):
    """Return the thorprobe commands in the fenced shell blocks of a page, as lists of words."""
    found = []
    for block in FENCE.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.removeprefix("$ ").split("&&"):
                words = shlex.split(part, comments=True)
                if words and Path(words[0]).name == "thorprobe":
                    found.append(tuple(words[1:]))
    return found


def needs_a_gpu(words):
    """Say whether a command asks for a device, or for a partition of one."""
    partitioned = any(word.startswith("--partition") for word in words)
    return "--device" in words or (partitioned and "--profile" not in words)


SHOWN = sorted({words for page in PAGES for words in commands(page)})
RUN = [words for words in SHOWN if not needs_a_gpu(words)]


def test_the_readme_shows_commands():
    """The first command of the README is among those that are run here, and others are."""
    assert ("cluster-sweep",) in RUN
    assert any(words[0] == "topk-arms" for words in RUN)


@pytest.mark.parametrize("words", RUN, ids=" ".join)
def test_a_documented_command_runs(main, tmp_path, monkeypatch, words):
    """Every documented command that needs no GPU ends with exit code 0 and prints something."""
    monkeypatch.chdir(tmp_path)
    ran = main(*words)
    assert ran.code == 0, ran.err
    assert ran.out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_file_leads_to_one(page):
    """Every relative link of a page names a file that exists."""
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []
