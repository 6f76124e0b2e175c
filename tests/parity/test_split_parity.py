"""Simulation and gateway drive one core of splitting; compiled code takes its decisions to the last bit."""

import asyncio
import os
import signal
import time

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.split.core import PlanMade, QueryArrived, QueryLost, ServersTold, SplitCore
from edgewise.core.world import World
from edgewise.model.grammar.scenario import BudgetsSpec, TelemetrySpec
from edgewise.model.graphs import ServerGroup
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program, contract
from edgewise.policies.split.layout import joined, layout_program
from edgewise.profiling.dags import cut, task_graph
from edgewise.runtime import http
from edgewise.runtime.clients.split_trial import VARIANT, live_scenario, running
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.gateway import split as live
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import InferRequest, decode_response, encode_request
from edgewise.runtime.store import Store
from edgewise.runtime.worker.pieces import describe, write_split
from edgewise.sim.parts import graphs as simulated
from edgewise.testing.driven import plain
from split_models import branching

TASKS = (Task("in", 1e9), *(Task(f"branch{i}", (3 + i) * 1e9) for i in range(3)), Task("out", 1e9))
EDGES = tuple(Edge(*pair, 1e6) for t in TASKS[1:-1] for pair in (("in", t.name), (t.name, "out")))
CLASSES = [QueryClass(TaskGraph("fan", TASKS, EDGES), 3.0), QueryClass(TaskGraph("one", TASKS[:1], ()), 2.0)]
GROUPS = joined([ServerGroup("edge", 2, 2e10), ServerGroup("cloud", 3, 1e11)], {("edge", "cloud"): 1e9})
LATE = TelemetrySpec(period_s=0.25, lag_s=0.6)


def program_for(name):
    if name == "nona-layout":
        return layout_program(CLASSES[:1], GROUPS)
    return build_program(CLASSES, 6, 1e10, 1e9)


class Asked:
    """A policy that ships, asked query by query, in Python."""

    def __init__(self, policy):
        self.policy, self.name, self.reset = policy, policy.name, policy.reset
        self.decide = policy.decide
        if hasattr(policy, "renewed"):
            self.renewed = lambda rates: (made := policy.renewed(rates)) and Asked(made)


class Recorder(SplitCore):
    """Keeps what goes in and comes out."""

    made: "Recorder"

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.log = []
        Recorder.made = self

    def handle(self, event):
        commands = super().handle(event)
        self.validate()
        self.log.append((event, plain(commands)))
        return commands


