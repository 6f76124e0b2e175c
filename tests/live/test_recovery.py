"""kill -9 of every kind of process, at random moments under load: nothing that was accepted is lost."""

import asyncio
import os
import random
import signal

import pytest
from running_system import System, infer, infer_until, open_stream, small_scenario, started

from edgewise.run.live import live_run
from edgewise.runtime.backends.local import LocalBackend
from waiting import becomes

pytestmark = pytest.mark.live
KILLS = 18
UNWRITTEN = 100  # queries in half a second, of a gateway with four streams
HANG_S = 30.0  # a generous limit; recovery is reported, not asserted to the millisecond


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with started(tmp_path_factory.mktemp("live"), small_scenario(capacity_qps=300), gateways=2) as made:
        yield made


def test_kill_9_at_random_moments_loses_nothing(system, record_property):
    draws = random.Random(7)

    async def run():
        clients = [system.gateway(k) for k in range(2)]
        rate = {"rate_qps": 37}  # more than they send, and one worker can take them all
        opened = [(client, await open_stream(client, **rate)) for client in clients for _ in range(4)]
        assert [status for _, (status, _) in opened] == [201] * 8
        streams = [(client, answer["stream"]) for client, (_, answer) in opened]
        assert len({stream for _, stream in streams}) == 8
        until, seen = asyncio.Event(), [[] for _ in streams]
        asking = [
            asyncio.create_task(infer_until(client, stream, until, 0.02, statuses))
            for (client, stream), statuses in zip(streams, seen, strict=True)
        ]

        async def answers_more(least):
            wanted = [len(each) + least for each in seen]
            await becomes(lambda: all(len(s) >= n for s, n in zip(seen, wanted, strict=True)))

        names = ["controller", *(r.process.name for r in system.store.processes())]
        took = {}
        for k in range(KILLS):
            moment = sum(map(len, seen)) + draws.randrange(128)
            await becomes(lambda moment=moment: sum(map(len, seen)) >= moment)
            name = names[k % len(names)] if k < len(names) else draws.choice(names)
            took.setdefault(name, []).append(await asyncio.wait_for(system.kill(name), HANG_S))
        await answers_more(20)
        until.set()
        statuses = [status for task in asking for status in await asyncio.wait_for(task, HANG_S)]
        assert set(statuses) == {200}
        assert len(statuses) > 8 * KILLS
        rows = {row["stream"]: row for row in await system.get("/v1/streams")}
        assert all(rows[stream]["worker"] and rows[stream]["closed_s"] is None for _, stream in streams)
        for client, stream in streams:
            answer = await client.request("DELETE", f"/v1/streams/{stream}")
            assert answer.status == 200
        return len(statuses), took

    queries, took = asyncio.run(run())
    killed = sum(len(times) for name, times in took.items() if name.startswith("gateway"))
    recorded = live_run(system.folder)
    for table in (recorded.items, recorded.windows):
        assert sum(table["ok"].to_pylist()) >= queries - killed * UNWRITTEN > 0
    longest = {name: round(max(times), 3) for name, times in took.items()}
    record_property("queries", queries)
    record_property("longest recovery, s", longest)
    print(f"{queries} queries, {KILLS} kills; longest recovery in s: {longest}")


def test_a_system_without_its_nursery_goes_on_and_a_new_one_takes_over(tmp_path):
    async def run(system):
        await system.ready()
        client = system.gateway()
        _, opened = await open_stream(client)
        system.nursery.send_signal(signal.SIGKILL)
        system.nursery.wait()
        worker = opened["worker"]
        assert (await infer(client, opened["stream"])).status == 200
        os.kill(system.pid(worker), signal.SIGKILL)  # the controller starts an interpreter now
        assert (await infer(client, opened["stream"])).status == 200
        gateway, controller = system.pid("gateway-0"), system.pid("controller")
        system.start()
        await becomes(lambda: system.pid("controller") != controller)
        await system.ready()
        assert system.pid("gateway-0") == gateway  # adopted, not started anew
        assert (await infer(client, opened["stream"])).status == 200

    system = System(tmp_path, small_scenario(workers=2), gateways=1)
    system.start()
    try:
        asyncio.run(asyncio.wait_for(run(system), 90))
        handles = [r.handle for r in system.store.processes()]
        system.stop()  # at once, while the new controller may still be starting
        backend = LocalBackend(tmp_path)
        assert not any(backend.alive(handle) for handle in handles)
    finally:
        if system.nursery.poll() is None:
            system.nursery.kill()
