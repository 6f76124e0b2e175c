"""A network split live on this machine: workers and a gateway as processes, queries, and their answers.

    cut → calibrate at a worker → for each policy: start, send Poisson queries to the gateway, end

What comes back is compared with the whole network in ONNX Runtime, and the time with the forecast.
"""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_urlsafe
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import onnx

from edgewise.arrays import Floats
from edgewise.core.keyed import Key, Purpose, uniform
from edgewise.errors import ProfileError, ProtocolError, RunError
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.policies.split import Contraction, predicted_s, split_policy
from edgewise.profiling.dags import cut
from edgewise.runtime import disk, http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.controller.plan import Emulation, prepare
from edgewise.runtime.gateway.split import program_of
from edgewise.runtime.protocol.messages import (
    DTYPES,
    SENT,
    SERVERS,
    InferRequest,
    decode_response,
    encode_request,
)
from edgewise.runtime.protocol.tensors import Array
from edgewise.runtime.store import Process
from edgewise.runtime.worker.batching import Line
from edgewise.runtime.worker.onnx_model import OnnxModel
from edgewise.runtime.worker.pieces import (
    SUFFIX,
    WHOLE,
    Cut,
    PieceWorker,
    calibrate,
    describe,
    write_about,
    write_split,
)
from edgewise.runtime.worker.worker import LiveWorker

VARIANT, TASK, POWER_OPS = "network", "infer", 1e9
START_S, DEADLINE_S, WARM = 150.0, 30.0, 5


@dataclass(frozen=True, slots=True)
class Trial:
    """What a policy's queries took.

    Attributes:
        policy: its name.
        time_s: (Q,) from sending a query to the gateway to its answer.
        workers: (Q,) how many carried it out.
        sent_bytes: mean of a query between workers.
        predicted_s: mean by the formula with measured costs; None where the policy has none.
        difference: largest, between outputs and those of the whole network, over the largest output.
    """

    policy: str
    time_s: Floats
    workers: Floats
    sent_bytes: float
    predicted_s: float | None
    difference: float


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """What a live trial runs.

    Attributes:
        servers: workers, each a process.
        rate_qps, queries: Poisson queries of each policy.
        link_bps: capacity that the formula assumes between workers.
        seed: of arrivals and inputs.
    """

    servers: int = 3
    rate_qps: float = 10.0
    link_bps: float = 1e10
    queries: int = 200
    seed: int = 0


def try_split(
    model: onnx.ModelProto,
    small: Contraction,
    shapes: Mapping[str, Sequence[int]],
    folder: Path,
    policies: Sequence[str],
    setting: TrialSetting,
) -> list[Trial]:
    """Run a network live under split policies in turn.

    Args:
        model, small: the network and its contracted graph.
        shapes: of inputs with free axes.
        folder: for the sub-models, and the live system's state and logs.
    Raises:
        RunError: the live system does not start, or refuses a query.
    """
    home, rate_qps = folder / f"{VARIANT}{SUFFIX}", setting.rate_qps
    pieces = cut(model, small.members, shapes)
    about = describe(
        model, small.graph, pieces, power_ops=POWER_OPS, link_bps=setting.link_bps, rate_qps=rate_qps
    )
    write_split(home, model, pieces, about)
    whole = OnnxModel(VARIANT, home / WHOLE)
    inputs = draw_inputs(whole, shapes, setting.seed)
    expected = whole.run(InferRequest(inputs)).outputs
    about = about.with_seconds(asyncio.run(_calibrated(home, about, inputs)))
    gaps_s = _gaps(rate_qps, setting.queries + WARM, setting.seed)
    found = []
    for policy in policies:
        about = replace(about, policy=policy)
        write_about(home, about)
        state = folder / re.sub(r"[^\w.-]+", "-", policy).strip("-")  # a policy may be named by its file
        disk.remove_folder(state)
        answers = asyncio.run(_measured(state, folder, setting, gaps_s, inputs))
        found.append(_judged(about, setting.servers, answers[WARM:], expected))
    return found


