"""The worker's queue: batches, time-outs, priorities, deadlines, drain. A real network answers."""

import asyncio
import json
import time

import numpy as np
import pytest
from live_system import dense_file
from recorded_runs import Recorder, Where, item

from edgewise.errors import ProtocolError
from edgewise.model.topology import Profile
from edgewise.runtime import http
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from edgewise.runtime.watch.metrics import WorkerMetrics
from edgewise.runtime.worker import batching
from edgewise.runtime.worker.batching import Batcher, Line
from edgewise.runtime.worker.onnx_model import SlowModel
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes

pytestmark = pytest.mark.live
FOREVER = float("inf")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return OnnxModel("dense", dense_file(tmp_path_factory.mktemp("models")))


def query(x, headers=None, **options):
    more, body = encode_request(InferRequest({"x": np.asarray(x, np.float32)}, **options))
    return http.HttpRequest("POST", "/v2/models/dense/infer", more | (headers or {}), body)


def rows(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 8)).astype(np.float32)


def test_batched_answers_equal_single_ones_and_go_to_their_askers(model):
    async def go():
        worker = LiveWorker(model, max_batch=8, batch_timeout_s=0.02)
        asked = [rows(1 + i % 3, i) for i in range(9)]
        answers = await asyncio.gather(*(worker.handle(query(x)) for x in asked))
        for x, answer in zip(asked, answers, strict=True):
            y = decode_response(answer.headers, answer.body).outputs["y"]
            expected = model.run(InferRequest({"x": x})).outputs["y"]
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        page = (await worker.handle(http.HttpRequest("GET", "/metrics", {}, b""))).body.decode()
        assert 'edgewise_worker_queries_total{model="dense",status="200"} 9.0' in page
        batches = float(page.split('edgewise_worker_batch_queries_count{model="dense"} ')[1].split()[0])
        assert batches < 9
        await worker.drain()

    asyncio.run(go())


def test_queue_is_first_come_first_served_and_batches_do_not_overtake():
    async def go():
        run = Recorder()
        batcher = Batcher(run, WorkerMetrics("m"), max_batch=4, max_queue=99)
        wide = {3, 4}
        await asyncio.gather(
            *(batcher.submit(item(i, width=9 if i in wide else 8), FOREVER) for i in range(10))
        )
        assert run.batches == [[0, 1, 2], [3, 4], [5, 6, 7, 8], [9]]

    asyncio.run(go())


def test_a_batch_counts_rows_and_a_large_query_runs_alone():
    async def go():
        run = Recorder()
        batcher = Batcher(run, WorkerMetrics("m"), max_batch=4)
        await asyncio.gather(*(batcher.submit(item(i, n), FOREVER) for i, n in enumerate([3, 1, 2, 9, 4])))
        assert run.batches == [[0, 1], [2], [3], [4]]

    asyncio.run(go())


def test_batch_time_out_bounds_the_wait_and_a_full_batch_does_not_wait():
    async def go():
        run = Recorder()
        batcher = Batcher(run, WorkerMetrics("m"), max_batch=4, batch_timeout_s=0.2)
        started = time.monotonic()
        first = asyncio.create_task(batcher.submit(item(0), FOREVER))
        await asyncio.sleep(0)
        await asyncio.gather(first, batcher.submit(item(1), FOREVER))
        assert run.batches == [[0, 1]] and time.monotonic() - started >= 0.2
        patient = Batcher(run, WorkerMetrics("m"), max_batch=2, batch_timeout_s=60)
        await asyncio.wait_for(asyncio.gather(*(patient.submit(item(i), FOREVER) for i in range(2, 4))), 20)
        assert run.batches[-1] == [2, 3]

    asyncio.run(go())


def test_a_query_does_not_spend_its_whole_time_waiting_for_others():
    async def go():
        run = Recorder()
        batcher = Batcher(run, WorkerMetrics("m"), max_batch=4, batch_timeout_s=60)
        patient = asyncio.create_task(batcher.submit(item(0), FOREVER))
        await asyncio.sleep(0)
        urgent = batcher.submit(item(1), time.monotonic() + 2.0)
        answers = await asyncio.wait_for(asyncio.gather(patient, urgent), 20)
        assert [answer.id for answer in answers] == ["0", "1"] and run.batches == [[0, 1]]

    asyncio.run(go())


