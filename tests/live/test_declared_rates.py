"""Streams at a live gateway keep to what they declared: their rate, and the time they are open unused."""

import asyncio
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from connections import answers
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.runtime import http
from edgewise.runtime.gateway.gateway import Gateway, Patience
from edgewise.runtime.gateway.needs import Book, StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol import grpc_server
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.store import Store
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes, pace

pytestmark = pytest.mark.live
NEEDS = {"task": "score", "rate_qps": 10, "size_bytes": 256, "deadline_s": 5.0}
QUICK = Patience(idle_stream_s=60.0, health_period_s=0.02, health_timeout_s=10.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return OnnxModel("dense", dense_file(tmp_path_factory.mktemp("models")))


class System:
    """A worker, a gateway and a client in one event loop."""

    def __init__(self, model, session_options, options):
        self.model, self.session_options, self.options = model, session_options, options

    async def __aenter__(self):
        self.worker = await http.serve(LiveWorker(self.model).handle, at_once=True)
        began = time.monotonic()
        policy = policies.load("dispatch", "least-impedance")
        self.session = Session(
            dense_world(1),
            policy,
            0,
            lambda: time.monotonic() - began,
            StreamRules(**self.session_options),
        )
        clients = [http.Client(self.worker.host, self.worker.port)]
        self.gateway = Gateway(self.session, clients, ["dense"], **({"patience": QUICK} | self.options))
        self.front = await http.serve(self.gateway.handle, at_once=True)
        self.client = http.Client(self.front.host, self.front.port)
        self.keeping = asyncio.create_task(self.gateway.keep_time(0.02))
        return self

    async def __aexit__(self, *error):
        self.keeping.cancel()
        self.client.close()
        self.gateway.clients[0].close()
        for server in (self.front, self.worker):
            await server.close(0.1)
        self.session.core.validate()

    async def ask(self, method, path, body=None):
        answer = await self.client.request(
            method, path, body=b"" if body is None else json.dumps(body).encode()
        )
        return answer.status, json.loads(answer.body)

    async def open(self, **changes):
        return await self.ask("POST", "/v1/streams", NEEDS | changes)

    async def infer(self, stream=None, **headers):
        more, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        stated = {} if stream is None else {"edgewise-stream": str(stream)}
        return await self.client.request("POST", "/v2/models/score/infer", more | stated | headers, body)


def go(model, scenario, session_options=None, **options):
    async def run():
        async with System(model, session_options or {}, options) as system:
            await asyncio.wait_for(scenario(system), 60)

    asyncio.run(run())


async def until(condition):
    await becomes(lambda: condition())


def test_who_sends_26_times_what_it_declared_leaves_the_honest_stream_its_worker(model):
    async def scenario(system):
        (_, greedy), (_, honest) = await system.open(rate_qps=20), await system.open(rate_qps=20)
        over = asyncio.Event()

        async def flood():
            statuses = []
            while not over.is_set():
                statuses.append((await system.infer(greedy["stream"])).status)
            return statuses

        flooding = [asyncio.create_task(flood()) for _ in range(8)]
        began_s, mine = time.monotonic(), []
        for k in range(20):
            mine.append((await system.infer(honest["stream"])).status)
            await pace(max(began_s + (k + 1) / 20 - time.monotonic(), 0.0))
        took_s = time.monotonic() - began_s
        over.set()
        theirs = [status for task in flooding for status in await task]
        assert mine == [200] * 20
        assert set(theirs) == {200, 429} and len(theirs) > 10 * theirs.count(200)
        assert theirs.count(200) <= 20 + 1.1 * 20 * took_s + 1
        row = system.session.stream_record(greedy["stream"])
        assert (row["ok"], row["excess"]) == (theirs.count(200), theirs.count(429))
        assert row["queries"] == row["ok"] and system.session.stream_record(honest["stream"])["excess"] == 0
        page = (await system.client.request("GET", "/metrics")).body.decode()
        assert f'edgewise_queries_total{{outcome="excess",task="score"}} {float(theirs.count(429))}' in page

    go(model, scenario)


def test_429_says_over_a_raw_socket_when_the_next_query_may_come(model):
    async def scenario(system):
        _, opened = await system.open(rate_qps=0.5)
        headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        lines = [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join(
            ["POST /v2/models/score/infer HTTP/1.1", f"content-length: {len(body)}",
             f"edgewise-stream: {opened['stream']}", *lines, "\r\n"]
        )  # fmt: skip
        reader, writer = await asyncio.open_connection(system.front.host, system.front.port)
        writer.write((head.encode() + body) * 25)
        writer.write_eof()
        found = answers(await reader.read())
        assert [status for status, _, _ in found] == [200] * 20 + [429] * 5
        _, last, said = found[-1]
        assert last["retry-after"] == "2" and 1.5 < json.loads(said)["retry_after_s"] <= 1 / 0.55
        writer.close()

    go(model, scenario)


def test_over_grpc_it_is_resource_exhausted_and_says_when_too(model):
    grpc = pytest.importorskip("grpc")
    from edgewise.runtime.protocol.grpc_server import MESSAGES, SERVICE

    triton = pytest.importorskip("tritonclient.grpc")

    async def scenario(system):
        _, opened = await system.open(rate_qps=0.5)
        server = await grpc_server.serve_grpc(system.gateway.handle)

        def call():
            client = triton.InferenceServerClient(f"localhost:{server.port}")
            tensor = triton.InferInput("x", [1, 8], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 8), np.float32))
            stream = {"edgewise-stream": str(opened["stream"])}
            for _ in range(20):
                client.infer("score", [tensor], headers=stream)
            with pytest.raises(triton.InferenceServerException, match="declared") as error:
                client.infer("score", [tensor], headers=stream)
            assert error.value.status() == str(grpc.StatusCode.RESOURCE_EXHAUSTED)
            client.close()
            with grpc.insecure_channel(f"localhost:{server.port}") as channel:
                infer = channel.unary_unary(
                    f"/{SERVICE}/ModelInfer",
                    MESSAGES["ModelInferRequest"].SerializeToString,
                    MESSAGES["ModelInferResponse"].FromString,
                )
                asked = MESSAGES["ModelInferRequest"](model_name="score")
                asked.inputs.add(name="x", datatype="FP32", shape=[1, 8]).contents.fp32_contents.extend(
                    [1.0] * 8
                )
                with pytest.raises(grpc.RpcError) as refused:
                    infer(asked, metadata=tuple(stream.items()))
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert dict(refused.value.trailing_metadata())["retry-after"] == "2"

        await asyncio.to_thread(call)
        await server.close(0.1)

    go(model, scenario)


