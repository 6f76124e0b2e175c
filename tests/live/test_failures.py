"""Workers that die, drain, hang and come back; policies that change; who may ask."""

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from connections import LOOPS
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.errors import ScenarioError
from edgewise.runtime import http
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway, Patience
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.process.serving import Listen, listen
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from edgewise.runtime.watch.logs import log_json
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import becomes

pytestmark = pytest.mark.live
# Short where a test waits for it, long where a busy machine must not run into it.
QUICK = Patience(idle_stream_s=60.0, health_period_s=0.02, health_timeout_s=10.0)
NEEDS = {"edgewise-rate-qps": "5", "edgewise-deadline-s": "10"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return OnnxModel("dense", dense_file(tmp_path_factory.mktemp("models")))


class System:
    """Two workers, a gateway and a client in one event loop."""

    def __init__(self, model, gateway_options):
        self.model, self.options = model, gateway_options

    async def __aenter__(self):
        self.workers = [LiveWorker(self.model) for _ in range(2)]
        self.servers = [await http.serve(worker.handle, at_once=True) for worker in self.workers]
        began = time.monotonic()
        self.session = Session(
            dense_world(), policies.load("dispatch", "least-impedance"), 0, lambda: time.monotonic() - began
        )
        clients = [http.Client(server.host, server.port) for server in self.servers]
        self.gateway = Gateway(self.session, clients, ["dense"] * 2, patience=QUICK, **self.options)
        self.front = await http.serve(with_admin(self.gateway), at_once=True)
        self.client = http.Client(self.front.host, self.front.port)
        self.watching = asyncio.create_task(self.gateway.watch())
        return self

    async def __aexit__(self, *error):
        self.watching.cancel()
        self.client.close()
        for server in (self.front, *self.servers):
            await server.close(0.1)
        self.session.core.validate()
        assert (self.session.in_flight == 0).all()

    async def open(self, **changes):
        needs = {"task": "score", "rate_qps": 10, "size_bytes": 256, "deadline_s": 5.0} | changes
        answer = await self.client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
        return json.loads(answer.body)

    async def infer(self, headers):
        more, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        return await self.client.request("POST", "/v2/models/score/infer", more | headers, body)

    async def get(self, path, method="GET", body=None):
        answer = await self.client.request(
            method, path, body=b"" if body is None else json.dumps(body).encode()
        )
        return answer.status, json.loads(answer.body)


def go(model, scenario, **gateway_options):
    async def run():
        async with System(model, gateway_options) as system:
            await asyncio.wait_for(scenario(system), 60)

    asyncio.run(run())


def test_a_lost_worker_costs_no_query_and_is_used_again_when_back(model):
    async def scenario(system):
        opened = await system.open()
        first = int(opened["worker"][-1])
        stream = {"edgewise-stream": str(opened["stream"])}
        system.watching.cancel()  # the query finds out by itself
        port = system.servers[first].port
        await system.servers[first].close(0.1)
        answer = await system.infer(stream)
        assert answer.status == 200 and answer.headers["edgewise-worker"] == f"dense-{1 - first}"
        row = system.session.stream_records()[0]
        assert (row["ok"], row["failed"], row["worker"]) == (1, 0, f"dense-{1 - first}")
        metrics = (await system.client.request("GET", "/metrics")).body.decode()
        assert "edgewise_retries_total 1.0" in metrics
        assert f'edgewise_gateway_worker_up{{variant="dense-cpu",worker="dense-{first}"}} 0.0' in metrics
        system.servers[first] = await http.serve(system.workers[first].handle, port=port)
        system.watching = asyncio.create_task(system.gateway.watch())
        await becomes(lambda: system.gateway.upstreams[first].up)
        assert system.session.core.view().up.all()

    go(model, scenario)


def test_queries_during_a_loss_are_all_answered(model):
    async def scenario(system):
        opened = await system.open(rate_qps=100)
        stream = {"edgewise-stream": str(opened["stream"])}
        first = int(opened["worker"][-1])

        statuses = []

        async def ask():
            for _ in range(20):
                statuses.append((await system.infer(stream)).status)

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        await becomes(lambda: len(statuses) > 4)
        for connection in list(system.servers[first].connections):
            connection.transport.abort()
        await system.servers[first].close(0)
        await asyncio.gather(*asking)
        assert statuses == [200] * 80

    go(model, scenario)


def test_health_checks_move_streams_and_refused_ones_come_back(model):
    async def scenario(system):
        opened = await system.open()
        draining = [asyncio.create_task(worker.drain()) for worker in system.workers]
        await becomes(lambda: opened["stream"] in system.session.core.refused)
        answer = await system.infer({"edgewise-stream": str(opened["stream"])})
        assert answer.status == 503 and "down" in json.loads(answer.body)["reason"]
        assert "retry-after" in answer.headers
        assert (await system.get("/v2/models/score/ready"))[0] == 503
        assert (await system.get("/v2/models/score"))[0] == 503
        for worker in system.workers:
            worker.batcher.draining = False  # as a restarted process would be
        await becomes(lambda: opened["stream"] in system.session.core.bindings)
        assert (await system.get("/v2/models/score/ready"))[0] == 200
        await asyncio.gather(*draining)

    go(model, scenario)


def test_a_hanging_worker_costs_its_deadline_and_not_more(model):
    async def scenario(system):
        async def hang(request):
            if request.path.endswith("/infer"):
                await asyncio.Event().wait()
            return http.as_json({"ready": True})

        servers = [await http.serve(hang) for _ in range(2)]
        for name, server in zip(("dense-0", "dense-1"), servers, strict=True):
            place = {"url": server.url, "model": "dense"}
            assert (await system.get(f"/v1/admin/workers/{name}", "PUT", place))[0] == 200
        opened = await system.open(deadline_s=0.7)
        answer = await system.infer({"edgewise-stream": str(opened["stream"])})
        assert answer.status == 504 and "no answer within" in json.loads(answer.body)["error"]
        assert system.session.stream_records()[0]["failed"] == 1
        for server in servers:
            await server.close(0)

    go(model, scenario)


def test_binary_tensors_are_rewritten_for_a_server_that_takes_only_json(model):
    async def scenario(system):
        seen = []
        worker = system.workers[0]

        async def plain(request):
            if request.path == "/v2":
                return http.as_json({"name": "plain", "extensions": []})
            seen.append(request)
            assert "inference-header-content-length" not in request.headers
            return await worker.handle(request)

        server = await http.serve(plain)
        for upstream in system.gateway.upstreams:
            upstream.client = http.Client(server.host, server.port)
        x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
        for binary in (True, False):
            more, body = encode_request(InferRequest({"x": x}, ("y",), "id", binary))
            answer = await system.client.request("POST", "/v2/models/score/infer", more | NEEDS, body)
            assert answer.status == 200
            assert ("inference-header-content-length" in answer.headers) == binary
            found = decode_response(answer.headers, answer.body)
            expected = model.run(InferRequest({"x": x})).outputs["y"]
            np.testing.assert_allclose(found.outputs["y"], expected, rtol=1e-6)
            assert found.parameters["edgewise_variant"] == "dense-cpu" and found.id == "id"
        assert any(request.path.endswith("/infer") for request in seen)
        await server.close(0)

    go(model, scenario)


def test_a_worker_that_breaks_is_a_502_without_its_traceback(model):
    async def scenario(system):
        async def broken(request):
            failed = request.path.endswith("/infer")
            return http.Response(500 if failed else 200, b"Traceback: secret" if failed else b"{}")

        server = await http.serve(broken)
        for upstream in system.gateway.upstreams:
            upstream.client = http.Client(server.host, server.port)
        answer = await system.infer(NEEDS)
        assert answer.status == 502 and b"secret" not in answer.body
        await server.close(0)

    go(model, scenario)


def test_deadlines_reach_the_worker_and_the_clients_own_is_kept(model):
    async def scenario(system):
        seen = []

        async def note(request):
            if request.path.endswith("/infer"):
                seen.append(dict(request.headers))
            return http.as_json({"ready": True, "parameters": {"theirs": 1}})

        server = await http.serve(note)
        for upstream in system.gateway.upstreams:
            upstream.client = http.Client(server.host, server.port)
        opened = await system.open(deadline_s=40.0, priority=3)
        stream = {"edgewise-stream": str(opened["stream"]), "traceparent": "00-1-2-01", "x-private": "1"}
        answer = await system.infer(stream)
        assert json.loads(answer.body)["parameters"] == {
            "theirs": 1, "edgewise_worker": opened["worker"], "edgewise_variant": "dense-cpu",
        }  # fmt: skip
        await system.infer(stream | {"edgewise-remaining-s": "9"})
        assert 9.0 < float(seen[0]["edgewise-remaining-s"]) <= 40.0
        assert 0.0 < float(seen[1]["edgewise-remaining-s"]) <= 9.0
        assert seen[0]["edgewise-priority"] == "3" and seen[0]["traceparent"] == "00-1-2-01"
        assert "x-private" not in seen[0] and "edgewise-stream" not in seen[0]
        late = await system.infer(stream | {"edgewise-remaining-s": "0"})
        assert late.status == 504 and len(seen) == 2
        await server.close(0)

    go(model, scenario)


def test_needs_in_headers_open_one_stream_and_idleness_closes_it(model):
    async def scenario(system):
        time_keeper = asyncio.create_task(system.gateway.keep_time(0.02))
        for _ in range(3):
            assert (await system.infer(NEEDS)).status == 200
        assert (await system.infer(NEEDS | {"edgewise-application": "other"})).status == 200
        rows = system.session.stream_records()
        assert [(row["ok"], row["application"]) for row in rows] == [(3, ""), (1, "other")]
        refused = await system.infer(NEEDS | {"edgewise-min-accuracy": "99"})
        assert refused.status == 409 and "accurate" in json.loads(refused.body)["reason"]
        missing = await system.infer({"edgewise-deadline-s": "1"})
        assert missing.status == 400 and "rate_qps" in json.loads(missing.body)["error"]
        wrong = await system.infer(NEEDS | {"edgewise-rate-qps": "many"})
        assert wrong.status == 400 and "edgewise-rate-qps" in json.loads(wrong.body)["error"]
        system.gateway.streams.patience = replace(QUICK, idle_stream_s=0.05)
        await becomes(lambda: not system.session.core.bindings and not system.session.core.refused)
        system.gateway.streams.patience = QUICK
        assert (await system.infer(NEEDS)).status == 200  # opened anew
        time_keeper.cancel()

    go(model, scenario)


def test_open_streams_are_bounded(model):
    async def scenario(system):
        await system.open()
        await system.open()
        needs = json.dumps({"task": "score", "rate_qps": 1, "size_bytes": 1, "deadline_s": 1}).encode()
        answer = await system.client.request("POST", "/v1/streams", body=needs)
        assert answer.status == 429

    go(model, scenario, max_streams=2)


def test_policy_is_switched_while_running(model):
    async def scenario(system):
        status, before = await system.get("/v1/admin/policies/dispatch")
        assert before["policy"] == "least-impedance" and "closest" in before["available"]
        opened = await system.open()
        status, found = await system.get("/v1/admin/policies/dispatch", "PUT", {"policy": "closest"})
        assert (status, found["policy"], found["state"]) == (202, "closest", "waiting")
        while found["state"] != "done":
            _, found = await system.get(f"/v1/admin/operations/{found['id']}")
        assert (await system.get("/v1/admin/policies/dispatch"))[1]["policy"] == "closest"
        assert (await system.get("/v1/admin/operations"))[1] == [found]
        assert (await system.infer({"edgewise-stream": str(opened["stream"])})).status == 200
        for body in ({"policy": "nonsense"}, {"policy": "/tmp/x.py:Evil"}, {"policy": 1}, [], "closest"):
            status, answer = await system.get("/v1/admin/policies/dispatch", "PUT", body)
            assert status == 400 and "policy" in answer["error"]
        assert (await system.get("/v1/admin/policies/dispatch", "POST"))[0] == 405

    go(model, scenario)


def test_workers_are_listed_and_their_addresses_checked(model):
    async def scenario(system):
        _, listed = await system.get("/v1/admin/workers")
        assert [(w["worker"], w["up"]) for w in listed] == [("dense-0", True), ("dense-1", True)]
        for name, place, status in (
            ("moon", {"url": "http://a:1", "model": "m"}, 404),
            ("dense-0", {"url": "a:1", "model": "m"}, 400),
            ("dense-0", {"url": "http://a:1"}, 400),
        ):
            assert (await system.get(f"/v1/admin/workers/{name}", "PUT", place))[0] == status

    go(model, scenario)


def test_draining_gateway_finishes_and_takes_nothing_new(model):
    async def scenario(system):
        opened = await system.open()
        assert (await system.get("/v1/admin/drain", "POST"))[0] == 200
        assert (await system.get("/v2/health/ready"))[0] == 503
        assert (await system.get("/v2/health/live"))[0] == 200
        assert (await system.infer({"edgewise-stream": str(opened["stream"])})).status == 503
        assert (await system.open())["error"] == "draining"
        await system.gateway.drain()

    go(model, scenario)


def test_logs_are_json_lines(model):
    out = StringIO()
    logger = logging.getLogger("edgewise")
    kept = logger.handlers[:], logger.propagate, logger.level
    log_json("INFO", out)
    try:

        async def scenario(system):
            await system.open()
            await system.open(min_accuracy=99)

        go(model, scenario)
    finally:
        logger.handlers[:], logger.propagate, _ = kept
        logger.setLevel(kept[2])
    bound, refused = (json.loads(line) for line in out.getvalue().splitlines()[:2])
    assert (bound["message"], bound["level"]) == ("stream bound", "info") and bound["stream"] > 0
    assert "accurate" in refused["reason"]


def test_what_other_libraries_warn_of_is_a_json_line_too():
    code = "from edgewise.runtime.watch.logs import log_json; import logging; log_json(); "
    code += "logging.getLogger('asyncio').error('odd'); logging.getLogger('asyncio').info('fine')"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = map(json.loads, seen.stderr.splitlines())
    assert (line["level"], line["logger"], line["message"]) == ("error", "asyncio", "odd")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    )
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_tls_and_tokens_over_http_and_grpc(model, certificate):
    grpc = pytest.importorskip("grpc")
    triton = pytest.importorskip("tritonclient.grpc")

    async def run():
        where = Listen(token="secret", certificate=certificate[0], key=certificate[1], grpc_port=0)
        serving = await listen(LiveWorker(model).handle, where)
        assert serving.http.url.startswith("https://127.0.0.1:")
        client = http.Client.of_url(serving.http.url, "secret", http.tls_client(certificate[0]))
        more, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        answer = await client.request("POST", "/v2/models/dense/infer", more, body)
        assert decode_response(answer.headers, answer.body).outputs["y"].shape == (1, 4)
        stranger = http.Client.of_url(serving.http.url, "guess", http.tls_client(certificate[0]))
        assert (await stranger.request("GET", "/v2/models/dense")).status == 401
        with pytest.raises(ConnectionError):
            await http.Client.of_url(serving.http.url, "secret").request("GET", "/v2")  # unknown authority

        def over_grpc():
            trusted = grpc.ssl_channel_credentials(certificate[0].read_bytes())
            remote = triton.InferenceServerClient(f"localhost:{serving.grpc.port}", creds=trusted, ssl=True)
            assert remote.is_server_live()
            with pytest.raises(Exception, match="bearer token"):
                remote.get_model_metadata("dense")
            shown = {"authorization": "Bearer secret"}
            assert remote.get_model_metadata("dense", headers=shown).name == "dense"
            remote.close()

        await asyncio.to_thread(over_grpc)
        await serving.close(0.1)

    asyncio.run(run())


