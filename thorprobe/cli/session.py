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
from thorprobe.cli.output import show
from thorprobe.cli.shipped import PREFIX, check_held
from thorprobe.errors import CouldNotProbeError, ExitCode, UsageError

DEFAULT_PROFILE = "thor"
_FILES = (PREFIX, "vllm:")
# What values of `--kernel` and `--peer` that name a file begin with.
_NO_DEVICE = 100
# CUDA_ERROR_NO_DEVICE: a build host, or CUDA_VISIBLE_DEVICES that hides every device.


@dataclass(frozen=True, kw_only=True)
class Session:
    """The shared options of a measuring command; ``shipped`` is a ShippedFile or None."""

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
    shipped: Any = None
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
        # A store is resumed on any device like its own, or with the profile file it came from.
        allowed = ({"--device", "--resume"}, {"--profile", "--resume"})
        if len(given) > 1 and set(given) not in allowed:
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
        one_file = "--store" if self.store else "--resume" if self.resume else ""
        if one_file and self.device == "all":
            raise UsageError(
                f"`{one_file}` names one file, but `--device all` measures several devices",
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
            if not _has_gpu(driver_present):
                raise CouldNotProbeError(
                    "`--device all` was asked for, but there is no CUDA device on this machine",
                    "`--profile thor` answers from a model; `thorprobe doctor` says what is "
                    "missing",
                )
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
        baseline = self._baseline()  # A bad file ends it here, before anything is asked.
        kept = self.recording()
        if kept is not None:
            partition = kept.header.device.partition
        documents = []
        for opener in self.answerers_of(kept, partition):
            answerer = opener()
            try:
                if self.shipped is not None and self.replay is None:
                    self.shipped.attach(answerer)
                documents.append(self._inquire(question_for, answerer, kept))
            finally:
                answerer.close()
        show(documents, self.form, self.output)
        return self._verdict(documents, baseline)

    def answerers_of(self, kept: Any, partition: str) -> "list[Callable[[], Any]]":
        """Return who answers; a resumed prediction is answered by its own profile.

        Raises UsageError for a store that no device and no model answered.
        """
        from thorprobe.record import Origin

        if kept is not None and kept.header.origin is Origin.PREDICTED:
            return [_model(self.profile or kept.header.device.profile, partition)]
        if kept is not None and kept.header.origin is Origin.RECORDED:
            raise UsageError(
                f"`--resume {self.resume}` was asked for, but that store was answered from a "
                "recording, and no device has to do with it",
                "`--replay FILE` with the recording answers all of it again",
            )
        if kept is not None and self.device is None:
            from thorprobe.run.gpu import GpuAnswerer

            return [
                lambda: GpuAnswerer(0, partition, oracle=self.oracle, deadline_s=self.deadline_s)
            ]
        return self.answerers(partition)

    def _inquire(self, question_for: Callable[[Any], Any], answerer: Any, kept: Any) -> Any:
        from thorprobe.cli.measure import measure
        from thorprobe.cli.study import of_header

        question = question_for(answerer.device)
        if kept is not None:
            if kept.header.command != question.command:
                raise UsageError(
                    f"`{question.command}` was asked to go on with a store of a "
                    f"`{kept.header.command}`",
                    f"`thorprobe {kept.header.command} --resume {self.resume}`",
                )
            question = of_header(kept.header)
            check_held(question, self.shipped, answerer.device)
        if self.replay is not None:
            question = _replayed(question, answerer)
        path = self.resume or self.store or _default_store(question.command, answerer)
        with progress(question.command, shown=self.progress) as advance:
            document = measure(
                question,
                answerer,
                argv=public(self.argv),
                store_path=path,
                kept=kept,
                progress=advance,
            )
        if path is not None:
            print(f"{len(document.results)} records in {path}", file=sys.stderr)
        return document

    def _baseline(self) -> Any:
        if self.baseline is None:
            return None
        from thorprobe.run.store import read

        return read(self.baseline).outcomes

    def _verdict(self, documents: Sequence[Any], baseline: Any) -> ExitCode:
        code = max((ExitCode(d.exit_code) for d in documents), default=ExitCode.COULD_NOT_PROBE)
        if code is not ExitCode.DONE:
            return code
        from thorprobe.judge.fail_on import failing

        wanted = tuple(kind.value for kind in self.fail_on)
        for document in documents:
            reason = failing(document, wanted, baseline)
            if reason:
                print(f"failed: {reason}", file=sys.stderr)
                return ExitCode.EXPECTATION_FAILED
        return ExitCode.DONE


def _replayed(asked: Any, answerer: Any) -> Any:
    """Return the recorded question where the recording does not hold all that was asked."""
    from thorprobe.cli.study import of_header

    header = answerer.header
    if header.command != asked.command or answerer.holds(asked.first()):
        return asked
    print(
        "note: the recording answers its own question, with the options it was made with",
        file=sys.stderr,
    )
    return of_header(header)


def _model(profile: str, partition: str) -> Callable[[], Any]:
    from thorprobe.model.profile import load
    from thorprobe.run.model import ModelAnswerer

    loaded = load(profile)
    return lambda: ModelAnswerer(loaded, partition)


def _has_gpu(driver_present: Callable[[], bool]) -> bool:
    """Say whether to measure by default. A driver without a device (a build host) is no GPU."""
    return driver_present() and _count_devices() > 0


def _count_devices() -> int:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise CouldNotProbeError(
            f"there is a CUDA driver, but measuring needs a package that is missing: {error}",
            "`pip install cuda-python cupy-cuda13x nvidia-cuda-nvrtc`, or `--profile thor`",
        ) from error
    code = int(driver.cuInit(0)[0])
    if code == _NO_DEVICE:
        print(
            "note: there is a CUDA driver here, and it sees no device (cuInit answered 100)",
            file=sys.stderr,
        )
        return 0
    if code:
        name = driver.cuGetErrorName(driver.CUresult(code))[1].decode()
        raise CouldNotProbeError(
            f"there is a CUDA driver, but cuInit answered {code} {name}",
            "`thorprobe doctor` looks closer; `--profile thor` answers from the model",
        )
    code, count = driver.cuDeviceGetCount()
    return 0 if int(code) else int(count)


def public(argv: Sequence[str]) -> tuple[str, ...]:
    """Leave out the folders of this machine: evidence is shown to strangers."""
    shown = []
    for word in argv:
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("-"):
            shown.append(f"{flag}={_bare(value)}")
        elif word.startswith(_FILES):
            shown.append(_bare(word))
        elif word[:1] == "-" and word[1:2].isalpha():  # A short option with its value attached.
            shown.append(word[:2] + _without_folder(word[2:]))
        else:
            shown.append(_without_folder(word))
    return tuple(shown)


def _bare(value: str) -> str:
    """Leave out the folder of a value, also of one that says what its file is: ``vllm:FILE``."""
    if not value.startswith(_FILES):
        return _without_folder(value)
    kind, colon, path = value.partition(":")
    return kind + colon + Path(path).name


def _without_folder(word: str) -> str:
    path = Path(word)
    return path.name if path.is_absolute() else word


def _default_store(command: str, answerer: Any) -> Path | None:
    """Return where a measurement is kept when no place was named; predictions are not kept."""
    from thorprobe.cli.measure import now
    from thorprobe.record import Origin

    if answerer.origin is not Origin.MEASURED:
        return None
    # expanduser leaves the ~ where no home is known; Path.home would raise.
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    folder = Path(base) / "thorprobe"
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
