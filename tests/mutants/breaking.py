"""Breaks rules on purpose, one at a time in a copy of the source, and runs the tests that should see it.

    python tests/mutants/breaking.py [words …]    those whose lie holds one of the words; all without

What is broken is in `mutants.toml`. First the tests must pass on the copy as it is. A mutant is dead when a
test fails by what it asserts or by what the mutant raises; one that cannot even be imported, or that no test
sees, makes this command fail. What was found is printed, and written to `docs/results/mutants.md`, where the
rows of those that were not tried stay as they were.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

REPOSITORY = Path(__file__).parents[2]
TABLE = REPOSITORY / "docs" / "results" / "mutants.md"
ABOUT = """# Rules broken on purpose

A test that passes says little as long as nobody has seen it fail. Each row is one rule that `make mutants`
breaks in a copy of the source: in a *driver* (simulation, gateway or controller tell a core something else
than what happened), or in a *core* (the rule itself is another one). The tests named for it are run, and one
must fail. All are listed in `tests/mutants/mutants.toml`; a test checks that each still fits the source.

"""
LONGEST_S = 900.0  # for one test
NOBODY = "**nobody**"
FAILED = 1  # pytest: some test failed; anything else is no verdict


@dataclass(frozen=True)
class Mutant:
    """A rule that is broken; see `mutants.toml`."""

    lie: str
    part: str
    file: str
    old: str
    new: str
    seen_by: tuple[str, ...]
    interpreted: bool = False

    def broken(self, source: str) -> str:
        """The source of its file with the rule broken.

        Raises:
            ValueError: the rule does not stand there once.
        """
        if source.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.lie}: {self.file} holds {self.old!r} {source.count(self.old)} times")
        return source.replace(self.old, self.new)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: who saw it and what it said, or why nobody did."""

    mutant: Mutant
    dead: bool
    said: str
    took_s: float


def mutants() -> list[Mutant]:
    """All of them."""
    rows = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())["mutant"]
    return [Mutant(**row | {"seen_by": tuple(row["seen_by"])}) for row in rows]


def main() -> None:
    """Try mutants, and say what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants whose lie holds one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--untested", action="store_true", help="leave out that tests pass as it is")
    given = parser.parse_args()
    every = mutants()
    chosen = [m for m in every if not given.words or any(word in m.lie for word in given.words)]
    with tempfile.TemporaryDirectory(prefix="edgewise-mutants-") as folder:
        copies = SimpleQueue[Path]()
        for k in range(given.jobs):
            copies.put(copied(Path(folder) / str(k)))
        if not given.untested:
            check_whole(chosen, copies)
        with ThreadPoolExecutor(given.jobs) as pool:
            alive = []
            for verdict in pool.map(lambda mutant: tried(mutant, copies), chosen):
                rows = written() | {verdict.mutant.lie: row_of(verdict)}
                TABLE.write_text(table_of([rows[m.lie] for m in every if m.lie in rows]))
                alive += [] if verdict.dead else [verdict.mutant.lie]
    sys.exit(f"{len(alive)} mutants live: {'; '.join(alive)}" if alive else 0)


def copied(folder: Path) -> Path:
    """A copy of the source and of the tests."""
    for name in ("src", "tests"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=left_out)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


def check_whole(chosen: list[Mutant], copies: "SimpleQueue[Path]") -> None:
    """See that all tests pass while nothing is broken, else they say nothing."""
    for interpreted in (False, True):
        tests = dict.fromkeys(t for m in chosen if m.interpreted == interpreted for t in m.seen_by)
        if not tests:
            continue
        with lent(copies) as copy:
            code, text = run_tests(copy, list(tests), interpreted)
        if code:
            sys.exit(f"tests fail before anything is broken:\n{text}")


def tried(mutant: Mutant, copies: "SimpleQueue[Path]") -> Verdict:
    """Break a rule, run its tests, and mend it."""
    began_s = time.monotonic()
    with lent(copies) as copy:
        file = copy / "src" / "edgewise" / mutant.file
        whole = file.read_text()
        file.write_text(mutant.broken(whole))
        try:
            code, text = run_tests(copy, list(mutant.seen_by), mutant.interpreted)
        finally:
            file.write_text(whole)
    found = re.search(r"^(?:FAILED|ERROR) (\S+::\S+)(?: - (.*))?$", text, re.M)
    dead = code == FAILED and found is not None and found[0].startswith("FAILED")
    said = found[0].removeprefix("FAILED ") if found else "no test sees it" if not code else text[-300:]
    print("dead" if dead else "ALIVE", mutant.lie, "·", said[:200], flush=True)
    return Verdict(mutant, dead, said, time.monotonic() - began_s)


def run_tests(copy: Path, tests: list[str], interpreted: bool) -> tuple[int, str]:
    """How pytest ended, and what it printed."""
    more = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    more |= {"EDGEWISE_JIT": "0"} if interpreted else {}
    asked = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider"]
    given = {"cwd": copy, "env": os.environ | more, "capture_output": True, "text": True}
    try:
        done = subprocess.run([*asked, *tests], timeout=LONGEST_S * len(tests), **given)
    except subprocess.TimeoutExpired:
        return -1, f"no verdict within {LONGEST_S * len(tests):g} s"
    return done.returncode, done.stdout + done.stderr


@contextmanager
def lent(copies: "SimpleQueue[Path]") -> Iterator[Path]:
    """A copy that nobody else uses."""
    copy = copies.get()
    try:
        yield copy
    finally:
        copies.put(copy)


def row_of(verdict: Verdict) -> str:
    """A row of the table, in Markdown."""
    mutant, test = verdict.mutant, re.match(r"\S+", verdict.said)
    by = f"`{test[0]}`" if verdict.dead and test else NOBODY
    return f"| {mutant.part} | {mutant.lie} | `{mutant.file}` | {by} |"


def table_of(rows: list[str]) -> str:
    """The page."""
    head = "| part | broken | in | seen by |\n|---|---|---|---|\n"
    dead = sum(NOBODY not in row for row in rows)
    return f"{ABOUT}{head}" + "\n".join(rows) + f"\n\n{dead} of {len(rows)} are seen.\n"


def written() -> dict[str, str]:
    """The rows that the page has, by what is broken."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    rows = [line for line in lines if line.startswith(("| driver |", "| core |"))]
    return {row.split(" | ")[1]: row for row in rows}


if __name__ == "__main__":
    main()
