"""Workers of streams that come and go, live: started, drained and killed under load, without a lost query."""

import asyncio
import json
import os
import signal

import pytest
from running_system import System, infer_until, open_stream, small_scenario

from edgewise.model.parsing import parse_scenario
from edgewise.runtime.clients.reaching import ask, client_to
from waiting import becomes, pace

pytestmark = pytest.mark.live
# A file: so many workers on the first node as another file says.
TOLD = """
from pathlib import Path
from edgewise.core.orchestrate import AddReplica, RemoveReplica

class Told:
    name, decision = "told", "orchestrate"

    def reset(self, world, key):
        pass

    def decide(self, view):
        with Path({file!r}).with_name("asked").open("a") as asked:
            asked.write("x")
        want, pool = int(Path({file!r}).read_text()), view.replicas.shape[1] - 1
        have = int((view.ready + view.starting - view.removing)[1, pool])
        return [AddReplica(0, pool)] * (want - have) + [RemoveReplica(0, pool)] * (have - want)
"""


def pooled(gateways, requests=False):
    """One worker near, of up to three; none far, unless workers serve requests too."""
    plain = small_scenario(workers=2, gateways_sites=gateways)
    data = plain.spec.model_dump(mode="json", exclude_unset=True)
    data["window_s"] = 1
    data["workers"] = [{"variant": "echo-cpu", "cluster": "near", "count": 1, "least": 0, "most": 3}]
    if requests:
        data["catalog"]["variants"][0]["resources"]["memory_bytes"] = 1e8
        data["workers"].append({"variant": "echo-cpu", "cluster": "far"})
        data["services"] = {
            "cloud": "far", "frame_s": 1, "offered": [{"variant": "echo-cpu", "deadline_s": 20}],
        }  # fmt: skip
    return parse_scenario(data, "small")


class Pool:
    """A system with a pool, whose size a file says."""

    def __init__(self, folder, gateways=2, requests=False):
        self.size, policy = folder / "size", folder / "told.py"
        self.size.write_text("1")
        policy.write_text(TOLD.format(file=str(self.size)))
        given = {"orchestrate": f"{policy}:Told"}
        self.system = System(folder / "system", pooled(gateways, requests), given=given)

    async def __aenter__(self):
        self.system.start()
        wanted = [row.process for row in self.system.store.processes() if row.process.wanted]
        await asyncio.gather(*(self.system.answers(process) for process in wanted))
        await self.up(1)
        return self

    async def __aexit__(self, *_):
        self.system.stop()

    def rows(self):
        return {r.process.name: r for r in self.system.store.processes("worker")}

    def running(self):
        return [name for name, row in self.rows().items() if row.handle is not None]

    def wanted(self):
        return [name for name, row in self.rows().items() if row.process.wanted]

    async def frames(self, count):
        """The policy has been asked so many times more."""
        asked = self.size.with_name("asked")
        before = asked.stat().st_size
        await becomes(lambda: asked.stat().st_size >= before + count)

    async def until(self, true, what):
        def said():
            rows = [(name, row.process.wanted, row.handle) for name, row in self.rows().items()]
            return f"{what}; {rows}"

        await becomes(true, said)

    async def up(self, count):
        """So many workers are up for every gateway."""
        views = []

        async def all_up(g):
            views[:] = (await self.admin(g))["workers"].values()
            return sum(view["up"] and view["wanted"] for view in views) == count

        for g in range(2):
            await becomes(lambda g=g: all_up(g), lambda: f"{count} up: {views}")

    async def until_load(self, count):
        """Requests have been measured at so many workers."""
        views = []

        async def measured():
            views[:] = [(await self.admin(g))["workers"] for g in range(2)]
            busy = {
                name
                for each in views
                for name, view in each.items()
                if view["load"] > 0.1 * view["streams"] + 0.001
            }
            return len(busy) >= count

        await becomes(measured, lambda: f"{count} with requests: {views}")

    async def admin(self, g):
        store = self.system.store
        client = client_to(self.system.of(f"gateway-{g}").process, store, store.secret("operator"))
        answer = await ask(client, "GET", "/v1/admin/pools", patience_s=30)
        client.close()
        return json.loads(answer.body)


async def request_until(client, until, pause_s):
    """A client of the service; returns the statuses of its requests."""
    statuses, body = [], json.dumps({"inputs": [
        {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [0.0] * 4}
    ]}).encode()  # fmt: skip
    while not until.is_set():
        answer = await client.request("POST", "/v2/models/echo-cpu/infer", {}, body)
        statuses.append(answer.status)
        await pace(pause_s)
    return statuses


