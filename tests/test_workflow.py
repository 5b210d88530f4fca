# SPDX-License-Identifier: Apache-2.0
"""The evidence workflow: its steps are scripts, and playing them leaves what it uploads."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/evidence.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
SCRIPTS = {f"scripts/{path.name}" for path in (ROOT / "scripts").glob("evidence-*.sh")}
NEEDED = ("thorprobe", "kernels", "scenarios", "scripts", "reports")
PACKAGES = sysconfig.get_paths()["purelib"]
FAKE = """#!{python}
import sys
sys.path[:0] = [{root!r}]
from thorprobe.run import gpu
class Fake(gpu.GpuAnswerer):
    def __init__(self, ordinal, partition, *, oracle, deadline_s):
        worker = ({python!r}, {worker!r})
        super().__init__(
            ordinal, partition, oracle=oracle, deadline_s=deadline_s, command=worker)
from thorprobe import app
from thorprobe.cli import session
if sys.argv[1] != "doctor":
    # doctor asks the driver itself, which is not there.
    gpu.GpuAnswerer = Fake
    gpu.driver_present = lambda: True
    session._count_devices = lambda: 1
app.main()
"""


def runs(job):
    """Return the commands of a job's `run` steps."""
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def uploads(job):
    """Return the inputs of a job's upload steps."""
    return [
        step["with"] for step in JOBS[job]["steps"] if "upload-artifact" in step.get("uses", "")
    ]


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of what the runner checks out, without anything that was built."""
    place = tmp_path / "checkout"
    place.mkdir()
    for name in NEEDED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, place)
    return place


class Runner:
    """Plays steps as a runner does: one shell a step, PATH and summary through files."""

    def __init__(self, checkout, env=None):
        files = checkout.parent / "runner"
        files.mkdir()
        self.checkout = checkout
        self.paths = files / "path"
        self.summary = files / "summary.md"
        self.env = env or {}

    def step(self, command):
        """Run one step, and return it."""
        self.paths.touch()
        added = [line for line in self.paths.read_text().splitlines() if line][::-1]
        env = os.environ | {
            "GITHUB_ACTIONS": "true",
            "GITHUB_PATH": str(self.paths),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "CUDA_VISIBLE_DEVICES": "",
            **WORKFLOW["env"],
            **self.env,
        }
        env["PATH"] = os.pathsep.join([*added, env["PATH"]])
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            cwd=self.checkout,
            env=env,
            timeout=180,
            check=False,
        )


def fake(checkout, name="thorprobe"):
    """Put a thorprobe into a folder that answers from the fake worker; return the folder."""
    folder = checkout.parent / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / name
    worker = str(ROOT / "tests" / "fake_worker.py")
    program.write_text(FAKE.format(python=sys.executable, root=str(ROOT), worker=worker))
    program.chmod(0o755)
    return folder


def here(checkout):
    """Put a thorprobe into a folder that is this tree's; return the folder."""
    folder = checkout.parent / "here"
    folder.mkdir()
    program = folder / "thorprobe"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(ROOT)!r}]\n"
        "from thorprobe.app import main\nmain()\n"
    )
    program.chmod(0o755)
    return folder


def lend(checkout):
    """Give the environment that was installed the packages of this one, but not its thorprobe."""
    (packages,) = (checkout / ".venv" / "lib").glob("python*/site-packages")
    assert (packages / "thorprobe" / "kernels" / "trivial.cu").exists()
    for entry in Path(PACKAGES).iterdir():
        ours = entry.name.startswith(("thorprobe", "_", "distutils")) or entry.suffix == ".pth"
        if not ours and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)


def on_path(folder):
    """Return an environment with a folder first on the PATH, and this tree for its workers.

    Packages that come by PYTHONPATH, as on a machine that installs nothing, come with it.
    """
    packages = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(packages),
    }


def test_it_runs_on_every_push_and_may_only_read():
    """No branch is left out, and the token cannot write."""
    # YAML 1.1 reads the bare key `on` as true.
    assert WORKFLOW[True] == {"push": None}
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_each_step_is_a_script_or_a_pinned_action():
    """Nothing is done in the workflow that a script does not do; every script is used."""
    used = set()
    for name, job in JOBS.items():
        assert job["timeout-minutes"] <= 15
        for step in job["steps"]:
            if "run" in step:
                assert step["run"] in SCRIPTS, name
                used.add(step["run"])
            else:
                assert re.fullmatch(r"actions/[a-z-]+@(v\d+|[0-9a-f]{40})", step["uses"])
    assert used == SCRIPTS
    for script in SCRIPTS:
        assert os.access(ROOT / script, os.X_OK), f"{script} is not executable"


