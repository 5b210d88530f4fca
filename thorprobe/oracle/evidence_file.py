# SPDX-License-Identifier: Apache-2.0
"""An exhibit: one evidence file as it is read for a question about evidence."""

import msgspec

from thorprobe.record import Origin, Record
from thorprobe.summary import ArmsSummary, SweepSummary

MODEL = "model-topk"
AUDIT = "audit"
ENGINE = "model-topk --engine"
THROUGH_MODEL = "topk-arms --through-model"
# The commands, as evidence names them, whose single answers bear on a row.


class ModelFacts(Record, frozen=True, kw_only=True):
    """What a ``model-topk`` answer says of the model's selection.

    ``falls`` counts the calls in which a rung was refused and the next one taken, ``wrong_rows``
    the rows that are no top-k of their own scores. ``past_budget`` counts the compared queries that
    a wrong selection could show in, None where it is not said. ``tiny`` is a model of other widths.
    ``transformers`` is the version that ran, empty where it is not recorded.
    """

    context_tokens: int
    tiny: bool = False
    past_budget: int | None = None
    wrong_rows: int = 0
    rungs: dict[str, int] = msgspec.field(default_factory=dict)
    falls: int = 0
    sets_equal: bool
    tokens_equal: bool
    transformers: str = ""


class EngineFacts(Record, frozen=True, kw_only=True):
    """What one start of vLLM's engine says of its selection.

    ``prompts`` are the prompt tokens of the cases that ended, ``rows`` those held against
    torch.topk. Of ``positions`` best tokens, ``ties`` are others than transformers' in a tie and
    ``other_tokens`` others without one; ``wrong_sets`` counts queries. The same prompts ran
    ``runs`` times at most a case, with so many ``sequences`` and ``traces`` in the worst. ``died``
    says in which call of the selection it ended, empty where it did not. ``partition`` is that of
    the operators alone.
    """

    version: str
    drop_in: str = ""
    graphs: str = ""
    partition: str = ""
    prompts: tuple[int, ...] = ()
    rows: int = 0
    wrong_rows: int = 0
    positions: int = 0
    ties: int = 0
    other_tokens: int = 0
    wrong_sets: int = 0
    runs: int = 0
    sequences: int = 0
    traces: int = 0
    died: str = ""


class EvidenceLine(Record, frozen=True, kw_only=True):
    """An evidence file by name and hash, with who answered and what it found.

    ``id`` is ``NAME@`` and the first twelve digits of the SHA-256: cells name it.
    """

    id: str
    name: str
    sha256: str
    command: str
    origin: Origin
    device: str
    finding: str = ""


class EvidenceFile(Record, frozen=True, kw_only=True):
    """An evidence file, judged anew; ``sweep``, ``arms`` or ``model`` is there where it is one.

    ``engines`` are the starts of vLLM's engine that an answer holds.

    ``device`` is the name of the GPU, empty for a CPU. ``capability`` is that of the device and
    ``dispatched`` the one that the arms were chosen for. ``wall_s`` is what the run took, 0 where
    it is not known.
    """

    line: EvidenceLine
    device: str = ""
    profile: str = ""
    partition: str = ""
    capability: tuple[int, int] = (0, 0)
    dispatched: tuple[int, int] = (0, 0)
    wall_s: float = 0.0
    sweep: SweepSummary | None = None
    arms: ArmsSummary | None = None
    model: ModelFacts | None = None
    engines: tuple[EngineFacts, ...] = ()
