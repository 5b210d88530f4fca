# SPDX-License-Identifier: Apache-2.0
"""The evidence store: nothing recorded is lost, nothing foreign is believed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thorprobe.cli.measure import measure, of_recording
from thorprobe.cli.study import SweepStudy
from thorprobe.errors import StoreError, UsageError
from thorprobe.plan.sweep import SweepOptions
from thorprobe.record import Header, Origin
from thorprobe.run.gpu import GpuAnswerer
from thorprobe.run.replay import ReplayAnswerer
from thorprobe.run.store import Store, read

FAKE = (sys.executable, str(Path(__file__).parent / "fake_worker.py"))
OPTIONS = SweepOptions(kernels=("trivial",))


def _run(path=None, kept=None, options=OPTIONS):
    answerer = GpuAnswerer(command=FAKE, deadline_s=5)
    try:
        return measure(SweepStudy(options), answerer, store_path=path, kept=kept)
    finally:
        answerer.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Write a finished store of a sweep by the fake worker."""
    path = tmp_path_factory.mktemp("store") / "run.jsonl"
    return path, _run(path)


def test_a_store_gives_back_the_document(finished):
    """What was judged while measuring is what the store says afterwards."""
    path, document = finished
    again = of_recording(read(path))
    assert again.summary == document.summary
    assert again.results == document.results
    assert (again.wall_s, again.ended) == (document.wall_s, document.ended)
    assert again.inputs == document.inputs
    assert again.software == document.software


def test_a_killed_run_resumes_where_it_was(tmp_path):
    """After SIGKILL the store holds every finished record once, and resuming adds the rest."""
    path = tmp_path / "run.jsonl"
    program = (
        "import sys, msgspec\n"
        "from thorprobe.cli.measure import measure\n"
        "from thorprobe.cli.study import SweepStudy\n"
        "from thorprobe.plan import sweep\n"
        "from thorprobe.run.gpu import GpuAnswerer\n"
        "from pathlib import Path\n"
        "class Slow(GpuAnswerer):\n"
        "    def ask(self, specs):\n"
        "        import time\n"
        "        for outcome in super().ask(specs):\n"
        "            time.sleep(0.02)\n"
        "            yield outcome\n"
        f"answerer = Slow(command={FAKE!r}, deadline_s=5)\n"
        "options = sweep.SweepOptions(kernels=('trivial',))\n"
        f"measure(SweepStudy(options), answerer, store_path=Path({str(path)!r}))\n"
    )
    root = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": root}
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > 12:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with path.open("ab") as file:
        file.write(b'{"type":"outcome","id":"half a rec')
    kept = read(path)
    before = [o.id for o in kept.outcomes]
    assert 12 <= len(before) < 128
    assert kept.footer is None
    document = _run(path, kept)
    after = [o.id for o in read(path).outcomes]
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == len(document.results)
    assert {s.id for s in SweepStudy(OPTIONS).first()} <= set(after)
    assert read(path).footer is not None


def test_a_run_killed_while_it_read_the_gpc_map_is_completed(finished, tmp_path):
    """The launches of the map that are missing are made on resuming, not only the sizes."""
    path, document = finished
    lines = path.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:-4]))
    kept = read(cut)
    held = [o for o in kept.outcomes if o.spec.spin_cycles]
    assert held
    assert of_recording(kept).missing == len(document.results) - len(kept.outcomes)
    again = _run(cut, kept)
    assert {o.id for o in again.results} == {o.id for o in document.results}
    assert again.missing == 0


def test_resuming_a_finished_run_asks_nothing(finished):
    """A finished store is complete: resuming it leaves the records as they are."""
    path, document = finished
    again = _run(path, read(path))
    assert [o.id for o in again.results] == [o.id for o in document.results]


def test_resuming_another_question_is_refused(finished):
    """A store is resumed by the question that began it only."""
    path, _ = finished
    with pytest.raises(UsageError, match="planned by another"):
        _run(path, read(path), SweepOptions(kernels=("trivial",), sizes=(4, 8)))


def test_a_store_is_never_overwritten(finished):
    """Naming an existing store without --resume is an error with the way out."""
    path, _ = finished
    with pytest.raises(UsageError, match="exists already") as caught:
        _run(path)
    assert "--resume" in caught.value.hint


def test_a_replay_answers_as_recorded(finished):
    """A recording answers every launch, says that it is one, and judges the same."""
    path, document = finished
    answerer = ReplayAnswerer(path)
    replayed = measure(SweepStudy(OPTIONS), answerer)
    assert replayed.origin is Origin.RECORDED
    assert {o.origin for o in replayed.results} == {Origin.RECORDED}
    assert replayed.summary.kernels == document.summary.kernels
    assert all("run.jsonl" in o.source for o in replayed.results)


def test_a_replay_waives_what_it_does_not_hold(finished):
    """A launch that is not in the recording is waived, not guessed."""
    path, _ = finished
    replayed = measure(SweepStudy(SweepOptions(kernels=("topk",))), ReplayAnswerer(path))
    assert {o.status.value for o in replayed.results} == {"waived"}
    assert replayed.exit_code == 3


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "no thorprobe store"),
        (b"hello\n", "line 1 is no thorprobe record"),
        (b'{"a": 1}\n', "line 1 is no thorprobe record"),
        (b"[1, 2]\n", "line 1 is no thorprobe record"),
        (b"\xff\xfe\x00\n", "line 1 is no thorprobe record"),
        (b"[" * 100_000 + b"\n", "line 1 is no thorprobe record"),
        (b'{"type":"header","schema":{"name":"thorprobe","version":99}}\n', "schema version 99"),
        (b"x" * (5 * 2**20) + b"\n", "longer than"),
    ],
)
def test_a_foreign_file_is_refused_in_one_sentence(tmp_path, content, sentence):
    """A file that is no store is named, with the line, and nothing is made of it."""
    path = tmp_path / "foreign.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence) as caught:
        read(path)
    assert caught.value.hint
    assert "\n" not in caught.value.sentence


def test_a_broken_line_in_the_middle_is_named(finished, tmp_path):
    """Damage anywhere but at the very end is an error that names the line."""
    path, _ = finished
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3][:-20]
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\n".join(lines))
    with pytest.raises(UsageError, match="line 4"):
        read(broken)


def test_a_missing_file_is_named(tmp_path):
    """A store that is not there is an error with the reason."""
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "none.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full to play a full disk")
def test_a_full_disk_is_said_and_stops_the_run(fake_device):
    """Writing to a full disk is a StoreError with the reason, at the first record."""
    header = Header(
        command="cluster-sweep",
        started="2026-11-30T00:00:00Z",
        origin=Origin.MEASURED,
        device=fake_device,
    )
    with pytest.raises(StoreError, match="no space left"):
        Store(Path("/dev/full"), header)


def test_a_store_that_cannot_be_created_is_refused(tmp_path):
    """A place that cannot be written is a usage error before anything is launched."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        _run(blocker / "run.jsonl")