def test_higher_priority_goes_first_and_takes_the_last_place():
    async def go():
        run = Recorder(held=True)
        batcher = Batcher(run, WorkerMetrics("m"), max_queue=4)
        low = [asyncio.create_task(batcher.submit(item(i), FOREVER)) for i in range(4)]
        await run.begun()
        high = asyncio.create_task(batcher.submit(item(9), FOREVER, priority=5))
        await asyncio.sleep(0)
        with pytest.raises(ProtocolError, match="queue full") as caught:
            await batcher.submit(item(8), FOREVER)
        assert caught.value.status == 429
        run.go.set()
        done = await asyncio.gather(*low, high, return_exceptions=True)
        assert run.batches == [[0], [9], [1], [2]]
        assert isinstance(done[3], ProtocolError) and done[3].status == 429

    asyncio.run(go())


def test_within_a_priority_queries_go_in_the_order_asked_for():
    async def go():
        run = Recorder(held=True)
        batcher = Batcher(run, WorkerMetrics("m"))
        first = asyncio.create_task(batcher.submit(item(0), FOREVER))
        await run.begun()
        orders = {1: 900.0, 2: 300.0, 3: 600.0}
        rest = [
            asyncio.create_task(batcher.submit(item(i), FOREVER, 0, order)) for i, order in orders.items()
        ]
        rest.append(asyncio.create_task(batcher.submit(item(4), FOREVER, 1, 1000.0)))
        await asyncio.sleep(0)
        run.go.set()
        await asyncio.gather(first, *rest)
        assert run.batches == [[0], [4], [2], [3], [1]]

    asyncio.run(go())


def test_batchers_of_one_line_run_one_batch_at_a_time_in_one_order():
    """One waits for a batch to fill: the other does not wait for it."""

    async def go():
        run, line = Recorder(held=True), Line()
        one, other = (Batcher(run, WorkerMetrics(name), line=line) for name in "ab")
        slow = Batcher(run, WorkerMetrics("c"), max_batch=4, batch_timeout_s=60.0, line=line)
        waiting = asyncio.create_task(slow.submit(item(9), FOREVER, 0, -1.0))
        first = asyncio.create_task(one.submit(item(0), FOREVER))
        await run.begun()
        asked = [(one, 1, 3.0), (other, 2, 2.0), (one, 3, 1.0), (other, 4, 3.0)]
        rest = [asyncio.create_task(b.submit(item(i), FOREVER, 0, order)) for b, i, order in asked]
        await asyncio.sleep(0)
        assert (one.queued, other.queued, slow.queued, line.queued) == (3, 2, 1, 6)
        run.go.set()
        await asyncio.gather(first, *rest)
        assert run.batches == [[0], [3], [2], [1], [4]]
        await asyncio.gather(*(each.drain() for each in (one, other, slow)), waiting)
        assert run.batches[-1] == [9]

    asyncio.run(go())


def test_expired_and_abandoned_queries_are_not_run():
    async def go():
        run = Recorder(held=True)
        batcher = Batcher(run, WorkerMetrics("m"))
        first = asyncio.create_task(batcher.submit(item(0), FOREVER))
        late_s = time.monotonic() + 0.001
        late = asyncio.create_task(batcher.submit(item(1), late_s))
        left = asyncio.create_task(batcher.submit(item(2), FOREVER))
        last = asyncio.create_task(batcher.submit(item(3), FOREVER))
        await run.begun()
        await becomes(lambda: time.monotonic() > late_s)  # the second one's time is over
        left.cancel()
        await asyncio.sleep(0)
        run.go.set()
        results = await asyncio.gather(first, late, left, last, return_exceptions=True)
        assert run.batches == [[0], [3]]
        assert isinstance(results[1], ProtocolError) and results[1].status == 504

    asyncio.run(go())


def test_a_failing_run_fails_its_queries_and_not_the_worker():
    async def go():
        def broken(requests):
            raise MemoryError("no room")

        batcher = Batcher(broken, WorkerMetrics("m"))
        with pytest.raises(MemoryError):
            await batcher.submit(item(0), FOREVER)
        assert batcher.queued == 0

    asyncio.run(go())


