# SPDX-License-Identifier: Apache-2.0
"""The source of transformers' QSA indexer: whether it is the known one, and its loop exchanged.

Only the loop that scores and selects, query by query, is taken out of ``forward``; every other line
stays transformers' own. What is taken out must be known to the letter, so the tokens of each part
that the replacement relies on are hashed and compared first. Nothing here imports torch.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator

from thorprobe.errors import CouldNotProbeError

CLASS = "Qwen4ExpTextQSAIndexer"
FIRST_VERSION = (5, 16)
"""transformers carries ``qwen4_exp`` from 5.16.0 on (its release notes)."""

READ_VERSIONS = ("5.16.0", "5.17.0", "5.20.0", "5.23.0", "5.24.0")
"""Releases whose source was hashed, on 2026-11-30."""

HOOK = "__thorprobe_hook__"
"""The name by which the rewritten ``forward`` finds what stands in for its loop."""

READS = "__thorprobe_reads__"
"""The name by which it finds the class that holds what the loop reads."""

_KNOWN = {
    f"{CLASS}.__init__": ("49c87dfa2a7b4a02",),
    # 5.16.0 to 5.20.0; 5.23.0, without the additive mask; 5.24.0, with the cache renamed.
    f"{CLASS}.forward": ("322ccccd64d576d6", "a33467faa7c435e6", "45086767e3285e47"),
    "apply_rotary_pos_emb": ("036046a70cc2e06d",),
    "rotate_half": ("35529b265cf8608b",),
}
"""First digits of the SHA-256 of each part's tokens, in the order of ``READ_VERSIONS``."""

_LAYOUT = {
    tokenize.INDENT: "<in>",
    tokenize.DEDENT: "<out>",
    tokenize.NEWLINE: "<line>",
}
_NO_MEANING = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER)


def digest(source: str) -> str:
    """SHA-256 of the tokens of a function: comments and spacing do not count, layout does."""
    words = tokenize.generate_tokens(io.StringIO(source.rstrip() + "\n").readline)
    told = [_LAYOUT.get(w.type, w.string) for w in words if w.type not in _NO_MEANING]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()


def check(source: str, version: str) -> ast.FunctionDef:
    """Return the node of ``forward`` in the source of the modeling module, once all is known.

    Raises CouldNotProbeError, naming each part that is missing or differs and the versions whose
    parts are known.
    """
    found = dict(_parts(source))
    lines = source.split("\n")
    strange = []
    for name, known in _KNOWN.items():
        if name not in found:
            strange.append(f"{name} is missing")
        elif not digest(_text(lines, found[name])).startswith(known):
            strange.append(f"{name} differs")
    if strange:
        raise CouldNotProbeError(
            f"the QSA indexer of transformers {version} is not one that this thorprobe knows "
            f"({'; '.join(strange)}), so its selection is left alone",
            f"install one of transformers {', '.join(READ_VERSIONS)}, or a newer thorprobe",
        )
    return found[f"{CLASS}.forward"]


def _parts(source: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and node.name == CLASS:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{CLASS}.{inner.name}", inner


def _text(lines: list[str], node: ast.FunctionDef) -> str:
    # Without decorators: they forward to the function, and change with each deprecation.
    found = lines[node.lineno - 1 : node.end_lineno]
    return "\n".join([found[0][node.col_offset :], *found[1:]])


def without_loop(forward: ast.FunctionDef) -> ast.Module:
    """Return ``make(hook, reads)``, whose result is ``forward`` with the hook in the loop's place.

    ``hook.replace`` is called with what the loop reads, a ``reads`` object.
    """
    place, _ = _loop(forward)
    return _maker(forward, [*forward.body[:place], _call("replace"), *forward.body[place + 1 :]])


def observed_loop(forward: ast.FunctionDef) -> ast.Module:
    """Return ``make(hook, reads)``, whose result is ``forward`` with its loop, watched.

    ``hook.begin`` is called before the loop with what it reads, ``hook.queries(batch, count)`` says
    which queries it visits, ``hook.seen`` is told scores and blocks of each, ``hook.end`` comes
    after it.
    """
    place, loop = _loop(forward)
    watched = _Watch().visit(ast.parse(ast.unparse(loop)).body[0])
    body = [*forward.body[:place], _call("begin"), watched, _statement(f"{HOOK}.end()")]
    return _maker(forward, [*body, *forward.body[place + 1 :]])


def _loop(forward: ast.FunctionDef) -> tuple[int, ast.For]:
    (found,) = ((i, node) for i, node in enumerate(forward.body) if isinstance(node, ast.For))
    return found


class _Watch(ast.NodeTransformer):
    """Lets the hook choose the queries, and tells it what each one selected."""

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.target.id == "query_idx":
            node.iter = ast.parse(f"{HOOK}.queries(batch_idx, seq_length)", mode="eval").body
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        (target,) = node.targets
        if isinstance(target, ast.Name) and target.id == "selected_block_indices":
            seen = f"{HOOK}.seen(batch_idx, query_idx, scores, selected_block_indices)"
            return [node, _statement(seen)]
        return node


def _call(name: str) -> ast.stmt:
    return _statement(
        f"{HOOK}.{name}({READS}(indexer=self, queries=q, raw_keys=raw_keys, cos=full_cos, "
        "sin=full_sin, mask=visible_token_indices, out=selected_token_indices))"
    )


def _statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _maker(forward: ast.FunctionDef, body: list[ast.stmt]) -> ast.Module:
    module = ast.parse(f"def make({HOOK}, {READS}):\n    pass")
    make = module.body[0]
    assert isinstance(make, ast.FunctionDef)  # noqa: S101  parsed from the line above
    changed = ast.parse(ast.unparse(forward)).body[0]
    assert isinstance(changed, ast.FunctionDef)  # noqa: S101  it was one
    changed.body = body
    changed.decorator_list = []
    make.body = [changed, _statement(f"return {changed.name}")]
    return ast.fix_missing_locations(module)
