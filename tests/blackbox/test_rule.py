"""These tests outlive every redesign: they know commands, HTTP and processes, nothing inside edgewise."""

import ast
from pathlib import Path


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_nothing_of_edgewise_is_imported_here():
    here = Path(__file__).parent
    own = {file.stem for file in here.glob("*.py")}
    tests = {file.stem for file in here.parent.glob("*/*.py")} - own
    for file in here.glob("*.py"):
        tops = {name.partition(".")[0] for name in imported(file)}
        assert not tops & {"edgewise", "importlib", "runpy"}, file  # nor by another way
        assert not tops & tests, f"{file}: a helper of other tests imports edgewise"
