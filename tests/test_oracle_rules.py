# SPDX-License-Identifier: Apache-2.0
"""The rules of the oracle as a table: one line a rule or an edge of one."""

import re
import runpy
from pathlib import Path

import msgspec
import pytest

from thorprobe.oracle import table as oracle
from thorprobe.oracle.fleet import load
from thorprobe.oracle.page import matrix
from thorprobe.oracle.records import Gateable, OracleStatus, Weight
from thorprobe.oracle.weight import WEIGHTS
from thorprobe.record import Origin, Verdict

ROOT = Path(__file__).parents[1]
_MADE = runpy.run_path(str(Path(__file__).parent / "exhibits.py"))
arms, model, engine = _MADE["arms"], _MADE["model"], _MADE["engine"]
REFUSED, NO_SMEM = _MADE["REFUSED"], _MADE["NO_SMEM"]

SHIPPED = "cooperative_topk_cs@0123456789ab"
FLEET = load("thor-h200-gb10")
RUNS, FALLBACK, OPEN, UNPROBED, BLOCKED = OracleStatus
YES, NO, NO_PREDICTED, UNMEASURED = Gateable
MEASURED, PREDICTED = Origin.MEASURED, Origin.PREDICTED
V33, V31 = "vllm-0.33.0", "vllm-e126687a9a"
DROP_IN = "vllm-0.33.0-drop-in"
THOR_16 = arms(by_cluster={16: REFUSED})
OLD_THOR_16 = arms(policies=("e126687a9a",), by_cluster={16: REFUSED})
SEEN_THOR = arms(origin=MEASURED, name="seen.jsonl", by_cluster={16: REFUSED})

