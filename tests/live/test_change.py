"""A running system takes over changed settings, process by process, and loses nothing that was accepted."""

import asyncio
import json
import subprocess
import sys

import pytest
import yaml
from running_system import infer_until, open_stream, small_scenario, started

from command_line import edgewise
from edgewise.config import dump_scenario
from edgewise.model.parsing import parse_scenario
from edgewise.runtime.controller.nursery import is_running
from edgewise.runtime.controller.plan import DATABASE, Emulation, prepare
from edgewise.runtime.controller.rolling import read_change
from edgewise.runtime.process.machine import alive_handle
from edgewise.runtime.states import DONE, FAILED
from edgewise.runtime.store import Store
from waiting import becomes

pytestmark = pytest.mark.live
HANG_S = 90.0
ROOM = {"cpu_cores": 9, "memory_bytes": 8e9}


def changed(change):
    """The small scenario after `change` of its data."""
    data = yaml.safe_load(dump_scenario(small_scenario()))
    change(data)
    return parse_scenario(data, "changed")


def slower(data):
    data["catalog"]["variants"][0]["profile"]["fixed_s"] = 0.004


def with_one_more_everywhere(data):
    """A node before all others, with a worker, and a second worker where there was one."""
    slower(data)
    data["clusters"][0]["nodes"].insert(0, {"name": "first-node", "resources": ROOM})
    data["workers"][0] = {"variant": "echo-cpu", "node": "near-node", "count": 2}
    data["workers"].insert(0, {"variant": "echo-cpu", "node": "first-node"})
    data["workers"][-1] = {"variant": "echo-cpu", "node": "far-node", "count": 2}
    data["sites"].insert(0, {"name": "first-site", "uplink_bps": 1e9})


async def until_changed(system):
    """Wait for the end of a change; returns it, and which processes were down meanwhile."""
    down = set()

    def over():
        if not (change := read_change(system.store)).open:
            return change
        down.update(r.process.name for r in system.store.processes() if r.restarts and r.handle is None)
        return None

    return await becomes(over), down


class Asking:
    """Streams on both gateways, asking as often as they declare; every answer must be 200."""

    def __init__(self, system):
        self.system, self._until = system, asyncio.Event()

    async def __aenter__(self):
        clients = [self.system.gateway(k) for k in range(2)]
        rate = {"rate_qps": 30}
        self.opened = [(c, (await open_stream(c, **rate))[1]["stream"]) for c in clients for _ in range(3)]
        self._statuses = [[] for _ in self.opened]
        self._tasks = [
            asyncio.create_task(infer_until(client, stream, self._until, 0.032, statuses))
            for (client, stream), statuses in zip(self.opened, self._statuses, strict=True)
        ]
        return self

    async def bound(self):
        rows = {row["stream"]: row for row in await self.system.get("/v1/streams")}
        return {stream: rows[stream]["worker"] for _, stream in self.opened}

    async def __aexit__(self, *error):
        enough = [len(each) + 4 for each in self._statuses]  # of what comes after the change, too
        await becomes(lambda: all(len(s) >= n for s, n in zip(self._statuses, enough, strict=True)))
        self._until.set()
        statuses = [status for task in self._tasks for status in await asyncio.wait_for(task, HANG_S)]
        assert set(statuses) == {200} and len(statuses) > 20
        for client, stream in self.opened:
            assert (await client.request("DELETE", f"/v1/streams/{stream}")).status == 200
            client.close()


def go(scenario):
    asyncio.run(asyncio.wait_for(scenario(), HANG_S))


def pids(system, *kinds):
    return {r.process.name: r.handle for r in system.store.processes() if r.process.kind in kinds}


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with started(tmp_path_factory.mktemp("changed"), small_scenario(), gateways=2) as made:
        asyncio.run(asyncio.wait_for(until_changed(made), HANG_S))
        yield made


def test_changed_settings_replace_processes_one_by_one_under_load(system):
    assert is_running(system.folder)
    before = pids(system, "worker", "gateway")

    async def scenario():
        async with Asking(system):
            prepare(system.folder, changed(slower), gateways=2).close()
            change, down = await until_changed(system)
            assert change.state == DONE and not any("@" in name for name in down)  # no worker ever was
            await system.ready()

    go(scenario)
    rows = system.store.processes()
    assert pids(system, "worker", "gateway").keys() == before.keys()
    assert all(r.handle != before[r.process.name] and r.restarts == 1 for r in rows)
    assert all(r.process.settings["profile"]["fixed_s"] == 0.004 for r in rows if r.process.kind == "worker")


def test_nothing_is_replaced_when_nothing_changed(system):
    before = pids(system, "worker", "gateway")
    prepare(system.folder, changed(slower), gateways=2).close()
    assert asyncio.run(asyncio.wait_for(until_changed(system), HANG_S))[0].state == DONE
    assert pids(system, "worker", "gateway") == before


