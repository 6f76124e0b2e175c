"""The tutorial of the live gateway, as it stands: its worker, its gateway, its client."""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from waiting import wait_until

onnx = pytest.importorskip("onnx", reason="the extra `live` is not installed")
pytest.importorskip("tritonclient.http", reason="the extra `dev` is not installed")
pytestmark = pytest.mark.live
PAGE = (Path(__file__).resolve().parents[2] / "docs/tutorials/live-gateway.md").read_text(encoding="utf-8")
(HERE,) = re.findall(r"```yaml\n(name: here.*?)```", PAGE, re.S)
WORKER, GATEWAY, CLIENT, _ = re.findall(r"```python\n(.*?)```", PAGE, re.S)
(NEEDS,) = re.findall(r"/v1/streams -d '(.*?)'", PAGE, re.S)


def free_ports(count):
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


def identity(file):
    """A network that answers what it is asked."""
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["B", 3])
    same = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["B", 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [same])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), file)


def listening(port, process):
    def open_now():
        assert process.poll() is None, process.stderr.read()
        with socket.socket() as looks:
            return looks.connect_ex(("127.0.0.1", port)) == 0

    wait_until(open_now, f"something listens at {port}", 30.0)


def test_worker_gateway_and_client_of_the_tutorial_run_as_written(tmp_path):
    instead = dict(zip(("8000", "8001", "9000", "9001"), map(str, free_ports(4)), strict=True))
    (tmp_path / "here.yaml").write_text(HERE)
    identity(tmp_path / "my-model.onnx")
    for name, code in (("worker", WORKER), ("gateway", GATEWAY), ("client", CLIENT)):
        (tmp_path / f"{name}.py").write_text(re.sub(r"\b[89]00[01]\b", lambda port: instead[port[0]], code))
    running = []
    try:
        for command, port in ((["worker.py", "my-model.onnx"], "8001"), (["gateway.py"], "8000")):
            running.append(
                subprocess.Popen([sys.executable, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
            )
            listening(int(instead[port]), running[-1])
        url = f"http://127.0.0.1:{instead['8000']}/v1/streams"
        with urllib.request.urlopen(urllib.request.Request(url, NEEDS.encode())) as answer:
            assert answer.status == 201
            stream = str(json.load(answer)["stream"])
        done = subprocess.run(
            [sys.executable, "client.py", stream], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "'edgewise_variant': 'my-model-cpu'" in done.stdout
    finally:
        for process in running:
            process.terminate()
            process.communicate(timeout=30)
