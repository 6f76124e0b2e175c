"""Requests with a core at each site: what sites know and when, replicas that go and nodes that fail."""

import numpy as np
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.events import Drop, Send
from edgewise.errors import PolicyError
from edgewise.run import assigning
from edgewise.sim.requests.news import News
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
from edgewise.workloads.services import services_at_sites, simulated_services
from joint_scenarios import simulate_sites

SEED = 500
NEWS = News(0.5, 0.25)
NOTES = 1000


def sites_of(policy="deadline-queue", news=NEWS, notes=0, **changes):
    paths = {"duration_s": 30, **{name.replace("__", "."): value for name, value in changes.items()}}
    scenario = load_scenario("kais-live", paths)
    given = simulated_services(scenario)
    frames = given.slots // given.system.frame_slots

    def policy_of_a_site():
        return policies.load("requests", policy)

    drawn = given.draw([SEED])
    made = services_at_sites(scenario, given), drawn, policy_of_a_site, SEED, frames, news
    return RequestSites(*made, notes=notes)


def end_s(sites):
    return len(sites.tally) * sites.frame_s


def checked(sites):
    """Every request is counted once, and where it stands."""
    for core in sites.cores:
        core.validate()
    counts, state = sites.tally.sum(axis=0), sites.rows.state
    seen = [(state == each).sum() for each in (k.IN_TIME, k.LATE, k.DROPPED)]
    assert counts[k.DONE_IN_TIME : k.LOST + 1].tolist() == seen
    assert counts[k.ARRIVED] == (state != k.UNSEEN).sum()
    assert (np.isfinite(sites.rows.end_s) == np.isin(state, (k.IN_TIME, k.LATE, k.DROPPED))).all()
    return sites


def test_at_light_load_it_is_the_engine_of_slots_but_for_the_wait_for_a_slot():
    scenario = load_scenario("kais-live", {"services.requests.rate_qps": 10, "duration_s": 60})
    given = simulated_services(scenario)
    drawn, frames = given.draw([SEED]), given.slots // given.system.frame_slots
    worlds = ReplicaWorlds(given.system, drawn, given.slots, [SEED])
    simulate(worlds, policies.load("requests", "deadline-queue"))
    slots = worlds.state.truth.request[0]
    sites = sites_of(duration_s=60, services__requests__rate_qps=10, news=News(0.1))
    assert len(sites.tally) == frames
    simulate_sites(sites, policies.load("orchestrate", "none"))
    mean_s, share = [], []
    for rows in (slots, checked(sites).rows):
        done = np.isin(rows.state, (k.IN_TIME, k.LATE))
        mean_s.append((rows.end_s - rows.arrival_s)[done].mean())
        share.append((rows.state == k.IN_TIME).sum() / done.sum())
    assert mean_s[0] - mean_s[1] == pytest.approx(given.system.slot_s / 2, rel=0.2)
    assert share == pytest.approx([1.0, 1.0], abs=0.01)


def said(sites):
    """When which site decided what of which request."""
    return [
        (event.time_s, site, command.request, command)
        for site, event, commands in sites.log
        for command in commands
    ]


def test_worlds_that_agree_up_to_now_less_the_lag_get_the_same_decisions():
    """A replica breaks, comes, goes: sites that asked for nothing there decide as if nothing had happened."""
    happens_s = 7.1  # news of it are gathered at 7.5, and arrive at 7.75
    arrives_s = 7.75

    def log_of(what):
        sites = sites_of(notes=NOTES)
        sites.advance(happens_s)
        if what:
            what(sites)
        sites.advance(12.0)
        return said(checked(sites))

    alone = log_of(None)
    for name, change in {
        "a new replica": lambda sites: [sites.add_replica(n, 2) for n in (0, 1, 2, 3) for _ in (0, 1)],
        "one that goes": lambda sites: [
            sites.remove_replica(each) for each in list(sites.queues.replicas) if "cloud" not in each
        ],
    }.items():
        changed = log_of(change)
        before = [row for row in alone if row[0] < arrives_s]
        assert [row for row in changed if row[0] < arrives_s] == before, name
        assert changed != alone, name  # and then they have heard
    other = max(alone, key=lambda row: row[0])
    assert other[0] > arrives_s


def test_a_node_that_fails_takes_what_it_has_and_its_sites_send_it_elsewhere():
    sites = sites_of(notes=NOTES, services__requests__rate_qps=100)
    sites.advance(5.0)
    had = [i for server in sites.queues.replicas.values() if server.station == 1 for i in server.work]
    sites.fail_node(0)
    sites.advance(15.0)
    down = [row for row in said(sites) if row[0] >= 5.0]
    assert had and {i for _, _, i, _ in down} >= set(had)  # they are decided again
    mine = [name for name, server in sites.queues.replicas.items() if server.station == 1]
    later = [command.replica for at_s, _, _, command in down if at_s > 6.0 and isinstance(command, Send)]
    assert mine and later and not set(later) & set(mine)
    worked = (sites.rows.station == 1) & (sites.rows.state == k.IN_TIME)
    assert (sites.rows.end_s[worked] < 5.01).all()
    sites.repair_node(0)
    sites.advance(end_s(sites))
    again = [row for row in said(checked(sites)) if row[0] > 17.0 and isinstance(row[3], Send)]
    assert any(row[3].replica in mine for row in again)