def test_drain_finishes_what_was_accepted_without_waiting_for_batches():
    async def go():
        run = Recorder()
        batcher = Batcher(run, WorkerMetrics("m"), max_batch=64, batch_timeout_s=60)
        accepted = [asyncio.create_task(batcher.submit(item(i), FOREVER)) for i in range(3)]
        await becomes(lambda: batcher.queued == 3)
        await asyncio.wait_for(batcher.drain(), 20)
        assert [(await task).id for task in accepted] == ["0", "1", "2"]
        with pytest.raises(ProtocolError) as caught:
            await batcher.submit(item(4), FOREVER)
        assert caught.value.status == 503

    asyncio.run(go())


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"edgewise-remaining-s": "soon"}, 400, "edgewise-remaining-s"),
        ({"edgewise-remaining-s": "nan"}, 400, "edgewise-remaining-s"),
        ({"edgewise-priority": "1.5"}, 400, "edgewise-priority"),
        ({"edgewise-remaining-s": "0"}, 504, "deadline"),
    ],
)
def test_odd_headers_are_answered(model, headers, status, message):
    async def go():
        answer = await LiveWorker(model).handle(query(rows(1), headers))
        assert answer.status == status and message in json.loads(answer.body)["error"]

    asyncio.run(go())


def test_timeout_parameter_is_in_microseconds_as_elsewhere(model):
    async def go():
        worker = LiveWorker(model)
        asked = query(rows(1), parameters={"timeout": 1})
        asked.received_s -= 0.01
        assert (await worker.handle(asked)).status == 504
        assert (await worker.handle(query(rows(1), parameters={"timeout": 10_000_000}))).status == 200
        assert (await worker.handle(query(rows(1), parameters={"timeout": "x"}))).status == 400

    asyncio.run(go())


def test_versions_and_wrong_methods(model):
    async def go():
        worker = LiveWorker(model)

        async def status(method, path):
            return (await worker.handle(http.HttpRequest(method, path, {}, b""))).status

        assert await status("GET", "/v2/models/dense/versions/1") == 200
        assert await status("GET", "/v2/models/dense/versions/1/ready") == 200
        assert await status("GET", "/v2/models/dense/versions/2/ready") == 404
        assert await status("GET", "/v2/models/dense/infer") == 405
        assert await status("POST", "/v2/models/dense") == 405
        assert await status("DELETE", "/v2") == 405
        assert await status("GET", "/v2/models/%64ense") == 200

    asyncio.run(go())


def test_quick_runs_leave_the_thread_also_while_others_wait():
    async def go():
        run = Where()
        batcher = Batcher(run, WorkerMetrics("m"), max_queue=999, clock=lambda: 0.0)
        answers = await asyncio.gather(*(batcher.submit(item(i), FOREVER) for i in range(300)))
        assert [int(answer.id) for answer in answers] == list(range(300))
        assert not run.in_place[0] and any(run.in_place)
        large = len(run.in_place)
        await asyncio.gather(*(batcher.submit(item(i, 1000), FOREVER) for i in range(9)))
        assert not any(run.in_place[large:])

    asyncio.run(go())


def test_slow_runs_stay_in_the_thread():
    async def go():
        run = Where(takes_s=0.002)
        batcher = Batcher(run, WorkerMetrics("m"), max_queue=999)
        await asyncio.gather(*(batcher.submit(item(i), FOREVER) for i in range(80)))
        await batcher.submit(item(80), FOREVER)
        assert not any(run.in_place)

    asyncio.run(go())


def test_an_emulated_worker_stays_in_the_thread_though_sleeping_costs_no_cpu_time(tmp_path, monkeypatch):
    monkeypatch.setattr(batching, "QUICK_S", 6e-4)  # CPU time is less, also on a busy machine

    async def go():
        model = SlowModel("dense", dense_file(tmp_path), None, Profile(0.002))
        run, where = model.run_batch, Where()
        model.run_batch = lambda requests: (where(requests), run(requests))[1]
        worker = LiveWorker(model, max_queue=999)
        answers = await asyncio.gather(*(worker.handle(query(rows(1))) for _ in range(100)))
        assert {answer.status for answer in answers} == {200}
        assert not any(where.in_place)

    asyncio.run(go())
