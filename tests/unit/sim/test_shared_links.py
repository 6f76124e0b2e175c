"""Streams over shared links: what a scenario says and means; nothing is lost or counted twice."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Release
from edgewise.errors import ScenarioError
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.model.ways import levels, routes_of
from edgewise.model.work import Stream
from edgewise.run import assigning
from edgewise.sim.simulate import Simulation
from edgewise.sim.sites import SiteSimulation
from edgewise.sim.streams.carrying import Shared

LINKS = """
- {name: "lan-{site}", bandwidth_bps: LAN, delay_s: 0.5ms}
- {name: wan, bandwidth_bps: WAN, delay_s: 4ms, deviation_s: 3ms, buffer_bytes: 1MB}
- {site: "*", cluster: access-0, over: "lan-{site}"}
- {site: "*", cluster: access-1, over: ["lan-{site}"], delay_s: 1ms}
- {site: "*", cluster: central-office, over: ["lan-{site}", wan]}
- {site: "*", cluster: cloud, over: ["lan-{site}", wan], delay_s: 20ms, deviation_s: 4ms}
"""


def links(lan="1Gbps", wan="100Mbps"):
    return yaml.safe_load(LINKS.replace("LAN", lan).replace("WAN", wan))


def three_tier(sharing="fifo", lan="1Gbps", wan="100Mbps", **more):
    return ew.load_scenario(
        "three-tier", {"duration_s": 20, "window_s": 5, "sharing": sharing, "links": links(lan, wan)} | more
    )


def run(scenario, policy="least-impedance"):
    simulation = Simulation(scenario, policies.load("dispatch", policy), 5)
    return simulation, simulation.run()


def changing(scenario):
    """The same, with a way that fails, and a node."""
    site, node = scenario.topology.sites[0].name, scenario.topology.clusters[0].nodes[0].name
    changes = (
        LinkChange(4.3, site, "cloud", delay_s=0.05),
        NodeChange(6.7, node, up=False),
        LinkChange(8.1, site, "central-office", up=False),
        LinkChange(12.4, site, "central-office", up=True),
        NodeChange(14.7, node, up=True),
    )
    return replace(scenario, timeline=changes)


def test_cables_add_up_to_ways_and_are_links_each_way():
    scenario = three_tier()
    way = next(way for way in scenario.topology.ways if way.cluster == "cloud")
    assert way.delay_s == pytest.approx(0.0245) and way.deviation_s == pytest.approx(0.005)
    assert way.bandwidth_bps == 100e6 and way.over == ("lan-access-0", "wan")
    routes = routes_of(scenario.topology)
    assert routes.names == tuple(
        f"{cable}:{direction}"
        for cable in ("lan-access-0", "wan", "lan-access-1")
        for direction in ("up", "down")
    )
    names = [[routes.names[link] for link in row if link >= 0] for row in routes.link]
    assert names[3] == ["lan-access-0:up", "wan:up"]
    assert names[8 + 3] == ["wan:down", "lan-access-0:down"]
    assert routes.before[3] == pytest.approx([0.0, 0.5 / 24.5])
    assert routes.before[8 + 3] == pytest.approx([0.0, 24.0 / 24.5])
    level, loop = levels(len(routes.names), routes.link)
    assert not loop.any() and level[0] < level[2] and level[3] < level[1]


def test_links_in_a_loop_share_a_level():
    level, loop = levels(6, np.array([[0, 1, 2], [2, 1, 3], [3, 4, -1], [5, 5, -1]]))
    assert loop.tolist() == [False, True, True, False, False, True]
    assert level[1] == level[2] and level[0] < level[1] < level[3] < level[4]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"links.2.over": ["lan-{site}", "wann"]},
            "links[2].over: unknown cable 'wann'; did you mean 'wan'? (a cable is declared among links: "
            "{name: wann, bandwidth_bps: …})",
        ),
        ({"links.2.over": "wann"}, "links[2].over: unknown cable 'wann'; did you mean 'wan'?"),
        (
            {"links.2.over": "lam-{site}"},
            "links[2].over: unknown cable 'lam-access-0'; did you mean 'lan-{site}'? (a cable is "
            'declared among links: {name: "lam-{site}", bandwidth_bps: …})',
        ),
        ({"links.0.name": "lan-access-0"}, "links[2].over: unknown cable 'lan-access-1'"),
        ({"links.3.over": ["wan", "wan"]}, "'wan' twice"),
        ({"links.2.bandwidth_bps": "1Mbps"}, "links[2].bandwidth_bps: the cables it runs over have it"),
        ({"links.1.name": "lan-access-0"}, "a second cable 'lan-access-0'"),
        ({"links.2.shared": "both"}, "links[2].shared: the cables it runs over have it"),
    ],
)
def test_what_is_wrong_with_cables_is_said(change, says):
    with pytest.raises(ScenarioError) as error:
        three_tier(**change)
    assert says in str(error.value), str(error.value)


def test_cables_that_nothing_runs_over_are_said():
    spare = [{"name": "wann"}, {"name": "lam-{site}"}]
    scenario = three_tier(links=[*links(), *spare])
    said = [line for line in assigning.notes(scenario, "streams", "simulate") if "nothing runs over" in line]
    assert said == [
        f"links: nothing runs over cable {each['name']!r}; remove it, or name it in `over`" for each in spare
    ]
    assert not [line for line in assigning.notes(three_tier(), "streams", "simulate") if "nothing" in line]


def test_one_bandwidth_for_both_directions_is_one_link():
    """A cable, and a way's own; payloads wait for answers there, which they do not on two links."""
    both = three_tier(**{"links.1.shared": "both"})
    routes = routes_of(both.topology)
    assert routes.names == (
        "lan-access-0:up", "lan-access-0:down", "wan:both", "lan-access-1:up", "lan-access-1:down"
    )  # fmt: skip
    assert routes.back.tolist() == [False, True, False, False, True]
    names = [[routes.names[link] for link in row if link >= 0] for row in routes.link]
    assert names[3] == ["lan-access-0:up", "wan:both"]
    assert names[8 + 3] == ["wan:both", "lan-access-0:down"]
    own = ew.load_scenario("tiny", {"sharing": "fifo", "links.0.shared": "both"})
    assert routes_of(own.topology).names[0] == "site-near:both"
    sized = {"applications.0.answer_bytes": "30kB", "applications.1.answer_bytes": "30kB"}
    sized = {f"streams.{key}": value for key, value in sized.items()}
    delays_s = []
    for shared in ("each", "both"):
        data = {"sharing": "fifo", "links.0.shared": shared, "links.0.bandwidth_bps": "6Mbps"}
        _, outcome = run(ew.load_scenario("tiny", data | sized), "closest")
        delays_s.append(np.nanmean([mean_s or np.nan for mean_s in outcome.streams["delay_mean_s"]]))
    assert delays_s[1] > 1.1 * delays_s[0]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_a_way_of_one_bandwidth_for_both_directions_that_changes_has_it_once(sharing):
    data = {"sharing": sharing, "links.0.shared": "both", "links.0.bandwidth_bps": "20Mbps"}
    change = LinkChange(3.0, "site", "near", bandwidth_bps=4e6)
    scenario = replace(ew.load_scenario("tiny", data), timeline=(change,))
    simulation, outcome = run(scenario, "closest")
    on = simulation.carrier.wires.net.links
    assert on.capacity_bps[0] == on.rate_bps[0] == 4e6
    assert sum(outcome.streams["ok"]) + sum(outcome.streams["failed"]) > 0


