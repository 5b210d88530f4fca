# SPDX-License-Identifier: Apache-2.0
"""vLLM's operators as an answerer: called as the call site does, with all that a call leaves."""

import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from cuda.bindings import driver as real
from typer.testing import CliRunner

import operator_played as op
from thorprobe.app import app
from thorprobe.binary.operator_file import LibraryFile
from thorprobe.cli.measure import measure, of_recording
from thorprobe.cli.session import public
from thorprobe.cli.study import ArmsStudy
from thorprobe.driver import launch
from thorprobe.errors import CouldNotProbeError, UsageError
from thorprobe.judge.cause import judge
from thorprobe.model.profile import load as load_profile
from thorprobe.plan import arms, policy
from thorprobe.plan.arm_probe import ArmsOptions
from thorprobe.plan.operator import OperatorLibrary, is_operator, operator_of
from thorprobe.record import Status, Verdict
from thorprobe.render import markdown, text
from thorprobe.run import operator_worker, worker_protocol
from thorprobe.run import probe as run_probe
from thorprobe.run.gpu import GpuAnswerer
from thorprobe.run.store import read

PROGRAM = str(Path(__file__).with_name("operator_played.py"))
PRUNED = "device code for other parts than sm_90 zeroed"
FILE = LibraryFile(
    path=Path("_C_stable_libtorch.abi3.so"), version="0.33.0", sha256="a" * 64, of="b" * 64
)
LIBRARY = OperatorLibrary(
    version="0.33.0", policy="0.33.0", sha256="a" * 64, of="b" * 64, pruned=PRUNED
)
H200 = load_profile("h200").device()
NAMES = (f"played_{number}" for number in count())


def options(**changes):
    """Return a small drive of the operators."""
    given = {
        "capability": (9, 0),
        "columns": 1024,
        "repeats": 2,
        "library": LIBRARY,
        "policies": ("e126687a9a", "0.33.0"),
    }
    return ArmsOptions(**given | changes)


def probe(rows, *, role="arm", length=1024, **changes):
    """Return the one planned probe of these rows."""
    found = arms.plan(options(policies=("0.33.0",), rows=(rows,), lengths=(length,), **changes))
    (one,) = [p for p in found if p.role == role]
    return one


def answered(played, spec, seat=None):
    """Call one operator, and judge what was seen of it."""
    prober, _library = op.prober(played, seat, next(NAMES))
    outcome = prober.answer(spec, op.fits(played), lambda: ())
    return judge(outcome, H200), prober


@pytest.fixture(scope="module")
def drives(tmp_path_factory):
    """Drive all arms in worker processes: of the whole device, and of groups of 2."""
    made = {}
    for partition in ("", "sms=8,groups-of=2"):
        answerer = GpuAnswerer(0, partition, command=(sys.executable, PROGRAM))
        try:
            answerer.attach_operators(FILE)
            path = tmp_path_factory.mktemp("drive") / "store.jsonl"
            question = ArmsStudy(options(partition=partition))
            made[partition] = (measure(question, answerer, store_path=path), path)
        finally:
            answerer.close()
    return made


def arm_rows(document, name):
    """Return the rows of one policy's table by their first row."""
    return {arm.rows[0]: arm for arm in document.summary.arms if arm.policy == name}


def test_every_arm_is_called_and_none_is_left_unprobed(drives):
    """On the whole device each arm launches and is right, the persistent ones too."""
    document, _ = drives[""]
    assert {o.verdict for o in document.results} == {Verdict.LAUNCHES}
    assert [a.rows for a in arm_rows(document, "0.33.0").values()] == [
        (1, 8),
        (9, 33),
        (34, 64),
        (65, None),
    ]
    for arm in document.summary.arms:
        right, compared = arm.checked
        assert arm.verdict is Verdict.LAUNCHES
        assert right == compared > 0
    assert "ran persistent_topk_kernel<512, 4>" in arm_rows(document, "0.33.0")[65].note
    assert "ran cooperative_topk_cs8<512>" in arm_rows(document, "0.33.0")[1].note
    assert "vLLM's operator is right there" in document.summary.finding


