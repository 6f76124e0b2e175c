"""Replicas come and go by one rule: in the core, in the engine of many worlds, and in the live controller."""

import asyncio

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import (
    EndReplica,
    FrameBegan,
    KeepReplica,
    ReplicaGone,
    ReplicaSeen,
    RequestsCounted,
    StartReplica,
)
from edgewise.core.plane import Plane
from edgewise.model.services import services_of
from edgewise.model.topology import Node, Resources
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.replicas import Replicas
from edgewise.runtime.store import SHADOWS
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise.workloads.services import simulated_services


class Told:
    """Says what it is given."""

    name = "told"

    def __init__(self):
        self.commands = []

    def decide(self, view):
        return np.array([self.commands]).reshape(1, -1, 2)


def core_of_world(system, view):
    """A core that knows of the one world of a view what there is to know."""
    held = zip(system.replica_cpu_cores.tolist(), system.service_memory_bytes.tolist(), strict=True)
    first, names = system.first_machine[1], [f"node {n}" for n in range(system.nodes)]
    has = zip(names, system.cpu_cores[first:].tolist(), system.memory_bytes[first:].tolist(), strict=True)
    ledger = NodeLedger(Node(name, "", Resources(cores, memory)) for name, cores, memory in has)
    holds = [Resources(*each) for each in held]
    core = OrchestrateCore(system, holds, Told(), ledger, names)
    for n in range(system.nodes):
        for s in range(system.services):
            cell = view.replicas[0, n + 1, s]
            working = [1] * cell.busy + [0] * (cell.ready - cell.busy)
            rows = [(True, held) for held in working] + [(False, 0)] * cell.starting
            for i, (up, held_) in enumerate(
                rows
            ):  # marks count for those that work, then for those that start
                name = f"{n}-{s}-{i}"
                core.handle(ReplicaSeen(name, n, s, i >= cell.removing, True, up, False, held_))
    none = np.zeros(system.services, np.int64)
    core.handle(RequestsCounted(none, 0.1, np.ones(system.services), 10_000, none))
    return core


def alive(view):
    return (view.ready + view.starting - view.removing)[0, 1:]


@pytest.mark.parametrize(("held", "most"), [("request", None), ("life", None), ("life", 2)])
def test_a_world_of_the_engine_carries_commands_out_as_the_core_does(held, most):
    changes = {"services.cores_held": held, "services.offered.service.cpu_cores": 40, "services.frame_s": 5}
    found = simulated_services(load_scenario("kais-demo", {**changes, "duration_s": 200}))
    system = found.system._replace(start_delay_s=7.0)  # longer than a frame
    worlds = ReplicaWorlds(system, found.draw(range(1)), found.slots, range(1), 1, most)
    dispatch, draws = policies.load("requests", "greedy"), np.random.default_rng(0)
    dispatch.reset(system, Key(0))
    done = {StartReplica: 0, KeepReplica: 0, EndReplica: 0}
    refused = 0
    while not worlds.done:
        if worlds.frame_begins:
            numbers = np.stack([draws.integers(-1, 4, 12), draws.integers(-4, 5, 12)], axis=1)
            numbers[draws.random(12) < 0.1] = (99, 1)
            core, before = core_of_world(system, worlds.view), alive(worlds.view)
            core.policy.commands = numbers
            core.question(0.0)()  # an answer that names what there is not is a fault
            there = ((numbers[:, 0] >= 0) & (numbers[:, 0] < system.nodes)) | (numbers[:, 1] == 0)
            assert (core.guard.fault == "") == there.all()
            after, carried = before.copy(), carried_out(core, numbers, most)
            for command, n, s in carried.values():
                done[type(command)] += 1
                after[n, s] += -1 if isinstance(command, EndReplica) else 1
            valid = worlds.scale(numbers[None])[0]
            assert np.flatnonzero(valid & (numbers[:, 1] != 0)).tolist() == list(carried)
            assert np.array_equal(after, alive(worlds.view))
            refused += int((~valid & (numbers[:, 1] != 0)).sum())
        worlds.step(dispatch.decide(worlds.view))
    assert min(done.values()) > 2 and refused > 10, (done, refused)


def carried_out(core, numbers, most):
    """What becomes of each change, with its node and service, where an idle replica ends at once."""
    found, changed = {}, set()
    for i, (n, change) in enumerate(numbers.tolist()):
        if change and (most is None or n in changed or len(changed) < most):
            for command in core.handle(FrameBegan(0.0, numbers[i : i + 1])):
                found[i] = command, n, abs(change) - 1
                changed.add(n)
                become(core, command, f"new {i}")
                core.validate()
    return found