TABLE = {
    "no GPU": (V33, "cpu", [THOR_16], "V0", UNPROBED, UNMEASURED, None),
    "no evidence": (V33, "thor", [], "V1", OPEN, UNMEASURED, None),
    "evidence of another policy": (V31, "thor", [THOR_16], "V1", OPEN, UNMEASURED, None),
    "evidence of another k": (V33, "thor", [arms(k=2048)], "V1", OPEN, UNMEASURED, None),
    "evidence of another device": (V33, "h200", [THOR_16], "V1", OPEN, UNMEASURED, None),
    "a prediction of no profile here": (
        *(V33, "h200", [arms("NVIDIA H200")]),
        *("V1", OPEN, UNMEASURED, None),
    ),
    "a partition is not the device": (
        *(V33, "h200", [arms("NVIDIA H200", origin=MEASURED, partition="sms=8")]),
        *("V1", OPEN, UNMEASURED, None),
    ),
    "dispatched for another part": (
        *(V33, "h200", [arms("NVIDIA H200", origin=MEASURED, dispatched=(11, 0))]),
        *("V1", OPEN, UNMEASURED, None),
    ),
    "refused, predicted": (V33, "thor", [THOR_16], "V2", BLOCKED, NO_PREDICTED, PREDICTED),
    "refused, measured": (V33, "thor", [SEEN_THOR], "V2", BLOCKED, NO, MEASURED),
    "refused at rows of many requests": (
        *(V33, "thor", [arms(by_cluster={2: REFUSED})]),
        *("V2", BLOCKED, NO_PREDICTED, PREDICTED),
    ),
    "a measurement outranks a prediction": (
        *(V33, "thor", [THOR_16, arms(origin=MEASURED, name="seen.jsonl")]),
        *("V6", OPEN, UNMEASURED, MEASURED),
    ),
    "an arm that was not measured is still predicted": (
        *(V33, "thor", [THOR_16, arms(origin=MEASURED, name="seen.jsonl", rows=(5, 9, 34))]),
        *("V2", BLOCKED, NO_PREDICTED, PREDICTED),
    ),
    "a lost probe outranks nothing": (
        *(V33, "thor"),
        [THOR_16, arms(origin=MEASURED, name="lost.jsonl", by_cluster={16: Verdict.NOT_PROBED})],
        *("V2", BLOCKED, NO_PREDICTED, PREDICTED),
    ),
    "of equal origin the worst counts": (
        *(V33, "thor", [SEEN_THOR, arms(origin=MEASURED, name="good.jsonl")]),
        *("V2", BLOCKED, NO, MEASURED),
    ),
    "gate open by a published statement": (
        *(V31, "thor", [OLD_THOR_16], "V2", BLOCKED, NO_PREDICTED, PREDICTED),
    ),
    "gate not known of this version": (
        *(V31, "gb10"),
        [arms("NVIDIA GB10", ("e126687a9a",), by_cluster={16: NO_SMEM, 8: NO_SMEM, 4: NO_SMEM})],
        *("V3", OPEN, UNMEASURED, PREDICTED),
    ),
    "undetermined by the layout": (
        *(V33, "thor", [arms(by_cluster={8: Verdict.UNDETERMINED})]),
        *("V4", OPEN, UNMEASURED, PREDICTED),
    ),
    "an arm without any record": (
        *(V33, "thor", [arms(rows=(1, 5, 9))], "V4", OPEN, UNMEASURED, None),
    ),
    "wrong in thorprobe's own kernel": (
        *(V33, "thor", [arms(origin=MEASURED, by_cluster={8: Verdict.WRONG})]),
        *("V4", OPEN, UNMEASURED, MEASURED),
    ),
    "wrong in the shipped kernel": (
        *(V33, "thor", [arms(origin=MEASURED, kernel=SHIPPED, by_cluster={8: Verdict.WRONG})]),
        *("V2", BLOCKED, NO, MEASURED),
    ),
    "the shipped kernel outranks the stand-in": (
        *(V33, "thor"),
        [
            arms(origin=MEASURED, name="own.jsonl", by_cluster={8: Verdict.WRONG}),
            arms(origin=MEASURED, name="shipped.jsonl", kernel=SHIPPED),
        ],
        *("V6", OPEN, UNMEASURED, MEASURED),
    ),
    "the gate excludes the family": (
        *(V33, "gb10", [arms("NVIDIA GB10", by_cluster={16: NO_SMEM})]),
        *("V5", UNPROBED, UNMEASURED, PREDICTED),
    ),
    "a proposed gate excludes the family": (
        *("vllm-0.33.0-no-110", "thor", [THOR_16], "V5", UNPROBED, UNMEASURED, PREDICTED),
    ),
    "a proposed gate changes nothing elsewhere": (
        *("vllm-0.33.0-no-110", "h200", [arms("NVIDIA H200", origin=MEASURED)]),
        *("V6", OPEN, UNMEASURED, MEASURED),
    ),
    "a gate that asks is not blocked": (
        *("vllm-0.33.0-occupancy", "thor"),
        [arms(by_cluster={16: REFUSED, 8: Verdict.UNDETERMINED})],
        *("V5", UNPROBED, UNMEASURED, PREDICTED),
    ),
    "a gate that asks lets through what launches": (
        *("vllm-0.33.0-occupancy", "thor", [arms(by_cluster={2: REFUSED})]),
        *("V6", OPEN, UNMEASURED, PREDICTED),
    ),
    "every arm launches": (
        *(V33, "h200", [arms("NVIDIA H200", origin=MEASURED)], "V6", OPEN, UNMEASURED, MEASURED),
    ),
    "its engine ran and repeats itself": (
        *(V33, "h200", [engine(), arms("NVIDIA H200", origin=MEASURED)]),
        *("E4", RUNS, YES, MEASURED),
    ),
    "its engine ran and does not repeat itself": (
        *(V33, "h200", [engine(sequences=5, traces=12)], "E3", RUNS, NO, MEASURED),
    ),
    "one trace more is enough": (
        *(V33, "h200", [engine(), engine(name="b.json", traces=2)], "E3", RUNS, NO, MEASURED),
    ),
    "whether its engine repeats itself was not asked": (
        *(V33, "h200", [engine(runs=0)], "E5", RUNS, UNMEASURED, MEASURED),
    ),
    "its engine died in the selection": (
        *(V33, "thor", [THOR_16, engine("NVIDIA Thor", died="in cooperative_topk of 1 row: no")]),
        *("E1", BLOCKED, NO, MEASURED),
    ),
    "one death among engines that ran": (
        *(V33, "h200", [engine(facts=({}, {"graphs": "x", "died": "in it: no"}))]),
        *("E1", BLOCKED, NO, MEASURED),
    ),
    "its engine selected a wrong row": (
        *(V33, "h200", [engine(wrong_rows=1)], "E2", BLOCKED, NO, MEASURED),
    ),
    "its engine selected other sets": (
        *(V33, "h200", [engine(wrong_sets=1)], "E2", BLOCKED, NO, MEASURED),
    ),
    "its engine has other tokens and no tie": (
        *(V33, "h200", [engine(other_tokens=1)], "E2", BLOCKED, NO, MEASURED),
    ),
    "ties are no other tokens": (*(V33, "h200", [engine(ties=3)], "E4", RUNS, YES, MEASURED),),
    "its engine within the budget only shows nothing": (
        *(V33, "h200", [engine(prompts=(2_048,))], "V1", OPEN, UNMEASURED, None),
    ),
    "an engine of another version": (
        *(V33, "h200", [engine(version="0.32.0")], "V1", OPEN, UNMEASURED, None),
    ),
    "an engine with its operators in a partition": (
        *(V33, "h200", [engine(partition="sms=8", died="in it: no")]),
        *("V1", OPEN, UNMEASURED, None),
    ),
    "an engine with the drop-in is not vLLM alone": (
        *(V33, "h200", [engine(drop_in="always")], "V1", OPEN, UNMEASURED, None),
    ),
    "vLLM as shipped is no proposed gate": (
        *("vllm-0.33.0-occupancy", "h200", [engine()], "V1", OPEN, UNMEASURED, None),
    ),
    "the drop-in": (DROP_IN, "h200", [engine(drop_in="always")], "E4", RUNS, YES, MEASURED),
    "the drop-in in another mode": (
        *(DROP_IN, "h200", [engine(drop_in="fallback")], "D1", OPEN, UNMEASURED, None),
    ),
    "no drop-in, whatever the arms say": (
        *(DROP_IN, "thor", [THOR_16], "D1", OPEN, UNMEASURED, None),
    ),
    "the drop-in died": (
        *(DROP_IN, "h200", [engine(drop_in="always", died="in it: no")]),
        *("E1", BLOCKED, NO, MEASURED),
    ),
    "the drop-in without a GPU": (DROP_IN, "cpu", [], "V0", UNPROBED, UNMEASURED, None),
    "no model": ("transformers", "thor", [THOR_16], "T1", OPEN, UNMEASURED, None),
    "a model on a CPU is not one on a GPU": (
        *("transformers", "h200", [model()], "T1", OPEN, UNMEASURED, None),
    ),
    "before the first release": (
        *("transformers", "cpu", [model(version="5.15.9")], "T2", OPEN, UNMEASURED, MEASURED),
    ),
    "version not recorded": (
        *("transformers", "cpu", [model(version="")], "T2", OPEN, UNMEASURED, MEASURED),
    ),
    "within the budget": (
        *("transformers", "cpu", [model(context=2_048)], "T3", RUNS, NO, MEASURED),
    ),
    "past the budget": ("transformers", "cpu", [model(context=2_049)], "T4", RUNS, YES, MEASURED),
    "the first release itself": (
        *("transformers", "cpu", [model(version="5.16.0.dev0")], "T4", RUNS, YES, MEASURED),
    ),
    "one answer past the budget is enough": (
        *("transformers", "cpu", [model(context=100), model(name="long.json")]),
        *("T4", RUNS, YES, MEASURED),
    ),
    "the reference runs whatever the ladder selects": (
        *("transformers", "cpu", [model(sets_equal=False)], "T4", RUNS, YES, MEASURED),
    ),
    "no ladder": ("transformers-ladder", "thor", [], "L1", OPEN, UNMEASURED, None),
    "ladder in an old transformers": (
        *("transformers-ladder", "cpu", [model(version="4.57.1")]),
        *("L2", OPEN, UNMEASURED, MEASURED),
    ),
    "a wrong selection": (
        *("transformers-ladder", "cpu", [model(sets_equal=False)], "L3", BLOCKED, NO, MEASURED),
    ),
    "no top-k": (
        *("transformers-ladder", "cpu", [model(wrong_rows=1)], "L3", BLOCKED, NO, MEASURED),
    ),
    "no compared query past the budget": (
        *("transformers-ladder", "cpu", [model(past_budget=0)], "L4", OPEN, UNMEASURED, MEASURED),
    ),
    "a tiny model is not the row's": (
        *("transformers", "cpu", [model(tiny=True)], "T2", OPEN, UNMEASURED, MEASURED),
    ),
    "one wrong selection among right ones": (
        *("transformers-ladder", "cpu", [model(), model(name="wrong.json", sets_equal=False)]),
        *("L3", BLOCKED, NO, MEASURED),
    ),
    "a right selection that could not have been wrong": (
        *("transformers-ladder", "cpu", [model(context=2_048)], "L4", OPEN, UNMEASURED, MEASURED),
    ),
    "other tokens": (
        *("transformers-ladder", "cpu", [model(tokens_equal=False)]),
        *("L5", OPEN, UNMEASURED, MEASURED),
    ),
    "no fall": ("transformers-ladder", "cpu", [model()], "L6", RUNS, YES, MEASURED),
    "falls": (
        *("transformers-ladder", "h200", [model("NVIDIA H200", falls=3)]),
        *("L6", FALLBACK, YES, MEASURED),
    ),
    "never run by thorprobe": (
        *("llama-cpp-qwen4exp", "h200", [THOR_16, model()], "X1", UNPROBED, UNMEASURED, None),
    ),
}