class Halved(Recorder):
    """Its plan is for half the rates, as it thinks."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.state.rates.planned_qps[:] /= 2


def replayed(core, log):
    """What a core makes of the events that another was told."""
    return [plain(core.handle(event)) for event, _ in log]


def state_of(core):
    return plain(core.state)


@pytest.mark.parametrize("telemetry", [None, LATE], ids=["at once", "late"])
@pytest.mark.parametrize("name", policies.names("split"))
def test_compiled_code_decides_as_the_core_does_and_its_events_give_the_same_commands(
    name, telemetry, monkeypatch
):
    """With plans for half the rates to begin with, so that where they follow they are made anew."""
    monkeypatch.setattr(simulated, "SplitCore", Halved)
    program, policy = program_for(name), policies.load("split", name)
    compiled = simulated.simulate_split(policy, program, 700, 3, telemetry)
    fast = Recorder.made
    asked = simulated.simulate_split(Asked(policies.load("split", name)), program, 700, 3, telemetry)
    slow = Recorder.made
    follows = telemetry is not None
    assert fast is not slow and (fast.plans > 1) == (follows and hasattr(policy, "renewed"))
    assert fast.plans == slow.plans == 1 + sum(isinstance(event, PlanMade) for event, _ in slow.log)
    np.testing.assert_array_equal(compiled.time_s, asked.time_s)
    assert state_of(fast) == state_of(slow)
    assert sum(isinstance(event, QueryArrived) for event, _ in slow.log) == 700
    fresh = Halved(program, Asked(policies.load("split", name)), 3, follows=follows)
    assert replayed(fresh, slow.log) == [commands for _, commands in slow.log]
    assert state_of(fresh) == state_of(slow)


def written(folder):
    model = branching(size=12, width=8)
    small = contract(task_graph(model, "net", power_ops=1e9))
    pieces = cut(model, small.members)
    about = describe(
        model, small.graph, pieces, power_ops=1e8, link_bps=1e10, rate_qps=1.0, policy="nona-queues"
    )
    write_split(folder / f"{VARIANT}.split", model, pieces, about)
    return about


def workers(folder):
    """(client, process number) of each worker."""
    store = Store(folder / DATABASE)
    rows, token = [row for row in store.processes() if row.process.kind == "worker"], store.secret("parts")
    store.close()
    return [(http.Client.of_url(row.process.url, token), int(row.handle.split(":")[0])) for row in rows]


def test_events_of_a_simulation_give_a_gateway_the_same_commands(tmp_path, monkeypatch):
    """Queries of a model that is cut in pieces, on three servers whose news are late; plans are made anew."""
    monkeypatch.setattr(simulated, "SplitCore", Halved)
    monkeypatch.setattr(live, "SplitCore", Halved)
    about = written(tmp_path)
    program = live.program_of(about, 3)
    simulated.simulate_split(Asked(policies.load("split", about.policy)), program, 300, 5, LATE)
    log = Recorder.made.log
    assert {QueryArrived, ServersTold, PlanMade} <= {type(event) for event, _ in log}
    tiny = load_scenario("tiny")
    rules = StreamRules(budgets_s=BudgetsSpec(split=60.0))
    world = World.build(tiny.catalog, tiny.topology)
    session = Session(world, policies.load("dispatch", "closest"), 5, time.monotonic, rules)
    members = [live.SplitUpstream(http.Client("localhost", 1), VARIANT) for _ in range(3)]
    metrics = live.SplitMetrics(CollectorRegistry())
    group = live.SplitGroup(VARIANT, about, members, ["a", "b", "c"], metrics, session)
    assert replayed(group.core, log) == [commands for _, commands in log]
    assert not group.core.guard.faults


@pytest.mark.live
def test_events_of_a_gateway_with_workers_in_processes_give_the_core_the_same_commands(tmp_path, monkeypatch):
    """Forty queries and more, a rate that drifts, and a worker that is killed under them."""
    monkeypatch.setattr(live, "SplitCore", Recorder)
    about = written(tmp_path)
    query = {"x": np.random.default_rng(3).normal(size=(1, 3, 12, 12)).astype(np.float32)}

    async def go():
        async with running(tmp_path / "system", tmp_path, live_scenario(3, 4 * 3 * 12 * 12)):
            found = workers(tmp_path / "system")
            members = [live.SplitUpstream(client, VARIANT) for client, _ in found]
            metrics = live.SplitMetrics(CollectorRegistry())
            tiny = load_scenario("tiny")
            world = World.build(tiny.catalog, tiny.topology)
            session = Session(world, policies.load("dispatch", "closest"), 5, time.monotonic)
            group = live.SplitGroup(VARIANT, about, members, ["a", "b", "c"], metrics, session)
            headers, body = encode_request(InferRequest(query))

            async def send(member):
                answer = await member.infer(dict(headers), body, 30.0)
                assert answer.status == 200, answer.body
                return decode_response(answer.headers, answer.body).outputs["y"]

            answers = [await send(members[0])]
            sent = [asyncio.create_task(send(members[i % 3])) for i in range(20)]
            await asyncio.sleep(0)
            os.kill(found[1][1], signal.SIGKILL)
            answers += await asyncio.gather(*sent)
            members[1].up = False
            answers += await asyncio.gather(*(send(members[0]) for _ in range(19)))
            while group.core.plans == 1:  # rates are compared once a second
                answers.append(await send(members[0]))
            for member in members:
                member.client.close()
            return answers, group.core

    answers, core = asyncio.run(asyncio.wait_for(go(), 120))
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-4, atol=1e-5)
    kinds = {type(event) for event, _ in core.log}
    assert {QueryArrived, ServersTold, QueryLost, PlanMade} <= kinds and core.plans > 1
    assert core.state.ledger.tasks.tolist() == [0, 0, 0] and core.state.ledger.work_s.max() < 1e-9
    fresh = SplitCore(live.program_of(about, 3), policies.load("split", about.policy), 5, follows=True)
    assert replayed(fresh, core.log) == [commands for _, commands in core.log]
    assert state_of(fresh) == state_of(core)
