"""One physical trace through the simulator and through live gateways: events and commands of cores are equal.

Clients come, send and go as a scenario's seed says; networks and workers take the time that they take, and a
node fails. The simulation plays it in kernels. The gateways here are those of `edgewise up`, on a virtual
clock, with workers that are played (`ground`): what they tell their cores, they have found out themselves.
"""

import asyncio
import itertools
import json
from dataclasses import replace

import pytest
from ground import PlayedClient, PlayedWorker, until
from same_events import match_rate, without_repetition
from virtual import played

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Bind, Measured, Refuse, ReservedElsewhere, WorkerChanged
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.world import World
from edgewise.runtime import http
from edgewise.runtime.gateway.forwarding import Patience
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.needs import Book, StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.sim.sites import SiteSimulation
from edgewise.workloads.generate import generate_streams
from joint_scenarios import queries_of

NEEDS = ("task", "application", "rate_qps", "size_bytes", "deadline_s", "min_accuracy", "priority")
CHECK_S = 0.1  # gateways look after workers so often; failures are such that news of them come then
FAILS = [
    {"at_s": 40.02, "node": "office-0", "up": False},
    {"at_s": 61.02, "node": "office-0", "up": True},
]
LINKS = [  # of lengths that differ, so that no two gateways' messages come to a worker at one time
    {"site": site, "cluster": cluster, "delay_s": delay_s, "deviation_s": 3e-4, "bandwidth_bps": "10Gbps"}
    for site, cluster, delay_s in [
        ("access-0", "access-0", 3e-4), ("access-1", "access-1", 4e-4), ("access-0", "access-1", 6e-3),
        ("access-1", "access-0", 6.1e-3), ("access-0", "central-office", 3e-3),
        ("access-1", "central-office", 3.2e-3), ("access-0", "cloud", 25e-3), ("access-1", "cloud", 26e-3),
    ]
]  # fmt: skip
FAILING = {"telemetry.lag_s": 0.08, "timeline": FAILS, "links": LINKS}


def noted(patched):
    """By core, each event with its commands."""
    logs, handle = {}, DispatchCore.handle

    def handle_and_note(core, event):
        commands = handle(core, event)
        logs.setdefault(id(core), []).append((event, list(commands)))
        return commands

    patched.setattr(DispatchCore, "handle", handle_and_note)
    return logs


def simulated(scenario, policy, seed):
    """By site what its core was told and said; how many bindings were not granted."""
    run = SiteSimulation(scenario, lambda: policies.load("dispatch", policy), seed, note_all=True)
    run.run()
    return run.heeded, run.refusals


class InOrder(Book):
    """Numbers streams as they come, as a trace does; numbers are what ties are drawn by."""

    def __init__(self):
        super().__init__()
        self._in_order = itertools.count()

    async def opened(self, stated, key, *more):
        return next(self._in_order)


