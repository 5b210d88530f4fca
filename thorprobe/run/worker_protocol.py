# SPDX-License-Identifier: Apache-2.0
"""What the worker and its parent say to each other: one JSON line a message."""

import msgspec

from thorprobe.plan.shipped_kernel import ShippedKernel
from thorprobe.record import Device, LaunchSpec, Outcome, Record


class Setup(Record, tag="setup", frozen=True, kw_only=True):
    """First message to a worker: which device, partition and oracle."""

    ordinal: int
    partition: str
    oracle: str


class Ask(Record, tag="ask", frozen=True, kw_only=True):
    """Answer this launch."""

    spec: LaunchSpec


class Load(Record, tag="load", frozen=True, kw_only=True):
    """Know these shipped kernels; ``images`` maps the SHA-256 of a cubin to its file."""

    kernels: tuple[ShippedKernel, ...]
    images: dict[str, str]


class Operators(Record, tag="operators", frozen=True, kw_only=True):
    """Load this library of vLLM, whose operators later launches name; answered by Ready."""

    path: str
    version: str
    sha256: str


class Ready(Record, tag="ready", frozen=True, kw_only=True):
    """The library is loaded and its operators are those that are known."""


class Hello(Record, tag="hello", frozen=True, kw_only=True):
    """The worker is ready: what it found."""

    device: Device
    software: dict[str, str]


class Failed(Record, tag="failed", frozen=True, kw_only=True):
    """The worker cannot work at all."""

    sentence: str
    hint: str


class Beat(Record, tag="beat", frozen=True, kw_only=True):
    """The worker is alive and doing this."""

    stage: str


class Answer(Record, tag="answer", frozen=True, kw_only=True):
    """One launch answered.

    ``poisoned`` means that the context is finished (a sticky error), and ``untried`` that it was
    finished before this launch, which was therefore not made.
    """

    outcome: Outcome
    poisoned: bool
    untried: bool = False
    compiler: str


ToWorker = Setup | Ask | Load | Operators
FromWorker = Hello | Failed | Beat | Answer | Ready

encode = msgspec.json.Encoder().encode
to_worker = msgspec.json.Decoder(ToWorker).decode
from_worker = msgspec.json.Decoder(FromWorker).decode