def draw_inputs(model: OnnxModel, shapes: Mapping[str, Sequence[int]], seed: int = 0) -> dict[str, Array]:
    """One query: normal numbers; zeros where a tensor holds no floats.

    Raises:
        ProfileError: an axis is free and `shapes` does not say how long it is, or a tensor holds text.
    """
    rng, found = np.random.default_rng(seed), {}
    for name, (datatype, axes) in model.inputs.items():
        shape = list(shapes.get(name, axes))
        if not all(isinstance(size, int) for size in shape):
            raise ProfileError(f"input {name!r} has free axes {axes}; give its shape")
        if datatype == "BYTES":
            raise ProfileError(f"input {name!r} holds text; live trials need numbers")
        dtype = DTYPES[datatype]
        found[name] = rng.normal(size=shape).astype(dtype) if datatype[:2] == "FP" else np.zeros(shape, dtype)
    return found


async def _calibrated(home: Path, about: Cut, inputs: dict[str, Array]) -> dict[str, float]:
    """Seconds of every task at a worker in this process."""
    line, token = Line(), token_urlsafe()
    worker = PieceWorker(LiveWorker(OnnxModel(VARIANT, home / WHOLE), line=line), home, about.parts, line)
    server = await http.serve(http.protect(worker.handle, http.AccessGuard((token,))))
    client = http.Client.of_url(server.url, token)
    try:
        return await calibrate(about, client, inputs)
    finally:
        client.close()
        await server.close(0.1)
        await worker.drain()


def _gaps(rate_qps: float, queries: int, seed: int) -> Floats:
    return np.asarray(-np.log(uniform(Key(seed).seed, Purpose.ARRIVAL, np.arange(queries), 0)) / rate_qps)


def live_scenario(servers: int, size_bytes: int, rate_qps: float = 1.0, burst: int = 20) -> Scenario:
    """One site beside one cluster with all the workers of one variant.

    Args:
        rate_qps, burst: of the one stream, see `Streams`.
    """
    cluster = {"name": "here", "tier": 0, "nodes": [{"name": "machine", "resources": {"cpu_cores": servers}}]}
    return parse_scenario(
        {
            "name": "split", "duration_s": 60,
            "catalog": {
                "models": [{"name": "network", "task": TASK, "accuracy": 1}],
                "variants": [{
                    "name": VARIANT, "model": "network", "resources": {"cpu_cores": 1},
                    "profile": {"fixed_s": 1e-6, "source": "not used: live"},
                    "largest_bytes": max(size_bytes, 1),
                }],
            },
            "clusters": [cluster],
            "sites": [{"name": "site", "uplink_bps": 1e12}],
            "links": [{"site": "*", "cluster": "here", "delay_s": 0.0}],
            "workers": [{"variant": VARIANT, "cluster": "here", "count": servers}],
            "streams": {
                "applications": [{"name": "any", "task": TASK, "rate_qps": rate_qps, "length_s": 60,
                                  "size_bytes": max(size_bytes, 1), "deadline_s": DEADLINE_S}],
                "arrivals": {"clients_per_min": 1},
                "burst": burst,
            },
        },
        "split",
    )  # fmt: skip


Answered = tuple[float, http.Response]
REAL = Emulation(on=False)


@contextlib.asynccontextmanager
async def running(
    folder: Path, models: Path | None, scenario: Scenario, emulation: Emulation = REAL
) -> AsyncIterator[str]:
    """A live system of a scenario in processes of its own, with one gateway; yields its address.

    Args:
        models, emulation: see `prepare`.
    Raises:
        RunError: it does not answer; its logs say why.
    """
    store = prepare(folder, scenario, models=models, gateways=1, emulation=emulation)
    wanted = [row.process for row in store.processes()]
    store.close()
    nursery = subprocess.Popen([sys.executable, "-m", "edgewise.runtime.controller.nursery", str(folder)])
    try:
        for process in wanted:
            await _answers(process, folder)
        gateway = next(process for process in wanted if process.kind == "gateway")
        await _reaches_all(gateway, folder)
        yield gateway.url
    finally:
        nursery.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(nursery.wait, 20)


