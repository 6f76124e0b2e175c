"""With `--quick`: the tests nearest to the change at hand, as many as fit into the time.

The change is what differs from where this branch left `main`; without any, it is the last commit. A test file
is as near as the shortest chain of imports from it to a changed file.
"""

import ast
import os
import re
import subprocess
import time
from functools import cache
from pathlib import Path

import grimp
import pytest

from durations import seconds

ROOT = Path(__file__).resolve().parents[1]
WORK_S = 90.0  # all tests together, on two cores
END_S = 70.0  # after the start of the run; later no test begins
BEGAN = "EDGEWISE_QUICK_BEGAN_S"


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


@cache
def changed():
    """Files of the change, relative to the root."""
    (base,) = git("merge-base", "HEAD", "main") or git("rev-parse", "HEAD") or [""]
    files = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return sorted(set(files)) or git("diff", "--name-only", "HEAD~1")


def imported(file):
    """Modules that a file of Python names, in imports or in strings such as `-m edgewise.runtime.nursery`."""
    text = file.read_text()
    names = set(re.findall(r"\bedgewise(?:\.\w+)+", text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def importers():
    """Every module of the package and of the tests, and the files or modules that import it."""
    graph = grimp.build_graph("edgewise")
    users = {name: set(graph.find_modules_that_directly_import(name)) for name in graph.modules}
    for file in (ROOT / "tests").rglob("*.py"):
        for name in imported(file):
            users.setdefault(name, set()).add(module_of(file))
    return users


def module_of(file):
    """A module of the package by its dotted name; a file of tests by its own, as other tests import it."""
    source = ROOT / "src"
    if source not in file.parents:
        return file.stem
    return ".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def naming(name):
    """Test files that name a file which is no module, such as a scenario or a page."""
    stem = re.compile(rf"\b{re.escape(Path(name).stem)}\b")
    return {file.stem for file in (ROOT / "tests").rglob("*.py") if stem.search(file.read_text())}


@cache
def distances():
    """How many imports lie between each reached module or test file and the change."""
    users, near = importers(), set()
    for name in changed():
        python = name.endswith(".py") and name.startswith(("src/", "tests/"))
        near |= {module_of(ROOT / name)} if python else naming(name)
    found, steps = dict.fromkeys(near, 0), 0
    while near:
        steps += 1
        near = {user for name in near for user in users.get(name, ())} - set(found)
        found |= dict.fromkeys(near, steps)
    return found


def pytest_configure(config):
    os.environ.setdefault(BEGAN, str(time.monotonic()))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"tests nearest to {len(changed())} changed files; make test runs all")


def pytest_ignore_collect(collection_path, config):
    if collection_path.name.startswith("test_") and collection_path.stem not in distances():
        return True
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Whole files, the nearest first and of those the shortest: tests of a file may go on from its others."""
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    takes_s = {path: sum(map(seconds, its)) for path, its in files.items()}
    left_s, kept = WORK_S, []
    for path in sorted(files, key=lambda path: (distances()[path.stem], takes_s[path])):
        if takes_s[path] <= left_s and files[path][0].get_closest_marker("alone") is None:
            left_s -= takes_s[path]
            kept += files.pop(path)
    config.hook.pytest_deselected(items=[item for left_out in files.values() for item in left_out])
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.monotonic() - float(os.environ[BEGAN]) > END_S:
        pytest.skip("the time is used up")


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:  # no test comes near the change
        session.exitstatus = pytest.ExitCode.OK
