# SPDX-License-Identifier: Apache-2.0
"""What ``select`` does for one shape on one stream, decided once: an order of prepared launches."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from thorprobe.errors import ThorprobeError
from thorprobe.record import Record
from thorprobe.topk import kernel
from thorprobe.topk.contract import SelectOptions
from thorprobe.topk.kernel import Launch
from thorprobe.topk.ladder import Config, below, choices, predict, starved
from thorprobe.topk.log import Fallback
from thorprobe.topk.variant import MERGE


class Shape(Record, frozen=True, kw_only=True):
    """What a plan depends on besides its stream. ``strided`` says that columns have gaps."""

    rows: int
    columns: int
    dtype: str
    strided: bool
    wish: SelectOptions
    rung: str


class Candidate(Record, frozen=True, kw_only=True):
    """One choice as the device sees it: rows at once (0: refused) and predicted microseconds."""

    choice: Config
    slots: int
    microseconds: float
    refusal: str = ""


@dataclass
class Step:
    """One rung of a plan, on one device; ``refused`` is the driver's code, remembered."""

    choice: Config
    shape: Shape
    device: int
    stream: int
    column_stride: int = 1
    parts_bytes: int = 0
    refused: int = 0

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launches that make it, the merge of separate CTAs included.

        Prepared when they are first wanted: few rungs below a plan's first ever run. No call of
        the driver is left to make then, so a capture may want them too.
        """
        made = _launches(self.choice, self.shape, self.device, self.stream)
        for one in made:
            asked = self.shape.wish
            one.set_shape(self.shape.columns, self.column_stride, asked.k, asked.flags)
        return made


@dataclass
class Plan:
    """The steps to try in order, and the falls that were known before the first launch."""

    offers: tuple[Candidate, ...]
    steps: list[Step] = field(default_factory=list)
    falls: tuple[Fallback, ...] = ()


def make(
    shape: Shape, device: int, stream: int, column_stride: int = 1, *, asking: bool = True
) -> Plan:
    """Ask the device about every choice and order those that fit, the cheapest first.

    With a rung named, that rung comes first and the lower ones follow. The device's primary
    context is current. ``column_stride`` is in elements. Without ``asking``, the answers are those
    of before: the shape is ``known``.
    """
    part = kernel.partition(stream)
    if asking:
        _SMS[device, part] = kernel.sms(device, stream)
    sms = _SMS[device, part]
    candidates, known = _candidates(shape), len(_ANSWERS)
    offers = sorted(
        (
            _offer(choice, shape, sms, *_asked_once(choice, shape, device, stream, part))
            for choice in _fed(candidates, shape)
        ),
        key=lambda offer: offer.microseconds,
    )
    if len(_ANSWERS) > known:
        # While at it, those that starve here, and those that hold shorter rows alone: other lengths
        # want them, and should not wait, or be met in a capture.
        for choice in _candidates(replace(shape, columns=1)):
            _asked_once(choice, shape, device, stream, part)
    order = offers
    if shape.rung != "auto":
        ladder = (shape.rung, *below(shape.rung))
        order = sorted(offers, key=lambda offer: ladder.index(offer.choice.rung))
    plan = Plan(offers=tuple(order), falls=_falls(order))
    taken: set[str] = set()
    for offer in order:
        if offer.slots and offer.choice.rung not in taken:
            taken.add(offer.choice.rung)
            plan.steps.append(step(offer.choice, shape, device, stream, column_stride))
    return plan


def _candidates(shape: Shape) -> list[Config]:
    """Return every kernel that could run the shape on the rungs that were asked for."""
    if shape.rung == "torch":
        return []
    found = choices(shape.columns, shape.dtype)
    if shape.strided:
        # Gaps cost registers, and NVRTC 13.0 went wrong at the 64 that 1,024 threads may have.
        found = [choice for choice in found if choice.variant.threads <= _SPARE_THREADS]
    if shape.rung == "auto":
        return found
    ladder = (shape.rung, *below(shape.rung))
    return [choice for choice in found if choice.rung in ladder]


def _fed(found: list[Config], shape: Shape) -> list[Config]:
    """Leave out the kernels that starve, unless all do, or a rung was named."""
    if shape.rung != "auto":
        return found
    fed = [c for c in found if not starved(c.variant, c.ctas, shape.columns, shape.wish.k)]
    return fed or found


def launch(choice: Config, shape: Shape, device: int, stream: int) -> Launch:
    """Prepare the launch of a choice; one of separate CTAs has a merge to follow."""
    return Launch(
        device,
        choice.variant,
        shape.dtype,
        strided=shape.strided,
        rows=shape.rows,
        ctas=choice.ctas,
        clustered=choice.clustered,
        stream=stream,
        k=shape.wish.k,
    )


def _offer(choice: Config, shape: Shape, sms: int, active: int, refusal: str) -> Candidate:
    rows_at_once = choice.rows_at_once(active)
    return Candidate(
        choice=choice,
        slots=rows_at_once,
        microseconds=predict(
            choice,
            slots=rows_at_once or shape.rows,
            sms=sms,
            rows=shape.rows,
            columns=shape.columns,
            k=shape.wish.k,
            dtype=shape.dtype,
        ),
        refusal=refusal,
    )


_SPARE_THREADS = 512
_ANSWERS: dict[tuple[Any, ...], tuple[int, str]] = {}
_SMS: dict[tuple[int, int], int] = {}


def _asked_once(
    choice: Config, shape: Shape, device: int, stream: int, part: int
) -> tuple[int, str]:
    """Return ``max_active_clusters`` and what refuses, asked once a kernel, k and partition."""
    key = _question(choice, shape, device, part)
    if key not in _ANSWERS:
        try:
            asked = _launches(choice, shape, device, stream)[0]
            slots = asked.slots()
            refusal = "" if slots else f"max_active_clusters is 0 for {choice.name}"
            if asked.refusal:
                refusal = f"{choice.name}: {asked.refusal}"
        except ThorprobeError as error:
            slots, refusal = 0, error.sentence
        _ANSWERS[key] = slots, refusal
    return _ANSWERS[key]


def _question(choice: Config, shape: Shape, device: int, part: int) -> tuple[Any, ...]:
    """Return what an answer depends on: neither the number of rows nor their length."""
    return (device, part, choice, shape.dtype, shape.strided, shape.wish.k)


def known(shape: Shape, device: int, part: int) -> bool:
    """Say whether the device has answered for every kernel that a shape may take.

    A plan is then made without asking it, as a capture needs.
    """
    asked = (_question(choice, shape, device, part) for choice in _candidates(shape))
    return (device, part) in _SMS and all(question in _ANSWERS for question in asked)


def _falls(order: list[Candidate]) -> tuple[Fallback, ...]:
    """Return the rungs that would come before the first that fits; a rung falls once."""
    falls: dict[str, Fallback] = {}
    for offer in order:
        if offer.slots:
            # Another kernel of the same rung that fits is no fall.
            falls.pop(offer.choice.rung, None)
            break
        falls.setdefault(
            offer.choice.rung, Fallback(rung=offer.choice.rung, code=0, reason=offer.refusal)
        )
    return tuple(falls.values())


def step(choice: Config, shape: Shape, device: int, stream: int, column_stride: int = 1) -> Step:
    """Return a choice as a step of a plan; ``column_stride`` is in elements."""
    extra = 0 if choice.clustered else kernel.parts_bytes(shape.rows, shape.wish.k)
    return Step(choice, shape, device, stream, column_stride, parts_bytes=extra)


def _launches(choice: Config, shape: Shape, device: int, stream: int) -> tuple[Launch, ...]:
    first = launch(choice, shape, device, stream)
    if choice.clustered:
        return (first,)
    merge = launch(Config(rung=choice.rung, variant=MERGE, ctas=1), shape, device, stream)
    merge.set_words(k=shape.wish.k, ctas=choice.ctas)
    return first, merge
