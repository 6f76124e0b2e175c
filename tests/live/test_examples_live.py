"""The example of a live system, as its page says."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
from test_docs_live import LONG_S, system

from command_line import edgewise
from docs_commands import ROOT, needs_a_system, shell_of

pytestmark = pytest.mark.live
EXAMPLE = ROOT / "examples" / "06-live-system"


def test_a_camera_asks_a_system_that_is_up(tmp_path):
    here = shutil.copytree(EXAMPLE, tmp_path / EXAMPLE.name)
    shown = [line for block in shell_of(EXAMPLE / "README.md") for line in block]
    commands = [line.removeprefix("edgewise ") for line in shown if line.startswith("edgewise ")]
    up, *steering, down = [command for command in commands if needs_a_system(command)]
    assert (up, down) == ("up door.yaml", "down") and "report runs/live" in steering
    with system(here, up) as (_, said):
        address = re.search(r"gateway-0: (http://127.0.0.1:\d+)", said)[1]
        assert "python client.py" in shown
        done = subprocess.run(
            [sys.executable, "client.py", address], cwd=here, capture_output=True, text=True, timeout=LONG_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == ["large-cpu@server"] * 10
        said = {command: edgewise(*shlex.split(command), folder=here) for command in steering}
        assert all(text.strip() for text in said.values())
        assert "persons" in (here / said["report runs/live"].strip()).read_text(encoding="utf-8")
        assert "closest" in edgewise("policy", "show", folder=here)
