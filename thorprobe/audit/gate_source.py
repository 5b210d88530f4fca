# SPDX-License-Identifier: Apache-2.0
"""The gate's constants, read from the sources of vLLM without importing or running them."""

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from thorprobe.audit.installed_records import Role, SourceGate
from thorprobe.audit.python_source import (
    UNPARSED,
    Clause,
    Fetch,
    Library,
    Module,
    Scope,
    Term,
    conditions,
)
from thorprobe.errors import UsageError

OPERATOR = "cooperative_topk"
"""The operator whose calls are looked for, as an attribute such as ``torch.ops._C.NAME``."""

_ROWS = re.compile(r"rows?\b|\bshape\[0\]|\bsize\(0\)|batch|num_tokens")
_GENERIC = ("indexer_topk.py", "sparse_attn_indexer.py")
# Where the generic sparse indexer stands, by version (vLLM PRs #43008 and #56464).


def read_gates(path: str, text: str, fetch: Fetch) -> tuple[SourceGate, ...]:
    """Return the gate of each place of a file that takes the operator, in the file's order.

    ``path`` is relative to the package's parent; ``fetch`` returns the text of other files of the
    package. Raises UsageError, naming the line, for a file that is no Python.
    """
    try:
        module = Module(path, text, Library(fetch))
        return tuple(_gates(module))
    except SyntaxError as error:
        raise UsageError(
            f"`{path}` line {error.lineno} is no Python: {error.msg}",
            "the file was edited or is of a newer Python; `--sources WHEEL` reads another copy",
        ) from error
    except UNPARSED as error:
        raise UsageError(
            f"`{path}` is no Python: {error or 'nested too deeply'}",
            "`--sources WHEEL` reads another copy",
        ) from error


def _gates(module: Module) -> Iterator[SourceGate]:
    named = (n for n in ast.walk(module.tree) if isinstance(n, ast.Attribute))
    for node in sorted(named, key=lambda n: n.lineno):
        if node.attr == OPERATOR:
            function = Scope.of(module, node).function
            gate = SourceGate(
                path=module.path,
                function=function.name if function else "",
                line=node.lineno,
                role=role_of(module.path),
            )
            yield _constants(gate, conditions(module, node))


def role_of(path: str) -> Role:
    """Tell which call site a file is from its path."""
    parts = path.split("/")
    if "amd" in parts or "rocm" in path:
        return Role.AMD
    if "qwen4_exp" in parts:
        return Role.QSA
    return Role.GENERIC if parts[-1] in _GENERIC else Role.OTHER


def _constants(gate: SourceGate, held: Sequence[Clause]) -> SourceGate:
    """Fill in what the clauses say; those of several terms only where all but one cannot be."""
    single = [clause[0] for clause in held if len(clause) == 1]
    cuda = any(_is_cuda(term) and term.positive for term in single)
    unread: list[int] = []
    for clause in held:
        # Without CUDA the call is not reached at all, so an alternative to CUDA is none.
        left = [t for t in clause if not (cuda and _is_cuda(t) and not t.positive)]
        read = _read(gate, left[0]) if len(left) == 1 else None
        if read is None:
            unread += [t.node.lineno for t in left if not _is_other_name(t)]
        else:
            gate = read
    return msgspec.structs.replace(gate, unread_lines=tuple(sorted(set(unread))))


def _read(gate: SourceGate, term: Term) -> SourceGate | None:
    """Return the gate with one condition added, None where it is not understood."""
    node = term.node
    if isinstance(node, ast.Compare):
        return _compared(gate, node, term)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not term.positive:
        return _multiple(gate, node, term.scope)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _asked(gate, node, node.func.attr, term)
    return gate if isinstance(node, ast.Constant) and bool(node.value) == term.positive else None


