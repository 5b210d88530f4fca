# SPDX-License-Identifier: Apache-2.0
"""What an engine's process and its parent say to each other: one JSON line a message."""

import msgspec

from thorprobe.record import Device, Record
from thorprobe.vllm.engine_plan import Case, Engine
from thorprobe.vllm.engine_words import CaseRun, Death, EngineRun

Best = tuple[tuple[int, float], ...]
"""A position's best tokens with their log-probabilities, best first."""


class Setup(Record, tag="setup", frozen=True, kw_only=True):
    """First message: import vLLM for this engine, and wait."""

    engine: Engine


class Build(Record, tag="build", frozen=True, kw_only=True):
    """Start the engine on these weights, for at most so many tokens a request and requests."""

    folder: str
    max_tokens: int
    max_requests: int
    seed: int


class Go(Record, tag="go", frozen=True, kw_only=True):
    """Run this case; ``forced`` are tokens to emit, and ``keep`` the file for its selections."""

    case: Case
    forced: tuple[int, ...] = ()
    keep: str = ""


class Quit(Record, tag="quit", frozen=True, kw_only=True):
    """Write what is to be written, and end."""


class Ready(Record, tag="ready", frozen=True, kw_only=True):
    """vLLM is imported: versions of what is here, and the device."""

    versions: dict[str, str]
    device: Device


class Started(Record, tag="started", frozen=True, kw_only=True):
    """The engine started."""

    run: EngineRun


class Done(Record, tag="done", frozen=True, kw_only=True):
    """A case ended; ``best`` and ``emitted`` are of the run that is compared with transformers."""

    case: CaseRun
    best: tuple[Best, ...] = ()
    emitted: tuple[int, ...] = ()
    was_forced: bool = False


class Died(Record, tag="died", frozen=True, kw_only=True):
    """The engine ended with an error; ``run`` is what was known of it before its start ended."""

    death: Death
    run: EngineRun | None = None


class Failed(Record, tag="failed", frozen=True, kw_only=True):
    """No engine can be started here at all."""

    sentence: str
    hint: str


ToEngine = Setup | Build | Go | Quit
FromEngine = Ready | Started | Done | Died | Failed

encode = msgspec.json.Encoder().encode
to_engine = msgspec.json.Decoder(ToEngine).decode
from_engine = msgspec.json.Decoder(FromEngine).decode