def test_a_query_that_its_worker_lost_costs_no_token(model):
    async def scenario(system):
        _, opened = await system.open(rate_qps=0.1)
        port, system.gateway.upstreams[0].client.port = system.worker.port, 1
        assert (await system.infer(opened["stream"])).status == 502
        system.gateway.upstreams[0].client.port = port
        system.gateway.worker_changed(0, True)
        assert [(await system.infer(opened["stream"])).status for _ in range(21)] == [200] * 20 + [429]

    go(model, scenario)


def test_the_burst_is_the_scenario_s(model):
    async def scenario(system):
        _, opened = await system.open(rate_qps=0.1)
        assert [(await system.infer(opened["stream"])).status for _ in range(4)] == [200] * 3 + [429]

    go(model, scenario, {"burst": 3})


def test_a_lease_is_renewed_by_use_or_by_hand_and_ends_without(model):
    async def scenario(system):
        opened = [await system.open(rate_qps=90 if k == 0 else 1) for k in range(3)]
        assert [(status, answer["lease_s"]) for status, answer in opened] == [(201, 0.4)] * 3
        idle, used, renewed = (answer["stream"] for _, answer in opened)
        until_s = time.monotonic() + 0.8
        while time.monotonic() < until_s or system.session.served[idle].close_s is None:
            assert (await system.infer(used)).status in (200, 429)
            assert await system.ask("PUT", f"/v1/streams/{renewed}") == (
                200,
                {"stream": renewed, "lease_s": 0.4},
            )
            await pace(0.05)
        assert set(system.session.core.bindings) == {used, renewed}
        answer = await system.infer(idle)
        assert (
            answer.status == 404 and "not used for the 0.4 s of its lease" in json.loads(answer.body)["error"]
        )
        assert (await system.ask("PUT", f"/v1/streams/{idle}"))[0] == 404
        row = next(row for row in system.session.stream_records() if row["stream"] == idle)
        assert "lease" in row["reason"] and row["close_s"] < system.session.clock()
        assert (await system.open(rate_qps=90))[0] == 201  # what it had can be had

    go(model, scenario, patience=replace(QUICK, lease_s=0.4))


def test_leases_of_a_gateway_that_starts_again_end_too_and_the_store_says_why(model, tmp_path):
    store = Store(tmp_path / "state.sqlite")
    patience = replace(QUICK, lease_s=0.3)

    async def open_two(system):
        for _ in range(2):
            assert (await system.open())[0] == 201

    async def again(system):
        assert system.gateway.restore() == 2
        await until(lambda: not system.session.core.bindings)

    book = Book(store, "gateway-0")
    go(model, open_two, patience=replace(QUICK, lease_s=60.0), book=book)
    assert len(store.records.open_streams("gateway-0")) == 2
    go(model, again, patience=patience, book=book)
    rows = store.records.streams()
    assert [row["closed_s"] is not None and "lease" in row["reason"] for row in rows] == [True] * 2
    store.close()


def test_a_refusal_is_final_and_says_so_and_what_to_do(model):
    async def scenario(system):
        _, first = await system.open(rate_qps=100)
        status, answer = await system.open()
        assert (status, answer["final"]) == (409, True) and "open another one later" in answer["error"]
        assert not system.session.core.refused
        refused = await system.infer(answer["stream"])
        assert refused.status == 409 and "capacity" in json.loads(refused.body)["reason"]
        await system.ask("DELETE", f"/v1/streams/{first['stream']}")
        system.session.tick()
        assert (await system.infer(answer["stream"])).status == 409
        assert (await system.open())[0] == 201

    go(model, scenario)


