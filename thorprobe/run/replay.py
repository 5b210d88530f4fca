# SPDX-License-Identifier: Apache-2.0
"""A recorded run answers instead of a device."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from thorprobe.record import LaunchSpec, Observed, Origin, Outcome, Status
from thorprobe.run.store import read


class ReplayAnswerer:
    """Answers from a store; what was measured there comes back as recorded.

    A launch that the recording does not hold is waived, never guessed.
    """

    def __init__(self, path: Path) -> None:
        """Read the store. Raises UsageError for a bad one."""
        recording = read(path)
        self.header = recording.header
        self.origin = _replayed(recording.header.origin)
        self.device = recording.header.device
        self.software = dict(recording.header.software)
        self.inputs = dict(recording.header.inputs)
        self._source = f"{path.name}, {recording.header.started}"
        self._by_spec: dict[str, list[Outcome]] = {}
        for outcome in recording.outcomes:
            self._by_spec.setdefault(outcome.spec.id, []).append(outcome)

    def holds(self, specs: Sequence[LaunchSpec]) -> bool:
        """Say whether the recording has an outcome of every one of these launches."""
        return all(spec.id in self._by_spec for spec in specs)

    def ask(self, specs: Sequence[LaunchSpec]) -> Iterator[Outcome]:
        """Return what the recording holds of each launch."""
        for spec in specs:
            held = self._by_spec.get(spec.id)
            if held is None:
                yield Outcome(
                    id=spec.id,
                    spec=spec,
                    status=Status.WAIVED,
                    origin=self.origin,
                    observed=Observed(),
                    note="the recording does not hold this launch",
                    source=self._source,
                )
                continue
            for outcome in held:
                yield msgspec.structs.replace(
                    outcome, origin=_replayed(outcome.origin), source=self._source
                )

    def attach(self, shipped: object) -> None:
        """Do nothing: what was recorded of shipped kernels is in the recording."""

    def close(self) -> None:
        """Nothing is held open."""


def _replayed(origin: Origin) -> Origin:
    """Turn measured into recorded; a prediction stays one."""
    return Origin.RECORDED if origin is Origin.MEASURED else origin
