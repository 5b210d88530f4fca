# SPDX-License-Identifier: Apache-2.0
"""transformers' Qwen4Exp with its selection replaced by the ladder, or watched while it works.

``with through_ladder():`` is all that a user needs around a model's call. Both managers change one
method of one class while they last, and only if its source is one that is known.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from thorprobe.errors import CouldNotProbeError
from thorprobe.topk import indexer_source as sources
from thorprobe.topk import qsa_blocks

_MODULE = "transformers.models.qwen4_exp.modeling_qwen4_exp"
_INSTALL = "`pip install torch 'transformers>=5.16'`"

Select = Callable[..., Any]
"""``select(logits, lengths, k)`` as ``thorprobe.topk.select`` answers it."""


class Ladder(Protocol):
    """What takes the place of the loop."""

    def replace(self, reads: qsa_blocks.Reads) -> None:
        """Fill ``reads.out`` with the tokens that each query attends to."""
        ...


class Watcher(Protocol):
    """What the loop tells while it works."""

    def begin(self, reads: qsa_blocks.Reads) -> None:
        """Take what the loop is about to read."""
        ...

    def queries(self, request: int, count: int) -> Iterable[int]:
        """Say which of the ``count`` queries the loop visits."""
        ...

    def seen(self, request: int, query: int, scores: Any, blocks: Any) -> None:
        """Take the scores [blocks] of one query and the blocks it selected."""
        ...

    def end(self) -> None:
        """Take notice that the loop is done."""
        ...


class Batched:
    """All queries of a step in one call of ``select``: the plain stand-in for the loop."""

    def __init__(self, select: Select | None = None) -> None:
        """Take what selects, by default the ladder with its defaults."""
        self._select = select

    def replace(self, reads: qsa_blocks.Reads) -> None:
        """Score, select and fill in the tokens; indices have no gradient, so none is kept."""
        import torch

        with torch.no_grad():
            seen, scores, lengths = self.score(reads)
            chosen = self.choose(scores, lengths, reads.indexer.block_topk)
            qsa_blocks.fill_tokens(reads.out, chosen, seen, reads.indexer.compress_ratio)

    def score(self, reads: qsa_blocks.Reads) -> tuple[qsa_blocks.Visible, Any, Any]:
        """Return what is visible, scores fp32 [rows, columns] and lengths int32 [rows]."""
        seen = qsa_blocks.visible(reads.mask, reads.indexer.compress_ratio)
        rotate = modeling().apply_rotary_pos_emb
        keys = qsa_blocks.block_keys(reads, rotate, seen)
        return seen, qsa_blocks.scores(reads.queries, keys), seen.lengths

    def choose(self, scores: Any, lengths: Any, k: int) -> Any:
        """Return the selected blocks, int32 [rows, k]; none where no query has a whole block."""
        if not scores.shape[1]:
            return scores.new_full((scores.shape[0], k), -1).int()
        if self._select is not None:
            return self._select(scores, lengths, k)
        from thorprobe import topk

        return topk.select(scores, lengths, k)


def modeling() -> Any:
    """Import transformers' Qwen4Exp. Raises CouldNotProbeError where it is missing or too old."""
    try:
        version = str(import_module("transformers").__version__)
    except ImportError as error:
        raise CouldNotProbeError(
            f"the model needs transformers, which cannot be imported: {error}", _INSTALL
        ) from error
    try:
        return import_module(_MODULE)
    except ModuleNotFoundError as error:
        first = ".".join(map(str, sources.FIRST_VERSION))
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if numbers >= sources.FIRST_VERSION:
            sentence = f"transformers {version} cannot import its qwen4_exp: {error}"
        else:
            sentence = f"transformers {version} has no qwen4_exp, which it carries from {first} on"
        raise CouldNotProbeError(sentence, _INSTALL) from error


@contextmanager
def through_ladder(ladder: Ladder | None = None) -> Iterator[None]:
    """Let every QSA indexer select through ``ladder`` (by default ``Batched``) while this lasts.

    Raises CouldNotProbeError where transformers is missing, too old, or differs in what is
    replaced.
    """
    with _exchanged(sources.without_loop, ladder or Batched()):
        yield


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Let ``watcher`` see every selection of transformers' own loop while this lasts.

    Raises CouldNotProbeError as ``through_ladder`` does.
    """
    with _exchanged(sources.observed_loop, watcher):
        yield


@contextmanager
def _exchanged(rewrite: Callable[[ast.FunctionDef], ast.Module], hook: Any) -> Iterator[None]:
    kind = _checked_class(modeling())
    changed = _maker(rewrite)(hook, qsa_blocks.Reads)
    before = kind.forward
    kind.forward = changed
    try:
        yield
    finally:
        kind.forward = before


@cache
def _maker(rewrite: Callable[[ast.FunctionDef], ast.Module]) -> Callable[[Any, type], Any]:
    module = modeling()
    whole = rewrite(sources.check(inspect.getsource(module), _version()))
    made: dict[str, Any] = {}
    # What runs is transformers' own source, known by its hash, with thorprobe's calls put in.
    exec(compile(whole, str(module.__file__), "exec"), vars(module), made)  # noqa: S102
    maker: Callable[[Any, type], Any] = made["make"]
    return maker


def _version() -> str:
    return str(import_module("transformers").__version__)


def _checked_class(module: Any) -> Any:
    """Return the indexer's class. Raises CouldNotProbeError unless its method is the module's."""
    kind = getattr(module, sources.CLASS, None)
    if kind is None:
        raise CouldNotProbeError(
            f"transformers {_version()} has no {sources.CLASS}, so its selection is left alone",
            f"install one of transformers {', '.join(sources.READ_VERSIONS)}",
        )
    code = inspect.unwrap(kind.forward).__code__
    if code.co_filename != module.__file__ or code.co_qualname != f"{sources.CLASS}.forward":
        raise CouldNotProbeError(
            f"{sources.CLASS}.forward was replaced by someone else already "
            f"({code.co_qualname}), so its selection is left alone",
            "run thorprobe in a process of its own",
        )
    return kind
