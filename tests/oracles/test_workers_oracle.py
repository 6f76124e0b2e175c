"""Streams and requests of services at the same workers equal one naive list of events."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from naive_workers import NaiveWorkers

from edgewise import policies
from edgewise.core.dispatch.state import ELSEWHERE
from edgewise.core.keyed import uniform
from edgewise.model.parsing import parse_scenario
from edgewise.sim.links.wires import Wires
from edgewise.sim.sites import SiteSimulation
from edgewise.sim.slots import replica_state
from edgewise.sim.streams.guests import Guests
from edgewise.sim.streams.periods import COUNTED_TO, HEARD_OF, SAMPLED
from edgewise.workloads.services import simulated_services
from joint_scenarios import held, joint_run, ran, run_of, run_out

SEED = 3
NEVER_S = 1000.0  # news of what fails


def world(
    number: int,
    sharing: str = "none",
    outage: tuple[float, float] | None = None,
    edge: bool = False,
    **variant: Any,
) -> dict[str, Any]:
    """Two sites far from a cloud whose one or two workers streams and requests share; `number` draws it.

    Args:
        edge: near them are two more.
    """
    u = uniform(number, 1, np.arange(8), 0).tolist()
    fast = "1e18"
    data: dict[str, Any] = {
        "name": "shared-workers",
        "duration_s": 30,
        "window_s": 10,
        "sharing": sharing,
        "telemetry": {"period_s": 1.0 + u[0], "lag_s": 0.05 if outage is None else NEVER_S},
        "catalog": {
            "models": [{"name": "small", "task": "detection", "accuracy": 30}],
            "variants": [
                {
                    "name": "served",
                    "model": "small",
                    "resources": {"cpu_cores": 1, "memory_bytes": "500MB"},
                    "profile": {"fixed_s": 0.03 + 0.04 * u[1], "deviation": 0.1, "source": "made up"},
                    "capacity_qps": 8,
                    "start_s": 1.7 * (number % 2), "largest_bytes": "20kB",
                }
                | variant
            ],
        },
        "clusters": [
            {"name": "near", "tier": 0, "nodes": [
                {"name": "near", "resources": {"cpu_cores": 1, "memory_bytes": "1GB"}}]},
            {"name": "cloud", "tier": 1, "nodes": [
                {"name": "cloud", "count": 2, "resources": {"cpu_cores": 8, "memory_bytes": "8GB"}}]},
        ],
        "sites": [{"name": name, "uplink_bps": fast} for name in ("one", "two")],
        "links": [
            {"site": "*", "cluster": "near", "delay_s": "1ms", "over": "lan-{site}"},
            {"site": "*", "cluster": "cloud", "delay_s": "20ms", "over": "wan"},
            {"name": "lan-{site}", "bandwidth_bps": fast},
            {"name": "wan", "bandwidth_bps": fast},
        ],
        "workers": [{"variant": "served", "node": f"cloud-{n}"} for n in range(1 + number % 2)],
        "streams": {
            "gateways": "one",
            "applications": [
                {"name": "any", "task": "detection", "rate_qps": [1 + u[2], 5], "size_bytes": "10kB",
                 "deadline_s": 0.15 + 0.2 * u[3], "length_s": [5, 20], "arrivals": "periodic"}
            ],
            "arrivals": {"clients_per_min": 6 + 6 * u[4]},
        },
        "policies": {"requests": "greedy", "orchestrate": "none"},
        "services": {
            "cloud": "cloud", "frame_s": 10, "gateways": "per_site",
            "offered": [{"variant": "served", "deadline_s": "400ms", "initial": 0}],
            "requests": {"rate_qps": 4 + 6 * u[5], "service_s": [0.02, 0.06 + 0.04 * u[6]], "slack": [2, 8],
                         "payload_bytes": "10kB"},
        },
    }  # fmt: skip
    if edge:
        data["clusters"][0]["nodes"][0] |= {"count": 2}
        data["sites"][1]["access_delay_s"] = 3e-4  # so that what both send at one time comes in turn
        data["policies"]["requests"] = ("two-choices", "deadline-queue")[number % 2]
        data["workers"] += [{"variant": "served", "node": f"near-{n}"} for n in range(2)]
        data["services"]["requests"]["rate_qps"] *= 3
        data["streams"]["arrivals"]["clients_per_min"] *= 3
        del data["services"]["offered"][0]["initial"]
    if outage is not None:
        node = "near-0" if edge else "cloud-0"
        data["timeline"] = [
            {"at_s": at_s, "node": node, "up": up} for at_s, up in zip(outage, (False, True), strict=True)
        ]
    return data


def both(data: dict[str, Any], seed: int) -> tuple[Any, Any, NaiveWorkers]:
    """A joint run, its records, and what the naive list says."""
    run, found = run_of(data, seed, check=True)
    streams, sites = run.parts["streams"].simulation, run.parts["services"].sites
    given = simulated_services(parse_scenario(data, "mixed"))
    drawn = given.draw([seed])
    rows = replica_state.request_rows(given.system, drawn)[0][: int(drawn.count[0])]
    outages = []
    if "timeline" in data:
        (down, up), node = (each["at_s"] for each in data["timeline"]), data["timeline"][0]["node"]
        at = streams.world.node_names.index(node)
        workers, start_s = np.flatnonzero(streams.world.node == at), streams.world.start_s
        outages = [(int(w), down, up + start_s[w]) for w in workers]

    def make() -> Any:
        return policies.load("requests", data["policies"]["requests"])

    naive = NaiveWorkers(
        streams.world, streams.trace, streams.last_worker, sites, rows.view(np.recarray), make, seed, outages
    )
    return run, found, naive.run()


def equal(found: Any, naive: NaiveWorkers) -> None:
    """Queries of each stream to the last one; requests' ends to 1e-9."""
    for row, counts in zip(found["streams"], naive.queries, strict=True):
        assert {name: row[name] for name in counts} == counts, row
    rows = [row for row in found["services"] if row["end_s"] is not None]
    ended = {row["request"]: (row["outcome"], row["end_s"]) for row in rows}
    assert set(ended) == set(naive.outcome)
    for i, (outcome, end_s) in ended.items():
        assert outcome == naive.outcome[i][0], (i, ended[i], naive.outcome[i])
        assert end_s == pytest.approx(naive.outcome[i][1], rel=0, abs=1e-9)


