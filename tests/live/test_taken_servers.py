"""Servers that somebody else runs, as workers: one gateway grants their rate, and nobody ends them."""

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from live_system import dense_world
from running_system import System, infer, open_stream, small_scenario

from edgewise import policies
from edgewise.model.parsing import parse_scenario
from edgewise.runtime import http
from edgewise.runtime.controller.plan import Emulation, prepare
from edgewise.runtime.controller.rolling import read_change
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.states import DONE
from edgewise.runtime.store import Process
from open_inference_server import Server
from waiting import becomes

pytestmark = pytest.mark.live
CAPACITY = 100.0
TOKEN = "of-our-parts"
PROGRAM = Path(__file__).resolve().parents[1] / "open_inference_server.py"


class Two:
    """Two gateways and a server that knows no reservations, whose rate `north` grants; in one event loop."""

    async def __aenter__(self):
        self.server = Server("127.0.0.1", 0, "echo")
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.gateways, self.fronts, self.clients = {}, {}, {}
        for name in ("north", "south"):
            await self.begin(name)
        return self

    async def begin(self, name, port=0):
        session = Session(
            dense_world(1, CAPACITY), policies.load("dispatch", "least-impedance"), 0, time.monotonic
        )
        clients = [http.Client("127.0.0.1", self.server.server_port)]
        made = Gateway(session, clients, ["echo"], name=name, granted_by={0: "north"})
        self.gateways[name] = made
        self.fronts[name] = await http.serve(with_admin(made), port=port, at_once=True)
        self.clients[name] = http.Client(self.fronts[name].host, self.fronts[name].port)
        for each in self.gateways.values():
            each.granting.follow(
                [Process("north", "gateway", self.fronts["north"].port)],
                lambda process: http.Client.of_url(process.url, TOKEN),
            )

    async def __aexit__(self, *error):
        for front in self.fronts.values():
            await front.close(0.1)
        self.server.shutdown()
        self.server.server_close()
        for gateway in self.gateways.values():
            gateway.granting.close()

    async def open(self, name, rate_qps):
        needs = {"task": "score", "rate_qps": rate_qps, "size_bytes": 256, "deadline_s": 5.0}
        answer = await self.clients[name].request("POST", "/v1/streams", body=json.dumps(needs).encode())
        return answer.status, json.loads(answer.body)["stream"]

    def bound(self, name):
        return sorted(self.gateways[name].session.core.bindings)


def go(scenario):
    async def run():
        async with Two() as two:
            await asyncio.wait_for(scenario(two), 60)

    asyncio.run(run())


def test_two_gateways_do_not_book_a_server_twice():
    async def scenario(two):
        assert [(await two.open(name, 60.0))[0] for name in ("south", "north")] == [201, 409]
        assert (await two.open("north", 40.0))[0] == 201
        assert (await two.open("south", 1.0))[0] == 409
        shown = await two.clients["north"].request("GET", "/v1/admin/reservations/dense-0")
        loads = json.loads(shown.body)["gateways"]
        loads = {name: list(each.values()) for name, each in loads.items()}
        assert loads == {"south": [60.0], "north": [40.0]}

    go(scenario)


def test_what_is_closed_can_be_had_by_the_other():
    async def scenario(two):
        _, stream = await two.open("south", 100.0)
        assert (await two.open("north", 100.0))[0] == 409
        await two.clients["south"].request("DELETE", f"/v1/streams/{stream}")

        async def there_is_room():
            await two.gateways["north"].granting.renew()
            return (await two.open("north", 100.0))[0] == 201

        await becomes(there_is_room)

    go(scenario)


def test_while_who_grants_is_away_what_is_bound_stays_and_nothing_new_comes():
    async def scenario(two):
        _, mine = await two.open("south", 30.0)
        port = two.fronts["north"].port
        await two.fronts["north"].close(0.1)
        south = two.gateways["south"]
        await south.granting.renew()
        assert (await two.open("south", 10.0))[0] == 409 and two.bound("south") == [mine]
        await two.begin("north", port)  # and knows nothing
        await south.granting.renew()
        assert (await two.open("south", 10.0))[0] == 201
        south.session.core.validate()
        assert (await two.open("north", 70.0))[0] == 409
        assert (await two.open("north", 60.0))[0] == 201

    go(scenario)


def test_a_gateway_that_does_not_grant_says_so():
    async def scenario(two):
        for path in ("dense-0", "nobody"):
            answer = await two.clients["south"].request("GET", f"/v1/admin/reservations/{path}")
            assert answer.status == 404

    go(scenario)


@contextmanager
def theirs(port):
    """A process that is no child of the live system."""
    server = subprocess.Popen([sys.executable, PROGRAM, str(port), "theirs"])
    try:
        yield server
    finally:
        server.kill()
        server.wait()


def seen(url):
    with urllib.request.urlopen(f"{url}/seen", timeout=10) as answer:
        return json.loads(answer.read())


def with_theirs(url):
    """Two workers, of which the one far away is somebody else's."""
    told = small_scenario(2).spec.model_dump(mode="json", exclude_none=True)
    told["workers"][1]["served_by"] = {"url": url, "model": "theirs"}
    return parse_scenario(told, "small")


@contextmanager
def running(folder, scenario):
    system = System(folder, scenario, emulation=Emulation(on=False))
    try:
        system.start()
        yield system
    finally:
        system.stop()