def cell(name, device, exhibits):
    """Return the cell of one oracle on one device."""
    made = oracle.cells(FLEET, exhibits)
    return next(one for one in made if (one.oracle, one.device) == (name, device))


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_the_first_rule_that_fits_decides(case):
    """Each line of the table gives its rule, status, gateable and origin."""
    name, device, exhibits, rule, status, gateable, origin = case
    found = cell(name, device, exhibits)
    assert (found.rule, found.status, found.gateable, found.origin) == (
        *(rule, status, gateable, origin),
    ), found.reason
    known = {exhibit.line.id for exhibit in exhibits}
    assert set(found.because) <= known
    assert bool(found.because) == (origin is not None)
    assert found.reason
    assert not found.reason.endswith(".")


def test_the_table_has_every_rule_and_no_other():
    """Every rule decides some line, and the documentation lists the same rules and weights."""
    assert {case[3] for case in TABLE.values()} == set(oracle.RULES)
    page = (ROOT / "docs" / "oracle.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| ([VETDLXW]\d) \| (.*) \|$", page, re.MULTILINE)
    assert dict(documented) == oracle.RULES | WEIGHTS


def test_a_blocked_cell_names_the_arm_and_its_cause():
    """Rows, cluster, code and cause are the evidence's own, and the reason says what dies."""
    found = cell(V33, "thor", [THOR_16])
    assert found.arm is not None
    assert (found.arm.rows, found.arm.cluster) == ((1, 4), 16)
    assert (found.arm.code, found.arm.cause) == (912, "larger-than-any-gpc")
    assert "rows 1-4 (16 CTAs)" in found.reason
    assert "the decode of one request is among these rows" in found.reason
    many = cell(V33, "thor", [arms(by_cluster={2: REFUSED})])
    assert "a step with these rows dies" in many.reason
    assert "one request" not in many.reason


