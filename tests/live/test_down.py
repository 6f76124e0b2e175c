"""`edgewise up` says when everything serves, `down` returns when nothing runs any more."""

import asyncio
import os
import re
import signal
import subprocess
import sys

import pytest
from running_system import System, small_scenario

from command_line import edgewise
from edgewise.cli import waiting
from edgewise.config import dump_scenario
from edgewise.runtime import http
from edgewise.runtime.controller.nursery import is_running
from edgewise.runtime.process.machine import alive_handle

pytestmark = pytest.mark.live
SLOW_END = """
import atexit
from edgewise.cli import main

def end():
    open("runs/live/nursery.lock").close()  # lets go of the lock, as the interpreter does before it ends
    print("ending", flush=True)
    input()

atexit.register(end)
main()
"""


def is_ready(url):
    async def ask():
        client = http.Client.of_url(url)
        answer = await client.request("GET", "/v2/models/score/ready")
        client.close()
        return answer.status == 200

    return asyncio.run(ask())


def test_up_is_said_when_everything_serves_and_down_when_nothing_runs(tmp_path):
    (tmp_path / "small.yaml").write_text(dump_scenario(small_scenario(workers=2)))
    command = [sys.executable, "-m", "edgewise", "up", "small.yaml", "--port", "0", "--gateways", "2"]
    up = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    said = []
    while not said or not said[-1].startswith("up after"):
        said.append(up.stdout.readline())
        assert said[-1], said  # it ended
    assert "2 gateways accepting, 2 workers ready" in said[-1]
    assert all(is_ready(url) for url in re.findall(r"gateway-\d: (\S+)", "".join(said)))
    down = edgewise("down", folder=tmp_path)
    assert "everything has ended" in down and not is_running(tmp_path / "runs/live")
    assert up.wait(10) == 0
    assert "nothing runs" in edgewise("down", folder=tmp_path)
    assert "edgewise up" in edgewise("down", "--state", "elsewhere", folder=tmp_path, code=2)


def test_down_ends_what_a_killed_controller_left(tmp_path):
    system = System(tmp_path, small_scenario(workers=2), gateways=1)
    system.start()
    asyncio.run(system.ready())
    system.nursery.kill()
    system.nursery.wait()
    os.kill(system.pid("controller"), signal.SIGKILL)
    handles = [r.handle for r in system.store.processes()]
    assert all(alive_handle(handle) for handle in handles)
    assert "everything has ended" in edgewise("down", "--state", ".", folder=tmp_path)
    assert not any(alive_handle(handle) for handle in handles)
    system.store.close()


def test_what_takes_long_before_anything_can_start_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(waiting, "LOADING_S", 0.01)
    said = ""
    with waiting.Waiting(tmp_path).loading():
        while "loading and compiling" not in said:
            said += capsys.readouterr().out


def test_down_returns_when_up_has_ended_too(tmp_path):
    (tmp_path / "small.yaml").write_text(dump_scenario(small_scenario(workers=2)))
    command = [sys.executable, "-c", SLOW_END, "up", "small.yaml", "--port", "0"]
    up = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    while not (said := up.stdout.readline()).startswith("up after"):
        assert said  # it ended
    down = subprocess.Popen([sys.executable, "-m", "edgewise", "down"], cwd=tmp_path)
    while not (said := up.stdout.readline()).startswith("ending"):
        assert said
    assert not is_running(tmp_path / "runs/live")
    assert waiting.left_of(tmp_path / "runs/live") == [waiting.UP]
    assert down.poll() is None
    up.stdin.write("\n")
    assert down.wait(60) == 0
    assert up.poll() == 0
    assert waiting.left_of(tmp_path / "runs/live") == []
