"""One physical trace of a split model through the simulator and a live gateway: cores hear and say the same.

The gateway's group is that of `edgewise up`, on a virtual clock, with two servers that are played: each works
on the oldest query that waits for it. One dies, and comes back. What a gateway hears of tasks that ended is
left out: live it comes with each answer, in simulation by telemetry.
"""

import asyncio

import numpy as np
import pytest
from ground import until
from prometheus_client import CollectorRegistry
from same_events import share_alike
from virtual import played

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.split import QueryClass, closed
from edgewise.core.split.core import QueryArrived, QueryLost, RunQuery, ServerChanged, SplitCore
from edgewise.core.world import World
from edgewise.model.grammar.scenario import BudgetsSpec, TelemetrySpec
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import build_program
from edgewise.runtime import http
from edgewise.runtime.gateway import split as live_split
from edgewise.runtime.gateway.forwarding import Patience
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import (
    AGE,
    InferRequest,
    InferResponse,
    decode_request,
    encode_request,
    encode_response,
)
from edgewise.runtime.worker.pieces import Cut, Part
from edgewise.sim.parts.graphs import GraphsPart, SplitWorld

POWER_OPS, RATE_QPS, QUERIES, SEED, SERVERS = 1e9, 1.0, 60, 7, 2
CHECK_S, TIMEOUT_S = 0.1, 0.25  # a gateway asks whether servers are ready, and waits for an answer
FAILS_S, BACK_S, LAG_S = 20.09, 34.84, 0.26  # until a check that began later has had its answer, or none
TASKS = [("one", 4e8, ("x",), ("a",)), ("two", 3e8, ("a",), ("y",)), ("three", 5e8, ("a",), ("z",))]
GRAPH = TaskGraph(
    "fan", tuple(Task(name, work) for name, work, _, _ in TASKS),
    (Edge("one", "two", 0.0), Edge("one", "three", 0.0)),
)  # fmt: skip
PARTS = tuple(Part(f"piece-{name}", name, ins, outs) for name, _, ins, outs in TASKS)
CUT = Cut(GRAPH, PARTS, ("x",), ("y", "z"), POWER_OPS, 1e15, RATE_QPS)
WORK = {part.name: work for part, (_, work, _, _) in zip(PARTS, TASKS, strict=True)}
TENSOR = np.zeros(1, dtype=np.float32)


class Apart:
    """Tasks on servers in turn."""

    decision, name = "split", "apart"

    def reset(self, program, key):
        self.servers = len(program.server_ops)

    def decide(self, view):
        tasks = len(closed(GRAPH).tasks)
        return (view.query + np.arange(tasks)) % self.servers


def noted(patched):
    log, handle = [], SplitCore.handle

    def handle_and_note(core, event):
        commands = handle(core, event)
        core.validate()
        if isinstance(event, QueryArrived | QueryLost | ServerChanged):
            log.append((event, list(commands)))
        return commands

    patched.setattr(SplitCore, "handle", handle_and_note)
    return log


def told(log):
    """Events and commands as plain figures; those of one moment by kind and number."""
    found = []
    for event, commands in log:
        runs = [(c.query, c.servers.tolist()) for c in commands if isinstance(c, RunQuery)]
        rest = tuple(event)[1:]
        found.append((round(event.time_s, 6), type(event).__name__, rest, runs))
    return sorted(found, key=lambda each: each[:3])


def simulated():
    """The log, and when queries were sent."""
    program = build_program([QueryClass(GRAPH, RATE_QPS)], SERVERS, POWER_OPS, 1e15)
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        core = SplitCore(program, Apart(), SEED)
        world = SplitWorld(program, QUERIES, SEED, core, TelemetrySpec(period_s=0.5, lag_s=LAG_S))
        part = GraphsPart(world, [f"node-{k}" for k in range(SERVERS)], 1e9, (LAG_S, 0.0))
        part.change_node("node-0", False, FAILS_S)
        part.change_node("node-0", True, BACK_S)
        part.finish()
        return log, world.sent_s