def test_the_two_causes_are_never_mixed():
    """Too much shared memory is told as itself, not as the cluster."""
    found = cell(V31, "gb10", [arms("NVIDIA GB10", ("e126687a9a",), by_cluster={16: NO_SMEM})])
    assert "shared memory over the opt-in limit" in found.reason
    assert "GPC" not in found.reason


def test_an_undetermined_arm_names_what_a_claim_would_decide():
    """The published claim is named beside the answer, and does not become one."""
    claims = {"largest-cluster-8": Verdict.LAUNCHES}
    found = cell(V33, "thor", [arms(by_cluster={8: Verdict.UNDETERMINED}, claims=claims)])
    assert found.status is OPEN
    assert "largest-cluster-8: launches" in found.reason


def test_results_of_the_shipped_kernel_are_told_as_its_own():
    """Where upstream's kernel was launched its results are counted; vLLM was still not run."""
    own = cell(V33, "h200", [arms("NVIDIA H200", origin=MEASURED)])
    assert "with thorprobe's kernel standing in" in own.reason
    seen = arms("NVIDIA H200", origin=MEASURED, kernel=SHIPPED)
    found = cell(V33, "h200", [seen])
    assert found.rule == "V6"
    assert (
        "the shipped kernel is right in 24 of 24 results; vLLM itself was not run" in found.reason
    )
    assert "standing in" not in found.reason


