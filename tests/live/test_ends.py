"""Processes that cannot go on: which, why and what to do is in the log, in `status` and where `up` runs."""

import asyncio
import json
import os
import signal
import socket
import time
from contextlib import suppress

import pytest
from running_system import System, infer, open_stream, small_scenario, started

from command_line import edgewise
from edgewise.cli.waiting import Waiting
from edgewise.errors import RunError
from edgewise.runtime.controller.nursery import Nursery
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.store import Process
from waiting import becomes, wait_until

pytestmark = pytest.mark.live
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with started(tmp_path_factory.mktemp("live"), small_scenario(workers=2), gateways=1) as made:
        asyncio.run(has_begun(made))
        yield made


async def has_begun(system):
    """What fails from now on is started anew; before, it would end the system."""

    async def done():
        return (await system.get("/v1/status"))["change"]["state"] == "done"

    await becomes(done)


async def row_in(system, name, state):
    """The status of a process once it is in a state."""

    async def found():
        row = next(r for r in (await system.get("/v1/status"))["processes"] if r["name"] == name)
        return row if row["state"] == state else None

    return await becomes(found, f"{name} is {state}")


def take_port(system, name, port, keeper):
    """Kill a process, and have its port before whoever keeps it starts it anew."""
    number, keeping = system.pid(name), system.pid(keeper) if keeper else system.nursery.pid
    os.kill(keeping, signal.SIGSTOP)
    os.kill(number, signal.SIGKILL)
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def bound():
        with suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return True

    wait_until(bound)
    taken.listen()
    os.kill(keeping, signal.SIGCONT)
    return taken


def test_a_gateway_whose_port_another_program_takes_is_said_to_have_failed(system, tmp_path, capsys):
    async def run():
        port = system.of("gateway-0").process.port
        taken = take_port(system, "gateway-0", port, "controller")
        row = await row_in(system, "gateway-0", "failed")
        said = f"cannot listen on 127.0.0.1:{port}: another program has the port; end it, or use another one"
        assert row["why"].startswith(said) and row["failures"] >= 2
        assert said in (system.folder / "logs" / "controller.log").read_text()
        shown = await asyncio.to_thread(edgewise, "status", "--state", str(system.folder), folder=tmp_path)
        assert said in shown.replace("\n", " ") and "gateway-0 failed" in shown
        waiting = Waiting(system.folder)
        waiting.over = True  # it was up before
        waiting.look()
        assert said in capsys.readouterr().out
        taken.close()
        row = await row_in(system, "gateway-0", "running")
        assert row["why"] is None

    asyncio.run(run())


def test_a_worker_whose_port_another_program_takes_moves_and_gateways_follow(system):
    async def run():
        await system.reaches_all(system.of("gateway-0").process)
        client = system.gateway()
        _, opened = await open_stream(client)
        name = opened["worker"]
        port = system.of(name).process.port
        taken = take_port(system, name, port, "controller")
        until_s = time.monotonic() + LIMIT_S
        await becomes(lambda: system.of(name).process.port != port)
        while (await infer(client, opened["stream"])).status != 200:  # who took the port answers nobody
            assert time.monotonic() < until_s
        taken.close()
        client.close()

    asyncio.run(run())


def test_a_controller_whose_port_another_program_takes_is_found_at_another(system):
    port = system.store.get("controller")["port"]
    taken = take_port(system, "controller", port, None)
    answer = asyncio.run(after_move(system, port))
    assert answer["processes"] and system.store.get("controller")["port"] != port
    taken.close()


async def after_move(system, port):
    await becomes(lambda: system.store.get("controller")["port"] != port)
    return await system.get("/v1/status")


def test_a_fault_of_ours_is_one_line_and_its_details_lie_beside(system):
    system.store.add(
        Process("broken", "replica", free_port(), {"file": 3, "node": "near-node", "service": "none"})
    )

    async def run():
        return await row_in(system, "broken", "failed")

    row = asyncio.run(run())
    logs = system.folder / "logs"
    plain = [line for line in (logs / "broken.log").read_text().splitlines() if not line.startswith("{")]
    assert plain and all(line.startswith("error: broken ended by a fault of edgewise, ") for line in plain)
    assert "TypeError" in row["why"] and str(logs / "broken.crash.log") in row["why"]
    assert "Traceback" in (logs / "broken.crash.log").read_text()
    assert json.loads(json.dumps(row))["failures"] >= 2
    system.store.set_wanted("broken", False)


def test_a_fault_of_the_nursery_is_one_line(tmp_path):
    system = System(tmp_path, small_scenario(workers=2), gateways=1)
    system.store.put("policies", 5)
    with pytest.raises(RunError, match="nursery ended by a fault of edgewise, ") as found:
        Nursery(tmp_path).run()
    assert "\n" not in str(found.value)
    assert "Traceback" in (tmp_path / "logs" / "nursery.crash.log").read_text()
    system.store.close()