def test_a_dry_run_says_what_a_change_then_does_and_leaves_all_as_it_is(system, tmp_path):
    (tmp_path / "changed.yaml").write_text(dump_scenario(small_scenario()))
    kept = {file: file.read_bytes() for file in system.folder.glob("*.yaml")}
    before, wanted = pids(system, "worker", "gateway"), system.store.get("change")
    up = ("up", "changed.yaml", "--state", str(system.folder), "--port", "0", "--gateways", "2")
    assert "+ start    gateway gateway-2" in edgewise(*up[:-1], "3", "--dry-run", folder=tmp_path)
    said = edgewise(*up, "--dry-run", folder=tmp_path)
    assert "gateway-2" not in said and "profile.fixed_s 0.004 → " in said
    shown = json.loads(edgewise(*up, "--dry-run", "--json", folder=tmp_path))["difference"]
    edgewise(*up, "--dry-run", "--policy", "nonsense", folder=tmp_path, code=2)
    assert pids(system, "worker", "gateway") == before and system.store.get("change") == wanted
    assert {file: file.read_bytes() for file in kept} == kept
    assert edgewise(*up, folder=tmp_path).count(said) == 1
    assert asyncio.run(system.get("/v1/status"))["change"]["difference"] == shown
    prepare(system.folder, changed(slower), gateways=2).close()  # as it was
    assert asyncio.run(asyncio.wait_for(until_changed(system), HANG_S))[0].state == DONE


def test_a_network_that_cannot_be_loaded_changes_nothing_and_says_so(system, tmp_path):
    (tmp_path / "echo.onnx").write_bytes(b"no network")
    before, text = pids(system, "worker", "gateway"), (system.folder / "scenario.yaml").read_text()
    (tmp_path / "changed.yaml").write_text(dump_scenario(changed(slower)))

    async def scenario():
        async with Asking(system):
            up = ("up", "changed.yaml", "--state", str(system.folder), "--port", "0", "--gateways", "2")
            said = await asyncio.to_thread(edgewise, *up, "--models", ".", folder=tmp_path, code=1)
        assert "echo-cpu@near-node" in said and "cannot load it" in said and "undone" in said

    go(scenario)
    assert pids(system, "worker", "gateway") == before
    assert (system.folder / "scenario.yaml").read_text() == text
    assert not any(r.outdated for r in system.store.processes())
    assert "undone" in edgewise("status", "--state", str(system.folder), folder=tmp_path)


def test_a_gateway_that_cannot_begin_changes_nothing(system):
    before, gateways = pids(system, "worker"), pids(system, "gateway")
    policy = system.store.policy("dispatch")

    async def scenario():
        async with Asking(system):
            given, emulation = {"dispatch": "nonsense"}, Emulation(seed=1)
            prepare(system.folder, changed(slower), gateways=2, emulation=emulation, given=given).close()
            change, down = await until_changed(system)
            assert change.state == FAILED and "gateway-0" in change.why and "nonsense" in change.why
            assert not down

    go(scenario)
    assert pids(system, "gateway") == gateways and system.store.policy("dispatch") == policy
    rows = system.store.processes("worker")
    assert all(r.process.settings["seed"] == 0 for r in rows)
    assert all(r.handle != before[r.process.name] for r in rows)  # there and back, each beside the other


def test_what_is_added_moves_nothing_that_was_there(system):
    async def scenario():
        near = [r.process.name for r in system.store.processes("worker") if "near" in r.process.name]
        async with Asking(system) as asking:
            for name in near:  # the streams move to where no policy would put them by itself
                await system.get(f"/v1/workers/{name.replace('#', '%23')}", "PUT", {"wanted": False})

            async def all_far():
                return set((await asking.bound()).values()) == {"echo-cpu@far-node"}

            await becomes(all_far)
            for name in near:
                await system.get(f"/v1/workers/{name.replace('#', '%23')}", "PUT", {"wanted": True})
            await system.ready()
            before = {r.process.name.removesuffix("#0"): r for r in system.store.processes("worker")}
            gateways = {r.process.name: r.process for r in system.store.processes("gateway")}
            prepare(system.folder, changed(with_one_more_everywhere), gateways=4).close()
            assert (await until_changed(system))[0].state == DONE
            after = {r.process.name.removesuffix("#0"): r for r in system.store.processes("worker")}
            assert len(after) == len(before) + 2
            for name, running in before.items():
                old, new = running.process, after[name].process
                assert (old.port, old.cores, old.settings) == (new.port, new.cores, new.settings)
                assert after[name].handle == running.handle
            for running in system.store.processes("gateway"):
                if running.process.name in gateways:
                    old, new = gateways[running.process.name], running.process
                    assert (old.port, old.settings["site"]) == (new.port, new.settings["site"])
            await system.ready()
            assert set((await asking.bound()).values()) == {"echo-cpu@far-node#0"}
            await system.kill("gateway-0")
            assert set((await asking.bound()).values()) == {"echo-cpu@far-node#0"}

    go(scenario)


def test_what_is_taken_away_ends_last(system):
    async def scenario():
        async with Asking(system):
            prepare(system.folder, changed(slower), gateways=2).close()
            change, _ = await until_changed(system)
            assert change.state == DONE
            await becomes(lambda: all(r.process.wanted or not r.handle for r in system.store.processes()))
        running = [row for row in await system.get("/v1/workers") if row["state"] == "running"]
        assert len(running) == 3 and all(len(row["gateways"]) == 2 for row in running)

    go(scenario)


def test_a_first_up_with_a_broken_network_ends_and_says_why(tmp_path):
    (tmp_path / "echo.onnx").write_bytes(b"no network")
    (tmp_path / "small.yaml").write_text(dump_scenario(small_scenario(workers=2)))
    command = [sys.executable, "-m", "edgewise", "up", "small.yaml", "--port", "0", "--models", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 1 and "up after" not in done.stdout
    assert "echo-cpu@" in done.stderr and "cannot load it" in done.stderr and "\n" not in done.stderr.strip()
    store = Store(tmp_path / "runs/live" / DATABASE)
    assert not any(r.handle and alive_handle(r.handle) for r in store.processes())
    assert max(r.restarts for r in store.processes()) <= 2
    store.close()