def test_thorprobes_own_kernel_never_makes_vllm_run():
    """Whatever launches, no vLLM cell says that it runs."""
    every = [
        arms(d, policies=("0.33.0", "e126687a9a"), origin=MEASURED) for d in _MADE["CAPABILITY"]
    ]
    told = [c for c in oracle.cells(FLEET, every) if c.oracle.startswith("vllm")]
    assert not [c for c in told if c.status in (RUNS, FALLBACK) or c.gateable is YES]


def test_a_cell_of_an_engine_says_that_the_model_was_reduced():
    """The reason and the table's word name the reduced model and its random weights."""
    exhibits = [engine(sequences=5, traces=12, ties=2)]
    found = cell(V33, "h200", exhibits)
    assert "reduced model, random weights; eager" in found.reason
    assert "at 2,300 and 30,000 tokens of prompt: 5,000 checked rows right" in found.reason
    assert "16 best tokens as transformers', 2 of them in ties" in found.reason
    assert "5 token sequences and 12 traces of log-probabilities in 50 runs" in found.reason
    made = oracle.cells(FLEET, exhibits)
    entries = oracle.table(FLEET, made)
    rows = {cells[0][0]: [word for (word,) in cells[1:]] for cells in matrix(entries, made).rows}
    assert "runs (reduced model, random weights)" in rows[V33]
    assert "not established" in rows["transformers"]


BOTH = ("0.33.0", "e126687a9a")
BLOCKED_THOR = arms(policies=BOTH, by_cluster={16: REFUSED})
OPEN_H200 = arms("NVIDIA H200", BOTH, origin=MEASURED, name="h200.jsonl")


def weights(exhibits, fleet=FLEET):
    """Return the weight of each oracle, and the finding."""
    summary = oracle.summarize(fleet, exhibits, oracle.cells(fleet, exhibits))
    return {e.oracle: e.weight for e in summary.rows[fleet.row.name].values()}, summary


def only(name):
    """Return the fleet in which only one device exposes a GPU."""
    devices = tuple(msgspec.structs.replace(d, exposes_gpu=d.name == name) for d in FLEET.devices)
    return msgspec.structs.replace(FLEET, devices=devices)


def test_where_vllm_is_blocked_on_the_only_gpu_the_secondary_carries_the_row():
    """A fleet whose one GPU is a Thor has no vLLM oracle, and says that it is by prediction."""
    found, summary = weights([BLOCKED_THOR, OPEN_H200, model()], only("thor"))
    assert found[V33] is found[V31] is Weight.NONE
    assert found["llama-cpp-qwen4exp"] is Weight.ROW
    assert found["transformers"] is Weight.ALGORITHM
    assert found["transformers-ladder"] is Weight.CORROBORATES
    assert summary.finding == (
        "No vLLM oracle on this fleet, by prediction: the secondary entry llama-cpp-qwen4exp "
        "carries the row, and is itself not probed; transformers carries the algorithm (cpu)"
    )


def test_where_vllm_is_open_somewhere_nothing_is_settled():
    """One GPU on which vLLM is not established keeps it open; each GPU alone is told apart."""
    found, summary = weights([BLOCKED_THOR, OPEN_H200])
    assert found[V33] is Weight.OPEN
    assert found["transformers"] is Weight.OPEN
    assert (
        "no vLLM oracle is established on this fleet: until one is"
        in summary.finding.lower().replace("vllm", "vLLM")
    )
    assert summary.alone["thor"].startswith("no vLLM oracle on this fleet, by prediction")
    assert summary.alone["h200"].startswith("no vLLM oracle is established")
    assert set(summary.alone) == {"thor", "h200", "gb10"}


