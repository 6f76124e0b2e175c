"""Streams, requests and tensors over the links of one run equal a naive simulator with one list of events."""

import heapq

import numpy as np
import pytest
import yaml
from naive_riders import NaiveRiders

import edgewise as ew
from edgewise import policies
from edgewise.core.world import World
from edgewise.sim.links.wires import Wires
from edgewise.sim.simulate import Simulation

CABLES = """
- {name: "lan-{site}", bandwidth_bps: 40Mbps, delay_s: 0.5ms}
- {name: wan, bandwidth_bps: 30Mbps, delay_s: 4ms, deviation_s: 1ms}
- {site: "*", cluster: access-0, over: "lan-{site}"}
- {site: "*", cluster: access-1, over: ["lan-{site}"], delay_s: 1ms}
- {site: "*", cluster: central-office, over: ["lan-{site}", wan]}
- {site: "*", cluster: cloud, over: ["lan-{site}", wan], delay_s: 20ms, deviation_s: 2ms}
- {between: [access-0, cloud], over: [lan-access-0, wan]}
- {between: [access-1, cloud], over: wan}
"""


class Rider:
    """Has its own list of events, and knows nothing of the links but its end."""

    def __init__(self, wires):
        self.wire, self.events, self.found = wires.wire(self.run, self.came), [], {}

    def later(self, at_s, *what):
        heapq.heappush(self.events, (at_s, *what))

    def run(self, to_s):
        while self.events and self.events[0][0] < min(to_s, self.wire.next_s()):
            self.happens(*heapq.heappop(self.events))

    def came(self, what, at_s, lost):
        assert not lost
        self.later(at_s, *what)


class Requests(Rider):
    """Each is served, one by one, and answered."""

    def __init__(self, wires, asked):
        super().__init__(wires)
        self.asked, self.free_s, self.delays = asked, 0.0, {}
        for k, (at_s, *_) in enumerate(asked):
            self.later(at_s, "asked", k)

    def happens(self, now_s, what, k):
        _, route, bits, took_s = self.asked[k]
        if what == "asked":
            self.wire.send(route[0], now_s, bits, ("came", k), self.delays[route[0]][1])
        elif what == "came":
            self.free_s = max(self.free_s, now_s) + took_s
            self.later(self.free_s, "served", k)
        elif what == "served":
            self.wire.send(route[1], now_s, bits, ("answered", k), self.delays[route[1]][1])
        else:
            self.found[k] = now_s


class Tensors(Rider):
    """Each goes to and fro."""

    def __init__(self, wires, bounced):
        super().__init__(wires)
        self.bounced = bounced
        for k, (at_s, *_) in enumerate(bounced):
            self.later(at_s, "goes", k, 0)

    def happens(self, now_s, what, k, hop):
        _, routes, bits, thinks_s = self.bounced[k]
        if what == "came":
            self.later(now_s + thinks_s, "goes", k, hop)
        elif hop == len(routes):
            self.found[k] = now_s
        else:
            self.wire.send(routes[hop], now_s, bits, ("came", k, hop + 1))


def cables(both):
    """One capacity for both directions of the cables that are named."""
    return [
        each | ({"shared": "both"} if each.get("name") in both else {}) for each in yaml.safe_load(CABLES)
    ]


@pytest.mark.parametrize("sharing", ["fifo", "ps"])
@pytest.mark.parametrize(
    ("policy", "both"),
    [("closest", ()), ("power-of-two", ()), ("power-of-two", ("wan",)), ("closest", ("wan", "lan-{site}"))],
)
def test_all_kinds_of_messages_on_the_same_links_equal_a_naive_simulator(policy, both, sharing):
    scenario = ew.load_scenario("three-tier", {"duration_s": 20, "sharing": sharing, "links": cables(both)})
    world, wires = (
        World.build(scenario.catalog, scenario.topology, sharing),
        Wires(sharing, scenario.topology),
    )
    draw, routes = np.random.default_rng(7), wires.routes
    pairs = [(site, cluster) for site in range(2) for cluster in range(4)]
    asked = [
        (at_s, (wires.way(*pair), wires.way(*pair, back=True)), bits, 0.01)
        for at_s, pair, bits in zip(
            np.sort(draw.uniform(0.0, 19.0, 400)).tolist(), draw.choice(pairs, 400).tolist(),
            draw.uniform(1e5, 6e5, 400).tolist(), strict=True,
        )
    ]  # fmt: skip
    ends = [("access-0", "cloud"), ("access-1", "cloud")]
    bounced = [
        (float(draw.uniform(0.0, 19.0)), [routes.between[one], routes.between[one[::-1]]] * 3, 2e5, 0.005)
        for one in [ends[k % 2] for k in range(150)]
    ]
    bps = np.minimum(world.uplink_bps[:, None], world.bandwidth_bps).ravel()
    delays = {
        row: (
            [(int(j), float(x)) for j, x in zip(routes.link[row], routes.before[row], strict=True) if j >= 0],
            float(world.delay_s.ravel()[row % bps.size]) if row < 2 * bps.size else 0.0,
            float(bps[row % bps.size]) if row < 2 * bps.size else np.inf,
        )
        for row in range(len(routes.link))
    }  # fmt: skip
    requests, tensors = Requests(wires, asked), Tensors(wires, bounced)
    requests.delays = delays
    simulation = Simulation(scenario, policies.load("dispatch", policy), 5, world=world, wires=wires)
    outcome = simulation.run()
    naive = NaiveRiders(world, simulation.trace, simulation.bound, 5, routes, sharing, asked, bounced, delays)
    found = naive.run()
    for key in ("ok", "failed", "rejected"):
        assert outcome.streams[key] == [o[key] for o in found], key
    assert len(requests.found) == 400 and len(tensors.found) == 150
    assert requests.found == pytest.approx(naive.answered_s, rel=0, abs=1e-9)
    assert tensors.found == pytest.approx(naive.bounced_s, rel=0, abs=1e-9)
    alone = sum(6 * (2e5 / 30e6 + 0.005) for _ in bounced)
    assert sum(tensors.found[k] - each[0] for k, each in enumerate(bounced)) > 1.02 * alone
    assert (wires.net.messages.number == -1).all()
    assert wires.both == bool(both)


def test_a_rider_hears_of_what_a_full_link_drops_and_of_what_a_reservation_holds_up():
    scenario = ew.load_scenario("tiny", {"sharing": "fifo", "sites.0.uplink_bps": 1e18})
    wires, found = Wires("fifo", scenario.topology), []
    wire = wires.wire(lambda to_s: None, lambda what, at_s, lost: found.append((what, at_s, lost)))
    (link,) = wires.links_of(wires.way(0, 0)).tolist()
    bps = float(wires.net.links.capacity_bps[link])
    for k in range(3):
        wire.send(wires.way(0, 0), 1.0, bps, k)
    wires.advance(1.5)
    wires.reserve(link, 1.5, bps)  # all of it
    assert found == [(0, 2.0, False)] and wire.next_s() == np.inf
    wires.reserve(link, 4.0, 0.5 * bps)
    assert 4.0 < wire.next_s() <= 7.0
    wires.advance(20.0)
    # The first one had begun; what it had left of the link, and then the others, go at half the rate.
    assert [round(at_s, 9) for _, at_s, _ in found] == [2.0, 7.0, 9.0]
    wires.net.links.buffer_bits[link] = 0.5 * bps
    for k in range(2):
        wire.send(wires.way(0, 0), 30.0, bps, k)
    wires.advance(50.0)
    assert [(what, lost) for what, _, lost in found[3:]] == [(0, False), (1, True)]
