"""A policy that sees one world decides alike alone, among others, and live."""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.defer import JobSubmitted, SlotBegan, Slots, StartJob
from edgewise.core.defer.core import DeferCore
from edgewise.core.dispatch.events import RequestArrived, Send
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate import AddReplica, RemoveReplica, commands_of
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.model.services import services_of
from edgewise.model.topology import Node, Resources
from edgewise.model.work import DeferrableJob
from edgewise.runtime.process.compiling import try_out
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
from edgewise.workloads.services import simulated_services

MINE = '''
import numpy as np

from edgewise.core.dispatch.events import RequestArrived, Send
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.orchestrate import AddReplica, hosts

class Turns:
    """Stations in turn: what it decides depends on how often it was asked."""

    decision = "requests"

    def reset(self, world, key):
        self.asked = 0

    def decide(self, view):
        self.asked += 1
        may = hosts(view)
        turn = (np.arange(may.shape[1]) + self.asked) % may.shape[1]
        return np.where(view.head >= 0, turn[may[:, turn].argmax(axis=1)], -1)

class Adds:
    decision = "orchestrate"

    def reset(self, world, key):
        self.world = world

    def decide(self, view):
        return [AddReplica(1, 0)]

class All:
    decision = "defer"

    def reset(self, world, key):
        self.slot_s = world.slot_s

    def decide(self, view):
        return view.startable

class Fails(All):
    def decide(self, view):
        return view.no_such_field
'''


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return lambda name: f"{file}:{name}"


def test_worlds_of_a_batch_go_as_they_do_alone(mine):
    simulated = simulated_services(load_scenario("kais-demo", {"duration_s": 500}))
    drawn, outcomes = simulated.draw(range(3)), []
    for part in (slice(None), slice(1, 2)):
        worlds = ReplicaWorlds(
            simulated.system, type(drawn)(*(field[part] for field in drawn)), simulated.slots, range(3)[part]
        )
        made = (
            policies.load("requests", mine("Turns")),
            policies.load("orchestrate", mine("Adds")),
        )
        outcomes.append(simulate(worlds, *made).in_time)
    assert np.array_equal(outcomes[0][1], outcomes[1][0]) and outcomes[0].sum() > 0


def test_it_decides_live_for_requests_replicas_and_jobs(mine):
    scenario = load_scenario("kais-live")
    services, world = services_of(scenario), World.build(scenario.catalog, scenario.topology)
    for wanted in (("requests", mine("Turns")), ("orchestrate", mine("Adds")), ("defer", mine("All"))):
        try_out(wanted, world, services)
    made = RequestCore(services, 0, policies.load("requests", mine("Turns")), 0)
    for replica in made.replicas.values():
        replica.up = True
    (sent,) = made.handle(RequestArrived(0.0, 0, 0, 1e6, 1.0))
    assert isinstance(sent, Send) and made.adviser.guard.fault == "" and made.adviser.policy.name == "Turns"
    assert start_one(mine("All")) == [StartJob(7, "node", 0.0)]
    with pytest.raises(PolicyError, match="'Fails': AttributeError in decide"):
        start_one(mine("Fails"))


def start_one(policy):
    """What a policy makes of one job and one node."""
    ledger = NodeLedger([Node("node", "cluster", Resources(1.0))])
    core = DeferCore(Slots(1.0, 1), ledger, policies.load("defer", policy))
    core.handle(JobSubmitted(DeferrableJob(7, Resources(1.0), 1.0, 0.0, 0.0, 1.0)))
    return core.handle(SlotBegan(0.0))


def test_commands_are_the_same_as_numbers_and_typed():
    commands = commands_of([[AddReplica(2, 0), RemoveReplica(1, 3)], []])
    assert commands.tolist() == [[[2, 1], [1, -4]], [[0, 0], [0, 0]]]
    with pytest.raises(PolicyError, match="is no command"):
        commands_of([[(0, 1)]])
