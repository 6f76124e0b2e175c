"""Room on links that messages share: what streams declare is booked, and what links have to send is seen."""

from dataclasses import replace

import numpy as np
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import LinkChanged, Measured, Refuse, StreamClosed, StreamOpened, Telemetry
from edgewise.core.dispatch.policy import assess
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import DECLARED, LEFT, REASONS, UNSENT, Items, Violation
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.model.topology import (
    Cable,
    Catalog,
    Cluster,
    Model,
    Node,
    NodeChange,
    Profile,
    Resources,
    Site,
    Topology,
    Variant,
    Way,
    Worker,
)
from edgewise.policies.dispatch.meta import in_time
from edgewise.sim.simulate import Simulation
from edgewise.sim.sites import SiteSimulation
from edgewise.sim.streams.lookahead import Habits
from edgewise.sim.streams.rollout import Rollout, Slice
from edgewise.sim.twin import Future, Twin
from edgewise.testing import small_world, some_streams

SITES, CLUSTERS, WORKERS, CABLES = 2, 3, 5, 4
WAN = 2  # number of the link there to all clusters but the first in a small world


def random_ways(rng):
    """A world whose ways run over random cables, and for each (site, cluster) its cables by name."""
    cables = [Cable(f"k{k}", float(rng.choice([2e6, 5e6, 20e6]))) for k in range(CABLES)]
    over = {
        (s, c): tuple(f"k{k}" for k in rng.permutation(CABLES)[: rng.integers(1, 4)])
        for s in range(SITES)
        for c in range(CLUSTERS)
    }
    ways = tuple(Way(f"s{s}", f"c{c}", 0.01, over=names) for (s, c), names in over.items())
    clusters = tuple(Cluster(f"c{c}", c, (Node(f"n{c}", f"c{c}", Resources(9.0)),)) for c in range(CLUSTERS))
    workers = tuple(Worker(f"w{w}", "v", f"n{w % CLUSTERS}") for w in range(WORKERS))
    variant = Variant("v", "m", Resources(1.0), Profile(0.01), 30.0, 1e6)
    sites = tuple(Site(f"s{s}", 0.0, 1e9) for s in range(SITES))
    topology = Topology(sites, clusters, ways, workers, cables=tuple(cables))
    world = World.build(Catalog((Model("m", "detect", 50.0),), (variant,)), topology, "fifo")
    return world, over, {cable.name: cable.bandwidth_bps for cable in cables}


@pytest.mark.parametrize("seed", range(20))
def test_feasible_is_what_brute_force_says_and_no_link_is_declared_above_its_capacity(seed):
    rng = np.random.default_rng(seed)
    world, over, bps = random_ways(rng)
    core = DispatchCore(world, policies.load("dispatch", "power-of-two"), seed)
    names, open_, full = np.array(world.cluster_names), {}, 0
    for at, stream in enumerate(some_streams(80, seed)):
        stream = replace(stream, task="detect", deadline_s=9.0, min_accuracy=0.0, size_bytes=5e4)
        declared = dict.fromkeys(bps, 0.0)
        for i, w in core.bindings.items():
            for name in over[open_[i].site, int(world.cluster[w])]:
                declared[name] += open_[i].rate_qps * open_[i].size_bytes * 8.0
        assert all(declared[name] <= bps[name] * (1 + 1e-9) for name in bps)
        found = assess(core.view(), Items.of(world, (stream,))[0])
        more = stream.rate_qps * stream.size_bytes * 8.0
        for w in range(WORKERS):
            route = over[stream.site, int(world.cluster[w])]
            fits = all(declared[name] + more <= bps[name] * (1 + 1e-9) for name in route)
            room = core.view().load_qps[w] + found.share_qps[w] <= 30.0 * (1 + 1e-9)
            fullest = max((declared[name] + more) / bps[name] for name in route)
            assert found.link_load[w] == pytest.approx(fullest)
            assert found.sending_s[w] == pytest.approx(
                stream.size_bytes * 8.0 / 1e9
            )  # ways made here have no rate
            says = Violation.CAPACITY if not room else Violation.NONE if fits else Violation.LINK
            assert found.violation[w] == says, (names[world.cluster[w]], declared)
        (answer,) = core.handle(StreamOpened(float(at), stream))
        assert isinstance(answer, Refuse) is not found.feasible.any()
        if isinstance(answer, Refuse) and (found.violation == Violation.LINK).any():
            assert answer.reason == REASONS[Violation.LINK]
            full += 1
        open_[stream.id] = stream
        core.validate()
        for i in [i for i in open_ if rng.uniform() < 0.08]:
            core.handle(StreamClosed(float(at), i))
            del open_[i]
    assert full
    for i in open_:
        core.handle(StreamClosed(99.0, i))
    assert core.view().link[DECLARED] == pytest.approx(0.0, abs=1e-6)