@pytest.mark.parametrize("sharing", ["none", "fifo", "ps"])
@pytest.mark.parametrize("number", range(4))
def test_all_that_workers_serve_ends_as_in_one_list_of_events(number: int, sharing: str) -> None:
    run, found, naive = both(world(number, sharing), seed=number)
    equal(found, naive)
    outcomes = {outcome for outcome, _ in naive.outcome.values()}
    assert {"in_time", "dropped"} <= outcomes
    assert sum(counts["ok"] for counts in naive.queries) > 50
    assert (naive.most <= run.parts["streams"].simulation.world.servers).all()


@pytest.mark.parametrize("sharing", ["none", "fifo"])
@pytest.mark.parametrize("servers", [1, 2])
def test_in_batches_too(servers: int, sharing: str) -> None:
    variant = {"max_batch": 3, "batch_timeout_s": 0.004 * servers, "servers": servers}
    for number in range(3):
        _, found, naive = both(world(number, sharing, **variant), seed=number)
        equal(found, naive)


@pytest.mark.parametrize("sharing", ["none", "fifo"])
@pytest.mark.parametrize("edge", [False, True])
def test_a_node_that_fails_ends_both(sharing: str, edge: bool) -> None:
    for number in range(3):
        _, found, naive = both(world(number, sharing, (10.0, 15.0), edge), seed=number)
        equal(found, naive)


@pytest.mark.parametrize("sharing", ["none", "fifo", "ps"])
@pytest.mark.parametrize("number", range(3))
def test_workers_near_sites_serve_requests_too(number: int, sharing: str) -> None:
    run, found, naive = both(world(number, sharing, edge=True), seed=number)
    equal(found, naive)
    names = [each.name for each in run.parts["services"].sites.services.workers]
    assert len(names) == 3 + number % 2
    stations = Counter(row["station"] for row in found["services"] if row["outcome"] == "in_time")
    assert min(stations[name] for name in ("near-0", "near-1")) > 20
    assert (stations["cloud"] > 0) == (number % 2 == 1)
    assert len({row["worker"] for row in found["streams"]}) > 2


