"""Services: from a scenario, in slots or beside other work, or from what lived, to tables of their requests.

Forbidden here: printing and files.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from edgewise.arrays import Floats, Ints, Records
from edgewise.core.dispatch.request_rules import CLOUD
from edgewise.core.guard import Guard
from edgewise.core.holders import Held, Holders, held_of, hold_records, totals
from edgewise.errors import ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.scenario import Scenario
from edgewise.model.services import service_names, services_of
from edgewise.run.holding import held_for_life
from edgewise.run.shared import Joined, RunContext
from edgewise.run.tables import Columns, Make, SeedRun, Tables
from edgewise.run.workers import hosting, orchestrate, pooled, streams_workers
from edgewise.sim.parts.services import RequestsPart
from edgewise.sim.requests.news import News
from edgewise.sim.requests.sites import Beside, RequestSites
from edgewise.sim.requests.state import worked_until
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.guarded import GuardedReplicas, GuardedRequests
from edgewise.sim.slots.replicas import ReplicaWorlds, decision_s, simulate
from edgewise.workloads.services import names_of, services_at_sites, simulated_services

if TYPE_CHECKING:
    from edgewise.runtime.clients.lived import Lived
    from edgewise.runtime.store.records import Request

STATES = {"in_time": k.IN_TIME, "late": k.LATE, "dropped": k.DROPPED}


def in_slots(scenario: Scenario, chosen: Mapping[str, Make], seeds: Sequence[int]) -> Iterator[SeedRun]:
    """Services whose gateways see all, in slots; the seeds are one batch."""
    given, counts = simulated_services(scenario), list[Ints]()
    requests, orchestrate = chosen["requests"](), chosen["orchestrate"]()
    made = GuardedRequests(requests, Guard()), GuardedReplicas(orchestrate, Guard())
    drawn = given.draw(seeds)
    worlds = ReplicaWorlds(given.system, drawn, given.slots, seeds, None, given.spec.nodes_per_frame)
    simulate(worlds, *made, lambda view: counts.append((view.ready + view.starting)[:, 1:]))
    truth = worlds.state.truth
    runs = [service_tables(scenario, truth.request[w], truth.tally[w]) for w in range(len(seeds))]
    asked = (one.guard.decided(one.policy) for one in made)
    decided = dict(zip(("requests", "orchestrate"), asked, strict=True))  # of all worlds together
    took_s, names, held = decision_s(worlds, *made), names_of(scenario, given.spec), np.array(counts)
    for w, tables in enumerate(runs):
        holds = replicas_held(scenario, given.system, names, held[:, w])
        yield SeedRun(*tables, {} if w else decided, took_s, use={"holds": holds})


def joined(run: RunContext) -> Joined:
    """Services with a gateway at each site, beside other work."""
    scenario, spec = run.scenario, run.scenario.services
    if spec is not None and spec.cores_held != "life" and scenario.jobs is not None:
        raise ScenarioError(
            f"{scenario.name}: services.cores_held: is 'request', so nobody knows which cores are "
            "left to jobs; write 'life'"
        )
    given = simulated_services(scenario)
    news = News(scenario.telemetry.period_s, scenario.telemetry.lag_s)
    drawn = given.draw([run.seed])
    services = services_at_sites(scenario, given)
    guests = hosting(run, services)
    deciding = orchestrate(run, services)
    sites = RequestSites(
        services, drawn, run.chosen["requests"], run.seed, given.slots // given.system.frame_slots, news,
        Beside(deciding.images, run.wires, guests),
    )  # fmt: skip
    if guests is not None:
        streams_workers(run).simulation.count_with(sites)
    variant = scenario.catalog.variant
    start_s = {w.name: variant(w.variant).start_s for w in scenario.topology.workers if w.pool is None}
    return Joined(
        RequestsPart(sites, deciding.core, start_s, every=pooled(run)),
        lambda: service_tables(scenario, sites.rows, sites.tally),
        {"orchestrate": deciding.decided, "requests": sites.decided},
        lambda: {"workers": replica_use(scenario, sites, run.holders)},
    )


def service_tables(scenario: Scenario, rows: Records, tally: Floats) -> Tables:
    """Columns of the requests of a world that arrived, from (R,) `REQUEST`, and of (F, COLUMNS) frames."""
    spec, topology = scenario.served, scenario.topology
    number = np.flatnonzero(rows.state != k.UNSEEN)
    first = slice(number.size)  # all that arrived, unless some are missing in between
    rows = rows[first if np.array_equal(number[-1:], [number.size - 1]) else number].view(np.recarray)
    stations = [spec.cloud, *(node.name for node in topology.nodes if node.cluster != spec.cloud)]
    items = {
        "request": number,
        "service": pa.array(names_of(scenario, spec)).take(pa.array(rows.service)),
        "site": pa.array([site.name for site in topology.sites]).take(pa.array(rows.site)),
        "station": pa.array(stations).take(pa.array(rows.station, mask=rows.station < 0)),
        "arrival_s": rows.arrival_s,
        "deadline_s": rows.deadline_s,
        "end_s": pa.array(rows.end_s, mask=np.isnan(rows.end_s)),
        "outcome": pa.array(k.OUTCOMES).take(pa.array(rows.state)),
    }
    counts = tally[:, :4].astype(np.int64).T
    frame = np.arange(len(tally))
    span = {"window": frame, "start_s": frame * spec.frame_s, "end_s": (frame + 1) * spec.frame_s}
    columns = dict(zip(("arrived", "in_time", "late", "dropped"), counts, strict=True))
    sizes = dict(zip(("forwarded_bytes", "local_bytes", "image_bytes"), tally[:, 4:].T.copy(), strict=True))
    return Tables(items, {**span, **columns, **sizes, "waiting": counts[0] - counts[1:].sum(axis=0)})


def replicas_held(scenario: Scenario, system: System, names: Sequence[str], counts: Ints) -> Columns:
    """Who holds what where services run in slots.

    Args:
        names: (S,) of services.
        counts: (F, N, S) replicas on each node at the beginning of each frame.
    """
    nodes, (frames, *_) = scenario.topology.nodes, counts.shape
    own = [node for node in nodes if node.cluster != scenario.served.cloud]
    end_s, frame_s = scenario.duration_s, scenario.duration_s / frames
    for_life = held_for_life(scenario, ("services",)).items()
    held = [held_of(each.node, each.owner, work, each.resources) for each, work in for_life]
    spans = [(0.0, end_s, what) for what in (*totals(nodes), *held)]
    for n, s in np.argwhere(counts.any(axis=0)).tolist():
        count = counts[:, n, s]
        memory_bytes, cores = system.replica_holds[s].tolist()
        edges = [0, *(np.flatnonzero(np.diff(count)) + 1).tolist(), frames]
        for first, last in pairwise(edges):
            if number := int(count[first]):
                what = Held(
                    own[n].name,
                    f"{names[s]}-{own[n].name}",
                    "services",
                    number * cores,
                    number * memory_bytes,
                )
                spans.append((first * frame_s, last * frame_s, what))
    return hold_records(spans)


def replica_use(scenario: Scenario, sites: RequestSites, holders: Holders) -> Columns:
    """How busy replicas were; those of one service on one node, or in the cloud, are a row."""
    names, nodes = sites.services.names, sites.services.nodes
    there_s = np.zeros_like(sites.queues.run.worked_s)
    for start_s, end_s, held in holders.spans:
        service, of_replica, _ = held.owner.rpartition(f"-{held.place}-")
        if held.work == "services" and held.place in nodes and of_replica:
            there_s[names.index(service), nodes.index(held.place) + 1] += end_s - start_s
    for each in sites.queues.replicas.values():
        if each.station == CLOUD and each.worker < 0:
            there_s[each.service, CLOUD] += each.serves * scenario.duration_s
    stations = (scenario.served.cloud, *nodes)
    worked_s = worked_until(sites.queues.run, scenario.duration_s)
    rows = [(s, n) for s, n in np.argwhere(there_s > 0.0).tolist()]
    return {
        "work": ["services"] * len(rows),
        "worker": [f"{names[s]} on {stations[n]}" for s, n in rows],
        "node": [None if n == CLOUD else stations[n] for _, n in rows],
        "busy_s": [float(worked_s[s, n]) for s, n in rows],
        "there_s": [float(there_s[s, n]) for s, n in rows],
    }


def lived_services(scenario: Scenario, seen: "Lived") -> Tables | None:
    """Of a live system; None: no request of it is over."""
    services, spec = services_of(scenario), scenario.services
    if services is None or spec is None:
        return None
    names = service_names(spec, scenario.catalog)
    asked = [each for each in seen.requests if each.service in names and each.end_s is not None]
    if not asked:
        return None
    sites = [site.name for site in scenario.topology.sites]
    own = [node.name for node in scenario.topology.nodes if node.cluster != spec.cloud]
    station_of = {name: number for number, name in enumerate((spec.cloud, *own))}
    rows = np.zeros(len(asked), k.REQUEST).view(np.recarray)
    rows.arrival_s = [each.at_s - seen.since_s for each in asked]
    rows.deadline_s = rows.arrival_s + [each.deadline_s for each in asked]
    rows.end_s = [(each.end_s or 0.0) - seen.since_s for each in asked]
    rows.site = [sites.index(each.site) if each.site in sites else 0 for each in asked]
    rows.service = [names.index(each.service) for each in asked]
    rows.station = [station_of.get(each.station or "", -1) for each in asked]
    over = np.array([(each.end_s or 0.0) <= seen.until_s for each in asked])
    rows.state = np.where(over, [STATES[each.outcome] for each in asked], k.WORKED_ON)
    rows.end_s[~over] = math.nan
    home = {node: sites[s] for node, s in zip(services.nodes, services.system.site_of, strict=True)}
    return service_tables(scenario, rows, _tally(scenario, asked, rows, home))


def _tally(scenario: Scenario, asked: "Sequence[Request]", rows: Any, home: Mapping[str, str]) -> Any:
    """(F, COLUMNS) counts and bytes of each frame; images do not go over links live."""
    frame_s = scenario.served.frame_s
    frames = max(math.ceil(scenario.duration_s / frame_s - 1e-9), 1)
    tally = np.zeros((frames, k.COLUMNS))

    def add(at_s: Any, column: int, amount: Any = 1.0) -> None:
        frame = np.clip((np.asarray(at_s) / frame_s).astype(np.int64), 0, frames - 1)
        np.add.at(tally[:, column], frame, amount)

    add(rows.arrival_s, k.ARRIVED)
    for state, column in ((k.IN_TIME, k.DONE_IN_TIME), (k.LATE, k.DONE_LATE), (k.DROPPED, k.LOST)):
        add(rows.end_s[rows.state == state], column)
    size = np.array([each.size_bytes for each in asked])
    local = np.array([home.get(each.station or "") == each.site for each in asked])
    sent = rows.station >= 0
    add(rows.arrival_s[sent & ~local], k.FORWARDED_BYTES, size[sent & ~local])
    add(rows.arrival_s[sent & local], k.LOCAL_BYTES, size[sent & local])
    return tally
