"""Live processes ask one module what time it is, so that tests can play it."""

import re
from pathlib import Path

import edgewise

RUNTIME = Path(edgewise.__file__).parent / "runtime"


def test_nobody_in_the_runtime_reads_a_clock_of_their_own():
    files = [file for file in RUNTIME.rglob("*.py") if file.name != "clock.py"]
    # What is written into another process's program is no clock of ours.
    found = [
        f"{file.name}: {line.strip()}"
        for file in files
        for line in re.sub(r'COUNTING = """.*?"""', "", file.read_text(), flags=re.S).splitlines()
        if re.search(r"\btime\.(monotonic|time)\b", line)
    ]
    assert not found, f"use edgewise.runtime.clock: {found}"
