# SPDX-License-Identifier: Apache-2.0
"""Python source as conditions: what must hold before a line runs, names resolved, nothing run.

A condition is a list of clauses, all of which hold; a clause is a list of terms, one of which does.
Names are followed to a constant, an expression or a function of one expression, in the same package
and no deeper than ``_DEPTH``; what cannot be followed stays a term as it is.
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import PurePosixPath

Function = ast.FunctionDef | ast.AsyncFunctionDef
Fetch = Callable[[str], str | None]
"""Returns the text of a package-relative path such as ``vllm/platforms/cuda.py``, or None."""

Assigned = tuple[ast.stmt, ast.expr, ast.expr]
"""A statement, one of its targets, and the value."""

_DEPTH = 12
_HOPS = 4
_MOST_CLAUSES = 128
_STEPS = 2_000
# Sources that a person wrote need a few hundred; a file made to blow up ends here.

UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What ``ast.parse`` raises for text that is no Python, has zero bytes or is nested too deeply."""


class Library:
    """The files that were parsed so far, and how many steps may still be taken in them."""

    def __init__(self, fetch: Fetch) -> None:
        """Take who finds the files."""
        self._fetch = fetch
        self._modules: dict[str, Module | None] = {}
        self._steps = 0

    def module(self, place: str) -> "Module | None":
        """Return the module of a name written with slashes, None where there is none to read."""
        if place not in self._modules:
            self._modules[place] = None
            for path in (f"{place}.py", f"{place}/__init__.py"):
                text = self._fetch(path)
                if text is not None:
                    with suppress(*UNPARSED):  # What it would have defined stays unresolved.
                        self._modules[place] = Module(path, text, self)
                    break
        return self._modules[place]

    def exhausted(self) -> bool:
        """Count a step, and say whether it was one too many."""
        self._steps += 1
        return self._steps > _STEPS


class Module:
    """One parsed file of a library."""

    def __init__(self, path: str, text: str, library: Library) -> None:
        """Parse. Raises one of ``UNPARSED``."""
        self.path = path
        self.tree = ast.parse(text)
        self.library = library
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        self._assigned: dict[ast.AST, list[Assigned]] = {}

    def assigned(self, place: ast.AST) -> "list[Assigned]":
        """Return what is assigned in a function or class, or by the module's own statements."""
        if place not in self._assigned:
            own_only = place is self.tree
            self._assigned[place] = list(_assignments(place, own_only=own_only))
        return self._assigned[place]

    def imported(self, name: str) -> "tuple[Module, str] | None":
        """Return the module that a name is imported from, and its name there."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        module = self.library.module(self._place(node))
                        return (module, alias.name) if module else None
        return None

    def _place(self, node: ast.ImportFrom) -> str:
        parts = node.module.split(".") if node.module else []
        if node.level:
            above = PurePosixPath(self.path).parents
            parts = [*above[min(node.level, len(above)) - 1].parts, *parts]
        return "/".join(parts)


@dataclass(frozen=True)
class Scope:
    """Where a name is looked up: a module, and the class and function around the expression."""

    module: Module
    class_: ast.ClassDef | None = None
    function: Function | None = None

    @classmethod
    def of(cls, module: Module, node: ast.AST) -> "Scope":
        """Return the innermost function and class around a node."""
        function: Function | None = None
        class_: ast.ClassDef | None = None
        for parent in _ancestors(module, node):
            if isinstance(parent, Function) and function is None and class_ is None:
                function = parent
            if isinstance(parent, ast.ClassDef) and class_ is None:
                class_ = parent
        return cls(module, class_, function)

    def value(self, node: ast.expr) -> "tuple[ast.expr, Scope] | None":
        """Follow a name or ``self.x`` to the one expression that it is assigned, if it is one."""
        if isinstance(node, ast.Name):
            return self.of_name(node.id)
        if _is_self(node) and isinstance(node, ast.Attribute) and self.class_ is not None:
            found = [
                (value, owner)
                for owner, target, value in self.module.assigned(self.class_)
                if isinstance(target, ast.Attribute)
                and _is_self(target)
                and target.attr == node.attr
            ]
            if len(found) == 1:
                return found[0][0], Scope.of(self.module, found[0][1])
        return None

    def of_name(self, name: str, hops: int = 0) -> "tuple[ast.expr, Scope] | None":
        """Follow a name to what it is assigned here, in the module, or where it is imported."""
        places: list[tuple[ast.AST, Scope]] = [(self.module.tree, Scope(self.module))]
        if self.function is not None:
            if name in _parameters(self.function):
                return None
            places.insert(0, (self.function, self))
        for place, scope in places:
            found = [
                value
                for _, target, value in self.module.assigned(place)
                if isinstance(target, ast.Name) and target.id == name
            ]
            if len(found) == 1:
                return found[0], scope
            if found:
                return None
        elsewhere = self.module.imported(name) if hops < _HOPS else None
        if elsewhere is None:
            return None
        module, there = elsewhere
        return Scope(module).of_name(there, hops + 1)

    def called(self, node: ast.Call) -> "tuple[Function, Scope] | None":
        """Return the function that a call reaches: of this module, a method, or an import."""
        if isinstance(node.func, ast.Name):
            return _function(self.module, node.func.id)
        if _is_self(node.func) and isinstance(node.func, ast.Attribute) and self.class_ is not None:
            for method in self.class_.body:
                if isinstance(method, Function) and method.name == node.func.attr:
                    return method, Scope(self.module, self.class_, method)
        return None


@dataclass(frozen=True)
class Term:
    """One expression that holds (``positive``) or does not, and where its names are looked up."""

    node: ast.expr
    positive: bool
    scope: Scope = field(compare=False)


Clause = tuple[Term, ...]


def conditions(module: Module, node: ast.AST) -> list[Clause]:
    """Return what must hold before ``node`` runs, within the function around it."""
    scope = Scope.of(module, node)
    found: list[Clause] = []
    for test, positive in _tests(module, node):
        found += clauses(Term(test, positive, scope))
    return found


def clauses(term: Term, depth: int = 0) -> list[Clause]:
    """Return a condition as clauses, with names and calls followed."""
    node, positive = term.node, term.positive
    if depth > _DEPTH or term.scope.module.library.exhausted():
        return [(term,)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return clauses(Term(node.operand, not positive, term.scope), depth + 1)
    if isinstance(node, ast.BoolOp):
        parts = [clauses(Term(v, positive, term.scope), depth + 1) for v in node.values]
        if isinstance(node.op, ast.And) == positive:
            return [clause for part in parts for clause in part]
        return _either(parts) or [(term,)]
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        sides = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node)
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
        ]
        both = ast.copy_location(ast.BoolOp(ast.And(), pairs), node)
        return clauses(Term(both, positive, term.scope), depth + 1)
    return _followed(term, depth) or [(term,)]


def _followed(term: Term, depth: int) -> list[Clause]:
    node, scope = term.node, term.scope
    if isinstance(node, ast.Name | ast.Attribute):
        value = scope.value(node)
        if value is not None and not isinstance(value[0], ast.Constant):
            return clauses(Term(value[0], term.positive, value[1]), depth + 1)
    if isinstance(node, ast.Call) and (called := scope.called(node)) is not None:
        function, inside = called
        body = [s for s in function.body if not _is_docstring(s)]
        if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            return clauses(Term(body[0].value, term.positive, inside), depth + 1)
        if not term.positive:
            return _no_failures(function, inside, depth)
    if isinstance(node, ast.Compare) and term.positive and isinstance(node.ops[0], ast.Eq):
        return _answers(node.comparators[0], scope, depth)
    return []


def _no_failures(function: Function, scope: Scope, depth: int) -> list[Clause]:
    """Return what holds where a function that collects failures in a list finds none."""
    returned = {
        s.value.id
        for s in ast.walk(function)
        if isinstance(s, ast.Return) and isinstance(s.value, ast.Name)
    }
    found: list[Clause] = []
    for call in ast.walk(function):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "append"
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id in returned
        ):
            tests = list(_tests(scope.module, call))
            parts = [clauses(Term(t, not positive, scope), depth + 1) for t, positive in tests]
            found += _either(parts)
    return found


def _answers(wanted: ast.expr, scope: Scope, depth: int) -> list[Clause]:
    """Return what holds where a method of this class answers with a text such as a backend's."""
    if not (isinstance(wanted, ast.Constant) and isinstance(wanted.value, str)):
        return []
    if scope.class_ is None:
        return []
    places = [
        s
        for s in ast.walk(scope.class_)
        if isinstance(s, ast.Return)
        and isinstance(s.value, ast.Constant)
        and s.value.value == wanted.value
    ]
    if len(places) != 1:
        return []
    inside = Scope.of(scope.module, places[0])
    tests = _tests(scope.module, places[0])
    return [c for t, positive in tests for c in clauses(Term(t, positive, inside), depth + 1)]


