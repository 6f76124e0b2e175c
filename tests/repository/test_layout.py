"""Where files stand and how long they are: tests in a folder of their package, no two of one name."""

from collections import Counter
from pathlib import Path

import edgewise

TESTS, PACKAGE = Path(__file__).parents[1], Path(edgewise.__file__).parent


def test_unit_tests_mirror_the_package():
    folders, packages = (
        {path.name for path in where.iterdir() if path.is_dir() and path.name != "__pycache__"}
        for where in (TESTS / "unit", PACKAGE)
    )
    assert folders <= packages and {"cli", "core", "model", "runtime", "sim"} <= folders
    for folder in folders:
        tests = list((TESTS / "unit" / folder).glob("test_*.py"))
        assert tests, f"no tests in tests/unit/{folder}"


def test_what_tests_of_several_packages_share_stands_above_them():
    """Pytest finds a helper beside the tests that import it, or here."""
    assert [file.name for file in (TESTS / "unit").glob("*.py") if not file.name.startswith("test_")] == []


def test_no_two_files_of_tests_have_one_name():
    """Tests import one another, and `--quick` knows them, by name alone."""
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []


MOST_LINES = 400


def test_no_file_of_the_package_is_long():
    """What is longer has two subjects."""
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in PACKAGE.rglob("*.py")}
    long = {file.relative_to(PACKAGE).as_posix() for file, count in lines.items() if count > MOST_LINES}
    assert len(lines) > 400
    assert not long
