# SPDX-License-Identifier: Apache-2.0
"""Exit codes and the one exception family: what was asked, what is wrong, and a hint."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes, as printed by ``thorprobe --help``."""

    DONE = 0
    EXPECTATION_FAILED = 1
    USAGE = 2
    COULD_NOT_PROBE = 3
    INTERNAL = 4
    HUNG = 5


EXIT_CODE_HELP = (
    "Exit codes: 0 the measurement is complete, whatever it found, or every expectation held; "
    "1 an expectation failed; 2 usage; 3 could not probe (no such device, or everything was "
    "waived); 4 internal error; 5 a probe hung."
)


class ThorprobeError(Exception):
    """One sentence that says what was asked and what is wrong, with a hint and an exit code."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, sentence: str, hint: str = "") -> None:
        """Keep the sentence (no final period) and the hint (a line to act on)."""
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


class UsageError(ThorprobeError):
    """A bad argument, file or record."""

    exit_code = ExitCode.USAGE


class CouldNotProbeError(ThorprobeError):
    """A device or a package was asked for and is not there."""

    exit_code = ExitCode.COULD_NOT_PROBE


class StoreError(ThorprobeError):
    """The evidence cannot be written any further; what is recorded stays recorded.

    The place that was named does not hold it, so this is usage: nothing in thorprobe broke.
    """

    exit_code = ExitCode.USAGE
