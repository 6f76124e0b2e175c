"""Answers that resume a connection from inside the worker's queue, where its next query is queued at once."""

import asyncio
import random

import pytest
from connections import LOOPS, answers, reset
from recorded_runs import Recorder, Where, item

from edgewise.runtime import http
from edgewise.runtime.protocol.messages import PRIORITY, REMAINING, priority, remaining_s
from edgewise.runtime.watch.metrics import WorkerMetrics
from edgewise.runtime.worker.batching import Batcher
from waiting import becomes, pace

pytestmark = pytest.mark.live


def get(number, **headers):
    named = {"priority": PRIORITY, "left": REMAINING}
    lines = [f"{named[name]}: {value}\r\n" for name, value in headers.items()]
    return f"GET /{number} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


def with_queue(scenario, run, **options):
    """A server whose requests wait in a queue; clients that send several at once."""

    async def go():
        batcher = Batcher(run, WorkerMetrics("m"), **options)

        async def handle(request):
            number, until_s = int(request.path[1:]), request.received_s + remaining_s(request.headers)
            asked = item(number, n=1 + 3 * (number % 2))  # odd ones fill a batch
            found = await batcher.submit(asked, until_s, priority(request.headers))
            return http.Response(200, found.id.encode())

        server = await http.serve(handle, at_once=True)

        async def connect(*requests):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"".join(requests))
            return reader, writer

        try:
            await asyncio.wait_for(scenario(batcher, connect), 30)
            assert batcher.queued == 0
        finally:
            await server.close(0.1)

    for new_loop in LOOPS:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(go())


async def read(connection):
    """Every answer, once the connection is told to end."""
    reader, writer = connection
    writer.write_eof()
    found = answers(await reader.read())
    writer.close()
    return [(status, body) for status, _, body in found]


def test_the_next_query_of_a_displaced_one_does_not_overfill_the_queue():
    run = Recorder(held=True)

    async def scenario(batcher, connect):
        run.go.clear()
        run.batches.clear()
        first = await connect(get(0))
        await run.begun()
        low = await connect(get(1), get(2))
        await becomes(lambda: batcher.queued == 2)
        high = await connect(get(3, priority=5))
        await asyncio.wait_for(low[0].readuntil(b'took the place"}'), 20)
        assert batcher.queued == 2
        run.go.set()
        assert await read(high) == [(200, b"3")] and await read(first) == [(200, b"0")]
        assert [status for status, _ in await read(low)] == [429]

    with_queue(scenario, run, max_queue=2)


def test_the_next_query_of_an_expired_one_does_not_begin_beside_a_batch():
    run = Recorder(held=True)

    async def scenario(batcher, connect):
        run.go.clear()
        run.batches.clear()
        long = await connect(get(2))
        await becomes(lambda: batcher.queued == 1)
        late = await connect(get(0, left=0), get(1))
        await run.begun()
        _, hangs_up = await connect(get(4))  # comes later, and has gone before anything else begins
        await becomes(lambda: batcher.queued == 3)
        reset(hangs_up)
        await becomes(lambda: batcher.queued == 2)  # the other one fills a batch of its own, and is due
        assert run.batches == [[2]]
        run.go.set()
        assert [status for status, _ in await read(late)] == [504, 200]
        assert await read(long) == [(200, b"2")]
        assert run.batches == [[2], [1]]

    with_queue(scenario, run, max_batch=4, batch_timeout_s=60.0)


@pytest.mark.parametrize("takes_s", [0.0, 0.0005])
@pytest.mark.parametrize("batch_timeout_s", [0.0, 0.002])
def test_whoever_asks_in_any_order_gets_the_own_answers(takes_s, batch_timeout_s):
    async def scenario(batcher, connect):
        draw = random.Random(3)

        async def client(k):
            numbers = [100 * k + i for i in range(draw.randint(1, 12))]
            left = {number: draw.choice([0.0005, 10.0]) for number in numbers}
            hangs_up, pause_s = draw.random() < 0.3, draw.random() * 0.004
            connection = await connect(*(get(n, left=left[n], priority=draw.randint(0, 2)) for n in numbers))
            await pace(pause_s)
            if hangs_up:
                return reset(connection[1])
            found = await read(connection)
            assert len(found) == len(numbers)
            for number, (status, body) in zip(numbers, found, strict=True):
                assert status in (200, 429, 504) and (status != 200 or int(body) == number)
                assert status != 504 or left[number] < 10.0

        await asyncio.gather(*(client(k) for k in range(60)))
        await becomes(lambda: batcher.queued == 0)

    with_queue(scenario, Where(takes_s), max_queue=16, max_batch=4, batch_timeout_s=batch_timeout_s)
