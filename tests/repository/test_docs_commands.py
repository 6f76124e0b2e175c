"""Commands of the documentation that need no live system run as they stand there, page by page."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs_commands import NOT_RUN, ROOT, SHORT, blocks, needs_a_system, quickly, why_not
from docs_files import FILES
from in_process import edgewise

PAGES = sorted({each.page for each in blocks() if any(not why_not(line) for line in each.commands)})


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run_in_their_order(page, tmp_path):
    """In one folder, as whoever reads the page runs them, with the files that it speaks of; fewer seeds."""
    if page in FILES:
        FILES[page](tmp_path)
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


SHOWN = re.compile(r"```sh\nedgewise ((?:size|sweep) [^`]*)```\n((?:(?!```).)*)```\n([^`]*)```\n", re.DOTALL)
BESIDE = {"=5..60..5": "=25..35..5"}
"""Values that are tried, without those that change nothing of what is shown."""


def shown():
    """Commands of pages that answer in a sentence, and what stands there of it."""
    for page in ("cameras", "hardware"):
        for command, _, said in SHOWN.findall((ROOT / f"docs/howto/{page}.md").read_text(encoding="utf-8")):
            yield pytest.param(re.sub(r"\\\n\s*", " ", command), said, id=command[:30])


@pytest.mark.parametrize(("command", "said"), list(shown()))
def test_a_page_shows_what_its_command_says(command, said, tmp_path):
    """With the page's own seeds: of runs that are drawn alike the figures are the same."""
    for whole, part in BESIDE.items():
        command = command.replace(whole, part)
    done = edgewise(*shlex.split(command), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in said.splitlines() if line not in done.stdout.splitlines()] == [], done.stdout


def test_pages_show_what_three_commands_say():
    assert len(list(shown())) == 3


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
    said_of = [*NOT_RUN, *SHORT]
    assert [start for start in said_of if not any(line.startswith(start) for line in shown)] == []
    assert set(FILES) <= {each.page for each in blocks()}
    named = re.findall(r"tests/[\w/.]+", " ".join(NOT_RUN.values()))
    assert (
        len(named) == len(NOT_RUN)
        and [path for path in named if not (ROOT / path.rstrip(".")).exists()] == []
    )
    run = [line for line in shown if not why_not(line)]
    assert len(run) >= 30 and not any(map(needs_a_system, run))