def test_without_shared_links_nothing_is_booked_or_checked():
    core = DispatchCore(small_world(), policies.load("dispatch", "closest"))
    view = core.view()
    assert view.link.shape == (3, 0) and not view.backlog_s.any()
    (item,) = Items.of(core.world, (replace(some_streams(1)[0], rate_qps=1.0, size_bytes=1e12),))
    assert Violation.LINK not in assess(view, item).violation and not assess(view, item).link_load.any()


def told(core, bits, left_bps=10e6):
    """Telemetry: so much is left of the link to the farther clusters, and it has so much to send."""
    zeros, links = np.zeros(core.world.workers), np.stack([core.world.link_bps, 0 * core.world.link_bps])
    links[:, WAN] = left_bps, bits
    core.handle(Measured(core.now_s, Telemetry(core.now_s, zeros, zeros, zeros, zeros, links)))
    return core.view()


def test_what_links_have_to_send_is_seen_for_each_way_and_by_scores():
    core = DispatchCore(small_world(wan_bps=20e6), policies.load("dispatch", "least-impedance"))
    idle, busy = core.view(), told(core, 2e6)
    assert not idle.backlog_s.any()
    assert busy.backlog_s == pytest.approx(np.array([[0.0, 0.2, 0.2]] * 2)) and busy.link[UNSENT, WAN] == 2e6
    stream = replace(some_streams(1)[0], task="classify", min_accuracy=0.0, deadline_s=5.0, size_bytes=1e3)
    (item,) = Items.of(core.world, (stream,))
    seen = assess(busy, item)
    assert seen.backlog_s == pytest.approx(np.where(core.world.cluster > 0, 0.2, 0.0))
    for name in ("least-impedance", "slack-aware"):
        policy = policies.load("dispatch", name)
        before, after = policy.score(assess(idle, item), item), policy.score(seen, item)
        assert (before != after).tolist() == (core.world.cluster > 0).tolist()


def test_what_reservations_leave_is_room_and_a_link_without_any_takes_nobody():
    core = DispatchCore(small_world(wan_bps=20e6), policies.load("dispatch", "farthest"))
    stream = replace(some_streams(1)[0], task="detect", min_accuracy=0.0, deadline_s=5.0, rate_qps=2.0)
    (item,) = Items.of(core.world, (stream,))
    far = core.world.cluster > 0
    needs = item.rate_qps * item.size_bytes * 8.0
    for left_bps, fits in ((20e6, True), (needs, True), (0.99 * needs, False), (0.0, False)):
        found = assess(told(core, 1e6, left_bps), item)
        detect = core.world.task == item.task
        assert (found.violation[far & detect] == (Violation.NONE if fits else Violation.LINK)).all()
        assert np.isfinite(found.backlog_s).all() and found.feasible[~far & detect].all()


def test_a_changed_bandwidth_is_the_room_of_the_ways_own_link():
    scenario = ew.load_scenario("tiny", {"sharing": "fifo"})
    world = World.build(scenario.catalog, scenario.topology, "fifo")
    core = DispatchCore(world, policies.load("dispatch", "farthest"))
    core.handle(LinkChanged(1.0, 0, 1, bandwidth_bps=3e6))
    assert core.view().link[LEFT, world.path[0, 1]] == pytest.approx(3e6)
    assert core.view().link[LEFT, world.path[0, 0]] == pytest.approx(1e9)


class Seeing(policies.load("dispatch", "farthest").__class__):
    """Farthest, keeping what it is shown."""

    def reset(self, world, key):
        self.seen = []

    def observe(self, view):
        self.seen.append(view)


def narrow(lag_s):
    """A backbone that streams of two sites share, much of it reserved."""
    links = [
        {"name": "wan", "bandwidth_bps": "30Mbps", "delay_s": "1ms"},
        {"site": "*", "cluster": "*", "over": ["wan"]},
    ]
    return ew.load_scenario(
        "three-tier",
        {"duration_s": 20, "window_s": 5, "sharing": "fifo", "links": links, "telemetry.lag_s": lag_s},
    )


