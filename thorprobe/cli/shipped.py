# SPDX-License-Identifier: Apache-2.0
"""``--kernel shipped:FILE``: the file's kernels for whichever device answers."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from thorprobe.errors import UsageError

if TYPE_CHECKING:
    from thorprobe.plan.shipped_kernel import ShippedKernel
    from thorprobe.run.shipped import Shipped

PREFIX = "shipped:"


class ShippedFile:
    """The file that ``--kernel shipped:FILE`` names, opened for one device at a time."""

    def __init__(self, text: str, progress: Callable[[], Any]) -> None:
        """Look whether the file is there; ``progress`` opens a bar.

        Raises UsageError where it is not, before any device is touched.
        """
        from thorprobe.run.shipped import parse

        self.path, self.pattern = parse(text)
        self._progress = progress
        self._open: dict[tuple[int, int], Shipped] = {}
        if not self.path.exists():
            raise UsageError(
                f"`--kernel {PREFIX}{self.path.name}` was asked for, but there is no such file",
                "write `--kernel shipped:FILE`: a wheel, a library, a cubin or a fatbin",
            )

    def attach(self, answerer: Any) -> None:
        """Hand the kernels that the answerer's device loads to it.

        Raises CouldNotProbeError where it loads none of them.
        """
        answerer.attach(self._for(answerer.device))

    def kernels(self, device: Any) -> "tuple[ShippedKernel, ...]":
        """Return the kernels that the device loads."""
        return self._for(device).kernels

    def _for(self, device: Any) -> "Shipped":
        from thorprobe.run.shipped import open_for

        if device.capability not in self._open:
            with self._progress() as advance:
                found = open_for(self.path, self.pattern, device.capability, advance)
            self._open[device.capability] = found
            for remark in found.remarks:
                _say(remark)
        return self._open[device.capability]


def of_option(names: Sequence[str], progress: Callable[[], Any]) -> ShippedFile | None:
    """Return the shipped file among the values of ``--kernel``, None without one.

    Raises UsageError for several.
    """
    shipped = [name for name in dict.fromkeys(names) if name.startswith(PREFIX)]
    if len(shipped) > 1:
        raise UsageError(
            "several `--kernel shipped:FILE` were given, but one file is asked about at a time",
            "leave out all but one",
        )
    return ShippedFile(shipped[0], progress) if shipped else None


def check_held(question: Any, file: ShippedFile | None, device: Any) -> None:
    """Raise UsageError where a stored question needs shipped kernels that nobody named."""
    from thorprobe.plan.shipped_kernel import is_shipped

    wanted = {spec.kernel for spec in question.first() if is_shipped(spec.kernel)}
    held = {kernel.label for kernel in file.kernels(device)} if file and wanted else set()
    if missing := sorted(wanted - held):
        raise UsageError(
            f"the store asks about `{missing[0]}`, which no file that was named holds",
            "name the wheel, library or cubin again with `--kernel shipped:FILE`",
        )


def _say(remark: str) -> None:
    import sys

    print(f"note: {remark}", file=sys.stderr)
