"""A gateway at each site: bound by what each has heard, granted by workers, refused ones decided again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Bind
from edgewise.core.grants import LEASE_S, RENEW_S, Grants, Leases
from edgewise.errors import ScenarioError
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.model.work import Stream
from edgewise.sim.sites import SiteSimulation, simulation_of

SCENARIO = ew.load_scenario("three-tier", {"duration_s": 60, "streams.gateways": "per_site"})
SITES = [site.name for site in SCENARIO.topology.sites]
NODES = [node.name for node in SCENARIO.topology.nodes]
CLUSTERS = [cluster.name for cluster in SCENARIO.topology.clusters]


def policy():
    return policies.load("dispatch", "least-impedance")


def stream(i, site, **needs):
    app = SCENARIO.streams.applications[0]
    base = dict(
        application=app.name, task=app.task, open_s=1.0, close_s=21.0, rate_qps=10.0,
        size_bytes=app.size_bytes, deadline_s=5.0, min_accuracy=0.0,
    )  # fmt: skip
    return Stream(id=i, site=site, **(base | needs))


def whole(outcome):
    """That every query came to one end."""
    parts = [np.array(outcome.streams[name]) for name in ("queries", "ok", "failed", "rejected")]
    assert (parts[0] == parts[1] + parts[2] + parts[3]).all()
    return parts[0]


def test_the_scenario_says_how_many_gateways_there_are():
    assert isinstance(simulation_of(SCENARIO, policy, 0), SiteSimulation)
    one = ew.load_scenario("three-tier", {"streams.gateways": "one"})
    assert not isinstance(simulation_of(one, policy, 0), SiteSimulation)
    with pytest.raises(ScenarioError, match="per_site"):
        ew.load_scenario("three-tier", {"streams.gateways": "two"})


def test_a_gateway_alone_decides_as_one_for_all_does():
    one, alone = (
        ew.simulate(
            ew.load_scenario("tiny", {"streams.gateways": how}), "random-by-load", seeds=range(3)
        ).items
        for how in ("one", "per_site")
    )
    assert one.equals(alone)


def test_gateways_that_bind_at_once_learn_of_each_other():
    """Streams of the load of a whole worker, from both sites in one instant, all want the same worker."""
    worker = int(np.argmax(simulation_of(SCENARIO, policy, 0, streams=[]).world.capacity_qps))
    run = simulation_of(SCENARIO, policy, 0, streams=[])
    capacity_qps = float(run.world.capacity_qps[worker])
    few = [stream(i, i % len(SITES), rate_qps=0.6 * capacity_qps) for i in range(2)]
    run = simulation_of(SCENARIO, policy, 0, streams=few)
    outcome = run.run()
    assert run.refusals > 0
    bound = [command for _, command in outcome.commands if isinstance(command, Bind)]
    assert bound[0].worker == bound[1].worker  # as far as each knew
    last = {command.stream_id: command.worker for command in bound}
    assert len(set(last.values())) == 2 or "capacity" in str(outcome.streams["reason"])
    whole(outcome)


def test_news_of_the_others_takes_a_way_and_a_renewal():
    """Once it has heard, a gateway binds elsewhere at once, and nothing is refused."""
    run = simulation_of(SCENARIO, policy, 0, streams=[])
    capacity_qps = float(run.world.capacity_qps.max())
    later = [stream(0, 0, rate_qps=0.6 * capacity_qps), stream(1, 1, rate_qps=0.6 * capacity_qps, open_s=5.0)]
    run = simulation_of(SCENARIO, policy, 0, streams=later)
    run.run()
    assert run.refusals == 0


def test_a_worker_that_starts_again_hears_what_it_had_granted():
    node = next(n for n in NODES if n == SCENARIO.topology.workers[0].node)
    down = replace(SCENARIO, timeline=(NodeChange(10.0, node, False), NodeChange(14.0, node, True)))
    run = simulation_of(down, policy, 1)
    run.run_until(9.0)
    run.run_until(18.0)
    check(run)
    whole(run.run())


def test_grants_outlive_long_periods_of_telemetry():
    """However seldom workers tell what they measured, no gateway that lives is forgotten."""
    capacity_qps = float(simulation_of(SCENARIO, policy, 0, streams=[]).world.capacity_qps.max())
    long = [stream(i, i, rate_qps=0.6 * capacity_qps, open_s=1.0 + 12.0 * i, close_s=55.0) for i in range(2)]
    rare = replace(SCENARIO, telemetry=TelemetrySpec(period_s=4 * LEASE_S))
    run = simulation_of(rare, policy, 0, streams=long)
    run.run_until(12.0)  # nothing but renewals happens between the first opening and the second
    held = max(run.granted_qps(w) for w in range(run.world.workers))
    assert held == pytest.approx(0.6 * capacity_qps, rel=0.5)
    run.run_until(50.0)
    check(run)
    assert pytest.approx(LEASE_S) == 3 * RENEW_S  # two renewals may get lost


def test_who_was_not_heard_for_the_time_of_a_lease_holds_nothing():
    grants = Grants(100.0)
    assert grants.grant(0.0, "one", "1", 60.0) and not grants.grant(0.0, "other", "1", 60.0)
    assert grants.renew(LEASE_S / 2, "one", {"1": 60.0}, requests_qps=10.0) == []
    assert grants.total_qps(1.5 * LEASE_S) == 70.0
    assert grants.total_qps(1.6 * LEASE_S) == 0.0
    assert grants.grant(1.6 * LEASE_S, "other", "1", 60.0)


class Binding:
    """Says of streams what it is given."""

    def __init__(self, bindings, refused):
        self.bindings, self.refused = bindings, refused

    def final(self, stream_id):
        return stream_id in self.refused


def test_a_stream_is_over_when_its_refusal_is_final_and_it_never_had_a_worker():
    core = Binding({1: 0}, {2: "capacity"})
    leases = Leases(core)
    assert leases.over(2) and not leases.over(1)
    assert not leases.answered(1, 0, granted=True)
    core.refused[1] = core.bindings.pop(1) or "capacity"  # its worker was lost
    assert not leases.over(1)
    leases.closed(1)
    del core.refused[1]
    assert not leases.answered(1, 0, granted=True)  # that was on its way while it was closed
    core.refused[1] = "capacity"
    assert leases.over(1)


def check(run):
    """No worker has granted more than it has; what gateways know of their own is in what they reserve."""
    for w, capacity_qps in enumerate(run.world.capacity_qps):
        assert run.granted_qps(w) <= capacity_qps * (1 + 1e-6)
    for core in run.cores:
        core.validate()


changes = st.lists(
    st.one_of(
        st.builds(NodeChange, st.floats(0.0, 50.0), st.sampled_from(NODES), st.booleans()),
        st.builds(
            LinkChange, st.floats(0.0, 50.0), st.sampled_from(SITES), st.sampled_from(CLUSTERS), st.booleans()
        ),
    ),
    max_size=5,
).map(lambda some: tuple(sorted(some, key=lambda change: change.at_s)))


@settings(max_examples=15, deadline=None)
@given(changes, st.integers(0, 50), st.sampled_from([0.0, 2.0]), st.booleans())
def test_no_worker_grants_more_than_it_has_whatever_fails(timeline, seed, lag_s, retry):
    scenario = replace(SCENARIO, timeline=timeline, telemetry=TelemetrySpec(lag_s=lag_s), retry_refused=retry)
    run = simulation_of(scenario, policy, seed)
    for at_s in range(0, 60, 5):
        run.run_until(float(at_s))
        check(run)
    queries = whole(run.run())
    same = ew.load_scenario("three-tier", {"duration_s": 60})
    calm = simulation_of(replace(same, timeline=timeline), policy, seed).run()
    assert (queries == np.array(calm.streams["queries"])).all()  # the clients' are what they are


def test_the_same_seed_gives_the_same_records():
    first, again = (ew.simulate(SCENARIO, "random-by-load", seeds=range(2)).items for _ in range(2))
    assert first.equals(again)