def test_ways_over_several_links_do_not_change_their_bandwidth():
    changed = {"timeline": [{"at_s": 3, "link": {"site": "*", "cluster": "cloud"}, "bandwidth_bps": "1Mbps"}]}
    with pytest.raises(ScenarioError, match="runs over links that others share"):
        three_tier(**changed)
    assert three_tier("none", **changed).sharing == "none"


def test_a_scenario_that_says_nothing_of_sharing_means_none_and_is_told():
    shipped = ew.load_scenario("tiny")
    assert shipped.sharing == "none" and not assigning.notes(shipped, "streams", "simulate")
    spec = shipped.spec.model_copy()
    spec.model_fields_set.discard("sharing")
    (note,) = assigning.notes(replace(shipped, spec=spec), "streams", "simulate")
    assert "write sharing: fifo" in note


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
@pytest.mark.parametrize("policy", ["least-impedance", "power-of-two"])
def test_where_nothing_waits_records_are_those_of_unshared_links_to_the_last_digit(sharing, policy):
    # All ways vary: what is sent again at one moment would be there at one moment, and wait for each other.
    ways = [{"deviation_s": 1e-5} | each for each in links("1e18", "1e18")]
    fast = {"links": ways, "retry_refused": True}
    alone, plain = run(changing(three_tier("none", **fast)), policy)
    simulation, shared = run(changing(three_tier(sharing, **fast)), policy)
    assert plain.streams == shared.streams and plain.windows == shared.windows
    moved = sum(isinstance(command, Release) for said in alone.log for command in said.commands)
    failed = int(alone.tally.queries[1].sum())
    assert moved + failed >= 7  # what the node lost is sent again, to where streams went, or fails
    assert simulation.carrier.wires.net.links.carried_bits.max() > 1e6


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_a_narrow_link_makes_queries_late_and_a_reservation_more_of_them(sharing):
    found = []
    for wan, reserved in (("1Gbps", 0.0), ("30Mbps", 0.0), ("30Mbps", 20e6)):
        simulation = Simulation(three_tier(sharing, wan=wan), policies.load("dispatch", "farthest"), 5)
        simulation.run_until(5.0)
        link = simulation.carrier.wires.names.index("wan:up")
        simulation.carrier.wires.reserve(
            link, 5.0, reserved, float(simulation.carrier.wires.net.links.capacity_bps[link])
        )
        simulation.run()
        found.append(simulation.tally.queries[0].sum())
    assert found[0] > 1.02 * found[1] > 1.02**2 * found[2]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
