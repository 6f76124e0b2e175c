"""A twin starts from a view, foresees what its estimate lets it, and touches nothing."""

from dataclasses import replace

import numpy as np
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.errors import RunError
from edgewise.sim.simulate import Simulation
from edgewise.sim.twin import Future, Twin

NOW_S, HORIZON_S = 50.0, 25.0


class Watching(ScorePolicy):
    """Closest, keeping the view of the window that begins now."""

    name = "watching"
    kept = None

    def tick(self, view):
        if view.now_s == NOW_S:
            self.kept = view

    def score(self, view, item):
        return view.network_s


@pytest.fixture(scope="module")
def run():
    """The simulation that the view came from, run to its end, and its policy."""
    policy = Watching()
    simulation = Simulation(ew.load_scenario("three-tier"), policy, 1)
    simulation.run_until(NOW_S + HORIZON_S)
    window = int(NOW_S / simulation.scenario.window_s)
    simulation.serve_rest()
    return simulation, policy.kept, simulation.tally.queries[:, window]


def truth(simulation, view):
    """The future as it really came; no twin can have it, but a test can."""
    close = {s.id: s.close_s for s in simulation.trace}
    remaining = np.array([close[i] - NOW_S for i in view.bound.items.id])
    coming = [
        replace(s, open_s=s.open_s - NOW_S, close_s=s.close_s - NOW_S)
        for s in simulation.trace
        if s.open_s >= NOW_S
    ]
    return Future(remaining, coming)


def test_twin_with_the_true_future_foresees_it(run):
    simulation, view, counted = run
    shares = Twin(view, truth(simulation, view), HORIZON_S).run(policies.load("dispatch", "closest"), 7)
    # Streams refused before now go on being refused in truth; a view does not list them.
    served = counted[0] + counted[1]
    assert shares.queries * (1 - shares.rejected) == pytest.approx(served, rel=0.02)
    assert shares.ok / (shares.ok + shares.failed) == pytest.approx(counted[0] / served, abs=0.02)


def test_twin_tells_policies_apart_as_the_run_does(run):
    simulation, view, _ = run
    twin = Twin(view, truth(simulation, view), HORIZON_S)
    ok = {name: twin.run(policies.load("dispatch", name), 7).ok for name in ("closest", "farthest")}
    assert ok["closest"] != ok["farthest"]


def test_same_seed_same_result_and_the_view_stays_as_it_was(run):
    simulation, view, _ = run
    before = [a.copy() for a in (view.load_qps, view.queue, view.bound.worker, *view.links)]
    twin = Twin(view, truth(simulation, view), HORIZON_S)
    first, second = (twin.run(policies.load("dispatch", "power-of-two"), 3) for _ in range(2))
    assert first == second != twin.run(policies.load("dispatch", "power-of-two"), 4)
    after = (view.load_qps, view.queue, view.bound.worker, *view.links)
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_twin_starts_with_the_ledger_and_the_queues_of_the_view(run):
    simulation, view, _ = run
    busy = replace(view, queue=view.queue + 1000.0)
    future = Future(np.full(view.bound.worker.size, 5.0), ())
    calm, late = (Twin(v, future, 5.0).run(policies.load("dispatch", "closest"), 1) for v in (view, busy))
    assert calm.queries == late.queries > 0 and late.ok < 0.5 * calm.ok


def test_wrong_views_are_refused(run):
    simulation, view, _ = run
    with pytest.raises(RunError, match="lists no bound streams"):
        Twin(replace(view, bound=None), Future(np.zeros(0), ()), 1.0)
    with pytest.raises(RunError, match="remaining_s has 1 values"):
        Twin(view, Future(np.zeros(1), ()), 1.0)
