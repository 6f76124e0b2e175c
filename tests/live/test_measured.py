"""What a worker measures is its own sojourn and queue, the same for every gateway: as in simulation."""

import asyncio
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.core.sojourns import Sojourns
from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import Upstream, Ways
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel

pytestmark = pytest.mark.live
WAY_S = 0.04
QUERIES = 5


async def ask(client):
    headers, body = encode_request(InferRequest({"x": np.zeros((1, 8), np.float32)}))
    headers |= {"edgewise-rate-qps": "10", "edgewise-size-bytes": "256", "edgewise-deadline-s": "5"}
    answer = await client.request("POST", "/v2/models/score/infer", headers, body)
    assert answer.status == 200


def silent(worker, body=None):
    """A server like the worker but for what it says of its counts."""

    async def handle(request):
        if request.parts == ["v1", "telemetry"]:
            return http.failure(404, "no such path") if body is None else http.as_json(body)
        return await worker.handle(request)

    return handle


async def measured(file, serve=lambda worker: worker.handle):
    """Views of two gateways after a period in which the first alone has sent queries, over emulated ways."""
    world = dense_world(1)
    world = replace(world, delay_s=np.full_like(world.delay_s, WAY_S))
    worker, began_s = LiveWorker(OnnxModel("dense", file)), time.monotonic()
    behind = await http.serve(serve(worker), at_once=True)
    gateways = []
    for _ in range(2):
        policy = policies.load("dispatch", "least-impedance")
        session = Session(world, policy, 0, lambda: time.monotonic() - began_s)
        clients = [http.Client(behind.host, behind.port)]
        gateways.append(Gateway(session, clients, ["dense"], ways=Ways(world)))
    front = await http.serve(gateways[0].handle, at_once=True)
    client = http.Client(front.host, front.port)
    try:
        for _ in range(QUERIES):
            await ask(client)
        for gateway in gateways:
            gateway.session.sample(await asyncio.gather(*(each.counts(5.0) for each in gateway.upstreams)))
        return [gateway.session.core.view() for gateway in gateways]
    finally:
        client.close()
        await front.close()
        for gateway in gateways:
            gateway.upstreams[0].client.close()
        await behind.close()


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    return dense_file(tmp_path_factory.mktemp("models"))


def test_a_sojourn_is_without_the_way_and_every_gateway_hears_of_all_queries(onnx_file):
    here, there = asyncio.run(measured(onnx_file))
    for view in (here, there):
        assert 0.0 < view.delay_mean_s[0] < WAY_S and 0.0 < view.delay_p95_s[0] < WAY_S
        assert view.throughput_qps[0] > 0.0 and view.queue[0] == 0.0
    assert here.delay_mean_s[0] == there.delay_mean_s[0] and here.delay_p95_s[0] == there.delay_p95_s[0]


@pytest.mark.parametrize(
    "body", [None, {"queue": 1}, {"queue": 0, "answered": 1, "sum_s": 1, "bins": [1]}, []]
)
def test_of_a_server_that_does_not_say_what_was_seen_from_here_counts(onnx_file, body):
    here, there = asyncio.run(measured(onnx_file, lambda worker: silent(worker, body)))
    assert 0.0 < here.delay_mean_s[0] < WAY_S and here.throughput_qps[0] > 0.0
    assert there.throughput_qps[0] == there.delay_mean_s[0] == 0.0


def test_counts_are_taken_since_the_last_reading_and_anew_after_a_restart():
    session = Session(dense_world(1), policies.load("dispatch", "closest"), 0, time.monotonic)
    counts = Sojourns.none()

    def mean_s(*sojourns_s, queue=0):
        for sojourn_s in sojourns_s:
            counts.note(sojourn_s)
        counts.queue = queue
        session.sample([counts.copy()])
        view = session.core.view()
        assert view.queue[0] == queue
        return view.delay_mean_s[0]

    assert mean_s(0.1, 0.3, queue=2) == pytest.approx(0.2)
    assert mean_s(0.5) == pytest.approx(0.5)
    assert mean_s() == 0.0
    counts = Sojourns.none()
    assert mean_s(0.7, queue=1) == pytest.approx(0.7)


def test_what_another_server_says_at_that_path_is_not_asked_for_again(onnx_file):
    async def run():
        asked = []

        async def handle(request):
            asked.append(request.path)
            return http.Response(200, json.dumps("hello").encode(), {})

        server = await http.serve(handle, at_once=True)
        target = Upstream(http.Client(server.host, server.port), "dense")
        assert [await target.counts(5.0) for _ in range(2)] == [None, None] and asked == ["/v1/telemetry"]
        target.client.close()
        await server.close()

    asyncio.run(run())
