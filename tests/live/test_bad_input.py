"""Numbers and texts that JSON can hold and others cannot: refused by name, and nothing is harmed."""

import asyncio
import json

import pytest
from running_system import small_scenario

from edgewise.runtime import http
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.worker.reservations import Reservations

pytestmark = pytest.mark.live
HUGE = "1" + "0" * 400
HALF = "\ud800"  # one half of a character
STREAM = {"task": "score", "rate_qps": 1, "size_bytes": 100, "deadline_s": 5}
JOB = {"key": "k", "command": ["true"], "folder": "/", "duration_s": 1}
TENSOR = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1] * 8}


async def send(handler, method, path, text):
    server = await http.serve(handler, at_once=True)
    client = http.Client(server.host, server.port)
    answer = await client.request(method, path, body=text.encode())
    client.close()
    await server.close(0.1)
    return answer


@pytest.mark.parametrize("name", ["task", "application"])
def test_half_a_character_opens_no_stream_and_metrics_go_on(running, name):
    async def go():
        client = http.Client("127.0.0.1", running.http["score"])
        body = json.dumps(STREAM | {name: HALF}).encode()
        answer = await client.request("POST", "/v1/streams", body=body)
        assert answer.status == 400 and name in json.loads(answer.body)["error"]
        assert (await client.request("GET", "/metrics")).status == 200
        client.close()

    asyncio.run(go())


def test_a_time_out_beyond_every_number_is_refused(running):
    async def go():
        client = http.Client("127.0.0.1", running.http["dense"])
        body = json.dumps({"inputs": [TENSOR], "parameters": {"timeout": int(HUGE)}}).encode()
        answer = await client.request("POST", "/v2/models/dense/infer", body=body)
        assert answer.status == 400 and "parameters.timeout" in json.loads(answer.body)["error"]
        client.close()

    asyncio.run(go())


@pytest.mark.parametrize("text", [HUGE, "1e400", "-1", "NaN", "true", '"1"'])
def test_a_load_that_is_none_is_refused(text):
    async def go():
        book = Reservations(100.0)

        async def handle(request):
            return book.handle(request, request.parts[2:])

        for path, body in (("/g/1", f'{{"load_qps": {text}}}'), ("/g", f'{{"streams": {{"1": {text}}}}}')):
            answer = await send(handle, "PUT", f"/v1/reservations{path}", body)
            assert answer.status == 400 and "not a number" in json.loads(answer.body)["error"]
        assert book.total_qps == 0.0

    asyncio.run(go())


@pytest.mark.parametrize("text", [HALF, "a\0b"])
@pytest.mark.parametrize("name", ["key", "folder", "command"])
def test_a_job_with_a_text_that_is_none_is_refused(tmp_path, name, text):
    store = prepare(tmp_path, small_scenario())
    controller = Controller(store, LocalBackend(tmp_path))
    answer = asyncio.run(
        send(
            controller.handle,
            "POST",
            "/v1/admin/jobs",
            json.dumps(JOB | {name: [text] if name == "command" else text}),
        )
    )
    assert answer.status == 400 and name in json.loads(answer.body)["error"]
    assert controller.jobs.book.listed() == []
    store.close()
