"""The HTTP client's connections: which are used again, which are not, and what is left of them."""

import asyncio
import gc
import socket
import time
from contextlib import ExitStack, contextmanager

import pytest
from connections import LOOPS

from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.gateway.forwarding import LiveQuery, Upstream, forward
from edgewise.runtime.http.client import GivenUp, _Call
from edgewise.runtime.http.messages import Later
from edgewise.runtime.watch.tracing import Tracing
from waiting import becomes

pytestmark = pytest.mark.live


def on_each_loop(go):
    for new_loop in LOOPS:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(go(), 30))


async def answering(answer):
    """A server that calls `answer(number of the request, writer)`; returns it, a client, and the requests."""
    seen = []

    async def serve(reader, writer):
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            seen.append(line.split()[0].decode())
            answer(len(seen), writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, http.Client(*server.sockets[0].getsockname()), seen


def calls():
    gc.collect()
    return sum(type(each) is _Call for each in gc.get_objects())


def test_who_gives_up_takes_the_query_back_and_leaves_nothing_behind():
    async def go():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait(request):
            begun.set()
            try:
                await Later()
            except asyncio.CancelledError:
                ended.set()
                raise

        before = calls()
        server = await http.serve(wait, at_once=True)
        client = http.Client(server.host, server.port)
        asking = asyncio.create_task(client.request("GET", "/", timeout_s=600))
        await begun.wait()
        asking.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.close()
        del asking
        assert calls() == before

    on_each_loop(go)


def test_the_rest_of_a_second_answer_is_not_read_as_the_next_request_s():
    async def go():
        def answer(number, writer):
            loop, head = asyncio.get_running_loop(), b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
            pause_s = 0.1 * (number - 1)
            loop.call_later(pause_s, writer.write, head % 1 + b"%d" % number + head % 9 + b"begi")
            loop.call_later(pause_s + 0.02, writer.write, b"nning")

        server, client, _ = await answering(answer)
        assert [(await client.request("GET", "/")).body for _ in range(3)] == [b"1", b"2", b"3"]
        client.close()
        server.close()

    on_each_loop(go)


def test_opening_a_stream_is_sent_once_also_where_a_kept_connection_is_lost():
    async def go():
        def answer(number, writer):
            if number == 1:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1")
            else:
                writer.close()

        server, client, seen = await answering(answer)
        await client.request("GET", "/")
        with pytest.raises(ConnectionError):
            await ask(client, "POST", "/v1/streams", patience_s=1.0)
        assert seen == ["GET", "POST"]
        client.close()
        server.close()

    on_each_loop(go)


def test_a_client_that_was_closed_keeps_no_connection():
    async def go():
        answer = Later()

        async def wait(request):
            return await answer

        server = await http.serve(wait, at_once=True)
        client = http.Client(server.host, server.port)
        asking = asyncio.create_task(client.request("GET", "/"))
        await becomes(lambda: server.connections)
        client.close()
        answer.set_result(http.Response(200, b"x"))
        assert (await asking).body == b"x"
        await becomes(lambda: not (server.connections))
        await server.close()

    on_each_loop(go)


@contextmanager
def full_listener():
    """An address where the next one that connects gets no answer."""
    with socket.socket() as listening, ExitStack() as full:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(2):  # nobody accepts
            waits = full.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(listening.getsockname())
        yield listening.getsockname()


def test_a_query_without_the_time_to_connect_says_nothing_of_its_worker():
    """It did: a gateway that was held up for a moment gave up every worker that late queries went to."""

    async def go():
        with full_listener() as address:
            client = http.Client(*address)
            with pytest.raises(TimeoutError):
                await client.request("GET", "/", timeout_s=0.05)
            query = LiveQuery(1, b"", {}, time.monotonic() + 0.05, 0.0, 0.0)
            answer, lost = await forward(Upstream(client, "score"), "worker", query, Tracing())
            assert (answer.status, lost) == (504, False)
            asking = asyncio.create_task(client.request("GET", "/", timeout_s=60))
            while not client.connecting:
                await asyncio.sleep(0)
            client.abort()
            with pytest.raises(GivenUp):
                await asking

    on_each_loop(go)


def test_a_server_may_be_given_up_in_the_moment_when_a_time_out_strikes():
    """It ended the gateway: a time-out that has struck cannot be moved."""

    async def go():
        with full_listener() as address:
            client = http.Client(*address)
            asking = asyncio.create_task(client.request("GET", "/", timeout_s=0.02))
            while not any(limit.expired() for limit in client.connecting):
                assert not asking.done()
                await asyncio.sleep(0)
            client.abort()
            with pytest.raises(GivenUp):
                await asking

    on_each_loop(go)
