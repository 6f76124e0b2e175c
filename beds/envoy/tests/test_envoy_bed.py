"""The Envoy bed: what it promises of bodies, versions of HTTP, failures, metrics, load, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import onnx
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb, external_processor_pb2_grpc as service
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from beds.envoy import Bed, Body, Settings
from beds.envoy.bed import envoy
from beds.envoy.load import BODY, closed_loop, open_loop
from beds.envoy.plain_picker import Picker
from beds.go import VEGETA, built
from beds.processes import REPOSITORY, BedError, free_port, start, wait

PATH = "/v2/models/m/infer"


@pytest.fixture(scope="module", autouse=True)
def needs_envoy() -> None:
    try:
        envoy()
    except BedError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=list(Body), ids=lambda each: each.name.lower())
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A bed for each body mode; tests leave its servers unscripted."""
    with Bed(Settings(body=request.param)) as made:
        yield made


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_bodies_arrive_whole_in_every_mode_over_both_versions(bed, http2):
    large = json.dumps({"data": list(range(100_000))}).encode()
    with httpx.Client(http1=not http2, http2=http2, timeout=20) as client:
        for body in (BODY, large, b"{}"):
            answer = client.post(bed.url + PATH, content=body)
            assert answer.status_code == 200 and answer.content == body
            assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")


def test_requests_go_where_the_picker_says(bed):
    before = [bed.script(server)["served"] for server in range(3)]
    with httpx.Client() as client:
        for _ in range(12):
            client.post(bed.url + PATH, content=BODY)
    assert [bed.script(server)["served"] - b for server, b in enumerate(before)] == [4, 4, 4]


def test_a_server_that_breaks_is_left_for_the_next_of_the_list():
    with Bed(Settings(retries=2)) as bed, httpx.Client() as client:
        bed.script(0, fails="reset")
        bed.script(1, fails="503")
        answers = [client.post(bed.url + PATH, content=BODY) for _ in range(9)]
        assert {(a.status_code, a.headers["x-backend"]) for a in answers} == {(200, "fake-2")}
        assert bed.script(0)["failed"] >= 3 and bed.script(1)["failed"] >= 3


@pytest.mark.parametrize(("fail_open", "status"), [(True, {200}), (False, {500, 503, 504})])
def test_without_its_picker_a_request_goes_on_or_fails_as_chosen(fail_open, status):
    with Bed(Settings(fail_open=fail_open)) as bed, httpx.Client() as client:
        assert client.post(bed.url + PATH, content=BODY).status_code == 200
        bed.stop_picker()
        assert {client.post(bed.url + PATH, content=BODY).status_code for _ in range(4)} <= status
        bed.start_picker()

        def again() -> bool:
            return client.post(bed.url + PATH, content=BODY).status_code == 200

        wait("Envoy to find the picker again", again, 10)


def test_scripted_delays_queues_and_shares_of_failures():
    with Bed(Settings(backends=1, picker=None)) as bed, httpx.Client(timeout=20) as client:
        bed.script(0, delay_s=0.1, at_once=1)
        # Of one client: each of their own would load certificates first, one after another.
        several = [threading.Thread(target=client.post, args=(bed.url + PATH,)) for _ in range(4)]
        for each in several:
            each.start()
        for each in several:
            each.join()
        metrics = client.get(f"http://{bed.servers[0]}/metrics").text
        waited_us = float(metrics.split("nv_inference_queue_duration_us{")[1].split()[1])
        assert waited_us > 0.8e6 * (0.1 + 0.2 + 0.3)  # four that came at once, one at a time
        bed.script(0, fails="503", share=0.5)
        seen = Counter(
            client.post(f"http://{bed.servers[0]}{PATH}", content=b"{}").status_code for _ in range(200)
        )
        assert 60 < seen[503] < 140
        bed.script(0, fails="hang")
        with pytest.raises(httpx.ReadTimeout):
            client.post(bed.url + PATH, content=BODY, timeout=0.3)
        with pytest.raises(httpx.HTTPStatusError):
            client.put(f"http://{bed.servers[0]}/script", json={"delays": 1}).raise_for_status()


def test_metrics_are_as_old_as_the_lag():
    with Bed(Settings(backends=1, picker=None, metrics_lag_s=0.4)) as bed, httpx.Client() as client:

        def served() -> tuple[float, float]:
            """As counted in the name of Triton, and in that of KServe."""
            text = client.get(f"http://{bed.servers[0]}/metrics").text
            names = ("nv_inference_request_success{", "request_predict_seconds_count{")
            of_triton, of_kserve = (float(text.split(name)[1].split()[1]) for name in names)
            return of_triton, of_kserve

        assert served() == (0, 0)
        client.post(bed.url + PATH, content=BODY)
        assert served() == (0, 0)
        wait("newer metrics", lambda: served() == (1, 1), 5)


@pytest.mark.parametrize(("balance", "evenly"), [("ROUND_ROBIN", True), ("LEAST_REQUEST", False)])
def test_envoy_alone_balances_as_chosen(balance, evenly):
    with Bed(Settings(backends=2, picker=None, balance=balance)) as bed, httpx.Client() as client:
        bed.script(0, delay_s=0.1)
        with ThreadPoolExecutor(6) as several:
            statuses = several.map(lambda _: client.post(bed.url + PATH, content=BODY).status_code, range(40))
            assert set(statuses) == {200}
        slow, quick = (bed.script(server)["served"] for server in range(2))
        assert (slow, quick) == (20, 20) if evenly else slow < 0.8 * quick


