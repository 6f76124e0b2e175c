"""Requests at workers that come and go, simulated and live: all cores hear and say the same.

As `test_pools_physical`, with requests of services in place of streams.
"""

import asyncio
from functools import partial

import numpy as np
import pytest
from played_replicas import PlayedReplica, ReplicaClient, Ways
from steered import PlayedBackend, follow, steered, until_over
from test_pools_physical import IN_TURN, frames
from test_replicas_physical import noted as frames_noted
from test_requests_physical import ask, gateway_of, in_order, noted
from virtual import played

from edgewise.core.dispatch.events import ReplicaChanged, ReplicaTold, Send
from edgewise.core.orchestrate.events import StreamsCounted
from edgewise.core.world import World
from edgewise.model.parsing import parse_scenario
from edgewise.model.pools import pool_of
from edgewise.model.services import services_of
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.controller.reconcile import turns
from edgewise.runtime.gateway.demand import Demand
from edgewise.runtime.store.steady import SteadyStore
from edgewise.sim.requests.sites import RequestSites
from joint_scenarios import held, pools_with_requests, run_of

FRAME_S, DURATION_S, PERIOD_S, LAG_S, SERVICE_S = 5.0, 45.0, 0.5, 0.08, 0.03
START_S = 2.0 - 1e-5  # so that a health check sees at once that it is up
POLICY = IN_TURN.replace("[(0, 0), (2, 1), (1, 0), (3, 1)]", "[(0, 1), (2, 2), (1, 1), (3, 2)]")


def scenario_of(orchestrate, rate_qps, slack):
    data = held(pools_with_requests(rate_qps, duration_s=DURATION_S), "services")
    data["telemetry"] = {"period_s": PERIOD_S, "lag_s": LAG_S}
    data["services"]["requests"] |= {"service_s": SERVICE_S, "slack": slack}
    data["catalog"]["variants"] = [
        each | {"profile": {"fixed_s": SERVICE_S}, "capacity_qps": 30, "start_s": START_S}
        for each in data["catalog"]["variants"]
    ]
    data["policies"] = {"orchestrate": orchestrate, "requests": "deadline-queue"}
    return data | {"live": {"budgets_s": {"orchestrate": 60, "requests": 60}}}


async def live(data, seed, requests, folder, patched):
    """The cores of gateways, once all is over."""
    scenario, loop = parse_scenario(data, "pools"), asyncio.get_running_loop()
    services = services_of(scenario)
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    prepare(folder, scenario).close()
    store, ways = SteadyStore(folder / DATABASE), Ways(services.system, services.spec.answers, seed)
    workers = {name: PlayedReplica(by_deadline=False) for name in world.worker_names}
    stations = {each.name: each.station for each in services.workers}
    for worker in workers.values():
        worker.up = False
    gateways = []
    for site, name in enumerate(world.site_names):

        def client(_, worker, site=site):
            return ReplicaClient(workers[worker], (site, stations[worker]), ways, requests, LAG_S)

        numbers = iter([i for i, request in enumerate(requests) if request["site"] == site])
        made = gateway_of(
            scenario, services, world, (site, name), "deadline-queue", seed, (), client, numbers
        )
        made.session.demand = Demand(world, pool_of(scenario.topology))
        gateways.append(made)

    backend = PlayedBackend(workers, START_S, FRAME_S)
    controller, following = steered(store, backend, gateways, patched)
    for core in [each.services.core for each in gateways]:  # at first all know who is there, not more
        for name in [each.name for each in services.workers if each.at_first]:
            loop.call_at(LAG_S, core.handle, ReplicaTold(LAG_S, name, 0))
    passes = controller.passes()
    work = [turns([passes["processes"]]), passes["replicas"].keep()]
    work += [follow(each, LAG_S, PERIOD_S) for each in following]
    work += [each for gateway in gateways for each in (gateway.keep_time(PERIOD_S), gateway.watch())]
    work += [ask(gateways[request["site"]], services, i, request) for i, request in enumerate(requests)]
    await until_over(work, DURATION_S)
    store.close()
    return [gateway.services.core for gateway in gateways]


def both(folder, seed, rate_qps, slack):
    """What gateways' cores and the controller's heard and said, simulated and live."""
    (folder / "turns.py").write_text(POLICY)
    data = scenario_of(policy := f"{folder / 'turns.py'}:InTurn", rate_qps, slack)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgewise.run.services.RequestSites", partial(RequestSites, notes=1000))
        log = frames_noted(patched)
        run, _ = run_of(data, seed, orchestrate=policy, requests="deadline-queue")
    sites = run.parts["services"].sites
    before = [[(event, said) for d, event, said in sites.log if d == site] for site in range(2)]
    simulated = before, frames(log)
    with pytest.MonkeyPatch.context() as patched:
        log, logs = frames_noted(patched), noted(patched)
        cores = played(live(data, seed, sites.rows, folder / "live", patched))
    return simulated, ([logs[id(core)] for core in cores], frames(log))


def heard(log):
    """Of requests alone: workers are seen by the next check, which is 10 µs later."""
    return [
        (event, said) for event, said in in_order(log) if not isinstance(event, ReplicaChanged | ReplicaTold)
    ]


CASES = [(1, 120, (8, 16)), (4, 120, (8, 16)), (5, 100, (6, 12))]


@pytest.mark.parametrize(("seed", "rate_qps", "slack"), CASES)
def test_requests_go_to_workers_that_come_and_go_as_simulated(tmp_path, seed, rate_qps, slack):
    (before, simulated), (after, controller) = both(tmp_path, seed, rate_qps, slack)
    ran = range(1, int(DURATION_S / FRAME_S))
    assert [simulated[k][1] for k in ran] == [controller[k][1] for k in ran]
    assert {kind for _, said in simulated.values() for kind, *_ in said} == {"StartReplica", "EndReplica"}
    for k in ran:
        for name, one, other in zip(StreamsCounted._fields, simulated[k][0], controller[k][0], strict=True):
            assert np.allclose(one, other, rtol=1e-9, atol=1e-9), (k, name, one, other)
    assert sum(simulated[k][0].load.sum() for k in ran) > 5.0
    sent = set()
    for one, other in zip(before, after, strict=True):
        one, other = heard(one), heard(other)
        assert len(one) == len(other) > 1000
        for (event, said), (same, again) in zip(one, other, strict=True):
            assert type(event) is type(same) and said == again, (event, said, same, again)
            assert np.allclose(event, same, rtol=0, atol=1e-9) if not hasattr(event, "how") else True
        sent |= {each.replica for _, said in one for each in said if isinstance(each, Send)}
    assert len(sent) >= 7, "of four at first, one far, and four that come"