@pytest.mark.parametrize("gateways", ["one", "per_site"])
def test_every_query_ends_once_whatever_fails(gateways, sharing):
    scenario = changing(three_tier(sharing, lan="30Mbps", wan="20Mbps", **{"retry_refused": True}))
    kinds = tuple(kind.model_copy(update={"answer_bytes": 2e4}) for kind in scenario.streams.applications)
    scenario = replace(scenario, streams=replace(scenario.streams, applications=kinds))
    if gateways == "one":
        simulation = Simulation(scenario, policies.load("dispatch", "power-of-two"), 5)
    else:
        simulation = SiteSimulation(scenario, lambda: policies.load("dispatch", "power-of-two"), 5)
    simulation.run_until(9.0)
    assert isinstance(simulation.carrier, Shared)
    wan = simulation.carrier.wires.names.index("wan:down")
    simulation.carrier.wires.reserve(wan, 9.0, 20e6, 20e6)  # for good: what is on it never comes home
    outcome = simulation.run()
    private = Simulation(replace(scenario, sharing="none"), policies.load("dispatch", "power-of-two"), 5)
    assert outcome.streams["queries"] == private.run().streams["queries"]
    rest = simulation.carrier.wires.net
    assert (rest.messages.number == -1).all()
    busy = rest.links.carried_bits <= rest.links.capacity_bps * (rest.links.backlog_s + 1e-9)
    assert busy.all() and rest.links.dropped.sum() > 0


def test_a_changed_bandwidth_is_that_of_the_ways_own_link():
    scenario = ew.load_scenario("tiny", {"sharing": "fifo", "duration_s": 10})
    site = scenario.topology.sites[0].name
    slow = LinkChange(5.0, site, "far", bandwidth_bps=2e6)
    simulation, _ = run(replace(scenario, timeline=(slow,)), "farthest")
    net, names = simulation.carrier.wires.net, simulation.carrier.wires.names
    assert (
        net.links.capacity_bps[[names.index(f"{site}-far:{way}") for way in ("up", "down")]].tolist()
        == [2e6] * 2
    )
    assert simulation.ways.bps[0, 1] == 2e6 and simulation.ways.bps[0, 0] > 2e6


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_what_telemetry_calls_waiting_is_counted(sharing):
    found = []
    for how in ("none", sharing):
        scenario = three_tier(how, "1e18", "1e18", **{"streams.arrivals.clients_per_min": 60})
        simulation = Simulation(scenario, policies.load("dispatch", "closest"), 5)
        waiting = np.zeros((40, simulation.world.workers))
        for k in range(40):
            simulation.run_until(5.0 + 0.1 * k)
            simulation.serve_until(5.0 + 0.1 * k)
            waiting[k] = simulation.carrier.waiting(5.0 + 0.1 * k)
        found.append(waiting)
    plain, counted = found
    assert counted.sum() > 50 and (plain == counted).mean() > 0.98


@pytest.mark.parametrize("answer_bytes", [0.0, 2e4])
@pytest.mark.parametrize("sharing", ["none", "fifo", "ps"])
def test_what_a_worker_gathers_for_its_batch_is_lost_when_the_stream_moves(sharing, answer_bytes):
    """Ten queries wait at the near worker for its batch to fill when the way there fails; ten go far."""
    gathers = {"max_batch": 50, "batch_timeout_s": 60}
    scenario = ew.load_scenario(
        "tiny",
        {"sharing": sharing, "telemetry.lag_s": 0}
        | {f"catalog.variants.small-cpu.{key}": value for key, value in gathers.items()},
    )
    stream = Stream(0, 0, "", "detection", 0.0, 20.0, 1.0, 1e4, 100.0, 20.0, answer_bytes=answer_bytes)
    scenario = replace(scenario, timeline=(LinkChange(10.0, "site", "near", up=False),))
    simulation = Simulation(scenario, policies.load("dispatch", "closest"), 5, [stream])
    simulation.run_until(10.0)
    assert simulation.workers.each.held[simulation.bound[0]] >= 9  # one may be on its way
    simulation.run()
    (found,) = simulation.truth
    assert (found.ok, found.failed, found.rejected) == (10, 10, 0)
    assert sharing == "none" or (simulation.carrier.wires.net.messages.number == -1).all()


def test_what_a_stream_had_under_way_when_it_moved_is_lost_however_links_are_shared():
    """Queries reach the first link 3 s after they set out; the way fails after 10 s, and ten go elsewhere."""
    stream = Stream(0, 0, "", "detection", 0.0, 20.0, 1.0, 1e4, 100.0, 20.0)
    found = []
    for sharing in ("none", "fifo", "ps"):
        changes = {"sharing": sharing, "telemetry.lag_s": 0, "sites.site.access_delay_s": "3s"}
        scenario = replace(
            ew.load_scenario("tiny", changes), timeline=(LinkChange(10.0, "site", "near", up=False),)
        )
        simulation = Simulation(scenario, policies.load("dispatch", "closest"), 5, [stream])
        simulation.run()
        (truth,) = simulation.truth
        found.append((int(truth.ok), int(truth.failed), int(truth.rejected)))
    assert found == 3 * [(17, 3, 0)]
