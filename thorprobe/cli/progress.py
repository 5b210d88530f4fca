# SPDX-License-Identifier: Apache-2.0
"""A transient progress bar on standard error."""

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """Shows done of total while a command works, and disappears."""

    def __init__(self, title: str) -> None:
        """Prepare the bar."""
        self._title = title
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )

    def __enter__(self) -> Callable[[int, int], None]:
        """Start to show it and return what to call with done and total."""
        self._progress.start()
        task = self._progress.add_task(self._title, total=None)

        def advance(done: int, total: int) -> None:
            self._progress.update(task, completed=done, total=total)

        return advance

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take it away."""
        self._progress.stop()