async def serves(system):
    """Wait until the system is up."""
    await becomes(lambda: read_change(system.store).state == DONE, limit_s=60)


async def up_at(system, worker):
    """Whether a gateway has a worker."""
    rows = await system.get("/v1/workers")
    return {row["name"]: row["gateways"]["gateway-0"]["up"] for row in rows}[worker]


def test_a_server_of_somebody_else_is_a_worker_that_comes_and_goes_as_it_likes(tmp_path):
    port = free_port()
    url, far = f"http://127.0.0.1:{port}", "echo-cpu@far-node"

    async def uses(system):
        await serves(system)
        assert system.of(far).handle is not None and not await up_at(system, far)
        client = system.gateway()
        opened = [await open_stream(client, rate_qps=120) for _ in range(2)]
        assert [status for status, _ in opened] == [201, 409]  # one worker's rate
        with theirs(port):
            await becomes(lambda: up_at(system, far), limit_s=30)
            status, stream = await open_stream(client, rate_qps=120)
            assert (status, stream["worker"]) == (201, far)
            answer = await infer(client, stream["stream"])
            assert answer.status == 200 and answer.headers["edgewise-worker"] == far
            assert seen(url) == {"queries": 1, "tokens": 0}
            states = {row["name"]: row["state"] for row in await system.get("/v1/workers")}
            assert states[far] == "running"
        await becomes(lambda: gone(system), limit_s=30)
        assert system.of(far).restarts == 0 and system.of(far).failures == 0
        with theirs(port):
            await becomes(lambda: up_at(system, far), limit_s=30)
            await system.get("/v1/nodes/far-node", "PUT", {"up": False})
            await becomes(lambda: gone(system), limit_s=30)
            assert seen(url)["tokens"] == 0  # it runs: nobody ended it
            await system.get("/v1/nodes/far-node", "PUT", {"up": True})
            await becomes(lambda: up_at(system, far), limit_s=30)
            system.stop()
            assert seen(url)["tokens"] == 0
        client.close()

    async def gone(system):
        return not await up_at(system, far)

    with running(tmp_path, with_theirs(url)) as system:
        asyncio.run(uses(system))


def test_a_change_gives_a_worker_to_somebody_else_and_back(tmp_path):
    port = free_port()
    url, far = f"http://127.0.0.1:{port}", "echo-cpu@far-node"

    async def changed(system, scenario):
        prepare(tmp_path, scenario, emulation=Emulation(on=False)).close()
        await serves(system)

    async def uses(system):
        await serves(system)
        client = system.gateway()
        with theirs(port):
            await changed(system, with_theirs(url))
            await becomes(lambda: up_at(system, far), limit_s=30)
            assert [row["url"] for row in await system.get("/v1/workers") if row["name"] == far] == [url]
            _, stream = await open_stream(client, rate_qps=120)
            _, other = await open_stream(client, rate_qps=120)
            assert {(await infer(client, each["stream"])).status for each in (stream, other)} == {200}
            assert seen(url) == {"queries": 1, "tokens": 0}
            await changed(system, small_scenario(2))
            assert (await infer(client, other["stream"])).status == 200
            assert seen(url) == {"queries": 1, "tokens": 0}
        client.close()

    with running(tmp_path, small_scenario(2)) as system:
        asyncio.run(uses(system))


def test_processes_that_share_ports_do_not_book_it_twice_and_one_that_was_killed_hears_what_it_had_granted(
    tmp_path,
):
    """Two gateways of two processes each; the first of all grants 200 queries/s."""
    port = free_port()
    told = small_scenario(2, gateways_sites=2).spec.model_dump(mode="json", exclude_none=True)
    told["workers"] = [
        told["workers"][1] | {"served_by": {"url": f"http://127.0.0.1:{port}", "model": "theirs"}}
    ]

    async def uses(system):
        await serves(system)
        fronts = [http.Client.of_url(system.of(f"gateway-{k}").process.front.url) for k in (0, 1)]
        for name in ("gateway-0", "gateway-0.1", "gateway-1", "gateway-1.1"):
            await system.reaches_all(system.of(name).process)
        opened = [await open_stream(fronts[k % 2], rate_qps=60) for k in range(10)]
        assert sorted(status for status, _ in opened) == 3 * [201] + 7 * [409]
        kept = [(k, answer["stream"]) for k, (status, answer) in enumerate(opened) if status == 201]
        await system.kill("gateway-0")
        await system.reaches_all(system.of("gateway-0").process)
        grants = http.Client.of_url(system.of("gateway-0").process.url, system.store.secret("operator"))
        path = "/v1/admin/reservations/echo-cpu@far-node"

        async def all_known():
            found = json.loads((await grants.request("GET", path)).body)["gateways"]
            return {int(each) for loads in found.values() for each in loads} == {each for _, each in kept}

        await becomes(all_known)
        assert [(await open_stream(front, rate_qps=60))[0] for front in fronts] == [409, 409]
        for k, stream in kept:
            assert (await infer(fronts[k % 2], stream)).status == 200
        for client in (*fronts, grants):
            client.close()

    with theirs(port):
        system = System(
            tmp_path, parse_scenario(told, "small"), emulation=Emulation(on=False), gateway_processes=2
        )
        try:
            system.start()
            asyncio.run(uses(system))
        finally:
            system.stop()
