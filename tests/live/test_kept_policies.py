"""A system that was killed goes on with the policies that decided; one that ended begins anew."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running_system import small_scenario

from command_line import edgewise
from edgewise.config import dump_scenario
from edgewise.runtime.clients.reaching import ask, client_to, operator
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.controller.switching import switch_later
from edgewise.runtime.store import ENDED, OPERATIONS, Store
from edgewise.runtime.store.faults import Fault
from waiting import wait_until

pytestmark = pytest.mark.live
HANG_S = 120.0
GIVEN = ("--policy", "dispatch=closest", "--policy", "defer=sjf")
DEFAULTS = {"dispatch": "least-harm", "defer": "tetris"}


class Terminal:
    """`edgewise up` in a folder, and other commands about it."""

    def __init__(self, folder):
        self.folder, self.state, self.command = folder, folder / "state", None
        (folder / "scenario.yaml").write_text(dump_scenario(small_scenario(workers=2)))

    def up(self, *options):
        """Start it, and wait until it serves; what it said."""
        said, program = self.folder / "said", Path(sys.executable).parent / "edgewise"
        command = [program, "up", "scenario.yaml", "--state", "state", "--port", "0", *options]
        with said.open("wb") as written:
            self.command = subprocess.Popen(command, cwd=self.folder, stdout=written, stderr=written)
        wait_until(lambda: "up after" in said.read_text() or self.command.poll() is not None)
        assert self.command.poll() is None, said.read_text()
        return " ".join(said.read_text().split())

    def kill(self):
        """Kill -9 the command and its controller; workers and gateways go on."""
        controller = self.read(lambda store: store.get("controller_handle"))
        for number in (self.command.pid, int(controller.split(":")[0])):
            os.kill(number, signal.SIGKILL)
        self.command.wait()

    def read(self, what):
        store = Store(self.state / DATABASE)
        try:
            return what(store)
        finally:
            store.close()

    def decided(self):
        """By decision what the store names."""
        rows = asyncio.run(self.read(lambda store: answer(operator(store), "/v1/policies")))
        return {row["decision"]: row["policy"] for row in rows}

    def asked(self):
        """The policy of streams that the gateway asks."""

        def client(store):
            return client_to(store.process("gateway-0").process, store, store.secret("operator"))

        return asyncio.run(answer(self.read(client), "/v1/admin/policies/dispatch"))["policy"]

    def down(self):
        edgewise("down", "--state", "state", folder=self.folder)
        self.command.wait(HANG_S)


async def answer(client, path):
    found = await ask(client, "GET", path, patience_s=HANG_S)
    client.close()
    return json.loads(found.body)


@pytest.fixture
def terminal(tmp_path):
    made = Terminal(tmp_path)
    yield made
    made.down()


def test_killed_they_go_on_or_are_switched_everywhere_and_after_an_end_they_do_not(terminal):
    assert "goes on" not in terminal.up(*GIVEN)
    gateway = terminal.read(lambda store: store.process("gateway-0").handle)
    terminal.kill()
    said = terminal.up()
    assert "dispatch: closest goes on" in said and "defer: sjf goes on" in said
    assert terminal.decided() == {"dispatch": "closest", "defer": "sjf"} and terminal.asked() == "closest"

    terminal.kill()
    said = terminal.up("--policy", "dispatch=farthest", "--policy", "defer=sjf")
    assert "dispatch: farthest takes over from closest" in said and "defer:" not in said
    assert any("stay" in line and "policy defer" in line for line in said.splitlines())
    wait_until(lambda: terminal.decided() == {"dispatch": "farthest", "defer": "sjf"})
    wait_until(lambda: terminal.asked() == "farthest")  # which ran on all the time
    assert terminal.read(lambda store: store.process("gateway-0").handle) == gateway

    terminal.down()
    assert "goes on" not in terminal.up()
    assert terminal.decided() == DEFAULTS and terminal.asked() == DEFAULTS["dispatch"]

    terminal.kill()
    terminal.down()  # without a controller: that is an end, too
    assert "goes on" not in terminal.up("--policy", "defer=sjf")
    assert terminal.decided() == DEFAULTS | {"defer": "sjf"}


@pytest.fixture
def store(tmp_path):
    made = prepare(tmp_path, small_scenario(), given={"dispatch": f"{tmp_path}/mine.py:P", "defer": "sjf"})
    yield made
    made.close()


def test_one_that_cannot_be_used_any_more_is_named_with_what_helps(store, tmp_path):
    store.put(ENDED, False)
    (tmp_path / "scenario2.yaml").write_text(dump_scenario(small_scenario()))
    said = edgewise("up", "scenario2.yaml", "--state", str(tmp_path), folder=tmp_path, code=2)
    assert "mine.py" in said and "edgewise down, then up" in said


def test_a_switch_that_an_end_cut_off_is_not_taken_up_again(store):
    switch_later(store, "defer", "fifo")
    switch_later(store, "dispatch", "closest")
    assert [row["id"] for row in store.get(OPERATIONS)] == [1, 2]
    store.end()
    assert store.get(OPERATIONS) == []


def fault(policy, at_s, decision="dispatch"):
    return Fault(at_s, at_s, "gateway-0", decision, policy, False, "raised", "it", 0.0, 1, "another")


def test_faults_are_those_of_the_policy_in_use_since_it_decides(store, tmp_path):
    mine, other = f"{tmp_path}/mine.py:P", f"{tmp_path}/other.py:P"
    since_s = time.time()
    store.faults.note([fault(mine, since_s - 60.0)])  # of an earlier run
    assert store.faults_since_switch("dispatch") is None
    store.faults.note([fault(mine, since_s + 1.0)._replace(kind="late")])
    assert store.faults_since_switch("dispatch")["times"] == 1
    store.set_policy("dispatch", other)
    store.faults.note([fault(mine, time.time() + 1.0)._replace(kind="slow")])  # of who has not switched yet
    assert store.faults_since_switch("dispatch") is None
    store.put(ENDED, False)
    store.faults.note([fault(other, time.time())])
    names = {"dispatch": other, "defer": "fifo"}
    store.name_policies(names)
    assert store.faults_since_switch("dispatch")["times"] == 1  # it goes on
    store.end()
    ended_s = time.time()
    wait_until(lambda: time.time() > ended_s)
    store.name_policies(names)
    assert store.faults_since_switch("dispatch") is None
