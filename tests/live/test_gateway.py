"""Real sockets, a real ONNX model, ONNX Runtime behind a real gateway."""

import asyncio
import json
import time

import numpy as np
import onnxruntime
import pytest
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.errors import ScenarioError
from edgewise.runtime import http
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    return dense_file(tmp_path_factory.mktemp("models"))


async def with_gateway(file, scenario, max_queue=64):
    worker = LiveWorker(OnnxModel("dense", file), max_queue)
    behind = await http.serve(worker.handle, at_once=True)
    started = time.monotonic()
    session = Session(
        dense_world(1), policies.load("dispatch", "least-impedance"), 0, lambda: time.monotonic() - started
    )
    gateway = Gateway(session, [http.Client(behind.host, behind.port)], ["dense"])
    front = await http.serve(gateway.handle, at_once=True)
    client = http.Client(front.host, front.port)
    try:
        await scenario(client, gateway, worker)
    finally:
        client.close()
        gateway.clients[0].close()
        await front.close()
        await behind.close()
    session.core.validate()


def go(file, scenario, **options):
    asyncio.run(with_gateway(file, scenario, **options))


NEEDS = {"task": "score", "rate_qps": 10, "size_bytes": 256, "deadline_s": 5.0, "application": "test"}


async def open_stream(client, **changes):
    answer = await client.request("POST", "/v1/streams", body=json.dumps(NEEDS | changes).encode())
    return answer.status, json.loads(answer.body)


async def infer(client, stream, x, binary=True, task="score"):
    headers, body = encode_request(InferRequest({"x": x}, ("y",), "q1", binary))
    headers["edgewise-stream"] = str(stream)
    return await client.request("POST", f"/v2/models/{task}/infer", headers, body)


@pytest.mark.parametrize("binary", [True, False])
def test_answer_equals_onnx_runtime_and_names_the_variant(onnx_file, binary):
    async def scenario(client, gateway, worker):
        status, opened = await open_stream(client)
        assert status == 201 and opened["variant"] == "dense-cpu"
        x = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
        answer = await infer(client, opened["stream"], x, binary)
        assert answer.status == 200, answer.body
        assert answer.headers["edgewise-worker"] == "dense-0"
        response = decode_response(answer.headers, answer.body)
        expected = onnxruntime.InferenceSession(str(onnx_file)).run(["y"], {"x": x})[0]
        np.testing.assert_array_equal(response.outputs["y"].astype(np.float32), expected)
        assert response.id == "q1"
        (row,) = gateway.session.stream_records()
        assert (row["ok"], row["failed"], row["rejected"]) == (1, 0, 0)
        assert row["delay_mean_s"] > 0

    go(onnx_file, scenario)


def test_refusal_says_why_and_its_queries_are_rejected(onnx_file):
    async def scenario(client, gateway, worker):
        cases = [
            ({"min_accuracy": 90}, "accurate"),
            ({"deadline_s": 1e-4}, "deadline"),
            ({"rate_qps": 1e6}, "capacity"),
        ]
        for changes, reason in cases:
            status, answer = await open_stream(client, **changes)
            assert status == 409 and reason in answer["reason"]
            rejected = await infer(client, answer["stream"], np.zeros((1, 8), np.float32))
            assert rejected.status == 409
        rows = gateway.session.stream_records()
        assert [row["rejected"] for row in rows] == [1, 1, 1]

    go(onnx_file, scenario)


def test_closing_returns_capacity_and_ends_the_stream(onnx_file):
    async def scenario(client, gateway, worker):
        _, first = await open_stream(client, rate_qps=100)
        status, second = await open_stream(client, rate_qps=10)
        assert status == 409 and "capacity" in second["reason"]
        closed = await client.request("DELETE", f"/v1/streams/{first['stream']}")
        assert closed.status == 200
        status, third = await open_stream(client, rate_qps=10)
        assert status == 201
        late = await infer(client, first["stream"], np.zeros((1, 8), np.float32))
        assert late.status == 404

    go(onnx_file, scenario)


BAD = [
    ("POST", "/v1/streams", {}, b"{", 400, "JSON"),
    ("POST", "/v1/streams", {}, b'{"tsk": 1}', 400, "tsk"),
    ("POST", "/v1/streams", {}, json.dumps(NEEDS | {"deadline_s": "x"}).encode(), 400, "deadline_s"),
    ("POST", "/v1/streams", {}, json.dumps(NEEDS | {"site": "moon"}).encode(), 400, "moon"),
    ("DELETE", "/v1/streams/77", {}, b"", 404, "77"),
    ("PUT", "/v1/streams", {}, b"", 405, "POST"),
    ("POST", "/v2/models/score/infer", {}, b"{}", 404, "no open stream"),
    ("POST", "/v2/models/fly/infer", {}, b"{}", 404, "fly"),
    ("GET", "/nowhere", {}, b"", 404, "nowhere"),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "status", "message"), BAD)
