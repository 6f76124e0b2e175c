"""No two modules need each other, not even for the names of their types.

A circle is one subject in two files, or two in each. Imports inside of functions, which are left for later
because they take long, are not looked at.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import edgewise

PACKAGE = Path(edgewise.__file__).parent


def modules() -> dict[str, Path]:
    """Files of the package by the names that they are imported by."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(nodes: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """What is imported outside of functions: as a module of its own, or else of which module."""
    for node in nodes:
        match node:
            case ast.Import(names):
                yield from ((each.name, each.name) for each in names)
            case ast.ImportFrom(module, names, 0):
                yield from ((f"{module}.{each.name}", str(module)) for each in names)
            case ast.ImportFrom():
                raise AssertionError(f"a relative import: {ast.unparse(node)}")
            case ast.If(body=body, orelse=other) | ast.Try(body=body, orelse=other):
                yield from imported([*body, *other])


def circle(sources: dict[str, str]) -> list[str]:
    """Modules, each of which needs the next; the last is the first again."""
    known = sources.keys()
    needs = {
        name: {own if own in sources else of for own, of in imported(ast.parse(text).body)} & known - {name}
        for name, text in sources.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other():
    assert circle({name: file.read_text(encoding="utf-8") for name, file in modules().items()}) == []


def test_a_circle_of_types_is_seen():
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import one"
    assert set(circle({"p.one": "import p.two", "p.two": types})) == {"p.one", "p.two"}
    assert circle({"p.one": "import p.two", "p.two": "def later():\n    import p.one"}) == []
