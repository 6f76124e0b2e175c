"""Servers that are registered as workers by their address, while a gateway runs and after it starts again."""

import asyncio
import json

import pytest
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.errors import ProtocolError
from edgewise.runtime import http
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.forwarding import took_s
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import Book
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.http.messages import Later
from edgewise.runtime.process.entry import Following
from edgewise.runtime.store import Process, Store
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.worker.reservations import Reservations
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes

pytestmark = pytest.mark.live


def gateway(store, url):
    session = Session(dense_world(1), policies.load("dispatch", "least-impedance"), 0, lambda: 0.0)
    return Gateway(session, [http.Client.of_url(url)], ["dense"], book=Book(store, "north"), name="north")


async def move(gateway, worker, **stated):
    body = json.dumps(stated).encode()
    return await with_admin(gateway)(http.HttpRequest("PUT", f"/v1/admin/workers/{worker}", {}, body))


def test_a_gateway_that_starts_again_knows_where_its_workers_are(tmp_path):
    store = Store(tmp_path / "state.sqlite")

    async def go():
        first = gateway(store, "http://127.0.0.1:1")
        answer = await move(first, "dense-0", url="http://127.0.0.1:7/a", model="other")
        assert answer.status == 200
        second = gateway(store, "http://127.0.0.1:1")
        second.restore()
        (target,) = second.upstreams
        assert (target.client.url, target.model) == ("http://127.0.0.1:7/a", "other")

    asyncio.run(go())
    store.close()


def test_a_worker_elsewhere_is_shown_its_own_token_and_nobody_elses(tmp_path):
    store, shown = Store(tmp_path / "state.sqlite"), []

    async def hear(request):
        shown.append(request.headers.get("authorization"))
        return http.as_json({})

    async def go():
        server = await http.serve(hear)
        first = gateway(store, "http://127.0.0.1:1")
        first.upstreams[0].client = http.Client.of_url("http://127.0.0.1:1", "of the parts")
        for token in ({"token": "its-own"}, {}):
            answer = await move(first, "dense-0", url=server.url, model="other", **token)
            assert answer.status == 200 and b"its-own" not in answer.body
            again = gateway(store, "http://127.0.0.1:1")
            again.restore()
            for each in (first, again):
                assert await each.upstreams[0].check(20.0, 1)
        with pytest.raises(ProtocolError, match="token: must be visible"):
            await move(first, "dense-0", url=server.url, model="m", token="grün")
        await server.close()

    asyncio.run(go())
    assert shown == ["Bearer its-own"] * 2 + [None] * 2
    store.close()


BAD = [
    {"url": url, "model": "m"}
    for url in (
        "ftp://a",
        "http://a:99999",
        "http://[",
        "http://a/ü",
        "http://a/b c",
        "http://a\ud800",
        "http://\u2488:1",
    )
]


@pytest.mark.parametrize("stated", [*BAD, {"url": "http://a"}, {"url": "http://a", "model": "\ud800"}])
def test_an_address_that_is_none_moves_nothing(tmp_path, stated):
    store = Store(tmp_path / "state.sqlite")

    async def handle(request):
        return await with_admin(first)(request)

    async def go():
        server = await http.serve(handle, at_once=True)
        client = http.Client(server.host, server.port)
        answer = await client.request("PUT", "/v1/admin/workers/dense-0", body=json.dumps(stated).encode())
        assert answer.status == 400 and any(name in answer.body.decode() for name in ("url", "model"))
        client.close()
        await server.close(0.1)

    first = gateway(store, "http://127.0.0.1:1")
    asyncio.run(go())
    assert first.upstreams[0].client.url == "http://127.0.0.1:1" and store.get("moved north") is None
    store.close()


def test_a_process_without_a_model_moves_nothing_and_ends_no_gateway(tmp_path):
    store = SteadyStore(tmp_path / "state.sqlite")
    front = gateway(store, "http://127.0.0.1:1")
    following = Following(front, store, {"dense-0": ("http://127.0.0.1:1", "dense")})
    store.add(Process("dense-0", "worker", 2, {}))
    following.step()
    assert front.upstreams[0].client.url == "http://127.0.0.1:1"
    store.add(Process("dense-0", "worker", 3, {"model": "other"}))  # it goes on following
    following.step()
    assert front.upstreams[0].client.url == "http://127.0.0.1:3" and front.upstreams[0].model == "other"
    store.close()


