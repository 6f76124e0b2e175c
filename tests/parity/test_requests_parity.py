"""A gateway and the simulation ask the same policy about the same state: the same view, the same stations.

Worlds of a live scenario are simulated under load, replicas come and go. In every slot, what each site sees
is handed to the core of a gateway, replica by replica, as it would know it.
"""

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.events import (
    ReplicaChanged,
    ReplicaForgotten,
    ReplicaTold,
    RequestArrived,
    RequestReturned,
)
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, new_view
from edgewise.core.orchestrate.counting import LEAVING, READY, REMOVING, STARTING, count, known
from edgewise.model.grammar.services import RequestsSpec
from edgewise.model.services import services_of
from edgewise.sim.slots.replicas import ReplicaWorlds
from edgewise.workloads.services import steady

SERVICE_S = 0.04
FIELDS = (
    "waiting",
    "busy",
    "ready",
    "starting",
    "removing",
    "waiting_s",
    "free_cpu_cores",
    "free_memory_bytes",
)
# `flow` weighs the heads of all sites; a gateway knows its own only.
POLICIES = [name for name in policies.names("requests", live=True) if name != "flow"]


def live_services():
    """Services whose requests reach their station within the slot, and whose nodes have cores for all."""
    changes = {"services.slot_s": 0.02, "services.frame_s": 0.2}
    services = services_of(load_scenario("kais-live", changes))
    system = services.system._replace(
        delay_s=np.zeros_like(services.system.delay_s), cpu_cores=services.system.cpu_cores * 10,
        rate_bps=services.system.rate_bps * [1e7, 1, 1, 1, 1], start_delay_s=0.1, service_deviation=0.0,
        deviation_s=np.zeros_like(services.system.delay_s),
    )  # fmt: skip
    object.__setattr__(services, "system", system)
    services.service_s[:] = services.least_s[:] = SERVICE_S
    return services


def worlds_of(services, slots, rate_qps=90.0, seed=3):
    asked = RequestsSpec(rate_qps=rate_qps, service_s=SERVICE_S, slack=(2, 8), payload_bytes=100)
    drawn = steady(asked, services.system, range(seed, seed + 1), slots * services.system.slot_s)
    return ReplicaWorlds(services.system, drawn, slots, range(seed, seed + 1))


def replicas_of(view, k, s):
    """(held, state) of each replica of a cell, as a gateway would know them; one is enough for the cloud."""
    cell = view.replicas[0, k, s]
    if k == 0:
        return [(1, READY)] * cell.busy + ([(cell.waiting + 1, READY)] if cell.waiting else [])
    held = [1] * cell.busy + [0] * (cell.ready - cell.busy)
    if cell.waiting:
        held[0] += cell.waiting
    states = [REMOVING] * cell.removing + [READY] * (cell.ready - cell.removing)
    return [*zip(held, states, strict=True), *[(0, STARTING)] * cell.starting]


def passing(services, slots):
    """The view of each slot, while replicas are added and removed at random, busy ones too."""
    worlds, rule, draws = (
        worlds_of(services, slots),
        policies.load("requests", "greedy", live=True),
        np.random.default_rng(1),
    )
    rule.reset(services.system, Key(0))
    while not worlds.done:
        if worlds.frame_begins:
            changes = [(draws.integers(4), draws.choice((-3, -2, -1, 1, 1, 2, 3))) for _ in range(3)]
            worlds.scale(np.array([changes]))
        yield worlds.view
        worlds.step(rule.decide(worlds.view))


def consistent(view):
    """Nothing waits where no replica works or one is idle, none that starts is to go, the cloud has room."""
    idle = (view.busy < np.maximum(view.ready, 1))[0, 1:] & (view.waiting[0, 1:] > 0)
    to_go = (view.removing > view.ready)[0, 1:]
    return not (idle.any() or to_go.any() or view.waiting[0, 0].any())


def test_counts_of_replicas_give_the_view_of_the_simulation():
    services = live_services()
    mine, seen = new_view(services.system, 1, np.zeros(1, np.uint64)), {name: 0 for name in FIELDS}
    compared = 0
    for view in passing(services, 400):
        if not consistent(view):
            continue
        compared += 1
        cells = [(k, s) for k in range(services.system.stations) for s in range(services.system.services)]
        rows = [(k, s, held, state, 1) for k, s in cells for held, state in replicas_of(view, k, s)]
        count(services.system, mine, known(rows), services.service_s)
        for name in FIELDS:
            np.testing.assert_allclose(
                getattr(mine, name), getattr(view, name), rtol=1e-9, atol=1e-3, err_msg=name
            )
            seen[name] += bool(np.any(getattr(view, name)))
    assert compared > 200 and min(seen.values()) > 4, (compared, seen)


def station_of(gateway, view, b):
    """Where the core of a site sends its head, with as many requests before it as the site has."""
    gateway.view().seed[:], gateway.view().cloud_delay_s[:] = view.seed, view.cloud_delay_s
    services = range(view.replicas.shape[2])
    for name in list(gateway.replicas):
        gateway.handle(ReplicaForgotten(0.0, name))
    rows = [(f"cloud-{s}", s, 0, True, True, 0) for s in services]  # always room
    for k in range(view.replicas.shape[1]):
        for s in services:
            for held, state in replicas_of(view, k, s):
                rows.append((f"{k}-{s}-{len(rows)}", s, k, state != REMOVING, state != STARTING, held))
    for *replica, held in rows:
        gateway.handle(ReplicaChanged(0.0, *replica))
        gateway.handle(ReplicaTold(0.0, replica[0], held))
    service, now_s = int(view.head_service[0, b]), float(view.clock_s[0])
    what = service, float(view.head_deadline_s[0, b]), float(view.head_payload_bytes[0, b])
    number = int(view.head[0, b])
    (sent,) = gateway.handle(RequestArrived(now_s, number, *what))
    assert gateway.handle(RequestReturned(now_s, number, "failed")) == []
    return gateway.replicas[sent.replica].station


@pytest.mark.parametrize("policy", POLICIES)
def test_the_gateway_sends_heads_where_the_policy_would(policy):
    services, compared, elsewhere = live_services(), 0, set()
    simulated = policies.load("requests", policy, live=True)
    simulated.reset(services.system, Key(0))
    gateways = [
        RequestCore(services, b, policies.load("requests", policy, live=True), 3)
        for b in range(services.system.sites)
    ]
    for view in passing(services, 200):
        if not consistent(view) or not (view.head >= 0).any():
            continue
        chosen = simulated.decide(view)
        for b, gateway in enumerate(gateways):
            if view.head[0, b] >= 0:
                assert station_of(gateway, view, b) == chosen[0, b] != HOLD
                elsewhere.add(int(chosen[0, b]))
                compared += 1
    assert compared > 50
    assert len(elsewhere) > 1 or policy == "cloud-only" or policy.startswith("kais")


def test_a_replica_that_leaves_holds_memory_only():
    services = live_services()
    view = new_view(services.system, 1, np.zeros(1, np.uint64))
    count(services.system, view, known([(1, 0, 0, LEAVING, 1), (1, 1, 2, READY, 1)]), services.service_s)
    first = services.system.first_machine[1]
    assert view.ready[0, 1].tolist() == [0, 1, 0] and view.waiting[0, 1].tolist() == [0, 1, 0]
    used = services.system.memory_bytes[first] - view.free_memory_bytes[0, first]
    assert used == services.system.service_memory_bytes[:2].sum()
