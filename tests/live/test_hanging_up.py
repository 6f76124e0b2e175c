"""Clients that hang up, at every point where their handler may wait, and what is left of their queries."""

import asyncio
import json
import threading
from itertools import count

import numpy as np
import pytest
from connections import LOOPS, reset
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.runtime import http
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.http.messages import Later
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes

pytestmark = pytest.mark.live
GET = b"GET / HTTP/1.1\r\n\r\n"


def on_each_loop(go):
    for new_loop in LOOPS:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(go(), 30))


@pytest.mark.parametrize("first", ["lost", "answered"])
def test_a_connection_lost_in_the_turn_in_which_its_handler_goes_on_ends_the_handler(first):
    async def go():
        begun, ended, answer = asyncio.Event(), asyncio.Event(), Later()

        async def wait(request):
            begun.set()
            try:
                await answer
                await (
                    asyncio.Event().wait()
                )  # what a task does, which has not begun when the connection is lost
            except asyncio.CancelledError:
                ended.set()
                raise

        server = await http.serve(wait, at_once=True)
        _, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(GET)
        await begun.wait()
        (connection,) = server.connections
        acts = [connection.transport.abort, lambda: answer.set_result(None)]
        for act in acts if first == "lost" else reversed(acts):
            act()
        await ended.wait()
        writer.close()
        await server.close()

    on_each_loop(go)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", [Later, asyncio.Future])
def test_a_handler_whose_wait_is_given_up_leaves_no_client_waiting(at_once, kind):
    async def go():
        waits = []

        async def wait(request):
            waits.append(kind())
            await waits[-1]

        server = await http.serve(wait, at_once=at_once)
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(GET)
        await becomes(lambda: waits)
        await asyncio.sleep(0)
        waits[0].cancel()
        assert await reader.read() == b""
        assert not server.connections
        writer.close()
        await server.close()

    on_each_loop(go)


def test_a_query_leaves_the_workers_queue_when_its_client_leaves_the_gateway(tmp_path):
    file = dense_file(tmp_path)

    async def go():
        model, run_on = OnnxModel("dense", file), threading.Event()
        run = model.run_batch
        model.run_batch = lambda requests: (run_on.wait(20), run(requests))[1]
        model.clock = count().__next__  # no run is a quick one
        worker = LiveWorker(model)
        behind = await http.serve(worker.handle, at_once=True)
        loop = asyncio.get_running_loop()
        session = Session(dense_world(1), policies.load("dispatch", "least-impedance"), 0, loop.time)
        gateway = Gateway(session, [http.Client(behind.host, behind.port)], ["dense"])
        front = await http.serve(gateway.handle, at_once=True)
        client = http.Client(front.host, front.port)
        needs = {"task": "score", "rate_qps": 1, "size_bytes": 100, "deadline_s": 20}
        opened = await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
        stream = json.loads(opened.body)["stream"]
        headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        headers["edgewise-stream"] = str(stream)
        length = {"content-length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | length).items())
        query = f"POST /v2/models/score/infer HTTP/1.1\r\n{lines}\r\n".encode() + body
        for kept in (False, True):  # a new connection to the worker is waited for in a task, a kept one not
            run_on.clear()
            writers = []
            for n in range(1, 4):
                writers.append((await asyncio.open_connection(front.host, front.port))[1])
                writers[-1].write(query)
                await becomes(lambda n=n: worker.queued == n)
            for writer in writers:
                reset(writer)
            await becomes(lambda: worker.queued == 1)  # one runs and cannot be stopped
            await becomes(lambda: gateway.in_flight == 0)
            assert session.in_flight.sum() == 0 and session.stream_record(stream)["failed"] == 3 * (kept + 1)
            run_on.set()
            await becomes(lambda: worker.queued == 0)
            path = "/v2/models/score/infer"
            found = await asyncio.gather(*(client.request("POST", path, headers, body) for _ in range(4)))
            assert [answer.status for answer in found] == [200] * 4
            await becomes(lambda: max(len(server.connections) for server in (front, behind)) <= 4)
        client.close()
        gateway.clients[0].close()
        await front.close()
        await behind.close()

    on_each_loop(go)
