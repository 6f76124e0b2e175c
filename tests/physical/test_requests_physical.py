"""One physical trace of requests through the simulator and live gateways: cores hear and say the same.

Requests come as a scenario's seed says; links, replicas and workers in the cloud take the time they take, and
a node fails. Gateways are those of `edgewise up`, on a virtual clock, with replicas that are played.
"""

import asyncio
from functools import partial

import pytest
from ground import until
from played_replicas import PlayedReplica, ReplicaClient, Ways
from same_events import match_rate
from virtual import played

from edgewise import policies
from edgewise.core.dispatch.events import (
    Drop,
    ReplicaChanged,
    ReplicaTold,
    RequestArrived,
    RequestReturned,
    Send,
)
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.world import World
from edgewise.model.parsing import parse_scenario
from edgewise.model.services import services_of
from edgewise.model.work import Stream
from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import Patience
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.service_requests import ServiceRequests
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.protocol.messages import DEADLINE
from edgewise.runtime.store import Process, Running
from edgewise.runtime.watch.metrics import ServiceMetrics
from edgewise.sim.requests.sites import RequestSites
from joint_scenarios import campus, run_of

SERVICE_S, PERIOD_S, LAG_S, DURATION_S = 0.03, 0.5, 0.08, 21.0
FAILS = [{"at_s": 8.02, "node": "west-0", "up": False}, {"at_s": 13.02, "node": "west-0", "up": True}]
NEWS = (ReplicaChanged, ReplicaTold)
# Simulated services have workers in the cloud where streams could be bound to these, else a pool of them.
AT_THE_END = [
    Stream(i, 0, "any", task, DURATION_S - 0.01, DURATION_S, 5.0, 1e4, 0.3, 0.0)
    for i, task in enumerate(("detection", "reading", "classification"))
]


def asked(rate_qps, slack, fails=()):
    """`kais-live` with a gateway at each site; a request takes what its variant's profile says."""
    data = campus(rate_qps, [], list(fails))
    data["duration_s"] = DURATION_S
    data["telemetry"] = {"period_s": PERIOD_S, "lag_s": LAG_S}
    data["streams"]["gateways"] = "per_site"
    data["services"]["requests"] |= {"service_s": SERVICE_S, "slack": slack, "payload_bytes": 10000}
    for service in data["services"]["offered"]:
        service["initial"] = 2
    for variant in data["catalog"]["variants"]:
        variant["profile"] |= {"fixed_s": SERVICE_S, "deviation": 0}
    return data


