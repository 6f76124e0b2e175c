"""Random small worlds with random failures: what holds for every one of them."""

from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings, strategies as st

import edgewise as ew
from edgewise import policies
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.sim.simulate import Simulation

TINY = ew.load_scenario("tiny")
NODES = [node.name for node in TINY.topology.nodes]
CLUSTERS = [cluster.name for cluster in TINY.topology.clusters]

times = st.floats(0.0, 19.0)
changes = st.lists(
    st.one_of(
        st.builds(NodeChange, times, st.sampled_from(NODES), st.booleans()),
        st.builds(
            LinkChange, times, st.just("site"), st.sampled_from(CLUSTERS), st.booleans() | st.none(),
            delay_s=st.floats(0.0, 0.1) | st.none(), bandwidth_bps=st.floats(1e6, 1e9) | st.none(),
        ),
    ),
    max_size=6,
).map(lambda some: tuple(sorted(some, key=lambda change: change.at_s)))  # fmt: skip
worlds = st.fixed_dictionaries(
    {
        "timeline": changes,
        "telemetry": st.sampled_from([TelemetrySpec(lag_s=lag_s) for lag_s in (0.0, 0.5, 3.0)]),
        "decision_delay_s": st.sampled_from([0.0, 0.2]),
        "retry_refused": st.booleans(),
    }
)


CUT = {  # queries on the way when the link fails are never answered: they count in no mean delay
    "timeline": (LinkChange(7.0, "site", "near", False),),
    "telemetry": TelemetrySpec(lag_s=3.0),
    "decision_delay_s": 0.0,
    "retry_refused": False,
}


class Sampling:
    """Checks the core's books at every window of a run."""

    def __init__(self, simulation):
        self.simulation, self.last_s = simulation, 0.0

    def check(self, now_s):
        self.simulation.run_until(now_s)
        core = self.simulation.core
        core.validate()  # capacity, feasibility, nothing lost
        assert self.last_s <= core.now_s <= now_s
        self.last_s = core.now_s


NAMES = [name for name in policies.names("dispatch") if not name.startswith("chooser-")]


@settings(max_examples=60, deadline=None)
@given(world=worlds, seed=st.integers(0, 99), policy=st.sampled_from(NAMES))
@example(world=CUT, seed=1, policy="closest")
def test_invariants_hold_whatever_fails(world, seed, policy):
    simulation = Simulation(replace(TINY, **world), policies.load("dispatch", policy), seed)
    books = Sampling(simulation)
    for now_s in np.arange(0.0, 21.0, 2.5):
        books.check(float(now_s))
    simulation.run_until(np.inf)
    record = simulation.finish().streams
    calm = Simulation(TINY, policies.load("dispatch", policy), seed).run().streams
    parts = sum(np.array(record[name]) for name in ("ok", "failed", "rejected"))
    assert (parts == record["queries"]).all()
    assert record["queries"] == calm["queries"]  # work conserved: failures lose answers, not queries
    fastest = float(simulation.world.fixed_s.min())
    assert all(mean is None or mean >= fastest for mean in record["delay_mean_s"])
    assert (simulation.workers.each.held == 0).all() and (simulation.workers.each.attached == 0).all()


@settings(max_examples=20, deadline=None)
@given(world=worlds, seed=st.integers(0, 99), steps=st.lists(times, max_size=5).map(sorted))
def test_stopping_and_going_on_changes_nothing(world, seed, steps):
    scenario = replace(TINY, **world)
    full = Simulation(scenario, policies.load("dispatch", "power-of-two"), seed).run()
    simulation = Simulation(scenario, policies.load("dispatch", "power-of-two"), seed)
    for step in steps:
        simulation.run_until(step)
    simulation.run_until(np.inf)
    outcome = simulation.finish()
    assert outcome.streams == full.streams and outcome.commands == full.commands