def test_a_policy_is_named_where_its_gate_differs(drives):
    """Behind the gate of e126687a9a rows 33 to 64 take the persistent operator."""
    document, _ = drives[""]
    reported = arm_rows(document, "e126687a9a")
    assert [(a.rows, a.path) for a in reported.values()] == [
        ((1, 8), "cooperative"),
        ((9, 32), "cooperative"),
        ((33, None), "persistent"),
    ]
    assert not document.summary.gates["0.33.0"].false_rejects
    assert "33-34" in reported[33].note


def test_a_refusal_is_recorded_with_what_it_leaves_behind(drives):
    """In groups of 2 the report's sentence is kept verbatim, its code, and the pending error."""
    document, _ = drives["sms=8,groups-of=2"]
    refused = [o for o in document.results if o.verdict is Verdict.REFUSED]
    assert {o.spec.cluster_size for o in refused} == {4, 8}
    for outcome in refused:
        call = outcome.observed.operator
        assert call.raised == op.REPORTED
        assert (outcome.observed.launch_code, call.pending_code) == (912, 912)
        assert (call.pending, call.cleared) == (op.PENDING, True)
        assert outcome.cause == "larger-than-any-gpc"
        assert call.captured[0].cluster == (1, outcome.spec.cluster_size, 1)
        assert call.ran == ()
    by_rows = arm_rows(document, "0.33.0")
    assert (by_rows[1].verdict, by_rows[1].code) == (Verdict.REFUSED, 912)
    assert [by_rows[rows].verdict for rows in (34, 65)] == [Verdict.LAUNCHES] * 2
    assert document.summary.gates["0.33.0"].false_accepts == ((1, 33),)
    # What came after a refusal was answered by a healthy context.
    assert {o.status for o in document.results} == {Status.PASS}


def test_a_store_holds_all_of_it_and_gives_the_same_page(drives):
    """Records, options and pages are the same when they are read back."""
    for document, path in drives.values():
        kept = read(path)
        assert tuple(kept.outcomes) == document.results
        again = of_recording(kept)
        assert again.summary == document.summary
        assert msgspec.convert(again.options["library"], OperatorLibrary) == LIBRARY
        assert markdown.render(again) == markdown.render(document)
        assert document.inputs["_C_stable_libtorch.abi3.so"] == "a" * 64


def test_the_page_says_whose_operators_ran_and_what_was_raised(drives):
    """Library, copy, kernels, both times, the raised sentence and the pending error are shown."""
    shown = text.render(drives["sms=8,groups-of=2"][0], 400)
    assert f"a copy of {'b' * 12} ({PRUNED})" in shown
    assert "Both operators at 1,024 columns, k 512" in shown
    assert "refused 912" in shown
    assert op.REPORTED in shown
    assert "error 912 stayed pending; the next call of torch raised: " in shown
    assert "cooperative_topk_cs8<512>, clusters of 8" in shown
    assert "not launched; stand-in" not in shown


def test_the_library_that_a_worker_cannot_load_is_one_sentence():
    """The worker's own words reach the user, and no launch is asked."""
    answerer = GpuAnswerer(0, command=(sys.executable, PROGRAM))
    broken = LibraryFile(path=Path("/x/broken.so"), version="", sha256="c" * 64)
    try:
        with pytest.raises(CouldNotProbeError, match="too old") as caught:
            answerer.attach_operators(broken)
    finally:
        answerer.close()
    assert caught.value.hint


@pytest.mark.parametrize("rows", [1, 9, 34, 65])
def test_a_wrong_result_is_seen_whichever_operator_gave_it(rows):
    """A repeated index is wrong, is not timed, and still says what ran."""
    played = op.Played()
    planned = probe(rows)
    played.spoil = operator_of(planned.spec.kernel)
    outcome, _ = answered(played, planned.spec)
    assert (outcome.verdict, outcome.cause) == (Verdict.WRONG, "wrong-result")
    assert outcome.observed.time_us is None
    assert outcome.observed.operator.ran


def test_a_call_that_its_own_host_code_refuses_is_no_launch():
    """An exception without a code of the runtime is told, and counts as not probed."""
    played = op.Played()
    played.refuse = "workspace too small"
    outcome, prober = answered(played, probe(1).spec)
    assert outcome.verdict is Verdict.NOT_PROBED
    assert "workspace too small" in outcome.note
    assert outcome.observed.operator.raised == "workspace too small"
    assert not prober.dead