def test_a_vllm_that_runs_would_carry_the_row():
    """A cell that runs, on a device that exposes a GPU, outweighs the secondary entry."""
    made = [
        msgspec.structs.replace(one, status=RUNS, gateable=YES)
        if (one.oracle, one.device) == (V33, "h200")
        else one
        for one in oracle.cells(FLEET, [BLOCKED_THOR, OPEN_H200])
    ]
    summary = oracle.summarize(FLEET, [BLOCKED_THOR, OPEN_H200], made)
    entries = summary.rows[FLEET.row.name]
    assert entries[V33].weight is Weight.ROW
    assert entries["llama-cpp-qwen4exp"].weight is Weight.CORROBORATES
    assert summary.finding.startswith("vllm-0.33.0 carries the row")
    assert summary.alone["thor"].startswith("no vLLM oracle on this fleet")


def test_an_engine_that_repeats_itself_carries_and_one_that_does_not_leaves_it_open():
    """A gate can rest on what repeats itself; the drop-in corroborates, as it is not upstream's."""
    steady, shaky = engine(), engine(sequences=5, traces=12)
    mine = engine(name="drop-in.json", drop_in="always")
    found, summary = weights([BLOCKED_THOR, steady])
    assert found[V33] is Weight.ROW
    assert summary.finding.startswith("vllm-0.33.0 carries the row; vllm-0.33.0 runs on h200 (red")
    found, summary = weights([BLOCKED_THOR, shaky, mine])
    assert found[V33] is Weight.OPEN
    assert found[DROP_IN] is Weight.CORROBORATES
    assert summary.finding.startswith("No vLLM oracle is established on this fleet")
    assert (
        "vllm-0.33.0 runs on h200 (reduced model, random weights), and no gate can rest on it; "
        "vllm-0.33.0-drop-in runs on h200 (reduced model, random weights)" in summary.finding
    )
    found, _ = weights([BLOCKED_THOR])
    assert found[DROP_IN] is Weight.OPEN


def test_measured_refusals_are_no_longer_by_prediction():
    """The owner's measurement takes the prediction's place in weights and words."""
    seen = arms(policies=BOTH, origin=MEASURED, name="seen.jsonl", by_cluster={16: REFUSED})
    _, summary = weights([BLOCKED_THOR, seen], only("thor"))
    assert summary.finding.startswith("No vLLM oracle on this fleet: the secondary entry")
    entry = summary.rows[FLEET.row.name][V33]
    assert entry.gateable is NO
    assert entry.because == (seen.line.id,)


def test_a_fleet_without_a_gpu_has_no_vllm_oracle():
    """No device exposes a GPU: vLLM weighs nothing, and the reason says so."""
    found, summary = weights([model()], only("nothing"))
    assert found[V33] is Weight.NONE
    entry = summary.rows[FLEET.row.name][V33]
    assert entry.status is UNPROBED
    assert entry.reason == "no device of the fleet exposes a GPU"
    assert summary.alone == {}


def test_the_record_fields_are_in_every_entry():
    """row, oracle, role, pin and gateable are there in the record's own words."""
    _, summary = weights([BLOCKED_THOR])
    for entry in msgspec.to_builtins(summary)["rows"][FLEET.row.name].values():
        assert {"row", "oracle", "role", "pin", "gateable", "status", "because", "weight"} <= set(
            entry
        )
        assert entry["row"] == "MODEL-MM-QWEN4-EXP"
    secondary = summary.rows[FLEET.row.name]["llama-cpp-qwen4exp"]
    assert (secondary.pin, secondary.gateable.value) == ("UNMEASURED", "UNMEASURED")


def test_what_is_open_is_told_once_a_reason():
    """Cells that say the same are told together, and a host without a GPU is not open for vLLM."""
    _, summary = weights([BLOCKED_THOR, OPEN_H200])
    (transformers,) = [text for text in summary.open if text.startswith("transformers on")]
    assert (
        transformers
        == "transformers on thor, h200, gb10, cpu: no evidence of the model's selection"
    )
    assert not [text for text in summary.open if "exposes no GPU" in text]