def test_bad_requests_are_answered(onnx_file, method, path, headers, body, status, message):
    async def scenario(client, gateway, worker):
        answer = await client.request(method, path, headers, body)
        assert answer.status == status
        assert message in json.loads(answer.body)["error"]

    go(onnx_file, scenario)


def test_wrong_tensors_are_refused_by_name(onnx_file):
    async def scenario(client, gateway, worker):
        _, opened = await open_stream(client)
        wrong = [np.zeros((1, 7), np.float32), np.zeros((1, 8), np.float64), np.zeros(8, np.float32)]
        for x in wrong:
            answer = await infer(client, opened["stream"], x)
            assert answer.status == 400 and "inputs.x" in json.loads(answer.body)["error"]

    go(onnx_file, scenario)


def test_full_queue_answers_429_and_recovers(onnx_file):
    async def scenario(client, gateway, worker):
        _, opened = await open_stream(client)
        x = np.zeros((20000, 8), np.float32)
        answers = await asyncio.gather(*(infer(client, opened["stream"], x) for _ in range(12)))
        statuses = sorted(answer.status for answer in answers)
        assert set(statuses) == {200, 429}
        assert all("retry-after" in a.headers for a in answers if a.status == 429)
        assert (await infer(client, opened["stream"], x[:1])).status == 200

    go(onnx_file, scenario, max_queue=2)


def test_expired_query_is_not_run(onnx_file):
    async def scenario(client, gateway, worker):
        headers, body = encode_request(InferRequest({"x": np.zeros((1, 8), np.float32)}))
        request = http.HttpRequest(
            "POST", "/v2/models/dense/infer", headers | {"edgewise-remaining-s": "-1"}, body
        )
        assert (await worker.handle(request)).status == 504

    go(onnx_file, scenario)


def test_draining_worker_answers_503_after_finishing(onnx_file):
    async def scenario(client, gateway, worker):
        _, opened = await open_stream(client)
        x = np.zeros((1000, 8), np.float32)
        under_way = [asyncio.create_task(infer(client, opened["stream"], x)) for _ in range(5)]
        await becomes(lambda: worker.queued + sum(task.done() for task in under_way) >= 5)
        await worker.drain()
        assert [(await task).status for task in under_way] == [200] * 5
        assert (await infer(client, opened["stream"], x)).status == 503

    go(onnx_file, scenario)


def test_lost_worker_is_a_502_and_counts_as_failed(onnx_file):
    async def scenario(client, gateway, worker):
        _, opened = await open_stream(client)
        gateway.upstreams[0].client.port = 1  # nothing listens there
        answer = await infer(client, opened["stream"], np.zeros((1, 8), np.float32))
        assert answer.status == 502
        assert gateway.session.stream_records()[0]["failed"] == 1

    go(onnx_file, scenario)


def test_metadata_and_health(onnx_file):
    async def scenario(client, gateway, worker):
        for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/score/ready"):
            assert (await client.request("GET", path)).status == 200
        metadata = json.loads((await client.request("GET", "/v2/models/score")).body)
        assert metadata["name"] == "score"
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}]

    go(onnx_file, scenario)


def test_raw_garbage_and_oversized_bodies_are_answered(onnx_file):
    async def scenario(client, gateway, worker):
        for data, status in (
            (b"garbage\r\n\r\n", b"400"),
            (b"GET /v2 HTTP/1.1\r\ncontent-length: 9\r\n\r\n" + b"x" * 9, b"200"),
        ):
            reader, writer = await asyncio.open_connection(client.host, client.port)
            writer.write(data)
            assert status in await reader.readline()
            writer.close()
        small = await http.serve(gateway.handle, limits=http.Limits(body_bytes=10))
        answer = await http.Client(small.host, small.port).request("POST", "/v2", body=b"x" * 11)
        assert answer.status == 413
        await small.close()

    go(onnx_file, scenario)


def test_only_onnx_files_of_the_allowed_folder_are_loaded(onnx_file, tmp_path):
    with pytest.raises(ScenarioError, match="outside the allowed folder"):
        OnnxModel("m", onnx_file, tmp_path)
    with pytest.raises(ScenarioError, match=r"no such \.onnx file"):
        OnnxModel("m", tmp_path / "missing.onnx")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(ScenarioError, match="cannot load"):
        OnnxModel("m", broken, tmp_path)


def test_execution_providers_that_are_not_there_are_left_out_and_said_once(onnx_file, caplog):
    wanted = ("SNPEExecutionProvider", "CPUExecutionProvider")
    for _ in range(2):
        assert OnnxModel("m", onnx_file, providers=wanted).providers == wanted[1:]
    (said,) = [record for record in caplog.records if record.name == "edgewise.providers"]
    assert (said.provider, said.used) == wanted
    with pytest.raises(
        ScenarioError, match=r"none of SNPEExecutionProvider is there; .*CPUExecutionProvider"
    ):
        OnnxModel("m", onnx_file, providers=wanted[:1])
