# SPDX-License-Identifier: Apache-2.0
"""What an engine's end leaves: the exception's text, its frames, and the call it was in."""

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from thorprobe.vllm.engine_words import Death, Moment, OpRun

_MOST_FRAMES = 40
_MOST_TEXT = 4_000


def death(
    error: BaseException,
    moment: Moment,
    case: str,
    last: OpRun | None,
    folders: Sequence[Path],
) -> Death:
    """Return the death of an error; ``folders`` hold vLLM and torch, and are left out of frames."""
    chain = tuple(_chain(error))
    # CUDA raises an error that is pending once more: the first of RuntimeError is the one meant.
    first = next((one for one in reversed(chain) if isinstance(one, RuntimeError)), chain[0])
    return Death(
        moment=moment,
        case=case,
        last=last,
        kind=type(first).__name__,
        text=str(first)[:_MOST_TEXT],
        frames=tuple(_frames(chain, folders))[-_MOST_FRAMES:],
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what it came of."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _frames(chain: Sequence[BaseException], folders: Sequence[Path]) -> Iterator[str]:
    """Yield the frames of vLLM and torch, outermost first; of a cause, those beyond the others'."""
    told: set[str] = set()
    for error in chain:
        for frame in traceback.extract_tb(error.__traceback__):
            name = _named(Path(frame.filename), folders)
            line = f"{name}:{frame.lineno} in {frame.name}"
            if name and line not in told:
                told.add(line)
                yield line


def _named(path: Path, folders: Sequence[Path]) -> str:
    for folder in folders:
        if path.is_relative_to(folder):
            name = path.relative_to(folder)
            if name.parts[0] in {"vllm", "torch"}:
                return name.as_posix()
    return ""
