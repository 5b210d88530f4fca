# SPDX-License-Identifier: Apache-2.0
"""An exhibit: one evidence file as it is read for a question about evidence."""

import msgspec

from thorprobe.record import ArmsSummary, Origin, Record, SweepSummary

MODEL = "model-topk"
AUDIT = "audit"
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


class Exhibit(Record, frozen=True, kw_only=True):
    """An evidence file, judged anew; ``sweep``, ``arms`` or ``model`` is there where it is one.

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
