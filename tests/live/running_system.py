"""A whole live system in processes of its own, for tests."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np

from edgewise.model.parsing import parse_scenario
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask, operator
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from waiting import becomes, pace


def small_scenario(workers=3, capacity_qps=200, gateways_sites=1):
    """Workers of 3 ms on two clusters that are 1 and 4 ms away."""
    room = {"cpu_cores": 9, "memory_bytes": 8e9}
    return parse_scenario(
        {
            "name": "small", "duration_s": 60,
            "catalog": {
                "models": [{"name": "echo", "task": "score", "accuracy": 50}],
                "variants": [{
                    "name": "echo-cpu", "model": "echo", "resources": {"cpu_cores": 1},
                    "profile": {"fixed_s": 0.003, "deviation": 0.1, "source": "made up"},
                    "capacity_qps": capacity_qps, "largest_bytes": 1000,
                }],
            },
            "clusters": [
                {"name": "near", "tier": 0, "nodes": [{"name": "near-node", "resources": room}]},
                {"name": "far", "tier": 1, "nodes": [{"name": "far-node", "resources": room}]},
            ],
            "sites": [{"name": "site", "count": gateways_sites, "uplink_bps": 1e9}],
            "links": [
                {"site": "*", "cluster": "near", "delay_s": 0.001, "deviation_s": 0.0002},
                {"site": "*", "cluster": "far", "delay_s": 0.004, "deviation_s": 0.0004},
            ],
            "workers": [{"variant": "echo-cpu", "cluster": "near", "count": workers - 1},
                        {"variant": "echo-cpu", "cluster": "far"}],
            "streams": {
                "applications": [{"name": "any", "task": "score", "rate_qps": 10, "size_bytes": 100,
                                  "deadline_s": 5, "length_s": 60}],
                "arrivals": {"clients_per_min": 1},
            },
        },
        "small",
    )  # fmt: skip


class System:
    """A prepared folder and the nursery that runs it."""

    def __init__(self, folder, scenario, cache=None, **options):
        self.folder, self.cache = folder, cache
        self.store = prepare(folder, scenario, **options)
        self.nursery = None

    def start(self):
        command = [sys.executable, "-m", "edgewise.runtime.controller.nursery", str(self.folder)]
        env = dict(os.environ)
        if self.cache is not None:
            env.pop("NUMBA_CACHE_DIR", None)  # set by this process, for itself
            env["EDGEWISE_CACHE"] = str(self.cache)
        self.nursery = subprocess.Popen(command, env=env)

    async def ready(self, token=None):
        """Wait until every wanted process answers and every gateway reaches all workers; a client's token."""
        wanted = [row.process for row in self.store.processes() if row.process.wanted]
        await asyncio.gather(*(self.answers(process) for process in wanted))
        for process in wanted:
            if process.kind == "gateway":
                await self.reaches_all(process, token=token)

    async def reaches_all(self, gateway, patience_s=60, token=None):
        client = http.Client.of_url(gateway.url, token)

        async def all_up():
            page = (await ask(client, "GET", "/metrics", patience_s=patience_s)).body.decode()
            ups = re.findall(r"^edgewise_gateway_worker_up\{.*\} (.*)$", page, re.M)
            return set(ups) == {"1.0"}

        await becomes(all_up, f"{gateway.name} reaches all workers", patience_s)
        client.close()

    async def answers(self, process):
        client = http.Client.of_url(process.url)
        path = "/v2/health/ready"
        answer = await ask(client, "GET", path, patience_s=240 if self.cache else 60)  # compiles
        client.close()
        assert answer.status == 200

    async def get(self, path, method="GET", body=None):
        data = b"" if body is None else json.dumps(body).encode()
        client = operator(self.store)
        answer = await ask(client, method, path, body=data, patience_s=30)
        client.close()
        return json.loads(answer.body)

    async def switch(self, path, policy):
        """Have a policy switched, and wait for the end; the operation."""
        operation = await self.get(path, "PUT", {"policy": policy})

        async def over():
            now = await self.get(f"/v1/operations/{operation['id']}") if "id" in operation else operation
            return now if now.get("state", "failed") in ("done", "failed") else None

        return await becomes(over)

    def of(self, name):
        return next(r for r in self.store.processes() if r.process.name == name)

    def gateway(self, number=0):
        return http.Client.of_url(self.of(f"gateway-{number}").process.url)

    def pid(self, name):
        handle = self.store.get("controller_handle") if name == "controller" else self.of(name).handle
        return handle and int(handle.split(":")[0])

    async def kill(self, name):
        """Kill -9, then wait for its successor to answer; returns how long that took."""
        before, began = self.pid(name), time.monotonic()
        os.kill(before, signal.SIGKILL)
        await becomes(lambda: self.pid(name) not in (before, None))
        if name == "controller":
            await self.get("/v1/status")
        else:
            await self.answers(self.of(name).process)
        return time.monotonic() - began

    def stop(self):
        if self.nursery is not None and self.nursery.poll() is None:
            self.nursery.send_signal(signal.SIGTERM)
            self.nursery.wait(30)
        self.store.close()


@contextmanager
def started(folder, scenario, **options):
    """A system whose processes all answer; it is stopped in the end."""
    system = System(folder, scenario, **options)
    try:
        system.start()
        asyncio.run(system.ready())
        yield system
    finally:
        system.stop()


async def open_stream(client, **changes):
    needs = {"task": "score", "rate_qps": 10, "size_bytes": 100, "deadline_s": 5.0} | changes
    answer = await ask(client, "POST", "/v1/streams", body=json.dumps(needs).encode(), patience_s=30)
    return answer.status, json.loads(answer.body)


async def infer(client, stream, patience_s=30.0):
    headers, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
    headers["edgewise-stream"] = str(stream)
    return await ask(client, "POST", "/v2/models/score/infer", headers, body, patience_s=patience_s)


async def infer_until(client, stream, until, pause_s, statuses=None):
    """A client that follows the retry rule; the statuses of its queries, which are seen as they come."""
    statuses = [] if statuses is None else statuses
    while not until.is_set():
        statuses.append((await infer(client, stream)).status)
        await pace(pause_s)
    return statuses
