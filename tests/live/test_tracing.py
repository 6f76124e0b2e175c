"""Traces of a query across gateway and worker processes, as a collector of our own receives them."""

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from connections import LOOPS, reset
from live_system import dense_file, dense_world
from running_system import System, open_stream, small_scenario

from edgewise import policies
from edgewise.errors import ScenarioError
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.watch.collector import tracing_to
from edgewise.runtime.watch.tracing import OFF
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from waiting import pace, wait_until

pytest.importorskip("opentelemetry.sdk")
pytestmark = pytest.mark.live
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Collector:
    """Takes OTLP over HTTP and keeps the spans as (service, span)."""

    def __init__(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        spans = self.spans = []

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    named = {a.key: a.value.string_value for a in group.resource.attributes}
                    for scope in group.scope_spans:
                        spans.extend((named["service.name"], span) for span in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, names, limit_s=60):
        """The spans of the trace by name, once all of these are there."""

        def found():
            return {(who.split("-")[0], s.name): s for who, s in self.spans if s.trace_id.hex() == TRACE}

        wait_until(lambda: found().keys() >= set(names), lambda: f"{names}; {found().keys()}", limit_s)
        return found()


WHOLE = [
    ("gateway", "infer"), ("gateway", "decide"), ("gateway", "forward"), ("echo", "infer"), ("echo", "queue"),
    ("echo", "run"),
]  # fmt: skip


PARENTS = {"decide": "infer", "forward": "infer", "queue": "infer", "run": "infer"}
NAMES = ("infer", *PARENTS)


def check_tree(spans):
    front, decide, forward, worker, queue, run = (spans[name] for name in WHOLE)
    assert front.parent_span_id.hex() == PARENT
    assert decide.parent_span_id == forward.parent_span_id == front.span_id
    assert worker.parent_span_id == forward.span_id  # across processes
    assert queue.parent_span_id == run.parent_span_id == worker.span_id
    assert queue.end_time_unix_nano == run.start_time_unix_nano
    slack_ns = 10_000_000  # each process reads the wall clock once
    for outer, inner in (
        (front, decide),
        (front, forward),
        (forward, worker),
        (worker, queue),
        (worker, run),
    ):
        assert outer.start_time_unix_nano - slack_ns <= inner.start_time_unix_nano
        assert inner.end_time_unix_nano <= outer.end_time_unix_nano + slack_ns


def test_one_trace_goes_through_gateway_and_worker_processes(tmp_path):
    collector = Collector()
    system = System(tmp_path, small_scenario(workers=2), gateways=1, otlp=collector.url)
    system.start()

    async def run():
        await system.ready()
        client = system.gateway()
        _, opened = await open_stream(client)
        headers, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
        headers |= {"edgewise-stream": str(opened["stream"])} | CONTEXT
        answer = await ask(client, "POST", "/v2/models/score/infer", headers, body, patience_s=30)
        assert answer.status == 200
        return opened

    try:
        opened = asyncio.run(run())
        spans = collector.wait(WHOLE)
    finally:
        system.stop()
    check_tree(spans)
    about = {a.key: a.value for a in spans["gateway", "forward"].attributes}
    assert about["edgewise.worker"].string_value == opened["worker"]
    assert about["edgewise.stream"].int_value == opened["stream"]
    assert about["http.response.status_code"].int_value == 200


def traced_pair(tmp_path):
    """A gateway and a worker here, whose spans stay in memory."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from edgewise.runtime.watch.otel import OpenTelemetry

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    worker = LiveWorker(OnnxModel("dense", dense_file(tmp_path)), tracing=OpenTelemetry(provider))
    return kept, worker, OpenTelemetry(provider)


def test_a_lost_worker_shows_as_a_second_forward(tmp_path):
    kept, worker, tracing = traced_pair(tmp_path)

    async def run():
        servers = [await http.serve(worker.handle, at_once=True) for _ in range(2)]
        session = Session(dense_world(), policies.load("dispatch", "least-impedance"), 0, time.monotonic)
        clients = [http.Client(server.host, server.port) for server in servers]
        gateway = Gateway(session, clients, ["dense"] * 2, tracing=tracing)
        front = await http.serve(gateway.handle, at_once=True)
        client = http.Client(front.host, front.port)
        needs = {"task": "score", "rate_qps": 1, "size_bytes": 100, "deadline_s": 5}
        opened = json.loads(
            (await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())).body
        )
        await servers[int(opened["worker"][-1])].close(0.1)
        headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        headers["edgewise-stream"] = str(opened["stream"])
        assert (await client.request("POST", "/v2/models/score/infer", headers, body)).status == 200
        for server in (front, *servers):
            await server.close(0.1)

    asyncio.run(run())
    spans = kept.get_finished_spans()
    forwards = [span for span in spans if span.name == "forward"]
    assert [span.status.is_ok for span in forwards] == [False, True]
    assert len({span.attributes["edgewise.worker"] for span in forwards}) == 2
    assert len({span.context.trace_id for span in spans}) == 1
    assert [span.name for span in spans].count("run") == 1


def test_spans_of_queries_that_resume_one_another_stay_apart(tmp_path, caplog):
    """Many connections, several queries on each at once, some that hang up; one answer resumes another."""
    kept, worker, tracing = traced_pair(tmp_path)

    async def run():
        behind = await http.serve(worker.handle, at_once=True)
        session = Session(dense_world(1), policies.load("dispatch", "least-impedance"), 0, time.monotonic)
        gateway = Gateway(session, [http.Client(behind.host, behind.port)], ["dense"], tracing=tracing)
        front = await http.serve(gateway.handle, at_once=True)
        stated = {"edgewise-rate-qps": "90", "edgewise-deadline-s": "20"}
        headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))
        headers |= stated | {"content-length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

        def query(number):
            parent = f"traceparent: 00-{number:032x}-{PARENT}-01\r\n"
            return f"POST /v2/models/score/infer HTTP/1.1\r\n{parent}{lines}\r\n".encode() + body

        async def ask(k):
            reader, writer = await asyncio.open_connection(front.host, front.port)
            writer.write(b"".join(query(10 * k + i) for i in range(1, 6)))
            if k % 4 == 3:
                await pace(0.001 * (k % 3))
                return reset(writer)
            for _ in range(5):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
            writer.close()

        await asyncio.gather(*(ask(k) for k in range(16)))
        for server in (front, behind):
            await server.close()

    for new_loop in LOOPS:
        kept.clear()
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(run(), 30))
        traces = {}
        for span in kept.get_finished_spans():
            traces.setdefault(span.context.trace_id, []).append(span)
        asked = {10 * k + i for k in range(16) for i in range(1, 6)}
        whole = {number for number in asked if number // 10 % 4 != 3}
        assert whole <= traces.keys() <= asked
        for number, spans in traces.items():
            names = [span.name for span in spans]
            assert sorted(names) == sorted([*NAMES, "infer"]) or number not in whole
            by_id = {span.context.span_id: span for span in spans}
            for name, parent in PARENTS.items():
                for span in spans:
                    assert span.name != name or by_id[span.parent.span_id].name == parent
    assert "context" not in caplog.text


def test_off_there_is_nothing_and_a_wrong_address_is_refused():
    headers = {}
    with OFF.serve("infer", {}), OFF.span("decide"):
        OFF.note(status=200)
        OFF.pass_on(headers)
    assert headers == {} and OFF.here() is None and tracing_to(None, "x") is OFF
    with pytest.raises(ScenarioError, match="localhost:4318"):
        tracing_to("collector", "x")


def test_a_collector_that_is_gone_costs_no_query(tmp_path):
    tracing = tracing_to("http://127.0.0.1:9", "worker")
    worker = LiveWorker(OnnxModel("dense", dense_file(tmp_path)), tracing=tracing)
    headers, body = encode_request(InferRequest({"x": np.ones((1, 8), np.float32)}))

    async def run():
        asked = http.HttpRequest("POST", "/v2/models/dense/infer", headers, body)
        return (await worker.handle(asked)).status

    assert asyncio.run(run()) == 200
    tracing.close()