def test_the_view_has_the_backlog_of_the_last_sample_after_its_lag():
    made, scenario = Seeing(), narrow(0.7)
    simulation, again = Simulation(scenario, made, 5), Simulation(scenario, Seeing(), 5)
    for each in (simulation, again):
        each.carrier.wires.reserve(0, 0.0, 18e6)
    simulation.run()
    assert len(made.seen) > 10
    for view in made.seen:
        again.run_until(view.measured_s)
        again.serve_until(view.measured_s)
        assert view.now_s - view.measured_s == pytest.approx(0.7)
        left, unsent = again.carrier.links_now(view.measured_s)
        assert view.link[LEFT].tolist() == left.tolist() and left[0] == 12e6
        assert view.link[UNSENT].tolist() == unsent.tolist()
        assert view.backlog_s == pytest.approx(unsent[0] / 12e6)
    assert max(view.backlog_s.max() for view in made.seen) > 0.01
    assert any(reason == REASONS[Violation.LINK] for reason in simulation.finish().streams["reason"])


def test_gateways_hear_what_others_declared_and_count_their_own():
    scenario = narrow(0.5)
    simulation, heard = SiteSimulation(scenario, Seeing, 5), 0
    for k in range(1, 20):
        simulation.run_until(float(k))
        declared = np.stack([core.view().link[DECLARED] for core in simulation.cores])
        simulation.run_until(k + 0.6)
        for site, core in enumerate(simulation.cores):
            (view,) = core.policy.seen[-1:]
            others = np.delete(declared, site, axis=0).sum(axis=0)
            assert view.measured_s == k
            assert view.link[LEFT] == pytest.approx(np.maximum(30e6 - others, 0.0))
            heard += others[0] > 0
    assert heard > 10
    simulation.run()


def test_who_estimates_delays_counts_on_what_links_have_to_send():
    core = DispatchCore(small_world(wan_bps=200e6), policies.load("dispatch", "farthest"))
    for stream in some_streams(60):
        core.handle(StreamOpened(0.1, replace(stream, open_s=0.1, deadline_s=0.3, min_accuracy=0.0)))
    assert (core.world.cluster[list(core.bindings.values())] > 0).sum() > 10
    told(core, 0.0, 200e6)
    idle = core.view(with_bound=True)
    told(core, 100e6, 200e6)
    busy = core.view(with_bound=True)
    assert in_time(busy) < 0.8 * in_time(idle)
    habits, key = Habits(), Key(1)
    habits.watch(idle)
    plan = habits.plan(idle, 25.0, 1.0, key)
    found = [
        Rollout(view, plan, (Slice(0.1, 0.5),), 3).success(policies.load("dispatch", "farthest"))
        for view in (idle, busy)
    ]
    assert found[1] < 0.8 * found[0]


@pytest.mark.parametrize("policy", ["closest", "least-impedance", "power-of-two", "lookahead"])
@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_in_whole_runs_no_link_is_ever_declared_above_what_it_has(policy, sharing):
    """At every moment, whatever fails, moves or is decided anew."""
    scenario = replace(narrow(0.1), sharing=sharing, retry_refused=True)
    node = scenario.topology.clusters[0].nodes[0].name
    changes = (NodeChange(6.7, node, up=False), NodeChange(9.1, node, up=True))
    simulation = Simulation(replace(scenario, timeline=changes), policies.load("dispatch", policy), 3)
    most_bps = 0.0
    for k in range(100):
        simulation.run_until(0.2 * k)
        declared = simulation.core.view().link[DECLARED]
        assert (declared <= simulation.world.link_bps * (1 + 1e-9)).all()
        simulation.core.validate()
        most_bps = max(most_bps, float(declared[0]))
    assert most_bps > 0.9 * 30e6
    simulation.run()


def test_a_twin_binds_no_more_than_links_have_room_for():
    core = DispatchCore(small_world(wan_bps=4e6), policies.load("dispatch", "farthest"))
    wanted = [
        replace(s, task="detect", open_s=0.0, deadline_s=5.0, min_accuracy=0.0) for s in some_streams(12)
    ]
    for stream in wanted[:4]:
        core.handle(StreamOpened(0.0, stream))
    view = core.view(with_bound=True)
    bound = view.bound.worker.size
    future = Future(np.full(bound, 9.0), [replace(s, open_s=1.0, close_s=8.0) for s in wanted[4:]])
    seen = []

    class Keeps(Seeing):
        def observe(self, view):
            seen.append(view)

    Twin(view, future, 9.0, telemetry_period_s=2.0).run(Keeps(), 7)
    assert (seen[0].link[DECLARED] <= core.world.link_bps * (1 + 1e-9)).all()
    assert seen[0].link[DECLARED, WAN] > view.link[DECLARED, WAN] > 0.0