def test_orchestration_sees_a_dead_node_once_news_of_it_have_come():
    sites = sites_of(services__requests__rate_qps=0.01)
    sites.advance(7.1)
    before = sites.seen()
    sites.fail_node(0)
    sites.advance(7.7)
    assert sites.seen() == before and any(replica.node == 0 for replica in before.values())
    sites.advance(7.8)  # gathered at 7.5, heard at 7.75
    after = sites.seen()
    assert all(each.started == each.up == (each.node != 0) for each in after.values()) and after != before
    sites.repair_node(0)
    sites.advance(8.2)
    assert sites.seen() == after
    sites.advance(8.3)
    assert all(each.started for each in sites.seen().values())


def test_a_request_is_dropped_that_has_lost_three_replicas():
    sites = sites_of("closest", News(100.0), services__requests__slack=[1000, 1000])
    for n in range(sites.system.nodes):
        for _ in range(2):
            sites.add_replica(n, 2)
    sites.advance(3.0)
    sites.tell()
    sites.cores[0].shadow = None
    for n in range(sites.system.nodes):
        sites.fail_node(n)
    sites.queues.replicas["sorting@cloud"].up = False  # all are lost, and nobody has heard of it
    sites.advance(4.0)
    rows = sites.rows[(sites.rows.service == 2) & (sites.rows.arrival_s > 3.0)]
    rows = rows[rows.arrival_s < 3.3]
    assert rows.size > 3 and (rows.state == k.DROPPED).any()
    checked(sites)


def test_a_replica_that_is_to_go_serves_what_it_has_and_goes_when_all_have_heard():
    sites = sites_of(services__requests__rate_qps=100)
    sites.advance(5.0)
    name = next(name for name, server in sites.queues.replicas.items() if server.station > 0 and server.work)
    free = sites.queues.run.room.copy()
    sites.remove_replica(name)
    (i,) = sites.queues.replicas[name].work
    sites.advance(5.1)
    assert name in sites.queues.replicas  # news of it come at 5.75
    sites.advance(8.0)
    assert name not in sites.queues.replicas and sites.rows[i].state in (k.IN_TIME, k.LATE)
    assert sites.queues.run.room[:, 1].sum() > free[:, 1].sum()
    sites.advance(end_s(sites))
    assert all(name not in core.replicas for core in checked(sites).cores)


def test_a_scenario_says_that_gateways_are_many_and_the_records_are_those_of_any_run():
    paths = {"services.gateways": "per_site", "duration_s": 30, "telemetry.lag_s": 0.2}
    runs = {
        name: ew.simulate(load_scenario("kais-live", given), {"orchestrate": "autoscaler"}, [SEED])
        for name, given in {"per_site": paths, "one": {"duration_s": 30}}.items()
    }
    sites, one = runs["per_site"], runs["one"]
    assert sites.items.schema == one.items.schema and sites.windows.schema == one.windows.schema
    assert sites.items["arrival_s"].to_pylist()[:100] == one.items["arrival_s"].to_pylist()[:100]
    arrived, *rest = (
        np.array(sites.windows[name]).sum() for name in ("arrived", "in_time", "late", "dropped", "waiting")
    )
    assert arrived == sum(rest) == sites.items.num_rows


def test_a_policy_that_python_asks_decides_as_one_that_is_compiled_in():
    """A rule that is not the shipped one by identity is asked by Python, request by request."""
    shipped = policies.load("requests", "deadline-queue")

    class Asked(type(shipped)):
        def decide(self, view):
            return super().decide(view)

    def rows(make):
        scenario = load_scenario("kais-live", {"duration_s": 30, "services.requests.rate_qps": 100})
        given = simulated_services(scenario)
        made = services_at_sites(scenario, given), given.draw([SEED]), make, SEED
        sites = RequestSites(*made, given.slots // given.system.frame_slots, NEWS)
        assert bool(sites.queues.run.clock["rule"][0]) == (make is type(shipped))
        simulate_sites(sites, policies.load("orchestrate", "autoscaler"))
        return checked(sites).rows

    compiled, asked = rows(type(shipped)), rows(Asked)
    assert compiled.tobytes() == asked.tobytes() and (compiled.state == k.IN_TIME).sum() > 1000


def test_old_news_cost():
    """Less ends in time where news are old, at a load where it matters."""
    found = []
    for lag_s in (0.0, 2.0):
        sites = sites_of(
            "greedy", News(0.1, lag_s), services__requests__rate_qps=200, services__initial_share=1
        )
        simulate_sites(sites, policies.load("orchestrate", "none"))
        found.append((checked(sites).rows.state == k.IN_TIME).sum())
    assert found[0] > found[1], found


def test_what_no_replica_could_end_is_refused_at_once():
    sites = sites_of(notes=NOTES, services__requests__slack=[1.01, 1.05])
    sites.advance(end_s(sites))
    drops = [command for *_, command in said(checked(sites)) if isinstance(command, Drop)]
    assert drops and all(command.late for command in drops)


def test_a_policy_that_knows_the_requests_of_all_sites_is_refused_and_not_compared():
    scenario, published = (
        load_scenario("kais-live", {"services.gateways": each}) for each in ("per_site", "one")
    )
    with pytest.raises(PolicyError, match="'gsp-ss' needs to know the requests of all sites; use `gateways"):
        ew.simulate(scenario, {"requests": "gsp-ss", "orchestrate": "none"}, [SEED])
    at_sites, in_slots = (assigning.names(each, "requests") for each in (scenario, published))
    assert set(in_slots) - set(at_sites) == {"gsp-ss"}


def test_nodes_that_fail_and_return_take_no_more_room_than_what_happens_needs():
    """Their events had twice as many places after each failure and return, once per replica."""
    sites = sites_of()
    held = sites.queues.run.events.size
    for k_th in range(1, 20):
        sites.advance(k_th)
        sites.fail_node(0)
        sites.repair_node(0)
    assert sites.queues.run.events.size == held
