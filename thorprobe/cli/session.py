# SPDX-License-Identifier: Apache-2.0
"""What every measuring command does around its question: who answers, where it is kept."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thorprobe.cli.options import FailOn, Format
from thorprobe.errors import ExitCode, UsageError

DEFAULT_PROFILE = "thor"


@dataclass(frozen=True, kw_only=True)
class Session:
    """The shared options of a measuring command."""

    device: str | None = None
    profile: str | None = None
    replay: Path | None = None
    partition: str = ""
    form: Format = Format.TEXT
    output: Path | None = None
    store: Path | None = None
    resume: Path | None = None
    progress: bool = True
    fail_on: Sequence[FailOn] = ()
    baseline: Path | None = None
    deadline_s: float = 10.0
    oracle: str = "numpy"
    argv: Sequence[str] = field(default_factory=lambda: tuple(sys.argv[1:]))

    def check(self) -> None:
        """Raise UsageError for options that exclude each other."""
        sources = {
            "--device": self.device,
            "--profile": self.profile,
            "--replay": self.replay,
            "--resume": self.resume,
        }
        given = [name for name, value in sources.items() if value is not None]
        allowed = {"--device", "--resume"}
        if len(given) > 1 and set(given) != allowed:
            raise UsageError(
                f"{' and '.join(f'`{name}`' for name in given)} were both given, but only one of "
                "them can answer",
                "leave out all but one",
            )
        if self.store is not None and self.resume is not None:
            raise UsageError(
                "`--store` and `--resume` were both given, but a resumed run goes on in its store",
                "leave out `--store`",
            )
        if FailOn.CHANGED in self.fail_on and self.baseline is None:
            raise UsageError(
                "`--fail-on changed` was given without anything to compare with",
                "name a store with `--baseline FILE`",
            )
        if self.store is not None and self.device == "all":
            raise UsageError(
                "`--store` names one file, but `--device all` measures several devices",
                "measure one device at a time, `--device 0` first",
            )

    def recording(self) -> Any:
        """Return the recording to resume, None without ``--resume``."""
        if self.resume is None:
            return None
        from thorprobe.run.store import read

        return read(self.resume)

    def answerers(self, partition: str) -> "list[Callable[[], Any]]":
        """Return who answers: one opener a device.

        Raises UsageError for a device that is no number, CouldNotProbeError where one was asked
        for and there is no driver.
        """
        if self.replay is not None:
            from thorprobe.run.replay import ReplayAnswerer

            path = self.replay
            return [lambda: ReplayAnswerer(path)]
        if self.profile is not None:
            return [_model(self.profile, partition)]
        from thorprobe.run.gpu import GpuAnswerer, driver_present

        if self.device is None and not _has_gpu(driver_present):
            if partition:
                raise UsageError(
                    f"`--partition {partition}` was asked for, but there is no GPU to partition",
                    "`--profile h200 --partition sms=8` answers from the model",
                )
            return [_model(DEFAULT_PROFILE, "")]

        def gpu(ordinal: int) -> Callable[[], Any]:
            return lambda: GpuAnswerer(
                ordinal, partition, oracle=self.oracle, deadline_s=self.deadline_s
            )

        if self.device == "all":
            return [gpu(ordinal) for ordinal in range(_count_devices())]
        text = self.device if self.device is not None else "0"
        if not (text.isascii() and text.isdigit()):
            raise UsageError(
                f"`--device {text}` was asked for, but a device is a number or `all`",
                "`thorprobe doctor` lists the devices",
            )
        return [gpu(int(text))]

    def run(self, question_for: Callable[[Any], Any], partition: str) -> ExitCode:
        """Put a question to whoever answers, show the documents and return the exit code.

        ``question_for`` makes the question once the device is known (its capability decides the
        dispatch).
        """
        self.check()
        kept = self.recording()
        if kept is not None:
            partition = kept.header.device.partition
        documents = []
        for opener in self.answerers_of(kept, partition):
            answerer = opener()
            try:
                documents.append(self._inquire(question_for, answerer, kept))
            finally:
                answerer.close()
        show(documents, self.form, self.output)
        return self._verdict(documents)

    def answerers_of(self, kept: Any, partition: str) -> "list[Callable[[], Any]]":
        """Return who answers; a resumed prediction is answered by its own profile."""
        if kept is not None and kept.header.device.profile:
            return [_model(kept.header.device.profile, partition)]
        if kept is not None and self.device is None:
            from thorprobe.run.gpu import GpuAnswerer

            return [
                lambda: GpuAnswerer(0, partition, oracle=self.oracle, deadline_s=self.deadline_s)
            ]
        return self.answerers(partition)

    def _inquire(self, question_for: Callable[[Any], Any], answerer: Any, kept: Any) -> Any:
        from thorprobe.inquiry import inquire
        from thorprobe.question import of_header

        question = of_header(kept.header) if kept is not None else question_for(answerer.device)
        path = self.resume or self.store or _default_store(question.command, answerer)
        with progress(question.command, shown=self.progress) as advance:
            document = inquire(
                question,
                answerer,
                argv=_public(self.argv),
                store_path=path,
                kept=kept,
                progress=advance,
            )
        if path is not None:
            print(f"{len(document.results)} records in {path}", file=sys.stderr)
        return document

    def _verdict(self, documents: Sequence[Any]) -> ExitCode:
        code = max((ExitCode(d.exit_code) for d in documents), default=ExitCode.COULD_NOT_PROBE)
        if code is not ExitCode.DONE:
            return code
        from thorprobe.judge.gate import failing

        baseline = None
        if self.baseline is not None:
            from thorprobe.run.store import read

            baseline = read(self.baseline).outcomes
        wanted = tuple(kind.value for kind in self.fail_on)
        for document in documents:
            reason = failing(document, wanted, baseline)
            if reason:
                print(f"failed: {reason}", file=sys.stderr)
                return ExitCode.EXPECTATION_FAILED
        return ExitCode.DONE


def _model(profile: str, partition: str) -> Callable[[], Any]:
    from thorprobe.run.model import ModelAnswerer
    from thorprobe.run.profile import load

    loaded = load(profile)
    return lambda: ModelAnswerer(loaded, partition)


def _has_gpu(driver_present: Callable[[], bool]) -> bool:
    """Say whether to measure by default. A driver without a device (a build host) is no GPU."""
    return driver_present() and _count_devices() > 0


def _count_devices() -> int:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        from thorprobe.errors import CouldNotProbeError

        raise CouldNotProbeError(
            f"there is a CUDA driver, but measuring needs a package that is missing: {error}",
            "`pip install cuda-python cupy-cuda13x nvidia-cuda-nvrtc`, or `--profile thor`",
        ) from error
    if int(driver.cuInit(0)[0]):
        return 0
    code, count = driver.cuDeviceGetCount()
    return 0 if int(code) else int(count)


def _public(argv: Sequence[str]) -> tuple[str, ...]:
    """Leave out the folders of this machine: evidence is shown to strangers."""
    shown = []
    for word in argv:
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("-"):
            shown.append(f"{flag}={_without_folder(value)}")
        else:
            shown.append(_without_folder(word))
    return tuple(shown)


def _without_folder(word: str) -> str:
    path = Path(word)
    return path.name if path.is_absolute() else word


def _default_store(command: str, answerer: Any) -> Path | None:
    """Return where a measurement is kept when no place was named; predictions are not kept."""
    from thorprobe.inquiry import now
    from thorprobe.record import Origin

    if answerer.origin is not Origin.MEASURED:
        return None
    root = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = root / "thorprobe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(
            f"warning: the run is not kept, {folder} cannot be made: {error.strerror}",
            file=sys.stderr,
        )
        return None
    stamp = now().replace(":", "").replace("-", "")
    return folder / f"{command}-{stamp}-{os.getpid()}.jsonl"


def progress(title: str, *, shown: bool) -> "AbstractContextManager[Callable[[int, int], None]]":
    """Show how far a command is, on standard error, where that is a terminal."""
    if not shown or not sys.stderr.isatty() or os.environ.get("THORPROBE_NO_PROGRESS"):
        return nullcontext(lambda _done, _total: None)
    from thorprobe.cli.progress import Bar

    return Bar(title)


def show(documents: Sequence[Any], form: Format, output: Path | None) -> None:
    """Render the documents to a file or to standard output.

    Raises UsageError where the file cannot be written.
    """
    if output is None and form is Format.TEXT:
        from thorprobe.render.text import show as show_text
        from thorprobe.render.text import terminal

        console = terminal(sys.stdout)
        for document in documents:
            show_text(document, console)
        return
    from thorprobe.render import FORMATS

    render = FORMATS[form.value]
    write("".join(render(document) for document in documents), output)


def write(text: str, output: Path | None) -> None:
    """Write text to a file, whole or not at all, or to standard output.

    Raises UsageError where the file cannot be written; what was there before is then still there.
    """
    if not text.endswith("\n"):
        text += "\n"
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    beside = output.with_name(f".{output.name}.{os.getpid()}.part")
    special = output.exists() and not output.is_file()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if special:
            output.write_text(text, encoding="utf-8")
            return
        beside.write_text(text, encoding="utf-8")
        beside.replace(output)
    except OSError as error:
        if not special:
            beside.unlink(missing_ok=True)
        raise UsageError(
            f"`--output {output}` cannot be written: {(error.strerror or str(error)).lower()}",
            "choose another place; what was measured is in the store",
        ) from error