@pytest.mark.parametrize("url", ["http://a..b:1", f"http://{'a' * 70}:1"])
def test_a_machine_that_cannot_be_is_a_worker_that_is_down(tmp_path, url):
    store = Store(tmp_path / "state.sqlite")

    async def go():
        front = gateway(store, "http://127.0.0.1:1")
        answer = await move(front, "dense-0", url=url, model="m")
        watching = asyncio.create_task(front.watch())
        await becomes(lambda: not (front.upstreams[0].up and (not watching.done())))
        assert answer.status == 200 and not watching.done()
        watching.cancel()

    asyncio.run(asyncio.wait_for(go(), 30))
    store.close()


def test_a_server_without_reservations_may_be_followed_by_one_with_them(tmp_path):
    store = Store(tmp_path / "state.sqlite")

    async def go():
        model, book = OnnxModel("dense", dense_file(tmp_path)), Reservations(100.0)
        workers = [LiveWorker(model), LiveWorker(model, reservations=book)]
        servers = [await http.serve(worker.handle, at_once=True) for worker in workers]
        front = gateway(store, servers[0].url)
        needs = {"task": "score", "rate_qps": 5, "size_bytes": 100, "deadline_s": 5}
        asked = http.HttpRequest("POST", "/v1/streams", {}, json.dumps(needs).encode())
        assert (await front.handle(asked)).status == 201
        await move(front, "dense-0", url=servers[1].url, model="dense")
        await front.granting.renew()
        assert book.total_qps > 0.0
        for server in servers:
            await server.close(0.1)

    asyncio.run(asyncio.wait_for(go(), 30))
    store.close()


@pytest.mark.parametrize("status", [200, 409])
@pytest.mark.parametrize(
    "said", ["[]", "1", '{"refused": [[]], "others_qps": 0}', '{"others_qps": "x"}', '{"others_qps": NaN}',
             '{"refused": 7, "others_qps": 0}', '{"refused": ["x"], "others_qps": 0}', "{}"],
)  # fmt: skip
def test_a_server_that_says_anything_to_any_path_is_one_without_reservations(tmp_path, status, said):
    store = Store(tmp_path / "state.sqlite")

    async def say(request):
        return http.Response(status, said.encode())

    async def go():
        server = await http.serve(say, at_once=True)
        front = gateway(store, server.url)
        needs = {"task": "score", "rate_qps": 5, "size_bytes": 100, "deadline_s": 5}
        asked = http.HttpRequest("POST", "/v1/streams", {}, json.dumps(needs).encode())
        assert (await front.handle(asked)).status == 201
        await front.granting.renew()
        front.session.core.validate()
        await server.close(0.1)

    asyncio.run(asyncio.wait_for(go(), 30))
    store.close()


@pytest.mark.parametrize("by_headers", [False, True])
def test_a_stream_that_is_closed_while_its_worker_is_asked_is_not_there(tmp_path, by_headers):
    store = Store(tmp_path / "state.sqlite")
    needs = {"task": "score", "rate_qps": 5, "size_bytes": 100, "deadline_s": 5}
    headers = {"edgewise-rate-qps": "5", "edgewise-deadline-s": "5"}

    async def go():
        asked, granted = asyncio.Event(), Later()

        async def grant(request):
            if request.method == "PUT":
                asked.set()
                await granted
            return http.as_json({"others_qps": 0.0})

        behind = await http.serve(grant, at_once=True)
        front = await http.serve(gateway(store, behind.url).handle, at_once=True)
        client = http.Client(front.host, front.port)
        opening = client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
        if by_headers:
            opening.close()
            opening = client.request("POST", "/v2/models/score/infer", headers, b"{}")
        opening = asyncio.create_task(opening)
        await asked.wait()
        (row,) = json.loads((await client.request("GET", "/v1/streams")).body)
        assert (await client.request("DELETE", f"/v1/streams/{row['stream']}")).status == 200
        granted.set_result(None)
        answer = await opening
        assert answer.status == 404 and b"no open stream" in answer.body
        client.close()
        for server in (front, behind):
            await server.close(0.1)

    asyncio.run(asyncio.wait_for(go(), 30))
    store.close()


@pytest.mark.parametrize("said", ["inf", "nan", "-1", "soon", "1e9"])
def test_a_time_at_a_worker_that_cannot_be_counts_as_none(said):
    assert took_s(http.Response(200, b"", {"edgewise-worker-s": said})) == 0.0
