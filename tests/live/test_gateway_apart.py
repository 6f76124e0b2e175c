"""A gateway as its pod runs it, beside a system of this machine: it goes on while its controller is away."""

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import asdict

import pytest

pytest.importorskip("lightkube", reason="needs the extra kubernetes")

from running_system import infer, open_stream, small_scenario, started

from edgewise.runtime import http
from edgewise.runtime.backends.kubernetes.gateways import AboutGateways
from edgewise.runtime.backends.kubernetes.models import ModelServer
from edgewise.runtime.http.ports import free_port
from edgewise.runtime.process.pod import MODELS_URL, PROCESS
from edgewise.runtime.store import Process
from waiting import becomes

pytestmark = pytest.mark.live
HANG_S = 120.0
BE = """
import json, pathlib, sys
from edgewise.runtime.process import pod
pod.main(json.loads(sys.argv[1]), *map(pathlib.Path, sys.argv[2:5]))
"""


def as_pod(system, url, folder):
    """Start one more gateway with nothing of the system but a URL and tokens; its public address too."""
    like = system.of("gateway-0").process
    shared = {"port": free_port()} | {name: like.settings[name] for name in ("host", "grpc_port", "tls")}
    settings = like.settings | {"pod": True, "share": (0, 1), "shared": shared}
    process = Process("gateway-9", "gateway", free_port(), settings)
    for whose in ("parts", "operator"):
        (folder / whose).write_text(system.store.secret(whose))
    told = {PROCESS: json.dumps(asdict(process)), MODELS_URL: url}
    paths = [str(folder), str(folder / "models"), str(folder / "state")]
    running = subprocess.Popen([sys.executable, "-c", BE, json.dumps(told), *paths])
    return running, process.front.url


def served(system):
    """A port of its own for what pods ask."""
    about = AboutGateways(system.folder.absolute())
    return lambda port: ModelServer("127.0.0.1", port, system.store.secret("parts"), about)


def test_a_gateway_answers_and_takes_streams_while_its_controller_is_away(tmp_path):
    with started(tmp_path / "system", small_scenario(workers=2)) as system:
        serve = served(system)
        server = serve(0)
        running, url = as_pod(system, f"http://127.0.0.1:{server.port}", tmp_path)
        try:
            asyncio.run(asyncio.wait_for(away(system, serve, server, url), HANG_S))
            running.send_signal(signal.SIGTERM)
            assert running.wait(30) == 0
        finally:
            running.kill()
            running.wait()


async def answers(client):
    with suppress(ConnectionError):
        return (await client.request("GET", "/v2/health/ready", timeout_s=5)).status == 200


async def away(system, serve, server, url):
    def kept():
        """Workers of this gateway's streams by number, as the controller knows them."""
        return {each.id: each.worker for each in system.store.records.open_streams("gateway-9")}

    with closing(http.Client.of_url(url)) as client:
        await becomes(lambda: answers(client), "the gateway to be ready")
        status, first = await open_stream(client)
        assert status == 201 and (await infer(client, first["stream"])).status == 200
        await becomes(lambda: kept().get(first["stream"]), "its stream to be handed in")
        server.close()
        status, second = await open_stream(client)
        assert status == 201
        for stream in (first, second):
            assert (await infer(client, stream["stream"])).status == 200
        assert second["stream"] not in kept()
        back = serve(server.port)
        try:
            await becomes(lambda: kept().get(second["stream"]), "what was handed in late")
        finally:
            back.close()
