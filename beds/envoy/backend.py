"""Fake inference servers of the Open Inference Protocol, whose delay and failures are scripted.

    POST /v2/models/{model}/infer    the input comes back after the scripted delay
    GET  /v2/health/live, ready; /v2/models/{model}, …/ready
    GET  /metrics                    in the names of Triton and of KServe, as old as the chosen lag
    GET  /script   PUT /script       see `Script`

Several servers live in one process, each on a port of its own: the fake is to be light.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Script:
    """How a server behaves from now on.

    Attributes:
        delay_s: of one inference, by itself.
        spread: "constant", or "exponential" with the mean `delay_s`.
        at_once: how many run side by side; others wait.
        fails: None, "503", "reset" (the connection breaks) or "hang" (never an answer).
        share: of the requests that fail so.
    """

    delay_s: float = 0.0
    spread: str = "constant"
    at_once: int = 1_000_000
    fails: str | None = None
    share: float = 1.0


class Backend:
    """One server.

    Args:
        name: in its metrics and answers.
        seed: of delays and failures.
        lag_s: age that its metrics reach.
    """

    def __init__(self, name: str, seed: int, lag_s: float) -> None:
        self.name, self.lag_s = name, lag_s
        self.random = random.Random(seed)
        self.waiting = self.running = self.served = self.failed = 0
        self.queued_s = self.busy_s = 0.0
        self.snapshot, self.taken_s = "", float("-inf")
        self.use(Script())

    def use(self, script: Script) -> None:
        """Follow another script."""
        self.script, self.slots = script, asyncio.Semaphore(script.at_once)

    def app(self) -> web.Application:
        """Its paths."""
        made = web.Application(client_max_size=256 * 2**20)
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/{model}", "/v2/models/{model}/ready"):
            made.router.add_get(path, self.about)
        made.router.add_post("/v2/models/{model}/infer", self.infer)
        made.router.add_get("/metrics", self.metrics)
        made.router.add_get("/script", self.show)
        made.router.add_put("/script", self.change)
        return made

    async def about(self, request: web.Request) -> web.Response:
        """Health and metadata."""
        model = request.match_info.get("model", self.name)
        return web.json_response(
            {"name": model, "versions": ["1"], "platform": "fake", "live": True, "ready": True}
        )

    async def infer(self, request: web.Request) -> web.StreamResponse:
        """One inference, as scripted."""
        body, script, arrived_s = await request.read(), self.script, time.monotonic()
        if script.fails is not None and self.random.random() < script.share:
            return await self.fail(request, script.fails)
        delay_s = script.delay_s
        if script.spread == "exponential" and delay_s > 0:
            delay_s = self.random.expovariate(1 / delay_s)
        self.waiting += 1
        async with self.slots:
            self.waiting -= 1
            self.running += 1
            self.queued_s += time.monotonic() - arrived_s
            try:
                await asyncio.sleep(delay_s)
            finally:
                self.running -= 1
                self.busy_s += delay_s
        self.served += 1
        return web.Response(body=body, content_type="application/json", headers={"x-backend": self.name})

    async def fail(self, request: web.Request, how: str) -> web.StreamResponse:
        """Fail in the scripted way."""
        self.failed += 1
        if how == "hang":
            await asyncio.Event().wait()
        if how == "reset":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=503, text="scripted")

    async def show(self, request: web.Request) -> web.Response:
        """The script, and what was done so far."""
        return web.json_response(asdict(self.script) | {"served": self.served, "failed": self.failed})

    async def change(self, request: web.Request) -> web.Response:
        """Change some fields of the script."""
        try:
            self.use(replace(Script(), **await request.json()))
        except (TypeError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return await self.show(request)

    async def metrics(self, request: web.Request) -> web.Response:
        """The metrics, made anew only when the last ones are as old as the lag."""
        now_s = time.monotonic()
        if now_s >= self.taken_s + self.lag_s:
            self.snapshot, self.taken_s = self.measured(), now_s
        return web.Response(text=self.snapshot, content_type="text/plain")

    def measured(self) -> str:
        """Counts and times by now, in the names of Triton and of KServe's runtime."""
        triton = f'{{model="{self.name}",version="1"}}'
        kserve = f'{{model_name="{self.name}"}}'
        rows: list[tuple[str, str, str, float]] = [
            ("nv_inference_request_success", "counter", triton, self.served),
            ("nv_inference_request_failure", "counter", triton, self.failed),
            ("nv_inference_count", "counter", triton, self.served),
            ("nv_inference_exec_count", "counter", triton, self.served),
            ("nv_inference_queue_duration_us", "counter", triton, round(1e6 * self.queued_s)),
            ("nv_inference_compute_infer_duration_us", "counter", triton, round(1e6 * self.busy_s)),
            (
                "nv_inference_request_duration_us",
                "counter",
                triton,
                round(1e6 * (self.queued_s + self.busy_s)),
            ),
            ("nv_inference_pending_request_count", "gauge", triton, self.waiting + self.running),
            ("request_predict_seconds_count", "counter", kserve, self.served),
            ("request_predict_seconds_sum", "counter", kserve, self.busy_s),
            ("num_requests_running", "gauge", kserve, self.running),
            ("num_requests_waiting", "gauge", kserve, self.waiting),
        ]
        return "".join(
            f"# TYPE {name} {kind}\n{name}{labels} {value}\n" for name, kind, labels, value in rows
        )


async def serve(count: int, lag_s: float) -> None:
    """Serve `count` of them on free ports, said in one line, until ended."""
    ports: list[Any] = []
    for number in range(count):
        runner = web.AppRunner(Backend(f"fake-{number}", number, lag_s).app(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