def _compared(gate: SourceGate, node: ast.Compare, term: Term) -> SourceGate | None:
    left, op, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(op, ast.In | ast.NotIn):
        sizes = _numbers(right, term.scope)
        held = sizes and isinstance(op, ast.In) == term.positive
        return msgspec.structs.replace(gate, k=sizes) if held else None
    if isinstance(op, ast.Eq | ast.NotEq):
        # `x % 4 == 0` holds, or `x % 4 != 0` does not.
        zero = _number(right, term.scope) == 0
        held = zero and isinstance(op, ast.Eq) == term.positive
        return _multiple(gate, left, term.scope) if held else None
    bound = _bound(node, term)
    return None if bound is None else _bounded(gate, *bound)


def _bounded(gate: SourceGate, subject: str, at_most: bool, value: int) -> SourceGate | None:
    if "capability" in subject and not at_most:
        return _at_least(gate, value)
    if not _ROWS.search(subject):
        return None
    if at_most:
        rows = value if gate.rows is None else min(gate.rows, value)
        return msgspec.structs.replace(gate, rows=rows)
    return gate if value <= 1 else None  # No rows at all is no launch anywhere.


def _bound(node: ast.Compare, term: Term) -> tuple[str, bool, int] | None:
    """Return what is bounded, whether from above, and the inclusive bound."""
    left, op, right = node.left, node.ops[0], node.comparators[0]
    signs = {ast.LtE: (True, 0), ast.Lt: (True, -1), ast.GtE: (False, 0), ast.Gt: (False, 1)}
    if type(op) not in signs:
        return None
    at_most, shift = signs[type(op)]
    value, subject = _number(right, term.scope), left
    if value is None:
        value, subject = _number(left, term.scope), right
        at_most, shift = not at_most, -shift
    if value is None:
        return None
    value += shift
    if not term.positive:
        at_most, value = not at_most, value + (1 if at_most else -1)
    return ast.unparse(subject), at_most, value


def _multiple(gate: SourceGate, node: ast.expr, scope: Scope) -> SourceGate | None:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
        return None
    unit = _number(node.right, scope)
    return None if unit is None else msgspec.structs.replace(gate, stride_multiple=unit)


def _asked(gate: SourceGate, node: ast.Call, name: str, term: Term) -> SourceGate | None:
    """Read a question to the platform: least capability, family, CUDA."""
    if name == "is_cuda":
        return msgspec.structs.replace(gate, cuda_only=True) if term.positive else None
    asked = [*node.args, *(word.value for word in node.keywords)]
    value = _number(asked[0], term.scope) if len(asked) == 1 else None
    if value is None:
        return None
    if name == "has_device_capability" and term.positive:
        return _at_least(gate, value)
    if name == "is_device_capability_family":
        field = "required_families" if term.positive else "excluded_families"
        families = {*getattr(gate, field), value // 10 * 10}
        return msgspec.structs.replace(gate, **{field: tuple(sorted(families))})
    return None


def _at_least(gate: SourceGate, value: int) -> SourceGate:
    least = max(divmod(value, 10), gate.min_capability or (0, 0))
    return msgspec.structs.replace(gate, min_capability=least)


def _number(node: ast.expr, scope: Scope) -> int | None:
    """Return a whole number, through names; a capability (9, 0) as 90."""
    if isinstance(node, ast.Tuple):
        pair = _numbers(node, scope)
        return pair[0] * 10 + pair[1] if len(pair) == 2 else None
    if isinstance(node, ast.Constant):
        value = node.value
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    value_of = scope.value(node)
    if value_of is None or not isinstance(value_of[0], ast.Constant | ast.Tuple):
        return None
    return _number(*value_of)


def _numbers(node: ast.expr, scope: Scope) -> tuple[int, ...]:
    """Return the whole numbers of a tuple, list or set, empty where there is another entry."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        found = [_number(entry, scope) for entry in node.elts]
        return tuple(n for n in found if n is not None) if None not in found else ()
    value_of = scope.value(node)
    if value_of is None or not isinstance(value_of[0], ast.Tuple | ast.List | ast.Set):
        return ()
    return _numbers(*value_of)


def _is_cuda(term: Term) -> bool:
    node = term.node
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "is_cuda"
    )


def _is_other_name(term: Term) -> bool:
    """Say whether a term only tells that another branch was not taken, by its name."""
    node = term.node
    return (
        not term.positive
        and isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
        and isinstance(node.comparators[0].value, str)
    )
