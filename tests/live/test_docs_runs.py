"""What the pages on pipelines and on split models run on real processes, as it stands there."""

import os
import re
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec

import onnx
import pytest
from command_line import edgewise
from test_docs_live import LONG_S, commands_of

from edgewise.runtime.testbeds import netns
from split_models import branching
from waiting import wait_until

pytestmark = pytest.mark.live
PIPELINES, SPLIT = commands_of("pipelines.md"), commands_of("split.md")


def killed(command, folder):
    """Run this until its pipeline is measured, then kill it with all that it started."""
    run = subprocess.Popen(
        [sys.executable, "-m", "edgewise", *shlex.split(command)], cwd=folder, start_new_session=True
    )
    (status,) = (each for each in PIPELINES if each.startswith("status"))

    def goes():
        said = edgewise(*shlex.split(status), folder=folder, code=None)
        assert run.poll() is None, said
        return said if re.search(r"recognise on .* ms", said) else None

    try:
        said = wait_until(goes, limit_s=3 * LONG_S)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return said


@pytest.mark.skipif(
    not (find_spec("rapidocr") or find_spec("rapidocr_onnxruntime")),
    reason="the extra `demo` is not installed",
)
def test_pipelines_run_and_are_taken_up_again(tmp_path):
    shaped, paced, _, resume = PIPELINES
    assert (shaped, paced, resume) == ("run read-text", "run read-text --backend local", "run --resume")
    if netns.unavailable() is not None:  # no root here
        shaped, resume = paced, f"{resume} --backend local"
    assert "read-text" in killed(shaped, tmp_path)
    for command in (f"{resume} --seconds 2", f"{paced} --seconds 2"):
        said = edgewise(*shlex.split(command), folder=tmp_path)
        assert "throughput: planned" in said and "source->detect" in said, said
    assert "no pipeline is left" in edgewise(*shlex.split(resume), folder=tmp_path)


def test_a_network_of_ones_own_is_split_over_servers(tmp_path):
    onnx.save(branching(size=12, width=8), tmp_path / "my.onnx")
    (command,) = SPLIT
    said = edgewise(*shlex.split(command), "--queries", "20", folder=tmp_path)
    assert "whole-least-loaded" in said and "error" in said, said
