"""Servers of the protocol that are not ours, behind a gateway; and the benchmark that compares with them."""

import asyncio
import json
import os
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from live_system import dense_world

from edgewise import policies
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.gateway.admin import with_admin
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from open_inference_server import Server
from waiting import becomes

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers"  # made by `make bench`; EDGEWISE_PEERS names another folder


@contextmanager
def plain_server():
    server = Server("127.0.0.1", 0, "echo")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@contextmanager
def peer_server(peer):
    python = Path(os.environ.get("EDGEWISE_PEERS", PEERS)) / peer / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"{peer} is not installed in {python.parents[1].name}: make bench tries")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [python, ROOT / "bench" / "peers" / f"{peer}_echo.py", str(port)], env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


async def register_and_use(url):
    """Tell a running gateway where its workers are, and send queries of both encodings."""
    session = Session(dense_world(), policies.load("dispatch", "least-impedance"), 0, time.monotonic)
    gateway = Gateway(session, [http.Client("127.0.0.1", 9)] * 2, ["nowhere"] * 2)
    front = await http.serve(with_admin(gateway))
    client = http.Client(front.host, front.port)
    for worker in ("dense-0", "dense-1"):
        place = json.dumps({"url": url, "model": "echo"}).encode()
        moved = await client.request("PUT", f"/v1/admin/workers/{worker}", body=place)
        assert moved.status == 200 and json.loads(moved.body)["url"] == url
    watching = asyncio.create_task(gateway.watch())
    other = http.Client.of_url(url)
    assert (await ask(other, "GET", "/v2/models/echo/ready", patience_s=60)).status == 200
    await becomes(lambda: session.core.view().up.all())
    needs = {"task": "score", "rate_qps": 1, "size_bytes": 32, "deadline_s": 20}
    opened = json.loads((await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())).body)
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    for binary in (True, False):
        asked = InferRequest({"x": x}, id="7", binary=binary)
        headers, body = encode_request(asked, json_inputs=() if binary else ("x",))
        headers["edgewise-stream"] = str(opened["stream"])
        answer = await ask(client, "POST", "/v2/models/score/infer", headers, body)
        assert answer.status == 200, answer.body
        np.testing.assert_array_equal(decode_response(answer.headers, answer.body).outputs["x"], x)
        assert answer.headers["edgewise-worker"] == opened["worker"]
    watching.cancel()
    for made in (client, other):
        made.close()
    await front.close(0.1)
    session.core.validate()


@pytest.mark.parametrize("server", ["plain", "mlserver", "kserve"])
def test_any_server_of_the_protocol_is_a_worker_by_its_address(server):
    with plain_server() if server == "plain" else peer_server(server) as url:
        asyncio.run(asyncio.wait_for(register_and_use(url), 120))


def test_the_benchmark_of_servers_compares_and_says_what_it_skipped(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import report, servers

    def found(name, qps):
        return {
            "name": name,
            "encoding": "JSON",
            "connections": 1,
            "qps": qps,
            "p50_s": 1 / qps,
            "cpu_s": 1 / qps,
        }

    rows = [found("fixed bytes", 900.0), found("worker", 600.0), found("MLServer", 100.0)]
    (ratio,) = servers.ratios_of(rows)
    assert (ratio["ours"], ratio["peer"]) == ("worker", "MLServer")
    assert [round(ratio[figure], 9) for figure in ("qps", "p50", "cpu")] == [6.0, 6.0, 6.0]
    result = servers.run(1, 0.05, {peer: Path("nowhere/python") for peer in servers.PEERS})
    assert set(result["skipped"]) == {"MLServer", "KServe"} and not result["ratios"]
    seen = {(row["name"], row["encoding"], row["connections"]) for row in result["rows"]}
    contenders = ("fixed bytes", "copying handler", *servers.OURS)
    assert seen == set(product(contenders, ("JSON", "binary"), servers.CONNECTIONS))
    assert all(row["qps"] > 0 for row in result["rows"])
    shown = "\n".join(report.servers(result))
    assert "not installed" in shown and "| ONNX Runtime |" in shown
    assert all(row["s"] > 0 for row in result["parts"])


def test_the_benchmark_of_the_gateway_measures_every_row(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import gateway, report

    result = gateway.run(1, 0.05)
    assert len(result["rows"]) == 4 and all(row["gateway_qps"] > 0 for row in result["rows"])
    assert "600 kB, 16" in "\n".join(report.gateway(result))
