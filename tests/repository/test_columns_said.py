"""What a tuple of many arrays holds is said column by column."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import edgewise

PACKAGE = Path(edgewise.__file__).parent
MANY = 8
COLUMNS = re.compile(r"^ {4}(\w+(?:, \w+)*):", re.M)


def columns(each: ast.ClassDef) -> list[str]:
    fields = [line.target for line in each.body if isinstance(line, ast.AnnAssign)]
    return [field.id for field in fields if isinstance(field, ast.Name)]


def wide() -> Iterator[tuple[str, ast.ClassDef]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for each in ast.walk(ast.parse(file.read_text())):
            named = isinstance(each, ast.ClassDef) and "NamedTuple" in map(ast.unparse, each.bases)
            if named and len(columns(each)) >= MANY:
                yield f"{file.relative_to(PACKAGE)}: {each.name}", each


def test_wide_tuples_have_a_table_of_their_columns():
    found = dict(wide())
    assert len(found) > 20
    for where, each in found.items():
        _, _, table = (ast.get_docstring(each) or "").partition("Attributes:\n")
        said = [name for match in COLUMNS.finditer(table) for name in match.group(1).split(", ")]
        missing, unknown = set(columns(each)) - set(said), set(said) - set(columns(each))
        assert not missing, f"{where} does not say what {', '.join(sorted(missing))} is"
        assert not unknown, f"{where} says {', '.join(sorted(unknown))}, which it has not"
