"""Tests reach for private names only through what a module offers: a public name, or a class to subclass."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PRIVATE = re.compile(r"_[a-z][a-z0-9_]*\Z")
IN_TEXT = re.compile(r"[\w)\]]\.(_[a-z]\w*)")
OF_PYTHON = {"_replace", "_asdict", "_fields", "_make", "_exit", "_getframe"}  # of namedtuples, os and sys
BY_NAME = {"setattr", "getattr", "delattr", "hasattr", "attrgetter", "methodcaller"}
OURS = {"self", "cls"}


def reached(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and private names of others that a test file reads, writes, imports, or names in a text.

    Its own are left out: what a class says of itself, and what the file defines.
    """
    own = _defined(tree) | OF_PYTHON
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Attribute) and not _of_itself(node.value):
            found = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            found = [name for each in node.names for name in (each.name, *(node.module or "").split("."))]
        elif isinstance(node, ast.Call) and _called(node.func) in BY_NAME:
            found = [text for text in map(_text, node.args)]
        elif text := _text(node):
            found = IN_TEXT.findall(text)  # the program of another process, "module._name" of a patch
        if lines := {name for name in found if PRIVATE.match(name) and name not in own}:
            yield from ((node.lineno, name) for name in sorted(lines))  # type: ignore[attr-defined]


def _defined(tree: ast.Module) -> set[str]:
    """Names of functions, classes and variables of a file, and of fields that its classes have."""
    nodes = list(ast.walk(tree))
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    fields = {n.attr for n in nodes if isinstance(n, ast.Attribute) and _stored(n) and _of_itself(n.value)}
    variables = {n.id for n in nodes if isinstance(n, ast.Name) and _stored(n)}
    return {n.name for n in nodes if isinstance(n, functions)} | fields | variables


def _stored(node: ast.Attribute | ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _of_itself(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _called(node.func) == "super"
    return isinstance(node, ast.Name) and node.id in OURS


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_tests_do_not_reach_for_private_names() -> None:
    files = [file for file in sorted(TESTS.rglob("*.py")) if file != Path(__file__)]
    assert len(files) > 250
    found = [
        f"{file.relative_to(TESTS)}:{line}: {name}"
        for file in files
        for line, name in reached(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not found, "\n".join(["give these a public name, or test what they do through one:", *found])


def test_each_way_to_a_private_name_is_seen() -> None:
    ways = {
        "thing._kept": ["_kept"],
        "thing._kept = 3": ["_kept"],
        "self.thing._kept": ["_kept"],
        "from edgewise.core import _kept": ["_kept"],
        "from edgewise._kept import name": ["_kept"],
        "monkeypatch.setattr(thing, '_kept', 3)": ["_kept"],
        "monkeypatch.setattr('edgewise.thing._kept', 3)": ["_kept"],
        "code = 'import thing; thing._kept()'": ["_kept"],
        "class Mine(Theirs):\n def step(self): return self._kept + super()._left": [],
        "class Mine:\n def _kept(self): ...\nMine()._kept()": [],
        "row._replace(time_s=3.0)": [],
        "thing.__class__": [],
    }
    assert {way: [name for _, name in reached(ast.parse(way))] for way in ways} == ways
