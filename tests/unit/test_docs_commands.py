"""Commands of the documentation that need no live system run as they stand there, page by page."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs_commands import LIVE, NOT_RUN, ROOT, blocks, quickly, why_not
from in_process import edgewise

PAGES = sorted({each.page for each in blocks() if any(not why_not(line) for line in each.commands)})


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run_in_their_order(page, tmp_path):
    """In one folder, as whoever reads the page runs them; with fewer seeds."""
    for block in blocks():
        if block.page != page:
            continue
        if block.is_whole and len(block.commands) < len([line for line in block.lines if line.strip()]):
            in_a_shell(block.lines, tmp_path)
            continue
        for command in block.commands:
            if not why_not(command):
                words = shlex.split(quickly(command.partition(" >")[0]))
                done = edgewise(*words, cwd=tmp_path)
                assert done.returncode == 0, (command, done.stderr)
                assert done.stdout.strip() or "--out" in words, command


def in_a_shell(lines, folder):
    """Other commands are among them: `cp`, `cat`, `cmp`."""
    quick = [re.sub(r"^edgewise (.*)", lambda found: f"edgewise {quickly(found[1])}", line) for line in lines]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(quick)], cwd=folder, env=os.environ | {"PATH": path},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, (quick, done.stderr)


def test_what_is_not_run_here_says_why_and_names_tests_that_are_there():
    shown = [command for block in blocks() for command in block.commands]
    assert len(shown) > 80
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in shown)] == []
    named = re.findall(r"tests/[\w/.]+", " ".join(NOT_RUN.values()))
    assert len(named) >= 6 and [path for path in named if not (ROOT / path.rstrip(".")).exists()] == []
    run = [line for line in shown if not why_not(line)]
    assert len(run) >= 30 and not {line.split()[0] for line in run} & set(LIVE)