def test_without_the_runtime_the_sentence_gives_the_code():
    """Where the last error cannot be asked for, the exception's own words name the code."""
    played = op.Played()
    played.largest = 4
    seat = op.PlayedSeat(played)
    seat.blind = True
    outcome, _ = answered(played, probe(1).spec, seat)
    assert (outcome.verdict, outcome.observed.launch_code) == (Verdict.REFUSED, 912)
    assert outcome.observed.operator.pending_code is None


def test_an_error_that_torch_does_not_clear_is_said_to_stay():
    """Then it is cleared by the runtime, so that the next probe is not blamed."""
    played = op.Played()
    played.largest = 4
    seat = op.PlayedSeat(played)
    seat.stubborn = True
    outcome, prober = answered(played, probe(1).spec, seat)
    assert outcome.observed.operator.cleared is False
    assert played.pending == 0
    assert not prober.dead


def test_a_fault_finishes_the_worker():
    """A context that answers an error to the synchronisation is given up."""
    played = op.Played()
    prober, _library = op.prober(played, name=next(NAMES))
    spec = probe(1).spec
    outcome = prober.answer(spec, _faulting(played), lambda: ())
    assert prober.dead
    assert judge(outcome, H200).verdict is not Verdict.LAUNCHES
    later = prober.answer(spec, op.fits(played), lambda: ())
    assert (prober.untried, later.status) == (True, Status.ERROR)


def _faulting(played):
    def ask(spec):
        found = op.fits(played)(spec)
        played.fault = 700
        return found

    return ask


def test_an_arm_that_is_not_the_policys_is_told():
    """The captured cluster counts, not the one that the policy expects."""
    played = op.Played()
    played.shift = 20
    outcome, _ = answered(played, probe(1).spec)
    assert "the host code launched clusters of 4 CTAs, not of 8" in outcome.note


def test_the_driver_is_quoted_for_the_call_alone():
    """What it says of capture, profiler and timing is not about the call."""
    played = op.Played()
    prober, _library = op.prober(played, name=next(NAMES))
    said = iter([("before",), ("of the call",), ("of the rest",)])
    outcome = prober.answer(probe(1).spec, op.fits(played), lambda: next(said))
    assert outcome.driver_log == ("of the call",)


def test_lengths_strides_and_rows_reach_the_operator():
    """The view has the stride that was asked, and the tail of a short row is -1."""
    played = op.Played()
    spec = probe(5, length=100, stride=1040).spec
    outcome, _ = answered(played, spec)
    assert outcome.verdict is Verdict.LAUNCHES
    assert set(played.calls) == {("cooperative_topk", 5, 1040, 100)}
    assert outcome.observed.time_us is None


def test_both_operators_are_called_where_both_can_be():
    """Beside the arm the other operator is timed, never where its own host code refuses."""
    assert probe(8, role="alternative").path == "persistent"
    found = arms.plan(options(policies=("e126687a9a",), rows=(33, 65)))
    told = {(p.rows, p.role, operator_of(p.spec.kernel)) for p in found}
    assert told == {
        (33, "arm", "persistent_topk"),
        (33, "alternative", "cooperative_topk"),
        (65, "arm", "persistent_topk"),
    }
    assert all(is_operator(p.spec.kernel) for p in found)


def test_a_stride_that_shuts_the_gate_goes_to_the_persistent_operator():
    """No call is planned that the call site never makes."""
    found = arms.plan(options(policies=("0.33.0",), rows=(1, 64), stride=1026))
    assert {p.path for p in found} == {"persistent"}
    assert {p.gate for p in found} == {False}


def test_the_cluster_is_that_of_the_library_not_of_the_gates_version():
    """Behind another version's gate the library's own host code picks the size."""
    host = policy.load("0.33.0")
    for gate in ("e126687a9a", "0.29.0", "0.33.0"):
        for one in arms.plan(options(policies=(gate,), rows=tuple(range(1, 70)))):
            if one.path == "cooperative":
                assert one.cluster == policy.dispatch(host, one.rows, 9)[0]
                assert one.rows <= host.kernel.row_limit


