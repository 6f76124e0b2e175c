"""Policies that choose policies, set on a gateway under traffic: they decide from its measurements."""

import asyncio
import json
import time

import numpy as np
import pytest
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.policies.dispatch.meta import ALL
from edgewise.runtime import http
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes, pace

pytestmark = pytest.mark.live
NEEDS = {"task": "score", "rate_qps": 50, "size_bytes": 256, "deadline_s": 5.0}


class Client:
    """Opens streams and sends their queries, a few at a time, until it is told to stop."""

    def __init__(self, client):
        self.client, self.answered, self.stopped = client, 0, False

    async def ask(self, method, path, body):
        answer = await self.client.request(method, path, body=json.dumps(body).encode())
        assert answer.status in (200, 201, 202), answer.body
        return json.loads(answer.body)

    async def switch(self, name):
        number = (await self.ask("PUT", "/v1/admin/policies/dispatch", {"policy": name}))["id"]

        async def over():
            found = await self.ask("GET", f"/v1/admin/operations/{number}", {})
            return found if found["state"] in ("done", "failed") else None

        found = await becomes(over)
        assert found["state"] == "done", found

    async def play(self):
        while not self.stopped:
            opened = await self.ask("POST", "/v1/streams", NEEDS)
            headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
            headers["edgewise-stream"] = str(opened["stream"])
            for _ in range(3):
                answer = await self.client.request("POST", "/v2/models/score/infer", headers, body)
                assert answer.status == 200
                self.answered += 1
                await pace(1 / NEEDS["rate_qps"])
            if opened["stream"] % 2 or opened["stream"] > 20:  # compiling takes a while; capacity is bounded
                await self.ask("DELETE", f"/v1/streams/{opened['stream']}", {})


async def under_traffic(file, name):
    """Serve with closest, switch to the policy under traffic, and wait for two of its windows."""
    behind = await http.serve(LiveWorker(OnnxModel("dense", file)).handle)
    began = time.monotonic()
    world = dense_world(2, capacity_qps=1000.0)
    session = Session(
        world,
        policies.load("dispatch", "closest"),
        0,
        lambda: time.monotonic() - began,
        StreamRules(window_s=0.3),
    )
    upstreams = [http.Client(behind.host, behind.port) for _ in range(2)]
    gateway = Gateway(session, upstreams, ["dense", "dense"])
    front = await http.serve(with_admin(gateway))
    clients = [Client(http.Client(front.host, front.port)) for _ in range(2)]
    keeping = asyncio.create_task(gateway.keep_time(0.1))
    playing = asyncio.create_task(clients[0].play())
    await becomes(lambda: clients[0].answered > 3)
    await clients[1].switch(name)
    assert session.core.policy.name == name
    window, answered, active = session.clock() // session.rules.window_s, clients[0].answered, set()

    def over():
        active.add(session.core.policy.current.name)
        return session.clock() // session.rules.window_s > window + 3 and clients[0].answered > answered + 10

    await becomes(over)
    clients[0].stopped = True
    await playing
    keeping.cancel()
    for client in (*upstreams, *(c.client for c in clients)):
        client.close()
    await front.close()
    await behind.close()
    session.core.validate()
    return session, active


@pytest.mark.parametrize("name", ["lookahead", "chooser", "bandit"])
def test_a_meta_policy_takes_over_under_traffic(name, tmp_path):
    session, active = asyncio.run(under_traffic(dense_file(tmp_path), name))
    assert session.core.faults == {}
    assert active and active <= set(ALL)
    rows = session.stream_records()
    assert sum(row["rejected"] for row in rows) == 0 and sum(row["ok"] for row in rows) > 10
    if name == "lookahead":  # it knows what the gateway measured and bound
        assert sum(session.core.policy.habits.watched_s.values()) > 0