async def live(scenario, policy, seed):
    """The same of live gateways."""
    loop = asyncio.get_running_loop()
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    trace, book = generate_streams(scenario, seed), InOrder()
    workers = [PlayedWorker(world, w, trace, seed) for w in range(world.workers)]
    gateways = [gateway_of(scenario, world, site, policy, seed, workers, book) for site in world.site_names]
    for change in scenario.timeline:
        for w in [w for w, n in enumerate(world.node) if world.node_names[n] == change.node]:
            starts_s = change.at_s + float(world.start_s[w])
            loop.call_at(*((starts_s, workers[w].start) if change.up else (change.at_s, workers[w].die)))
    tasks = [loop.create_task(each.keep_time(scenario.telemetry.period_s)) for each in gateways]
    tasks += [loop.create_task(each.watch()) for each in gateways]
    tasks += [loop.create_task(client(gateways[stream.site], stream, seed)) for stream in trace]
    await asyncio.sleep(scenario.duration_s + 0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [gateway.session.core for gateway in gateways]


def gateway_of(scenario, world, site, policy, seed, workers, book):
    clock, rules = asyncio.get_running_loop().time, StreamRules.of(scenario)
    session = Session(world, policies.load("dispatch", policy), seed, clock, rules)
    s = world.site_names.index(site)
    clients = [PlayedClient(worker, s, scenario.telemetry.lag_s) for worker in workers]
    # A node fails with all its workers at once in simulation, so they are all asked at once.
    patience = Patience(health_period_s=CHECK_S, health_misses=1, health_spread=0.0)
    return Gateway(session, clients, list(world.variant_names), patience, book=book, name=site, site=site)


async def client(gateway, stream, seed):
    """Opens a stream, sends as it said, and closes it; whose refusal is final has nothing to close."""
    await until(stream.open_s)
    needs = {name: getattr(stream, name) for name in NEEDS}
    opening = asyncio.create_task(ask(gateway, "POST", "/v1/streams", {}, json.dumps(needs).encode()))
    sending = [asyncio.create_task(send(gateway, stream, *query)) for query in queries_of(stream, seed)]
    await until(stream.close_s)
    await ask(gateway, "DELETE", f"/v1/streams/{stream.id}")
    return await asyncio.gather(opening, *sending)


async def send(gateway, stream, number, sent_s):
    await until(sent_s)
    path, headers = f"/v2/models/{stream.task}/infer", {"edgewise-stream": str(stream.id)}
    return await ask(gateway, "POST", path, headers, f"{stream.id}:{number}".encode())


async def ask(gateway, method, path, headers=None, body=b""):
    try:
        return await gateway.handle(http.HttpRequest(method, path, headers or {}, body))
    except ew.EdgewiseError as error:
        return error


def both(scenario, policy, seed):
    """By site, the events and commands in simulation and live; how many bindings were not granted."""
    before, refusals = simulated(scenario, policy, seed)
    with pytest.MonkeyPatch.context() as patched:
        logs = noted(patched)
        cores = played(live(scenario, policy, seed))
    pairs = zip(before, [logs[id(core)] for core in cores], strict=True)
    return [tuple(without_repetition(log, scenario.duration_s) for log in pair) for pair in pairs], refusals


@pytest.mark.parametrize(
    ("policy", "seed"), [("least-impedance", 1), ("least-impedance", 4), ("power-of-two", 5)]
)
def test_gateways_hear_and_say_what_simulated_ones_do(policy, seed):
    scenario = ew.load_scenario("three-tier", {"streams.gateways": "per_site"})
    pairs, _ = both(scenario, policy, seed)
    for one, other in pairs:
        assert match_rate(one, other) == 1.0
    heard = {type(event) for one, _ in pairs for event, _ in one}
    said = {type(command) for one, _ in pairs for _, commands in one for command in commands}
    assert heard >= {Measured, ReservedElsewhere}
    assert said >= ({Bind, Refuse} if policy == "least-impedance" else {Bind})


def test_a_stream_that_a_worker_does_not_grant_keeps_what_it_has_sent():
    scenario = ew.load_scenario("three-tier", {"streams.gateways": "per_site"})
    pairs, refusals = both(scenario, "least-impedance", 2)
    assert refusals > 0
    for one, other in pairs:
        assert match_rate(one, other) == 1.0


@pytest.mark.parametrize("start_s", [0.0, 4.4])
def test_gateways_hear_of_a_node_that_fails_and_comes_back_as_simulated(start_s):
    """What it answered since its last report it cannot report any more; its workers take time to start."""
    scenario = ew.load_scenario("three-tier", {"streams.gateways": "per_site", **FAILING})
    variants = tuple(replace(each, start_s=start_s) for each in scenario.catalog.variants)
    scenario = replace(scenario, catalog=replace(scenario.catalog, variants=variants))
    pairs, _ = both(scenario, "power-of-two", 8)
    for one, other in pairs:
        assert match_rate(one, other) == 1.0
        assert {event.up for event, _ in one if isinstance(event, WorkerChanged)} == {True, False}