def test_a_k_that_the_operators_do_not_take_is_refused():
    """The sentence names it."""
    with pytest.raises(UsageError, match="k 100"):
        arms.plan(options(k=(100,)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["vllm"], "no vLLM in this environment"),
        (["vllm:"], "it names no file"),
        (["vllm:nowhere.whl"], "there is no such file"),
        (["vllm:nowhere.so", "--as-capability", "11.0"], "dispatch by the device itself"),
        (["nonsense"], "`--kernel vllm` for vLLM's own operators"),
    ],
)
def test_bad_input_is_one_sentence(words, told, tmp_path, monkeypatch):
    """Nothing of a traceback, whatever was asked."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["topk-arms", "--device", "0", "--kernel", *words])
    shown = " ".join(str(result.exception).split()) if result.exception else result.output
    assert told in shown or told in getattr(result.exception, "hint", "")


class _PlayedDriver:
    """Answers what a Launch asks of functions, and keeps what was asked."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        return getattr(real, name)

    def cuFuncGetAttribute(self, _which, _function):  # noqa: N802
        return 0, 49_152

    def cuFuncSetAttribute(self, function, _which, value):  # noqa: N802
        self.asked.append((function, value))
        return (0,)

    def cuCtxSynchronize(self):  # noqa: N802
        return (0,)

    def cuOccupancyMaxPotentialClusterSize(self, _function, _config):  # noqa: N802
        return 0, 4

    def cuOccupancyMaxActiveClusters(self, _function, config):  # noqa: N802
        self.asked.append((config.gridDimX, config.gridDimY, config.sharedMemBytes))
        return 0, 0


@pytest.fixture
def worker(monkeypatch):
    """Return a worker's prober that loads played operators, and the driver that it asks."""
    played, driver = op.Played(), _PlayedDriver()
    played.largest = 4
    for module in (run_probe, launch):
        monkeypatch.setattr(module, "driver", driver)
    monkeypatch.setattr(launch, "describe", lambda code: (f"CODE_{code}", f"code {code}"))
    monkeypatch.setattr(launch, "_CACHE", {})
    monkeypatch.setattr(run_probe.Prober, "_compiled", lambda _self, *key: key)
    keep = []

    def opened(asked, _context, oracle, _stage):
        assert asked.path == "x.so"
        made, library = op.prober(played, name=next(NAMES))
        keep.append(library)
        assert oracle().name == "numpy.partition"
        return made

    monkeypatch.setattr(operator_worker, "opened", opened)
    log = SimpleNamespace(take=iter([(), (), ("said",), (), ()]).__next__)
    prober = run_probe.Prober(SimpleNamespace(stream=0), log, "numpy", lambda _stage: None)
    return prober, driver, keep


def test_a_worker_asks_its_own_kernel_what_fits(worker):
    """Of the same threads, bytes and cluster, and every question says whose kernel it was."""
    prober, driver, keep = worker
    prober.load(worker_protocol.Operators(path="x.so", version="0.33.0", sha256="0" * 64))
    prober.load(worker_protocol.Operators(path="x.so", version="0.33.0", sha256="0" * 64))
    assert len(keep) == 1
    outcome = prober.answer(probe(3).spec)
    assert ((("topk", 0), 156_416)) in driver.asked
    assert (3, 8, 156_416) in driver.asked
    assert (outcome.observed.max_potential, outcome.observed.max_active) == (4, 0)
    asked = [call for call in outcome.calls if call.call.startswith("cu")]
    assert asked
    assert all("thorprobe's cluster_topk" in call.detail for call in asked)
    assert outcome.calls[-1].call == "_C::cooperative_topk"
    assert outcome.driver_log == ("said",)
    judged = judge(outcome, H200)
    assert (judged.verdict, judged.cause) == (Verdict.REFUSED, "undetermined")
    quiet = msgspec.structs.replace(outcome, driver_log=())
    assert judge(quiet, H200).cause == "larger-than-any-gpc"


def test_a_worker_without_the_library_says_so(worker):
    """An operator that nobody loaded costs one record."""
    outcome = worker[0].answer(probe(3).spec)
    assert outcome.status is Status.ERROR
    assert "its library is not loaded" in outcome.note


def test_folders_of_a_library_are_not_shown():
    """Evidence names the file, not where it was."""
    assert public(["--kernel", "vllm:/home/me/x.so", "--kernel=vllm:/home/x.whl", "vllm"]) == (
        "--kernel",
        "vllm:x.so",
        "--kernel=vllm:x.whl",
        "vllm",
    )