def test_a_client_that_ends_tls_ends_its_handler_without_a_word(certificate, caplog):
    async def run():
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait(request):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        server = await http.serve(wait, tls=http.tls_server(*certificate), at_once=True)
        trust = http.tls_client(certificate[0])
        _, writer = await asyncio.open_connection(server.host, server.port, ssl=trust)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        writer.close()
        await asyncio.wait_for(ended.wait(), 20)
        await server.close()

    for new_loop in LOOPS:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run())
    assert caplog.text == ""


def test_listening_is_checked():
    with pytest.raises(ScenarioError, match="both certificate and key"):
        Listen(key="key.pem")

    async def run():
        server = await http.serve(lambda request: None)
        with pytest.raises(ScenarioError, match="cannot listen"):
            await listen(lambda request: None, Listen(port=server.port))
        await server.close()

    asyncio.run(run())


async def metrics(client):
    return (await client.request("GET", "/metrics")).body.decode()


PROCESS = """
import sys
from pathlib import Path
from edgewise.runtime.process.serving import Listen, run, run_worker
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
async def main():
    worker = LiveWorker(OnnxModel("dense", Path(sys.argv[1])), max_batch=4, batch_timeout_s=60.0)
    await run_worker(worker, Listen(), lambda where: print(where.http.port, flush=True))
run(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_worker_process_told_to_end_answers_what_it_accepted(model):
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(model.file)], stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline())

        async def scenario():
            client = http.Client("127.0.0.1", port)
            headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
            asked = [
                asyncio.create_task(client.request("POST", "/v2/models/dense/infer", headers, body))
                for _ in range(3)
            ]

            async def wait_for_a_fourth():
                return 'edgewise_worker_queue{model="dense"} 3.0' in await metrics(client)

            await becomes(wait_for_a_fourth)
            process.send_signal(signal.SIGTERM)
            assert [(await task).status for task in asked] == [200] * 3

        asyncio.run(asyncio.wait_for(scenario(), 50))
        assert process.wait(20) == 0
    finally:
        process.kill()
