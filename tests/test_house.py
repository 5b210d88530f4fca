# SPDX-License-Identifier: Apache-2.0
"""The house: each room knows only rooms below it, as the map in CONTRIBUTING draws it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "thorprobe"
TOP = ("errors", "record", "summary", "answer")
"""Files at the top that all may know, lowest first; ``app`` and ``__main__`` stand over all."""

REGISTRIES = {"thorprobe.answer": "names the page of each command, imported when one is read"}
"""Modules whose strings name modules without knowing them."""

LONGEST = 400
CUDA = re.compile(r"cuda|cupy|torch|thorprobe\.driver\.(compile|context|launch|torch_device)")
PURE = re.compile(
    r"thorprobe\.((plan|judge|render)\.\w+|\w+\.(\w+_)?(records|plan|judge|page)|answer|record|summary)"
)


def drawn():
    """Return the floors of the map, lowest first, each with its rooms."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = text.partition("## The house")[2].split("```")[1]
    return [re.findall(r"(\w+)/(?=\s)", line) for line in reversed(block.strip().splitlines())]


def modules():
    """Map each module of the package to its file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def known(tree, name, names):
    """Yield the modules of ``names`` that a module imports or names in a string."""
    for node in ast.walk(tree):
        told = []
        if isinstance(node, ast.Import):
            told = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            told = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and name not in REGISTRIES:
            told = [node.value.partition(":")[0]] if isinstance(node.value, str) else []
        for whole in told:
            parts = whole.split(".")
            while len(parts) > 1 and ".".join(parts) not in names:
                parts.pop()
            if len(parts) > 1 and ".".join(parts) in names and ".".join(parts) != name:
                yield ".".join(parts)


def room(name):
    """Return the room of a module; a file at the top is a room of its own."""
    return name.split(".")[1]


def arrows():
    """Map each module to the modules that it knows."""
    found = modules()
    return {
        name: set(known(ast.parse(path.read_text(encoding="utf-8")), name, found))
        for name, path in found.items()
        if name != "thorprobe"
    }


def circles(graph):
    """Return the circles of a graph: what cannot be taken away once all else is, leaf by leaf."""
    left = {name: set(to) & set(graph) - {name} for name, to in graph.items()}
    for turned in (False, True):
        if turned:  # What only leads into a circle is none of it.
            left = {name: {other for other in left if name in left[other]} for name in left}
        while leaves := [name for name, to in left.items() if not to]:
            left = {name: to - set(leaves) for name, to in left.items() if name not in leaves}
    return sorted(left)


def rooms(graph):
    """Return which room knows which."""
    found = {}
    for name, to in graph.items():
        found.setdefault(room(name), set()).update(map(room, to))
    return {name: to - {name} for name, to in found.items()}


def upward(graph, floors):
    """Yield each arrow that does not lead down, as `module -> module`."""
    height = {name: -len(TOP) + at for at, name in enumerate(TOP)}
    height |= {name: at for at, floor in enumerate(floors) for name in floor}
    height |= {"app": len(floors), "__main__": len(floors) + 1}
    for name, to in sorted(graph.items()):
        for other in sorted(to):
            if room(name) != room(other) and height[room(other)] >= height[room(name)]:
                yield f"{name} -> {other}"


def test_no_circle_of_files_or_rooms():
    """Neither files nor folders know each other in a circle, imports inside functions included."""
    graph = arrows()
    assert len(graph) > 100
    assert sum(map(len, graph.values())) > 500
    assert circles(graph) == []
    assert circles(rooms(graph)) == []


def test_every_arrow_leads_down():
    """A room knows rooms below it on the map, and none on its own line."""
    assert list(upward(arrows(), drawn())) == []


def test_the_map_draws_every_room():
    """Every folder with modules is on the map once, and nothing else is."""
    there = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/*.py")}
    assert sorted(name for floor in drawn() for name in floor) == sorted(there)


def test_only_what_belongs_to_no_room_stands_at_the_top():
    """A new file goes into a room."""
    there = {path.stem for path in PACKAGE.glob("*.py")}
    assert there == {"__init__", "__main__", "app", *TOP}


def test_no_file_is_long():
    """A file that grows over the limit is two things."""
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules().values()
    }
    assert {name: count for name, count in lengths.items() if count > LONGEST} == {}


def test_plan_judge_and_render_know_no_cuda():
    """What plans, judges and shows names no CUDA library and no room that loads one."""
    checked = 0
    for name, path in modules().items():
        if not PURE.fullmatch(name):
            continue
        checked += 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            told = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                told = [f"{node.module}.{alias.name}" for alias in node.names]
            assert not [one for one in told if CUDA.match(one)], name
    assert checked > 60


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}, ["a", "b"]),
        ({"a": {"a", "b"}, "b": {"c"}, "c": {"d"}, "d": {"b", "e"}, "e": set()}, ["b", "c", "d"]),
    ],
)
def test_circles_are_found(graph, found):
    """The count finds a circle, and nothing that only leads to one or away from it."""
    assert circles(graph) == found


def test_an_arrow_that_runs_up_is_found():
    """An import of a room above, of a neighbour or by a string is an arrow."""
    names = {"thorprobe.run.gpu", "thorprobe.judge.cause", "thorprobe.render.page"}
    tree = ast.parse("from thorprobe.judge.cause import judge\nx = 'thorprobe.render.page:KIND'\n")
    found = set(known(tree, "thorprobe.run.gpu", names))
    graph = {"thorprobe.run.gpu": found}
    assert list(upward(graph, [["judge", "run"], ["render"]])) == [
        "thorprobe.run.gpu -> thorprobe.judge.cause",
        "thorprobe.run.gpu -> thorprobe.render.page",
    ]
