"""One world of the engine of slots, and cores driven event by event: the same decisions, the same outcomes.

Requests come at the beginning of slots, one per site, nodes are near, and no node has two replicas of a
service: there, the two models of a station are one. Drops, the cloud, and replicas that come and go are as
they are.
"""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.orchestrate import AddReplica, RemoveReplica
from edgewise.sim.requests.news import News
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.slots.replica_state import DROPPED, IN_TIME
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
from edgewise.workloads.services import services_at_sites, simulated_services, steady
from joint_scenarios import simulate_sites

SERVICE_S, SEED = 0.0391, 500
CHANGES = {"services.slot_s": 0.02, "services.frame_s": 0.5, "duration_s": 20, "services.answers": False}
CHANGES |= {"services.gateways": "one", "services.cloud_has": "pool"}  # as the engine of slots has it


class Turning:
    """At most one replica of a service on a node; changes them at random, the same whoever asks."""

    name, decision, batched = "turning", "orchestrate", False

    def reset(self, world, key):
        self.draws = np.random.default_rng(7)

    def decide(self, view):
        commands = []
        for node in self.draws.permutation(view.ready.shape[0] - 1).tolist():
            service = int(self.draws.integers(view.ready.shape[1]))
            there = view.ready[node + 1] + view.starting[node + 1] - view.removing[node + 1]
            leaving = view.removing[node + 1, service]
            if there[service] > 0:  # the engine would leave behind who waits for it
                if view.waiting[node + 1, service] == 0:
                    commands.append(RemoveReplica(node, service))
            elif leaving == 0:
                commands.append(AddReplica(node, service))
        return commands


def near(services):
    """Systems without delays to nodes, images or noise; requests at the beginning of slots."""
    system = services.system._replace(
        delay_s=np.concatenate([np.full((2, 1), 0.03), np.full((2, 4), 1e-3)], axis=1),
        rate_bps=np.full((2, 5), 1e15), deviation_s=np.zeros((2, 5)), service_deviation=0.0,
        layer_bytes=np.zeros_like(services.system.layer_bytes),
        start_delay_s=0.0307, cpu_cores=services.system.cpu_cores * [20, 1, 1, 1, 1],
    )  # fmt: skip
    return system


def drawn_for(scenario, system, slots, rate_qps):
    """One world: at the beginning of a slot, at most one for each site, sites in turn."""
    asked = scenario.services.requests.model_copy(
        update={"rate_qps": rate_qps, "service_s": (SERVICE_S, SERVICE_S), "slack": (2.0, 6.0)}
    )
    drawn = steady(asked, system, [SEED], slots * system.slot_s)
    slot = np.ceil(drawn.arrival_s[0] / system.slot_s).astype(np.int64)
    real = np.arange(slot.size) < drawn.count[0]
    real &= slot < slots
    _, first = np.unique(slot * system.sites + drawn.site[0], return_index=True)
    chosen = first[real[first]]
    found = type(drawn)(np.array([chosen.size]), *(each[:, chosen] for each in drawn[1:]))
    at_s = slot[None, chosen] * system.slot_s
    return found._replace(arrival_s=at_s, deadline_s=found.deadline_s - found.arrival_s + at_s)


# A site hears that a replica is to go, then goes on counting its memory for a slot; `greedy` looks at memory.
# `deadline-queue` looks at what requests take: in slots it is told, a site learns it.
CASES = [(policy, None) for policy in ("cloud-only", "greedy", "closest", "two-choices")]
CASES += [("two-choices", Turning)]


@pytest.mark.parametrize(("policy", "orchestrate"), CASES)
def test_sites_decide_and_end_as_the_engine_of_slots(policy, orchestrate):
    scenario = load_scenario("kais-live", CHANGES)
    given = simulated_services(scenario)
    services = services_at_sites(scenario, given)
    system = near(services)
    object.__setattr__(services, "system", system)
    services.service_s[:] = services.least_s[:] = SERVICE_S
    drawn = drawn_for(scenario, system, given.slots, 130.0)
    worlds = ReplicaWorlds(system, drawn, given.slots, [SEED], 1, given.spec.nodes_per_frame)
    simulate(worlds, policies.load("requests", policy), orchestrate and orchestrate())
    slots = worlds.state.truth.request[0]

    def make():
        return policies.load("requests", policy)

    news = News(system.slot_s)  # at each slot all that happened before it
    sites = RequestSites(services, drawn, make, SEED, given.slots // system.frame_slots, news)
    core = simulate_sites(sites, orchestrate() if orchestrate else policies.load("orchestrate", "none"))
    assert not core.guard.fault and not any(each.adviser.guard.fault for each in sites.cores)
    for each in sites.cores:
        each.validate()
    assert np.array_equal(sites.rows.station, slots.station)
    assert np.array_equal(sites.rows.state, slots.state)
    served = slots.state == IN_TIME  # the engine also drops at the beginning of a slot what it finds then
    np.testing.assert_allclose(sites.rows.end_s[served], slots.end_s[served], rtol=1e-9)
    assert ((slots.state == DROPPED).sum() > 2 or policy == "cloud-only") and served.sum() > 1000
    assert (slots.station == 0).sum() > 20 or policy != "cloud-only"
    assert orchestrate is None or (slots.station == 4).sum() > 100  # nobody was there at first
