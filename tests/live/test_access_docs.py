"""The page on access, as it stands: a system for other machines, and a worker and a gateway by hand."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from certificates import signed
from test_docs_live import LONG_S, commands_of, system
from test_gateway_docs import HERE, free_ports, identity, listening

from docs_commands import ROOT

pytestmark = pytest.mark.live
PAGE = (ROOT / "docs/access.md").read_text("utf-8")
TOKENS = {name: f"{name}-{12 * 'x'}" for name in ("clients", "workers", "operator")}
UP, WORKER, GATEWAY = commands_of("access.md")
(ASKED,) = re.findall(r"^```sh\n(curl --cacert .*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    """Certificates and tokens in files that are called as on the page."""
    signed(tmp_path)
    for name, token in TOKENS.items():
        (tmp_path / f"{name}.token").write_text(f"{token}\n")
    return tmp_path


def curl(folder, port, shown=ASKED):
    """What the page's own command is told, of a server at this port of this machine."""
    said = f"curl -s --resolve edge.example:{port}:127.0.0.1"
    command = shown.replace("curl ", f"{said} ", 1).replace(":8000", f":{port}")
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True).stdout


def test_other_machines_reach_a_system_with_a_token_over_tls(folder):
    pytest.importorskip("grpc")
    with system(folder, UP.replace("9000", "0")) as (_, said):
        port = re.search(r"gateway-0: https://127.0.0.1:(\d+), gRPC at port \d+", said)[1]
        assert curl(folder, port).strip() == "[]"
        (folder / "clients.token").write_text("another")
        assert "error" in curl(folder, port)
        assert curl(folder, port, ASKED.replace("--cacert ca.pem ", "")) == ""  # nobody else vouches for it


def test_a_worker_and_a_gateway_by_hand_ask_for_their_tokens(folder):
    (folder / "here.yaml").write_text(HERE)
    identity(folder / "my-model.onnx")
    ports, running = free_ports(2), []
    try:
        for command, port in zip((WORKER, GATEWAY), ports[::-1], strict=True):
            words = shlex.split(command.replace(":8001", f":{ports[1]}"))
            running.append(subprocess.Popen(
                [sys.executable, "-m", "edgewise", *words, "--port", str(port)], cwd=folder,
                stderr=subprocess.PIPE, text=True, env=os.environ,
            ))  # fmt: skip
            listening(port, running[-1])
        local = ASKED.replace("https://edge.example", "http://localhost")
        assert curl(folder, ports[0], local).strip() == "[]"
        path, client = "/v1/admin/workers", "clients.token"
        admin = local.replace("/v1/streams", path)
        assert "error" in curl(folder, ports[0], admin)
        found = curl(folder, ports[0], admin.replace(client, "operator.token"))
        assert '"my-model-cpu@node"' in found and '"up": true, "refuses_token": false' in found
    finally:
        for process in running:
            process.terminate()
            process.wait(LONG_S)
