"""Each example does what its page says: every command of it that needs no live system."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest

from docs_commands import ROOT, needs_a_system, shell_of
from in_process import edgewise

EXAMPLES = ROOT / "examples"
FOLDERS = sorted(folder for folder in EXAMPLES.iterdir() if folder.is_dir())
LIVE = {"06-live-system": "python client.py"}
"""What is of a live system besides edgewise's own commands: tests/live/test_examples_live.py."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_commands_of_an_example_run_in_their_order(folder, tmp_path):
    here = shutil.copytree(folder, tmp_path / folder.name)
    lines = [line for block in shell_of(folder / "README.md") for line in block]
    assert lines
    for line in lines:
        program, *words = shlex.split(line)
        if line == LIVE.get(folder.name) or (program == "edgewise" and needs_a_system(" ".join(words))):
            continue
        if program == "edgewise":
            done = edgewise(*words, cwd=here)
        else:
            assert program == "python", line
            done = subprocess.run(
                [sys.executable, *words], cwd=here, capture_output=True, text=True, timeout=300, check=False
            )
        assert done.returncode == 0 and done.stdout.strip(), (line, done.stdout, done.stderr)


def test_examples_are_numbered_and_listed():
    listed = re.findall(
        r"^\| \[([\w-]+)\]\(\1/README\.md\)", (EXAMPLES / "README.md").read_text("utf-8"), re.M
    )
    assert listed == [folder.name for folder in FOLDERS]
    assert [int(name[:2]) for name in listed] == list(range(1, len(listed) + 1))


@pytest.mark.parametrize("page", sorted(EXAMPLES.rglob("README.md")), ids=lambda page: page.parent.name)
def test_links_of_an_example_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#]*)", page.read_text("utf-8"))
    assert links and [link for link in links if not (page.parent / link).exists()] == []