def test_with_retry_refused_it_is_kept_and_bound_when_room_comes(model):
    async def scenario(system):
        _, first = await system.open(rate_qps=100)
        status, answer = await system.open()
        assert (status, answer["final"]) == (409, False) and "decided anew every 0.1 s" in answer["error"]
        assert (await system.infer(answer["stream"])).status == 409
        await system.ask("DELETE", f"/v1/streams/{first['stream']}")
        await until(lambda: answer["stream"] in system.session.core.bindings)
        assert (await system.infer(answer["stream"])).status == 200

    go(model, scenario, {"retry_refused": True, "window_s": 0.1})


def test_a_source_is_kept_while_it_is_refused_and_its_queries_keep_it(model):
    async def scenario(system):
        _, first = await system.open(rate_qps=100)
        status, client = await system.open()
        assert (status, client["final"]) == (409, True)
        status, answer = await system.open(source="camera-0")
        assert (status, answer["final"]) == (409, False) and "decided anew every 0.1 s" in answer["error"]
        used_s = system.gateway.streams.used_s[answer["stream"]]
        assert (await system.infer(answer["stream"])).status == 409
        assert system.gateway.streams.used_s[answer["stream"]] > used_s
        await system.ask("DELETE", f"/v1/streams/{first['stream']}")
        await until(lambda: answer["stream"] in system.session.core.bindings)
        assert (await system.infer(answer["stream"])).status == 200
        _, row = await system.ask("GET", f"/v1/streams/{answer['stream']}")
        assert row["source"] == "camera-0" and row["reason"] is None
        await system.ask("DELETE", f"/v1/streams/{answer['stream']}")
        assert not system.session.core.stays

    go(model, scenario, {"window_s": 0.1})


def test_a_stream_whose_workers_are_all_down_is_kept_until_one_comes_up(model):
    async def scenario(system):
        system.gateway.worker_changed(0, False)
        status, answer = await system.open()
        assert (status, answer["final"]) == (409, False) and "when a worker comes up" in answer["error"]
        system.gateway.worker_changed(0, True)
        assert (await system.infer(answer["stream"])).status == 200

    go(model, scenario)


def test_queries_with_needs_that_were_refused_are_decided_anew_after_a_while(model):
    async def scenario(system):
        _, first = await system.open(rate_qps=100)
        stated = {"edgewise-rate-qps": "10", "edgewise-deadline-s": "5"}
        assert (await system.infer(**stated)).status == 409
        await system.ask("DELETE", f"/v1/streams/{first['stream']}")

        async def taken():  # it never stops asking
            answer = await system.infer(**stated)
            return answer if answer.status != 409 else None

        assert (await becomes(taken)).status == 200
        assert len(system.session.served) == 3

    go(model, scenario, patience=replace(QUICK, idle_stream_s=0.3))


def test_refused_streams_and_unknown_tasks_leave_metrics_as_they_were(model):
    async def scenario(system):
        async def page():
            return (await system.client.request("GET", "/metrics")).body

        before = len(await page())
        for k in range(300):
            status, answer = await system.open(task=f"no-such-task-{k}", application=f"nobody-{k}")
            assert status == 409
            await system.infer(answer["stream"])
        assert len(await page()) < before + 100
        assert b"no-such-task" not in await page() and b"nobody" not in await page()
        assert len(system.session.served) == 50 and not system.session.core.refused

    go(model, scenario, {"keep_closed": 50})


def test_an_unknown_task_is_refused_with_field_value_and_fix(model):
    async def run():
        async with System(model, {}, {}) as s:
            status, answer = await s.open(task="detektion")
            assert status == 409 and answer["final"]
            assert "task: 'detektion': no worker implements the task; use score" in answer["error"]
            for task in (None, 7, [], {}, "x" * 300):
                status, answer = await s.open(task=task)
                assert status == 400 and answer["error"].startswith("task: ") and "a text" in answer["error"]
            found = await s.client.request("POST", "/v2/models/detektion/infer", body=b"{}")
            assert (
                found.status == 404 and "no worker implements 'detektion'; use score" in found.body.decode()
            )

    asyncio.run(run())


def test_who_opens_a_new_stream_has_not_a_full_bucket_again(model):
    async def run():
        async with System(model, {}, {}) as s:
            statuses = []
            for _ in range(5):
                _, opened = await s.open(rate_qps=0.1)
                statuses += [await s.infer(opened["stream"]) for _ in range(30)]
                await s.ask("DELETE", f"/v1/streams/{opened['stream']}")
            return [answer.status for answer in statuses]

    statuses = asyncio.run(run())
    assert set(statuses) == {200, 429} and 20 <= statuses.count(200) <= 25
