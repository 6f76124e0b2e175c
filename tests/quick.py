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

from durations import known

ROOT = Path(__file__).resolve().parents[1]
WORK_S = 75.0  # all tests together, on two cores
START_S = 1.0  # what a file imports
END_S = 60.0  # after the start of the run; later no test begins
BEGAN, CHOSEN = "EDGEWISE_QUICK_BEGAN_S", "EDGEWISE_QUICK_FILES"
FILES = pytest.StashKey[list[str]]()


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
    """Modules that a file of Python names, in imports or in strings such as `-m edgewise.…`."""
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


def chosen():
    """Whole test files: the nearest, of those the shortest, until the time is used.

    Tests of a file may go on from what others of it set up.
    """
    took_s = dict.fromkeys(
        (file for file in (ROOT / "tests").rglob("test_*.py") if file.stem in distances()), START_S
    )
    for test, test_s in known().items():
        if (file := ROOT / test.split("::")[0]) in took_s:
            took_s[file] += test_s
    left_s, files = WORK_S, []
    for file in sorted(took_s, key=lambda file: (distances()[file.stem], took_s[file])):
        if took_s[file] <= left_s:
            left_s -= took_s[file]
            files.append(file.stem)
    return files


def pytest_configure(config):
    """Choose once; parallel workers get the choice from the process that starts them."""
    if CHOSEN not in os.environ:
        os.environ |= {BEGAN: str(time.monotonic()), CHOSEN: " ".join(chosen())}
    config.stash[FILES] = os.environ[CHOSEN].split()


def pytest_terminal_summary(terminalreporter, config):
    files, reached = len(config.stash[FILES]), sum(name.startswith("test_") for name in distances())
    said = f"{files} of {reached} test files that import what is changed; make test runs all"
    terminalreporter.write_line(said)


def pytest_ignore_collect(collection_path, config):
    if collection_path.name.startswith("test_") and collection_path.stem not in config.stash[FILES]:
        return True
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: config.stash[FILES].index(item.path.stem))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.monotonic() - float(os.environ[BEGAN]) > END_S:
        pytest.skip("the time is used up")


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:  # no test comes near the change
        session.exitstatus = pytest.ExitCode.OK
