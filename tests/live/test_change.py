"""A running system takes over changed settings, process by process, and loses nothing that was accepted."""

import asyncio

import pytest
from running_system import infer_until, open_stream, small_scenario, started

from edgewise.config import dump_scenario
from edgewise.model.scenario import parse_scenario
from edgewise.runtime.nursery import is_running
from edgewise.runtime.plan import prepare

pytestmark = pytest.mark.live
HANG_S = 90.0


def slower(scenario, **changes):
    """The same scenario with another profile and, with `workers`, another number of them."""
    import yaml

    data = yaml.safe_load(dump_scenario(scenario))
    data["catalog"]["variants"][0]["profile"]["fixed_s"] = 0.004
    data["workers"][0]["count"] = changes.get("workers", data["workers"][0]["count"])
    return parse_scenario(data, "changed")


async def settled(system, pids):
    """Wait until all that is wanted runs as wanted; count how many were down at once."""
    most_down = 0
    while True:
        rows = system.store.processes()
        down = [r for r in rows if r.process.wanted and r.process.name in pids and r.handle is None]
        most_down = max(most_down, len(down))
        unwanted = [r for r in rows if not r.process.wanted and r.handle]
        if not down and not unwanted and all(r.handle and not r.outdated for r in rows if r.process.wanted):
            return most_down
        await asyncio.sleep(0.005)


async def change_under_load(system, scenario):
    """Streams on both gateways query while the scenario changes; every answer must be 200."""
    clients = [system.gateway(k) for k in range(2)]
    opened = [(client, (await open_stream(client))[1]["stream"]) for client in clients for _ in range(3)]
    pids = {r.process.name: system.pid(r.process.name) for r in system.store.processes() if r.handle}
    until = asyncio.Event()
    asking = [asyncio.create_task(infer_until(client, stream, until, 0.01)) for client, stream in opened]
    await asyncio.sleep(0.3)
    prepare(system.folder, scenario, gateways=2).close()
    most_down = await asyncio.wait_for(settled(system, pids), HANG_S)
    await system.ready()
    await asyncio.sleep(0.3)
    until.set()
    statuses = [status for task in asking for status in await asyncio.wait_for(task, HANG_S)]
    assert set(statuses) == {200} and len(statuses) > 20
    assert most_down <= 1
    rows = {row["stream"]: row for row in await system.get("/v1/streams")}
    assert all(rows[stream]["closed_s"] is None and rows[stream]["worker"] for _, stream in opened)
    for client, stream in opened:
        assert (await client.request("DELETE", f"/v1/streams/{stream}")).status == 200
        client.close()
    return pids


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with started(tmp_path_factory.mktemp("changed"), small_scenario(), gateways=2) as made:
        yield made


def test_changed_settings_replace_processes_one_by_one_under_load(system):
    assert is_running(system.folder)
    before = asyncio.run(change_under_load(system, slower(small_scenario())))
    rows = system.store.processes()
    assert {r.process.name for r in rows} == set(before)
    assert all(system.pid(r.process.name) != before[r.process.name] for r in rows)
    assert all(r.restarts == 1 for r in rows)  # once each
    assert all(r.process.settings["profile"]["fixed_s"] == 0.004 for r in rows if r.process.kind == "worker")


def test_nothing_is_replaced_when_nothing_changed(system):
    before = [r.handle for r in system.store.processes()]
    prepare(system.folder, slower(small_scenario()), gateways=2).close()
    asyncio.run(asyncio.sleep(0.5))
    assert [r.handle for r in system.store.processes()] == before


def test_workers_come_and_go_with_the_scenario(system):
    asyncio.run(change_under_load(system, slower(small_scenario(), workers=1)))
    left = [r.process.name for r in system.store.processes() if r.process.kind == "worker" and r.handle]
    assert len(left) == 2
    asyncio.run(change_under_load(system, slower(small_scenario(), workers=3)))
    workers = asyncio.run(system.get("/v1/workers"))
    running = [row for row in workers if row["state"] == "running"]
    assert len(running) == 4 and all(len(row["gateways"]) == 2 for row in running)