async def _answers(process: Process, folder: Path) -> None:
    client = http.Client.of_url(process.url)
    try:
        await ask(client, "GET", "/v2/health/ready", patience_s=START_S)
    except (ConnectionError, TimeoutError):
        raise RunError(f"{process.name} does not answer; see the logs in {folder}") from None
    finally:
        client.close()


async def _reaches_all(gateway: Process, folder: Path) -> None:
    """Wait until the gateway has seen every worker up."""
    client, until_s = http.Client.of_url(gateway.url), monotonic() + START_S
    try:
        while True:
            page = (await client.request("GET", "/metrics")).body.decode()
            ups = [line for line in page.splitlines() if line.startswith("edgewise_gateway_worker_up{")]
            if ups and all(float(line.rsplit(" ", 1)[1]) == 1.0 for line in ups):
                return
            if monotonic() > until_s:
                raise RunError(f"the gateway does not reach every worker; see the logs in {folder}")
            await asyncio.sleep(0.05)
    finally:
        client.close()


async def _measured(
    state: Path, models: Path, setting: TrialSetting, gaps_s: Floats, inputs: dict[str, Array]
) -> list[Answered]:
    """Poisson queries to the gateway; the first of them one after the other, to warm up."""
    size_bytes, rate_qps = sum(array.nbytes for array in inputs.values()), setting.rate_qps
    headers, body = encode_request(InferRequest(inputs))
    scenario = live_scenario(setting.servers, size_bytes, rate_qps, burst=gaps_s.size)
    async with running(state, models, scenario, Emulation(False, setting.seed)) as url:
        client = http.Client.of_url(url)
        headers |= {"edgewise-rate-qps": f"{rate_qps:g}", "edgewise-deadline-s": str(DEADLINE_S)}

        async def send() -> Answered:
            began = perf_counter()
            answer = await client.request("POST", f"/v2/models/{TASK}/infer", headers, body, DEADLINE_S)
            return perf_counter() - began, answer

        try:
            answers = [await send() for _ in range(WARM)]
            sent: list[asyncio.Task[Answered]] = []
            for gap_s in gaps_s[WARM:]:
                await asyncio.sleep(float(gap_s))
                sent.append(asyncio.create_task(send()))
            return answers + list(await asyncio.gather(*sent))
        except (ConnectionError, TimeoutError) as error:
            raise RunError(f"the gateway: {error}; see the logs in {state}") from error
        finally:
            client.close()


def _judged(about: Cut, servers: int, answers: Sequence[Answered], expected: dict[str, Array]) -> Trial:
    """Times, and how far outputs are from those of the whole network."""
    difference = 0.0
    for _, answer in answers:
        if answer.status != 200:
            raise RunError(
                f"{about.policy}: status {answer.status}: {answer.body[:300].decode(errors='replace')}"
            )
        try:
            outputs: dict[str, Any] = decode_response(answer.headers, answer.body).outputs
        except ProtocolError as error:
            raise RunError(f"{about.policy}: the answer cannot be read: {error}") from error
        for name, array in expected.items():
            largest = max(float(np.abs(array).max(initial=0.0)), 1e-12)
            difference = max(difference, float(np.abs(outputs[name] - array).max(initial=0.0)) / largest)
    return Trial(
        about.policy,
        np.array([time_s for time_s, _ in answers]),
        np.array([1.0 + answer.headers[SERVERS].count(",") for _, answer in answers]),
        float(np.mean([float(answer.headers[SENT]) for _, answer in answers])),
        predicted_s(split_policy(about.policy, program_of(about, servers))),
        difference,
    )
