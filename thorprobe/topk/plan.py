# SPDX-License-Identifier: Apache-2.0
"""What ``select`` does for one shape on one stream, decided once: an order of prepared launches."""

from dataclasses import dataclass, field
from typing import Any

from thorprobe.errors import ThorprobeError
from thorprobe.record import Record
from thorprobe.topk import kernel
from thorprobe.topk.contract import Wish
from thorprobe.topk.kernel import Launch
from thorprobe.topk.ladder import Choice, below, choices, predict, starved
from thorprobe.topk.log import Fall
from thorprobe.topk.variant import MERGE


class Shape(Record, frozen=True, kw_only=True):
    """What a plan depends on besides its stream. ``strided`` says that columns have gaps."""

    rows: int
    columns: int
    dtype: str
    strided: bool
    wish: Wish
    rung: str


class Offer(Record, frozen=True, kw_only=True):
    """One choice as the device sees it: rows at once (0: refused) and predicted microseconds."""

    choice: Choice
    slots: int
    microseconds: float
    refusal: str = ""


@dataclass
class Step:
    """One rung of a plan: the launches that make it, the merge of separate CTAs included."""

    choice: Choice
    launches: tuple[Launch, ...]
    parts_bytes: int = 0
    refused: int = 0


@dataclass
class Plan:
    """The steps to try in order, and the falls that were known before the first launch."""

    offers: tuple[Offer, ...]
    steps: list[Step] = field(default_factory=list)
    falls: tuple[Fall, ...] = ()


def make(shape: Shape, device: int, stream: int) -> Plan:
    """Ask the device about every choice and order those that fit, the cheapest first.

    With a rung named, that rung comes first and the lower ones follow. The device's primary
    context is current.
    """
    sms = kernel.sms(device, stream)
    offers = sorted(
        (_offer(choice, shape, device, stream, sms) for choice in _asked(shape)),
        key=lambda offer: offer.microseconds,
    )
    order = offers
    if shape.rung != "auto":
        ladder = (shape.rung, *below(shape.rung))
        order = sorted(offers, key=lambda offer: ladder.index(offer.choice.rung))
    plan = Plan(offers=tuple(order), falls=_falls(order))
    taken: set[str] = set()
    for offer in order:
        if offer.slots and offer.choice.rung not in taken:
            taken.add(offer.choice.rung)
            plan.steps.append(step(offer.choice, shape, device, stream))
    return plan


def _asked(shape: Shape) -> list[Choice]:
    if shape.rung == "torch":
        return []
    found = choices(shape.columns, shape.dtype)
    if shape.strided:
        # Gaps cost registers, and NVRTC 13.0 went wrong at the 64 that 1,024 threads may have.
        found = [choice for choice in found if choice.variant.threads <= _SPARE_THREADS]
    if shape.rung == "auto":
        fed = [c for c in found if not starved(c.variant, c.ctas, shape.columns, shape.wish.k)]
        return fed or found
    ladder = (shape.rung, *below(shape.rung))
    return [choice for choice in found if choice.rung in ladder]


def launch(choice: Choice, shape: Shape, device: int, stream: int) -> Launch:
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


def _offer(choice: Choice, shape: Shape, device: int, stream: int, sms: int) -> Offer:
    active, refusal = _asked_once(choice, shape, device, stream)
    rows_at_once = choice.rows_at_once(active)
    return Offer(
        choice=choice,
        slots=rows_at_once,
        microseconds=predict(
            choice,
            slots=rows_at_once or shape.rows,
            sms=sms,
            rows=shape.rows,
            columns=shape.columns,
            dtype=shape.dtype,
        ),
        refusal=refusal,
    )


_SPARE_THREADS = 512
_ANSWERS: dict[tuple[Any, ...], tuple[int, str]] = {}


def _asked_once(choice: Choice, shape: Shape, device: int, stream: int) -> tuple[int, str]:
    """Return ``max_active_clusters`` and what refuses, asked once a kernel, k and partition."""
    key = (device, kernel.partition(stream), choice, shape.dtype, shape.strided, shape.wish.k)
    if key not in _ANSWERS:
        try:
            slots = launch(choice, shape, device, stream).slots()
            refusal = "" if slots else f"max_active_clusters is 0 for {choice.name}"
        except ThorprobeError as error:
            slots, refusal = 0, error.sentence
        _ANSWERS[key] = slots, refusal
    return _ANSWERS[key]


def _falls(order: list[Offer]) -> tuple[Fall, ...]:
    """Return the rungs that would come before the first that fits; a rung falls once."""
    falls: dict[str, Fall] = {}
    for offer in order:
        if offer.slots:
            # Another kernel of the same rung that fits is no fall.
            falls.pop(offer.choice.rung, None)
            break
        falls.setdefault(
            offer.choice.rung, Fall(rung=offer.choice.rung, code=0, reason=offer.refusal)
        )
    return tuple(falls.values())


def step(choice: Choice, shape: Shape, device: int, stream: int) -> Step:
    """Prepare the launches of a choice; what depends on a call alone is still to be set."""
    launches = [launch(choice, shape, device, stream)]
    extra = 0
    if not choice.clustered:
        extra = kernel.parts_bytes(shape.rows, shape.wish.k)
        merge = Choice(rung=choice.rung, variant=MERGE, ctas=1)
        launches.append(launch(merge, shape, device, stream))
        launches[1].set_words(k=shape.wish.k, ctas=choice.ctas)
    return Step(choice=choice, launches=tuple(launches), parts_bytes=extra)