def _either(parts: list[list[Clause]]) -> list[Clause]:
    """Return the clauses of a disjunction, none where they are too many."""
    size = 1
    for part in parts:
        size *= len(part)
    if not parts or size > _MOST_CLAUSES:
        return []
    return [tuple(term for clause in choice for term in clause) for choice in product(*parts)]


def _tests(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the tests around a node in its function, and those that ended it or were asserted."""
    child = node
    for parent in _ancestors(module, node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            inside = parent.body if isinstance(parent.body, list) else [parent.body]
            yield parent.test, child in inside
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and child in block:
                yield from _before(block[: block.index(child)])
        if isinstance(parent, Function):
            return
        child = parent


def _before(statements: list[ast.stmt]) -> Iterator[tuple[ast.expr, bool]]:
    for statement in statements:
        if isinstance(statement, ast.Assert):
            yield statement.test, True
        leaves = (ast.Return, ast.Raise, ast.Continue, ast.Break)
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], leaves):
            yield statement.test, False


def _ancestors(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    while node in module.parents:
        node = module.parents[node]
        yield node


def _assignments(place: ast.AST, *, own_only: bool) -> Iterator[Assigned]:
    """Yield statement, target and value; with ``own_only`` those of no function or class inside."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(place))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Assign):
            yield from ((node, target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node, node.target, node.value
        elif isinstance(node, ast.AugAssign | ast.For):
            value = node.value if isinstance(node, ast.AugAssign) else node.iter
            yield node, node.target, value
            yield node, node.target, value  # Twice: it is no single value.
        if not (own_only and isinstance(node, Function | ast.ClassDef | ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def _parameters(function: Function) -> set[str]:
    of = function.args
    return {a.arg for a in (*of.posonlyargs, *of.args, *of.kwonlyargs)}


def _function(module: Module, name: str, hops: int = 0) -> tuple[Function, Scope] | None:
    for node in module.tree.body:
        if isinstance(node, Function) and node.name == name:
            return node, Scope(module, None, node)
    elsewhere = module.imported(name) if hops < _HOPS else None
    return _function(*elsewhere, hops + 1) if elsewhere is not None else None


def _is_self(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
