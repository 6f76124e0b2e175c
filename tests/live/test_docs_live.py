"""Commands of the documentation that steer a live system, in the order of pages, against one that is up."""

import shlex
import subprocess
import sys
import time

import pytest
from command_line import edgewise

from docs_commands import LIVE, blocks

pytestmark = pytest.mark.live
LONG_S = 60.0
PAGES = ("tutorials/live-system.md", "deferrable.md")
ENDS = (
    "up",
    "down",
    "load",
    "record",
    "run",
    "worker",
    "gateway",
    "demo",
)  # what begins or ends a system, or brings work
STEERING = [
    command
    for block in blocks()
    for command in block.commands
    if block.page in PAGES and command.split()[0] in LIVE and command.split()[0] not in ENDS
]


@pytest.fixture
def up(tmp_path):
    """What the tutorial starts, with the files that the pages speak of."""
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    (tmp_path / "index.sh").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "index.sh").chmod(0o755)
    command = [sys.executable, "-m", "edgewise", "up", "tiny", "--port", "0"]
    system = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    until_s = time.monotonic() + 2 * LONG_S
    while "running" not in edgewise("status", folder=tmp_path, code=None):
        assert system.poll() is None and time.monotonic() < until_s
        time.sleep(0.1)
    yield tmp_path
    edgewise("down", folder=tmp_path, code=None)
    assert system.wait(LONG_S) == 0


def test_what_the_pages_say_steers_a_system_that_is_up(up):
    assert len(STEERING) >= 18 and {line.split()[0] for line in STEERING} >= {
        "status",
        "policy",
        "submit",
        "job",
    }
    for page in PAGES:
        assert any(block.page == page and set(block.commands) & set(STEERING) for block in blocks())
    for command in STEERING:
        said = edgewise(*shlex.split(command), folder=up)
        assert said.strip() or command.startswith("job output"), command
    assert "closest" in edgewise("policy", "show", folder=up)
    assert "cancelled" in edgewise("jobs", "--all", folder=up)