def test_each_job_uploads_the_folder_that_the_scripts_fill():
    """The artefact is the folder of EVIDENCE, and an empty one is an error."""
    for job in JOBS:
        (upload,) = uploads(job)
        assert upload["path"] == WORKFLOW["env"]["EVIDENCE"]
        assert upload["if-no-files-found"] == "error"
        assert upload["name"] == f"evidence-{job}"


def test_the_gpu_job_is_opted_into():
    """Without the repository variable no job waits for a runner that nobody has."""
    measured = JOBS["measured"]
    assert measured["if"] == "${{ vars.THORPROBE_GPU_RUNNER != '' }}"
    assert measured["runs-on"] == ["self-hosted", "${{ vars.THORPROBE_GPU_RUNNER }}"]
    assert "if" not in JOBS["predicted"]


def test_the_predicted_job_installs_predicts_and_reports(checkout):
    """Played step by step from a bare checkout, every step is green and the artefact is whole."""
    offline = {
        # The dependencies are those of this environment: a test downloads nothing.
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PYTHONPATH": PACKAGES,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    runner = Runner(checkout, offline)
    for command in runs("predicted"):
        ran = runner.step(command)
        if command == "scripts/evidence-install.sh":
            lend(checkout)
            runner.env["PYTHONPATH"] = ""
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    assert str(checkout / ".venv" / "bin") in runner.paths.read_text()
    made = {path.name for path in (checkout / WORKFLOW["env"]["EVIDENCE"]).iterdir()}
    stores = {f"{p}-predicted{kind}" for p in ("thor", "gb10") for kind in ("", "-arms")}
    assert made == {
        *(f"{name}.jsonl" for name in stores),
        *(f"{name}.md" for name in stores),
        *(
            f"{name}.{kind}"
            for name in ("oracle", "row-MODEL-MM-QWEN4-EXP")
            for kind in ("json", "md")
        ),
    }
    assert "::notice title=thorprobe report::" in ran.stdout
    assert "::notice title=thorprobe topk-arms::PREDICTED" in ran.stdout
    summary = runner.summary.read_text()
    assert summary.startswith("# Row MODEL-MM-QWEN4-EXP")
    assert "# Cluster sweep: NVIDIA Thor (predicted)" in summary


def test_a_changed_prediction_is_red_and_still_reported(checkout):
    """Where a prediction is not the committed one the step fails, and the evidence is kept."""
    baseline = checkout / "reports" / "thor-predicted-arms.jsonl"
    text = baseline.read_text()
    assert '"verdict":"refused"' in text
    baseline.write_text(text.replace('"launch_code":912', '"launch_code":1'))
    runner = Runner(checkout, on_path(here(checkout)))
    ran = runner.step("scripts/evidence-predicted.sh")
    assert ran.returncode == 1
    assert "failed: `topk" in ran.stderr
    assert runner.step("scripts/evidence-report.sh").returncode == 0
    assert (checkout / "evidence" / "gb10-predicted-arms.md").exists()


def test_the_measured_job_measures_and_reports(checkout):
    """Played with a worker in the place of a GPU, the artefact holds what was measured."""
    runner = Runner(checkout, on_path(fake(checkout)))
    install, *others = runs("measured")
    assert install == "scripts/evidence-install.sh"
    for command in others:
        ran = runner.step(command)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    folder = checkout / WORKFLOW["env"]["EVIDENCE"]
    for name in ("gpu-sweep", "gpu-arms"):
        assert '"origin":"measured"' in (folder / f"{name}.jsonl").read_text()
        assert "Fake GPU" in (folder / f"{name}.md").read_text()
    assert "Fake GPU" in runner.summary.read_text()
    # A second run on the same machine starts anew.
    assert runner.step("scripts/evidence-measured.sh").returncode == 0


def test_without_a_gpu_nothing_is_called_measured(checkout):
    """The measured step ends with 3 where there is no GPU, and the report finds nothing of it."""
    runner = Runner(checkout, on_path(here(checkout)))
    ran = runner.step("scripts/evidence-measured.sh")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    ran = runner.step("scripts/evidence-report.sh")
    assert ran.returncode == 1
    assert "no store was made in evidence" in ran.stderr


@pytest.mark.gpu
def test_the_measured_job_is_green_on_a_gpu(checkout):
    """The scripts measure the real GPU and report it."""
    runner = Runner(checkout, on_path(here(checkout)) | {"CUDA_VISIBLE_DEVICES": "0"})
    for command in runs("measured")[1:]:
        ran = runner.step(command)
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    page = (checkout / "evidence" / "gpu-arms.md").read_text()
    assert "(measured)" in page
