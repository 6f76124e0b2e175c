"""Workers of streams that come and go, simulated and live: the controller hears and says the same.

Controller and gateways are those of `edgewise up`, with their store, on one virtual clock; processes of
workers, links and clients are played.
"""

import numpy as np
import pytest
from ground import PlayedWorker
from steered import PlayedBackend, follow, steered, until_over
from test_replicas_physical import noted
from test_streams_physical import InOrder, client, gateway_of
from virtual import played

from edgewise.core.orchestrate.events import FrameBegan, StreamsCounted
from edgewise.core.world import World
from edgewise.model.parsing import parse_scenario
from edgewise.model.pools import pool_of
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.controller.reconcile import turns
from edgewise.runtime.gateway.demand import Demand
from edgewise.runtime.store.steady import SteadyStore
from edgewise.workloads.generate import generate_streams
from joint_scenarios import pools, run_of

FRAME_S, DURATION_S, FOLLOW_S = 5.0, 50.0, 0.25
# A file: in frames 1 to 4 one more worker on a node, in 5 to 8 one less, in the same order.
IN_TURN = """
from edgewise.core.orchestrate import AddReplica, RemoveReplica

class InTurn:
    name, decision, batched = "in-turn", "orchestrate", False

    def reset(self, world, key):
        pass

    def decide(self, view):
        frame = round(float(view.clock_s) / 5.0)
        if not 1 <= frame <= 8:
            return []
        place = [(0, 0), (2, 1), (1, 0), (3, 1)][(frame - 1) % 4]
        return [(AddReplica if frame <= 4 else RemoveReplica)(*place)]
"""


def scenario_of(orchestrate, clients_per_min):
    data = pools(duration_s=DURATION_S)
    data["streams"]["arrivals"] = {"clients_per_min": clients_per_min}
    data["telemetry"]["lag_s"] = 0.08
    data["policies"] = {"orchestrate": orchestrate, "dispatch": "least-impedance"}
    data["links"] = [
        {"site": f"site-{s}", "cluster": c, "delay_s": delay_s, "bandwidth_bps": "10Gbps"}
        for s, c, delay_s in ((0, "near-0", 3e-4), (0, "near-1", 6e-3), (1, "near-0", 6.1e-3),
                              (1, "near-1", 4e-4), (0, "far", 2e-2), (1, "far", 2.1e-2))
    ]  # fmt: skip
    (slow,) = data["streams"]["applications"]
    slow["deadline_s"], slow["rate_qps"] = 2, [5, 15]
    return data | {"live": {"budgets_s": {"orchestrate": 60}}}


async def live(data, seed, folder, patched):
    scenario = parse_scenario(data, "pools")
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    prepare(folder, scenario).close()
    store, trace, book = SteadyStore(folder / DATABASE), generate_streams(scenario, seed), InOrder()
    workers = {name: PlayedWorker(world, w, trace, seed) for w, name in enumerate(world.worker_names)}
    for worker in workers.values():
        worker.die()
    backend = PlayedBackend(workers, scenario.catalog.variants[0].start_s)
    gateways = [
        gateway_of(scenario, world, site, "least-impedance", seed, list(workers.values()), book)
        for site in world.site_names
    ]
    for gateway in gateways:
        gateway.session.demand = Demand(world, pool_of(scenario.topology))

    controller, following = steered(store, backend, gateways, patched)
    passes = controller.passes()
    work = [turns([passes["processes"]]), passes["replicas"].keep()]
    work += [follow(each, 0.0, FOLLOW_S) for each in following]
    work += [each.keep_time(scenario.telemetry.period_s) for each in gateways]
    work += [each.watch() for each in gateways]
    work += [client(gateways[stream.site], stream, seed) for stream in trace]
    await until_over(work, DURATION_S)
    store.close()


def frames(log):
    """By frame, what streams asked, and which workers come and go."""
    found, counted = {}, None
    for event, said in log:
        if isinstance(event, StreamsCounted):
            counted = event
        elif isinstance(event, FrameBegan):
            found[round(event.time_s / FRAME_S)] = counted, said
    return found


def both(folder, seed, clients_per_min):
    (folder / "turns.py").write_text(IN_TURN)
    policy = f"{folder / 'turns.py'}:InTurn"
    data = scenario_of(policy, clients_per_min)
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        run_of(data, seed, orchestrate=policy)
    before = frames(log)
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        played(live(data, seed, folder / "live", patched))
    return before, frames(log)


@pytest.mark.parametrize(("seed", "clients_per_min"), [(1, 20), (2, 20), (3, 60), (4, 60)])
def test_a_controller_starts_and_ends_workers_as_simulated(tmp_path, seed, clients_per_min):
    before, after = both(tmp_path, seed, clients_per_min)
    ran = range(1, int(DURATION_S / FRAME_S))
    assert [before[k][1] for k in ran] == [after[k][1] for k in ran]
    assert {kind for _, said in before.values() for kind, *_ in said} == {"StartReplica", "EndReplica"}
    for k in ran:
        for name, one, other in zip(StreamsCounted._fields, before[k][0], after[k][0], strict=True):
            assert np.allclose(one, other, rtol=1e-9, atol=1e-9), (k, name, one, other)
    assert sum(before[k][0].load.sum() for k in ran) > 5.0
    assert any(before[k][0].unserved.any() for k in ran) == (clients_per_min == 60)