def test_a_pool_that_nobody_changes_serves_as_workers_that_are_there_for_good() -> None:
    """To the last digit, for streams, and for requests where nothing streams."""
    fixed = world(1, "fifo", edge=True)
    pools = deepcopy(fixed)
    near = {"variant": "served", "cluster": "near", "count": 1}
    pools["workers"] = [*fixed["workers"][:-2], near | {"least": 1, "most": 2}]
    fixed["workers"] = [*fixed["workers"][:-2], near]
    assert ran(pools) == ran(fixed)
    alone = [ran(held(data, "services")) for data in (pools, fixed)]
    assert alone[0] == alone[1] and len(alone[0]["services"]) > 100


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_python_hands_requests_to_workers_as_the_compiled_loop_does(
    sharing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digit, with a node that fails; rows are used again by who comes later."""
    worlds = [world(number, sharing, outage=(10.0, 15.0)) for number in range(3)]
    compiled = [ran(each) for each in worlds]
    shared = []

    def by_itself(guests: Guests, *request: Any) -> None:
        shared.append(request)
        come(guests, *request)

    come = Guests.come
    monkeypatch.setattr(Guests, "come", by_itself)
    run, found = run_of(worlds[0], SEED)
    few, rows = len(shared), len(run.parts["streams"].simulation.carrier.truth)
    monkeypatch.setattr(Wires, "streams_beside", lambda wires, rider: None)
    assert [ran(each) for each in worlds] == compiled
    came = len(shared) - few
    assert came > 100 > 10 * few  # where there was no row left
    assert rows < len(run.parts["streams"].simulation.trace) + len(found["services"])


def test_who_is_left_out_changes_the_other_there_and_only_there() -> None:
    """Streams that must be answered sooner than the cloud can are never at its workers."""
    data = world(1)
    together, alone = ran(data), {work: ran(held(data, work))[work] for work in ("streams", "services")}
    assert all(together[work] != rows for work, rows in alone.items())
    data["streams"]["applications"][0]["deadline_s"] = 0.04
    together, alone = ran(data), {work: ran(held(data, work))[work] for work in ("streams", "services")}
    assert together == alone


@pytest.mark.parametrize("lag_s", [0.05, 3.7])
@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_many_periods_at_once_are_what_they_are_one_by_one(
    sharing: str, lag_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digit, with a node that fails; gateways may hear of a period after the next has ended."""
    worlds = [world(number, sharing, (10.0, 15.0), edge=True) for number in range(2)]
    for data in worlds:
        data["telemetry"]["lag_s"], data["streams"]["gateways"] = lag_s, "per_site"
    went, together = [], list[Any]()
    through = SiteSimulation.go_through_many

    def at_once(simulation: SiteSimulation, to_s: float) -> bool:
        before = simulation.periods.many.copy()
        done = through(simulation, to_s)
        went.append(simulation.periods.many - before)
        return done

    monkeypatch.setattr(SiteSimulation, "go_through_many", at_once)
    together = [ran(each) for each in worlds]
    assert (np.sum(went, axis=0)[[SAMPLED, HEARD_OF, COUNTED_TO]] > 20).all()
    assert np.max(went) > 3
    monkeypatch.setattr(SiteSimulation, "go_through_many", lambda simulation, to_s: False)
    assert [ran(each) for each in worlds] == together


@pytest.mark.parametrize("gateways", ["one", "per_site"])
def test_the_load_of_requests_is_left_out_of_what_streams_may_have(
    gateways: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As live: measured once in a period, averaged, and others hear of it by the worker."""
    data = world(0)
    data["streams"]["gateways"] = gateways
    run, told = joint_run(data, 3, True), []
    streams, sites = run.parts["streams"].simulation, run.parts["services"].sites
    monkeypatch.setattr(
        streams, "go_through_many", lambda to_s: False
    )  # who goes on in compiled code is not told
    measured = streams.measured_requests

    def noted(now_s: float, load_qps: Any) -> None:
        measured(now_s, load_qps)
        booked = [float(core.loads.state.real[ELSEWHERE, 0]) for core in streams.cores]
        told.append((now_s, load_qps.copy(), booked))

    sites.guests.measured = noted
    run_out(run)
    rows, period_s, lag_s = sites.rows, sites.news.period_s, sites.news.lag_s
    there = streams.world
    cost = float(there.fixed_s[0] / (there.fixed_s[0] + there.per_byte_s[0] * there.largest_bytes[0]))
    before_s, load_qps = 0.0, np.zeros(2)
    assert [now_s for now_s, *_ in told] == pytest.approx(
        [k * period_s + lag_s for k in range(1, len(told) + 1)]
    )
    for now_s, found, booked in told:
        for site in range(2):
            mine = (rows["site"] == site) & (rows["arrival_s"] >= before_s) & (rows["arrival_s"] < now_s)
            came_qps = cost * float((mine & (rows["station"] == 0)).sum()) / period_s
            load_qps[site] += (1.0 - np.exp(-period_s / 5.0)) * (came_qps - load_qps[site])
        assert found[:, 0] == pytest.approx(load_qps, rel=1e-9)
        if gateways == "one":
            assert booked == pytest.approx([load_qps.sum()])
        else:  # the other's streams and requests, as it has heard last, and its own requests
            assert all(each >= own - 1e-9 for each, own in zip(booked, load_qps, strict=True))
        before_s = now_s
    assert load_qps.min() > 0.5
    if gateways == "per_site":
        assert streams.granted_qps(0) >= load_qps.sum() * 0.5  # by renewals, which are 1.7 s apart