def become(core, command, name):
    """What a driver tells of a command that it has carried out."""
    match command:
        case StartReplica(n, s):
            core.handle(ReplicaSeen(name, n, s))
        case KeepReplica(kept):
            core.handle(core.replicas[kept]._replace(wanted=True))
        case EndReplica(gone):
            idle = core.replicas[gone].up and not core.replicas[gone].held
            core.handle(ReplicaGone(gone) if idle else core.replicas[gone]._replace(wanted=False))


QUICK = """
from edgewise.policies.orchestrate.autoscale import Autoscaler

class Quick(Autoscaler):
    def __init__(self):
        super().__init__(stabilisation=1)
"""


def recorded(plane):
    """Notes what goes into a plane and what comes out."""
    log, handle = [], plane.handle

    def noted(event, now_s):
        commands = handle(event, now_s)
        plane.validate()
        log.append((event, now_s, commands))
        return commands

    plane.handle = noted
    return log


def test_events_of_a_live_controller_give_the_same_commands_again(tmp_path):
    (tmp_path / "quick.py").write_text(QUICK)
    quick = f"{tmp_path / 'quick.py'}:Quick"
    scenario = load_scenario("kais-live", {"policies.orchestrate": quick})
    store, services = prepare(tmp_path, scenario), services_of(scenario)
    store.set_policy("orchestrate", "none", SHADOWS)
    load, draws = {}, np.random.default_rng(4)

    async def ask(method, path):
        rows = [(each.name, each.service) for each in services.workers]
        rows += [(r.process.name, services.place(r.process.settings)[1]) for r in store.processes("replica")]
        replicas = {name: {"up": True, "wanted": True, "held": load.get(s, 0)} for name, s in rows}
        counted = {
            name: {"arrived": 10 * load.get(s, 0), "dropped": 0} for s, name in enumerate(services.names)
        }
        answer = {"cloud_delay_s": 0.1, "services": counted, "replicas": replicas}
        return [{"gateway": "gateway-0", "answer": answer}]

    live = Replicas(LivePlane(store), ask, lambda handle: False)
    log = recorded(live.plane)
    for frame in range(40):
        load.update({s: int(draws.integers(0, 3)) for s in range(3)})
        for number, running in enumerate(store.processes("replica")):
            if running.handle is None:
                store.started(running.process.name, f"{frame}:{number}", 0)
            elif not running.process.wanted and draws.random() < 0.4:
                store.started(running.process.name, None, 0)
        asyncio.run(live.step(frame * services.spec.frame_s + 0.001))
    assert {type(command) for *_, commands in log for command in commands} == {
        StartReplica,
        KeepReplica,
        EndReplica,
    }
    watched = live.watched()
    quiet = sum(isinstance(event, FrameBegan) and not commands for event, _, commands in log)
    assert (watched["policy"], watched["decisions"], watched["alike"], watched["chosen"]) == (
        "none", 40, quiet, {},
    )  # fmt: skip
    assert watched["items"]["only_policy"] == sum(len(commands) for _, _, commands in log)

    policy = policies.load("orchestrate", quick)
    policy.reset(services.system, Key(0))
    most = scenario.services.nodes_per_frame
    ledger = NodeLedger(())
    core = OrchestrateCore(services.system, services.holds, policy, ledger, services.nodes, None, most)
    again = Plane(ledger, {"orchestrate": core})
    for event, now_s, commands in log:
        event = event._replace(changes=None) if isinstance(event, FrameBegan) else event  # asked anew
        assert again.handle(event, now_s) == commands
        again.validate()


def test_a_controller_counts_what_came_since_the_last_frame_of_all_gateways(tmp_path):
    """Gateways count from their start; one that starts again counts from 0."""
    scenario = load_scenario("kais-live", {"policies.orchestrate": "none"})
    store, services = prepare(tmp_path, scenario), services_of(scenario)
    came = iter([(5, 7), (9, 8), (9, 20), (2, 21)])

    async def ask(method, path):
        counts = [{"arrived": each, "dropped": each // 2} for each in next(came)]
        answers = [
            {"cloud_delay_s": 0.1, "replicas": {}, "services": {services.names[0]: each}} for each in counts
        ]
        return [{"gateway": f"gateway-{k}", "answer": answer} for k, answer in enumerate(answers)]

    live = Replicas(LivePlane(store), ask, lambda handle: False)
    log = recorded(live.plane)
    for frame in range(4):
        asyncio.run(live.step(frame * services.spec.frame_s + 0.001))
    counted = [event for event, *_ in log if isinstance(event, RequestsCounted)]
    assert [each.arrived.tolist() for each in counted] == [[12, 0, 0], [5, 0, 0], [12, 0, 0], [3, 0, 0]]
    assert [each.dropped.tolist() for each in counted] == [[5, 0, 0], [3, 0, 0], [6, 0, 0], [1, 0, 0]]
    store.close()
