"""A worker process that is stopped (SIGSTOP): nobody waits for it longer than the deadline allows."""

import asyncio
import os
import signal
import time
from contextlib import contextmanager

import numpy as np
import pytest
from running_system import infer, open_stream, small_scenario, started

from edgewise.runtime import http
from edgewise.runtime.http.client import GivenUp
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from waiting import becomes, pace

pytestmark = pytest.mark.live
NOTICED_S = 2.25  # two health checks of 1 s without an answer, one of them just sent
SLACK_S = 1.0  # for a machine that does other things at the same time
WAY_S = 0.005


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    with started(tmp_path_factory.mktemp("stopped"), small_scenario(workers=2)) as made:
        yield made


@contextmanager
def stopped(system, worker):
    """A worker's process, stopped; it goes on in the end."""
    number = system.pid(worker)
    os.kill(number, signal.SIGSTOP)
    yield
    os.kill(number, signal.SIGCONT)


async def timed(asking):
    began_s = time.monotonic()
    answer = await asking
    return answer, time.monotonic() - began_s


def test_queries_under_way_go_elsewhere_and_nobody_waits_beyond_the_deadline(system):
    async def run():
        client = system.gateway()
        (_, patient), (_, hasty) = [await open_stream(client, deadline_s=d, rate_qps=40) for d in (30.0, 0.3)]
        assert patient["worker"] == hasty["worker"]
        with stopped(system, patient["worker"]):
            asked = [timed(infer(client, opened["stream"])) for opened in [patient] * 5 + [hasty] * 5]
            found = await asyncio.gather(*asked)
            for answer, took_s in found[:5]:
                assert answer.status == 200 and answer.headers["edgewise-worker"] != patient["worker"]
                assert took_s < NOTICED_S + SLACK_S
            for answer, took_s in found[5:]:
                assert answer.status == 504 and 0.3 <= took_s < 0.3 + WAY_S + SLACK_S
            for opened in (patient, hasty):  # now that it is noticed
                answer, took_s = await timed(infer(client, opened["stream"]))
                assert answer.status == 200 and took_s < 0.3
        await system.reaches_all(system.of("gateway-0").process)
        client.close()

    asyncio.run(run())


def test_a_query_that_opens_its_stream_does_not_wait_for_a_stopped_worker_to_confirm_it(system):
    async def run():
        client = system.gateway()
        _, opened = await open_stream(client)  # where the next one goes, too
        more, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
        needs = {"edgewise-rate-qps": "1", "edgewise-deadline-s": "0.3", "edgewise-application": "late"}
        with stopped(system, opened["worker"]):
            answer, took_s = await timed(client.request("POST", "/v2/models/score/infer", more | needs, body))
            assert answer.status == 504 and took_s < 0.3 + WAY_S + SLACK_S
        await system.reaches_all(system.of("gateway-0").process)
        client.close()

    asyncio.run(run())


def test_a_client_that_gives_its_server_up_ends_what_is_under_way_and_goes_on_later():
    async def run():
        ended = []

        async def say_nothing(request):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(request.path)

        server = await http.serve(say_nothing)
        client = http.Client(server.host, server.port)
        asked = [asyncio.create_task(client.request("GET", "/", timeout_s=60)) for _ in range(3)]
        await becomes(lambda: len(client.busy) >= 3)
        client.abort()
        for task in asked:
            with pytest.raises(GivenUp):
                await task
        with pytest.raises(TimeoutError):
            await client.request("GET", "/again", timeout_s=0.05)
        await becomes(lambda: len(ended) >= 4)  # the server heard that nobody waits
        client.close()
        await server.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_time_limit_of_a_request_is_for_all_of_its_attempts():
    async def run():
        served = 0

        async def serve(reader, writer):
            nonlocal served
            served += 1
            if served == 1:  # one answer, then a connection that was kept for too long
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                await pace(0.3)
            else:
                await asyncio.Event().wait()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = http.Client(*server.sockets[0].getsockname())
        assert (await client.request("GET", "/")).status == 200
        began_s = time.monotonic()
        with pytest.raises(TimeoutError):
            await client.request("GET", "/", timeout_s=0.5)
        assert served == 2 and 0.5 <= time.monotonic() - began_s < 0.79  # not 0.3 and 0.5
        client.close()
        server.close()

    asyncio.run(asyncio.wait_for(run(), 20))