class Load:
    """Clients that send all the time."""

    def __init__(self, pool):
        self.pool, self.until, self.tasks, self.clients = pool, asyncio.Event(), [], []
        self.statuses = []  # of each stream

    async def open(self, g, **changes):
        client = self.pool.system.gateway(g)
        status, answer = await open_stream(client, **changes)
        if status == 201:
            self.clients.append(client)
            self.statuses.append([])
            sends = infer_until(client, answer["stream"], self.until, 0.05, self.statuses[-1])
            self.tasks.append(asyncio.create_task(sends))
        else:
            client.close()
        return status, answer

    def ask(self, g):
        """Begin to send requests of the service."""
        self.clients.append(self.pool.system.gateway(g))
        self.tasks.append(asyncio.create_task(request_until(self.clients[-1], self.until, 0.02)))

    async def answers_more(self, least):
        """So many more queries of streams are answered."""
        wanted = sum(each.count(200) for each in self.statuses) + least
        await becomes(
            lambda: sum(each.count(200) for each in self.statuses) >= wanted,
            lambda: [each[-3:] for each in self.statuses],
        )

    async def close(self):
        self.until.set()
        statuses = [status for each in await asyncio.gather(*self.tasks) for status in each]
        for client in self.clients:
            client.close()
        return statuses


def test_a_pool_grows_and_shrinks_under_load_without_a_lost_query(tmp_path):
    asyncio.run(grows(tmp_path))


async def grows(tmp_path):
    async with Pool(tmp_path) as pool:
        load = Load(pool)
        for k in range(8):
            status, answer = await load.open(k % 2, rate_qps=20)
            assert status == 201, answer
        status, answer = await load.open(0, rate_qps=100)
        assert status == 409 and "capacity" in answer["reason"]
        pool.size.write_text("2")
        await pool.up(2)
        status, big = await load.open(0, rate_qps=150)
        assert status == 201, answer
        pool.size.write_text("1")
        await pool.until(lambda: len(pool.wanted()) == 1, "one is to go")
        (goes,) = set(pool.running()) - set(pool.wanted())
        await pool.up(1)  # the gateways know
        await pool.frames(3)
        assert goes in pool.running(), "310 of 200 queries/s: what nobody else has room for stays"
        big_client = pool.system.gateway(0)
        await ask(big_client, "DELETE", f"/v1/streams/{big['stream']}", patience_s=30)
        big_client.close()
        await pool.until(lambda: goes not in pool.running(), "it ends once it is empty")
        statuses = await load.close()
        lost = [status for status in statuses if status not in (200, 404)]
        assert len(statuses) > 100 and not lost, lost
        assert pool.running() == pool.wanted()


def test_a_pool_serves_requests_while_it_grows_and_shrinks_and_none_is_lost(tmp_path):
    asyncio.run(serves(tmp_path))


async def serves(tmp_path):
    async with Pool(tmp_path, requests=True) as pool:
        load = Load(pool)
        for k in range(6):
            load.ask(k % 2)
        for k in range(4):
            status, answer = await load.open(k % 2, rate_qps=20)
            assert status == 201, answer
        for size in (3, 1, 2):
            pool.size.write_text(str(size))
            await pool.up(size)
            await pool.until(lambda size=size: len(pool.running()) == size + 1, f"{size} near and one far")
            await pool.until_load(size)
        killed = next(name for name in pool.running() if "near" in name)
        before = pool.rows()[killed].handle
        os.kill(pool.system.pid(killed), signal.SIGKILL)  # what it had goes elsewhere
        await pool.until(lambda: pool.rows()[killed].handle not in (None, before), "it is started again")
        await pool.up(2)
        statuses = await load.close()
        lost = [status for status in statuses if status != 200]
        assert len(statuses) > 200 and not lost, lost


def test_one_that_drains_or_starts_is_killed(tmp_path):
    asyncio.run(killed(tmp_path))


async def killed(tmp_path):
    async with Pool(tmp_path) as pool:
        load = Load(pool)
        pool.size.write_text("2")
        await pool.until(lambda: len(pool.running()) == 2, "a second one has a process")
        (first,) = [name for name, row in pool.rows().items() if row.process.settings["entity"] == 0]
        (second,) = set(pool.running()) - {first}
        os.kill(pool.system.pid(second), signal.SIGKILL)  # while it starts
        await pool.up(2)
        for k in range(8):
            status, answer = await load.open(k % 2, rate_qps=30)
            assert status == 201, answer
        pool.size.write_text("1")
        await pool.until(lambda: len(pool.wanted()) == 1, "one is to go")
        (goes,) = set(pool.running()) - set(pool.wanted())
        os.kill(pool.system.pid(goes), signal.SIGKILL)  # it has what the other has no room for
        await pool.until(lambda: goes not in pool.running(), "it is not started again")
        pool.size.write_text("2")
        await pool.up(2)
        await load.answers_more(150)
        statuses = await load.close()
        answered = statuses.count(200)
        assert answered > 100 and set(statuses) <= {200, 409, 503}, set(statuses)