def simulated(data, seed, policy):
    """By site what its core was told and said; requests, replicas at first."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("edgewise.run.services.RequestSites", partial(RequestSites, notes=1000))
        run, _ = run_of(data, seed, trace=AT_THE_END, requests=policy, orchestrate="none")
    sites = run.parts["services"].sites
    logs = [[(event, said) for d, event, said in sites.log if d == site] for site in range(len(sites.cores))]
    there = {name: (each.station, each.service) for name, each in sites.queues.replicas.items()}
    return logs, sites.rows, there


def noted(patched):
    """By core, each event with its commands, but what it knew already of a replica."""
    logs, handle = {}, RequestCore.handle

    def handle_and_note(core, event):
        known = core.replicas.get(event.name) if isinstance(event, ReplicaChanged) else None
        same = known is not None and (known.wanted, known.up) == (event.wanted, event.up)
        commands = handle(core, event)
        if not same:
            logs.setdefault(id(core), []).append((event, list(commands)))
        return commands

    patched.setattr(RequestCore, "handle", handle_and_note)
    return logs


async def live(data, seed, policy, requests, there):
    """The cores of live gateways, once all requests are over."""
    scenario, loop = parse_scenario(data, "campus"), asyncio.get_running_loop()
    services, world = (
        services_of(scenario),
        World.build(scenario.catalog, scenario.topology, scenario.sharing),
    )
    assert (services.service_s == SERVICE_S).all()
    ways = Ways(services.system, services.spec.answers, seed)
    replicas = {name: PlayedReplica(by_deadline=station > 0) for name, (station, _) in there.items()}
    for change in scenario.timeline:
        for name, (station, _) in there.items():
            if station and services.nodes[station - 1] == change.node:
                up_s = change.at_s + services.system.start_delay_s
                loop.call_at(
                    *((up_s, replicas[name].start) if change.up else (change.at_s, replicas[name].die))
                )
    rows = [row_of(services, k, name, *place) for k, (name, place) in enumerate(there.items()) if place[0]]
    gateways = []
    for site, name in enumerate(world.site_names):

        def client(station, name, site=site):
            return ReplicaClient(replicas[name], (site, station), ways, requests, LAG_S)

        numbers = iter([i for i, request in enumerate(requests) if request["site"] == site])
        made = {r.process.url: client(there[r.process.name][0], r.process.name) for r in rows}
        for url, each in made.items():
            each.url = url
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(http.Client, "of_url", lambda url, token=None, made=made: made[url])
            gateways.append(
                gateway_of(scenario, services, world, (site, name), policy, seed, rows, client, numbers)
            )
            gateways[-1].services.refresh()
            gateways[-1].services.note_workers()
    for core in [gateway.services.core for gateway in gateways]:  # at first all know who is there, not more
        for name in there:
            loop.call_at(LAG_S, core.handle, ReplicaTold(LAG_S, name, 0))
    tasks = [
        loop.create_task(each)
        for gateway in gateways
        for each in (gateway.keep_time(PERIOD_S), gateway.watch())
    ]
    tasks += [
        loop.create_task(ask(gateways[request["site"]], services, i, request))
        for i, request in enumerate(requests)
    ]
    await asyncio.sleep(DURATION_S + 1.0)
    for task in tasks:
        if task.done() and task.exception():
            raise task.exception()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [gateway.services.core for gateway in gateways]


def row_of(services, number, name, station, service):
    """A replica as the store has it."""
    where = {"service": services.names[service], "node": services.nodes[station - 1]}
    return Running(Process(name, "replica", 10000 + number, where), f"{number}", 0.0, 0, 0, False)


def gateway_of(scenario, services, world, site, policy, seed, rows, client, numbers):
    clock = asyncio.get_running_loop().time
    session = Session(
        world, policies.load("dispatch", "least-impedance"), seed, clock, StreamRules.of(scenario)
    )
    patience = Patience(health_period_s=PERIOD_S, health_misses=1, health_spread=0.0)
    clients = [client(0, name) for name in world.worker_names]
    gateway = Gateway(session, clients, list(world.variant_names), patience, site=site[1])
    core = RequestCore(services, site[0], policies.load("requests", policy, live=True), seed)
    cloud = {each.name: world.worker_names.index(each.name) for each in services.workers}
    metrics = ServiceMetrics(core, gateway.metrics.registry)
    gateway.services = ServiceRequests(
        core,
        gateway.upstreams,
        cloud,
        lambda: rows,
        patience,
        metrics,
        session,
        numbers=numbers,
        emulated=True,
    )
    return gateway


async def ask(gateway, services, number, request):
    await until(float(request["arrival_s"]))
    path = f"/v2/models/{services.names[request['service']]}/infer"
    body = f"{number}:".encode().ljust(int(request["payload_bytes"]))
    headers = {DEADLINE: repr(float(request["deadline_s"] - request["arrival_s"]))}
    return await gateway.handle(http.HttpRequest("POST", path, headers, body))


def both(data, seed, policy):
    """By site, events and commands in simulation and live, up to the end and without the first news."""
    before, requests, there = simulated(data, seed, policy)
    with pytest.MonkeyPatch.context() as patched:
        logs = noted(patched)
        cores = played(live(data, seed, policy, requests, there))
    return [(in_order(one), in_order(logs[id(core)])) for one, core in zip(before, cores, strict=True)]


def in_order(log):
    """Events of one time by kind and name; a simulation does not say why requests are dropped."""
    kept = []
    for event, said in log:
        if event.time_s >= DURATION_S or (isinstance(event, NEWS) and event.time_s < PERIOD_S):
            continue
        kept.append((event, [each._replace(reason="") if isinstance(each, Drop) else each for each in said]))
    return sorted(kept, key=lambda each: (round(each[0].time_s, 7), type(each[0]).__name__, each[0][1]))


@pytest.mark.parametrize(
    ("policy", "rate_qps", "slack", "fails", "seed"),
    [
        ("deadline-queue", 60, (8, 16), FAILS, 3),
        ("two-choices", 100, (8, 16), (), 2),
        ("deadline-queue", 100, (4, 8), (), 4),
    ],
)
def test_gateways_hear_of_requests_and_send_them_as_simulated_ones_do(policy, rate_qps, slack, fails, seed):
    pairs = both(asked(rate_qps, slack, fails), seed, policy)
    for one, other in pairs:
        assert match_rate(one, other) == 1.0
    events = [event for one, _ in pairs for event, _ in one]
    assert {type(event) for event in events} >= {RequestArrived, RequestReturned, ReplicaTold}
    sent = {each.replica for one, _ in pairs for _, said in one for each in said if isinstance(each, Send)}
    assert len(sent) >= 3
    lost = [each for each in events if isinstance(each, RequestReturned) and each.how == "lost"]
    assert bool(lost) == bool(fails)
    assert any(isinstance(each, ReplicaChanged) for each in events) == bool(fails)


def test_gateways_hear_of_what_is_too_late_where_it_waits_when_simulated_ones_do():
    pairs = both(asked(100, (3, 6)), 5, "greedy")
    events = [event for one, _ in pairs for event, _ in one]
    assert sum(isinstance(each, RequestReturned) and each.how == "dropped" for each in events) > 100
    assert [match_rate(one, other) for one, other in pairs] == [1.0, 1.0]