class Recording(Picker):
    """The plain picker, which keeps what it is told of the way back."""

    def __init__(self, servers: list[str]) -> None:
        super().__init__(servers)
        self.told: list[str] = []

    async def Process(
        self, messages: AsyncIterator[pb.ProcessingRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ProcessingResponse]:
        async def seen() -> AsyncIterator[pb.ProcessingRequest]:
            async for message in messages:
                if message.WhichOneof("request") == "response_headers":
                    metadata = message.metadata_context.filter_metadata["envoy.lb"]
                    self.told.append(metadata["x-gateway-destination-endpoint-served"])
                yield message

        async for answer in super().Process(seen(), context):
            yield answer


@contextlib.contextmanager
def serving(picker: Picker) -> Iterator[str]:
    """A picker in a thread of this process."""
    port, ended, loop = free_port(), asyncio.Event(), asyncio.new_event_loop()

    async def run() -> None:
        server = grpc.aio.server()
        service.add_ExternalProcessorServicer_to_server(picker, server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await ended.wait()
        await server.stop(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


def test_the_picker_is_told_who_served_also_after_a_fall_back():
    with Bed(Settings(picker=None, backends=2)) as servers:
        picker = Recording(servers.servers)
        with serving(picker) as where, Bed(Settings(picker=where, servers=tuple(servers.servers))) as bed:
            servers.script(0, fails="reset")
            wait("the picker", lambda: httpx.post(bed.url + PATH, content=BODY).status_code == 200, 10)
            assert httpx.post(bed.url + PATH, content=BODY).status_code == 200
        assert set(picker.told) == {servers.servers[1]}


def test_load_in_open_and_closed_loops_over_both_versions():
    try:
        built(*VEGETA)
    except BedError as error:
        pytest.skip(str(error))
    with Bed(Settings(backends=1, picker=None)) as bed:
        bed.script(0, delay_s=0.02)
        for http2 in (False, True):
            rate = open_loop(bed.url + PATH, 50, 1.0, http2=http2)
            assert rate.requests == 50 and rate.status == {"200": 50} and rate.p50_s > 0.02
            closed = closed_loop(bed.url + PATH, 4, 1.0, http2=http2)
            assert closed.per_s <= 4 / 0.02 and closed.requests >= 40  # four at a time, 20 ms each


def test_real_workers_serve_behind_it(tmp_path):
    shape = ["batch", 4]
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y")]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "m", value[:1], value[1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]),
              tmp_path / "m.onnx")  # fmt: skip
    ports, started = [free_port(), free_port()], []
    try:
        for port in ports:
            command = [
                sys.executable,
                "-m",
                "edgewise",
                "worker",
                tmp_path / "m.onnx",
                "--port",
                str(port),
            ]
            started.append(start(command, tmp_path / f"{port}.log"))
        for port in ports:
            ready = f"http://127.0.0.1:{port}/v2/health/ready"
            wait(f"worker at {port}", lambda ready=ready: _status(ready) == 200, 60, tmp_path / f"{port}.log")
        with Bed(Settings(servers=tuple(f"127.0.0.1:{port}" for port in ports))) as bed:
            answer = httpx.post(bed.url + PATH, content=BODY)
            assert answer.json()["outputs"][0]["data"] == [0.0, 1.0, 2.0, 3.0]
    finally:
        for each in started:
            each.kill()
            each.wait()


@pytest.mark.parametrize("body", [Body.NONE, Body.FULL_DUPLEX])
def test_calls_of_grpc_pass_over_http2_on_both_sides(body):
    server = grpc.server(ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    where = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with (
            Bed(Settings(servers=(where,), upstream_http2=True, body=body)) as bed,
            grpc.insecure_channel(bed.url.removeprefix("http://")) as channel,
        ):
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        server.stop(None)


def _status(url: str) -> int | None:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url).status_code
    return None


def family(of: int) -> set[int]:
    """A process and what it started, from /proc."""
    children: dict[int, set[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, set()).add(int(each.name))
    found, new = {of}, {of}
    while new:
        new = set().union(*(children.get(pid, set()) for pid in new)) - found
        found |= new
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_nothing_behind_however_its_starter_ends(how, tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "beds.envoy"]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        assert json.loads(made.stdout.readline())["picker"]
        everybody = family(made.pid)
        assert len(everybody) >= 4  # starter, servers, picker, Envoy
        made.send_signal(how)
        made.wait(20)
    wait("their end", lambda: not any(_runs(pid) for pid in everybody), 10)
    (root,) = tmp_path.glob("edgewise-beds-*/envoy")
    left = list(root.iterdir())
    assert len(left) == (how == signal.SIGKILL)
    if left:  # the next start cleans up
        with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as made:
            assert made.stdout is not None
            made.stdout.readline()
            made.terminate()
            made.wait(20)
        assert not list(root.iterdir())


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_what_cannot_come_up_says_why():
    wrong = replace(Settings(), balance="NEAREST", picker=None)
    with pytest.raises(BedError, match=r"Envoy ended:(.|\n)*NEAREST"), Bed(wrong):
        pass


def test_the_plain_picker_conforms_but_for_health(tmp_path):
    """It has no health services; everything else that is a must it does."""
    pytest.importorskip("picker_conformance", reason="pip install ./picker-conformance")
    report = tmp_path / "report.json"
    with Bed(Settings(body=Body.FULL_DUPLEX)) as bed:
        command = [sys.executable, "-m", "picker_conformance", "--target", bed.picker, "--json", report]
        subprocess.run(
            [*command, "--endpoints", ",".join(bed.servers)], check=False, capture_output=True, timeout=120
        )
    rows = json.loads(report.read_text())["cases"]
    failed = {row["id"] for row in rows if row["outcome"] == "fail" and row["level"] == "must"}
    assert failed == {"health.liveness", "health.readiness", "health.service"}