class PlayedServer:
    """Works on the oldest query that waits for it; what it has when it dies has no answer."""

    def __init__(self):
        self._loop, self._waiting, self._busy, self.up = asyncio.get_running_loop(), [], False, True
        self._order = 0

    def die(self):
        self.up, self._waiting, self._busy = False, [], None

    def start(self):
        self.up, self._busy = True, False

    def take(self, began_s, took_s, done):
        self._order += 1
        self._waiting.append((round(began_s, 5), self._order, took_s, done))
        self._loop.call_soon(self._go_on)

    def _go_on(self):
        if self._busy is False and self._waiting:
            first = min(self._waiting)
            self._waiting.remove(first)
            self._busy = True
            self._loop.call_at(self._loop.time() + first[2], self._ended, first[3])

    def _ended(self, done):
        if self._busy is None:
            return
        self._busy = False
        if not done.done():
            done.set_result(None)
        self._go_on()


class SplitClient:
    """What a gateway has in place of connections to a server."""

    url = "played"

    def __init__(self, server):
        self._server, self._under_way = server, set()

    def close(self):
        """Nothing is open."""

    def abort(self):
        for each in self._under_way:
            if not each.done():
                each.set_exception(ConnectionError("given up"))

    async def request(self, method, path, headers=None, body=b"", timeout_s=30.0):
        if not path.endswith("/infer"):
            if self._server.up:
                return http.Response(200, b'{"extensions": ["binary_tensor_data"]}')
            await asyncio.sleep(timeout_s)
            raise TimeoutError("no answer")
        loop, name = asyncio.get_running_loop(), path.split("/")[-2]
        work = WORK.get(name, sum(WORK.values()))
        done = loop.create_future()
        self._under_way.add(done)
        if self._server.up:
            self._server.take(loop.time() - float(headers[AGE]), work / POWER_OPS, done)
        async with asyncio.timeout(timeout_s):
            await done
        asked = decode_request(headers, body)
        outs = next((part.outputs for part in PARTS if part.name == name), CUT.outputs)
        more, text = encode_response(
            InferResponse(name, dict.fromkeys(outs, TENSOR)), asked.binary, asked.binary_outputs
        )
        return http.Response(200, text, more)


async def live(sent_s, patched):
    loop = asyncio.get_running_loop()
    patched.setattr(live_split, "load", lambda *_: Apart())
    scenario = load_scenario("three-tier")
    world = World.build(scenario.catalog, scenario.topology)
    rules = StreamRules(budgets_s=BudgetsSpec(split=60.0))
    session = Session(world, policies.load("dispatch", "closest"), SEED, loop.time, rules)
    servers = [PlayedServer() for _ in range(SERVERS)]
    others = [PlayedServer() for _ in range(world.workers - SERVERS)]
    clients = [SplitClient(server) for server in servers + others]
    patience = Patience(
        health_period_s=CHECK_S, health_timeout_s=TIMEOUT_S, health_misses=1, health_spread=0.0
    )
    gateway = Gateway(session, clients, list(world.variant_names), patience)
    members = [live_split.SplitUpstream(client, "fan") for client in clients[:SERVERS]]
    gateway.upstreams[:SERVERS] = members
    metrics = live_split.SplitMetrics(CollectorRegistry())
    names = list(world.worker_names[:SERVERS])
    live_split.SplitGroup("fan", CUT, members, names, metrics, session)
    loop.call_at(FAILS_S, servers[0].die)
    loop.call_at(BACK_S, servers[0].start)
    watching = loop.create_task(gateway.watch())

    async def ask(number, at_s):
        await until(at_s)
        headers, body = encode_request(InferRequest({"x": TENSOR}))
        return await members[number % SERVERS].infer(headers, body, 100.0)

    answers = await asyncio.gather(*(ask(i, at_s) for i, at_s in enumerate(sent_s.tolist())))
    watching.cancel()
    assert {answer.status for answer in answers} == {200}


def test_a_gateway_hears_of_queries_and_splits_them_as_simulated():
    log, sent_s = simulated()
    with pytest.MonkeyPatch.context() as patched:
        live_log = noted(patched)
        played(live(sent_s, patched))
    before, after = told(log), told(live_log)
    assert share_alike(before, after) == 1.0
    kinds = [kind for _, kind, *_ in before]
    assert kinds.count("QueryArrived") == QUERIES and kinds.count("QueryLost") == 3
    assert kinds.count("ServerChanged") == 2
