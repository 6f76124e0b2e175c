"""Tests wait for states: none sleeps by itself, neither in its own code nor in a program that it writes."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SLEEPS = re.compile(r"\btime\.sleep\(|\basyncio\.sleep\((?!0\))|\bfrom (?:time|asyncio) import .*\bsleep\b")
PLAYED = re.compile(r"\btime\.sleep\(|\bfrom time import .*\bsleep\b")  # the clock of asyncio jumps there


def pauses(file):
    found = PLAYED if "physical" in file.relative_to(TESTS).parts else SLEEPS
    lines = file.read_text(encoding="utf-8").splitlines()
    return [f"{file.relative_to(TESTS)}:{k}" for k, line in enumerate(lines, 1) if found.search(line)]


def test_no_test_sleeps_but_through_what_waits_for_a_state():
    as_text = {TESTS / "physical/test_seams.py", TESTS / "unit/runtime/test_reconcile.py", Path(__file__)}
    alone = TESTS / "open_inference_server.py"  # a slow stand-in that runs where no other file is
    allowed = {TESTS / "waiting.py", alone, *as_text}
    files = [file for file in TESTS.rglob("*.py") if file not in allowed]
    assert len(files) > 250
    assert [pause for file in files for pause in pauses(file)] == []
    assert len(pauses(TESTS / "waiting.py")) == 4  # its two ways to wait, a slow stand-in, a pace
    assert len(pauses(alone)) == 1


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("    time.sleep(0.1)", True),
        ('CODE = "import time; time.sleep(600)"', True),
        ("await asyncio.sleep(pause_s)", True),
        ("from time import monotonic, sleep", True),
        ("await asyncio.sleep(0)  # a turn of the loop", False),
        ("await asyncio.sleep(0.0)", True),
        ("await becomes(lambda: found)", False),
    ],
)
def test_what_sleeps_is_found(line, found):
    assert bool(SLEEPS.search(line)) is found
