# SPDX-License-Identifier: Apache-2.0
"""vLLM's operators inside a worker: its context, its stream, its library."""

from collections.abc import Callable
from pathlib import Path

from thorprobe.binary.operator_file import LibraryFile
from thorprobe.driver.context import Context
from thorprobe.run import worker_protocol
from thorprobe.run.operator_library import load_file
from thorprobe.run.operator_probe import OperatorProber
from thorprobe.run.operator_seat import GpuSeat
from thorprobe.run.workload import Oracle


def opened(
    asked: worker_protocol.Operators,
    context: Context,
    oracle: Callable[[], Oracle],
    stage: Callable[[str], None],
) -> OperatorProber:
    """Load the library and take a seat on the stream of the context or of its partition.

    Raises CouldNotProbeError where torch or the library is not what it must be.
    """
    file = LibraryFile(path=Path(asked.path), version=asked.version, sha256=asked.sha256)
    library = load_file(file)
    seat = GpuSeat(context.ordinal, int(context.stream))
    return OperatorProber(library, seat, oracle, stage)
