"""Driving the engine: decisions, pauses, copies, growth, added queries, batches of worlds."""

import numpy as np
import pytest

from edgewise.errors import ScenarioError
from edgewise.kernels.compiled import kernel
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.stations.engine import GraphEngine, deciding
from edgewise.sim.stations.network import Station, StationNetwork
from edgewise.sim.stations.worlds import Worlds

PAIR = TaskGraph("pair", (Task("x", 1.0), Task("y", 0.5)), (Edge("x", "y", 0.05),))
NETWORK = StationNetwork(
    [Station(name, 1.0, law="exponential") for name in "abc"],
    [Station("bus", 2.0, delay_s=0.01, delay_deviation_s=0.01)],
    {("*", "*"): ["bus"]},
)
Q = 300


def make(placement=None, seed=0, **fields):
    g = np.random.default_rng(seed)
    sent = np.cumsum(g.exponential(0.7, Q))
    rows = g.integers(0, 3, (Q, 2)) if placement is None else placement
    return GraphEngine(NETWORK, [PAIR], sent, placement=None if rows is ... else rows, seed=seed, **fields)


@kernel
def least_loaded(plan, world, flight, memory):
    """Both tasks on the node with the fewest items inside."""
    best = 0
    for s in range(1, 3):
        if world.stations[s].inside < world.stations[best].inside:
            best = s
    world.placement[flight, 0] = best
    world.placement[flight, 1] = best


def least_loaded_outside(engine):
    best = int(np.argmin(engine.world.stations.inside[:3]))
    engine.place([best, best])


def test_pausing_anywhere_changes_nothing():
    whole, steps = make(seed=3, log=True), make(seed=3, log=True)
    whole.run()
    for until_s in np.linspace(0, 260, 777):
        assert steps.advance(until_s)
        assert steps.now_s == until_s
    steps.run()
    assert np.array_equal(whole.queries, steps.queries)
    assert np.array_equal(whole.log, steps.log)
    assert np.array_equal(whole.world.stations.number_s, steps.world.stations.number_s)


def test_copies_of_a_state_evolve_identically_and_independently():
    engine = make(seed=4)
    engine.advance(50.0)
    twin = engine.copy()
    twin.change(60.0, "a", up=False)
    before = engine.queries.done_s.copy()
    twin.run()
    assert np.array_equal(before, engine.queries.done_s, equal_nan=True)
    again = engine.copy()
    again.run()
    engine.run()
    assert np.array_equal(again.queries, engine.queries)
    assert not np.array_equal(twin.queries.done_s, engine.queries.done_s)


def test_decisions_in_python_equal_compiled_ones():
    compiled, outside = make(..., seed=5, loop=deciding(least_loaded)), make(..., seed=5)
    compiled.run()
    asked = []
    while not outside.advance(np.inf):
        asked.append(outside.pending)
        least_loaded_outside(outside)
    assert asked == list(range(Q))
    assert np.array_equal(compiled.queries.done_s, outside.queries.done_s)


def test_a_query_may_be_rejected():
    engine = make(..., seed=5)
    while not engine.advance(np.inf):
        engine.place([-1, 0] if engine.pending % 2 else [0, 0])
    assert np.all((engine.queries.outcome == 5) == (np.arange(Q) % 2 == 1))


def test_arrays_grow_without_changing_the_run():
    g = np.random.default_rng(0)
    sent = np.sort(g.uniform(0, 1, 5000))  # everything waits at once
    engine = GraphEngine(NETWORK, [PAIR], sent, placement=[[0, 1]], log=True)
    small = engine.world.items.size
    engine.run()
    assert engine.world.items.size > small
    assert np.all(engine.queries.outcome == 1)
    assert len(engine.log) == 3 * 5000
    clock = engine.world.clock[0]
    assert (clock.items, clock.flights, clock.events) == (0, 0, 0)


def test_queries_may_be_added_later():
    engine = make(seed=6)
    sent = engine.queries.sent_s.copy()
    rows = engine.world.mapped.copy()
    early = GraphEngine(NETWORK, [PAIR], sent[:100], placement=rows[:100], seed=6)
    early.advance(sent[99])
    early.send(sent[100:], placement=rows[100:])
    early.run()
    engine.run()
    np.testing.assert_array_equal(early.queries.done_s, engine.queries.done_s)


def test_the_same_seed_gives_the_same_run_and_another_another():
    a, b, c = make(seed=7), make(seed=7), make(seed=7)
    c.world.clock.seed = 8
    for engine in (a, b, c):
        engine.run()
    assert np.array_equal(a.queries, b.queries)
    assert not np.array_equal(a.queries.done_s, c.queries.done_s)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_equals_its_worlds_one_by_one(threads):
    import numba

    threads = min(threads, numba.config.NUMBA_NUM_THREADS)
    engines = [make(seed=s) for s in range(7)]
    engines[2].change(30.0, "b", rate=0.2)
    batch = Worlds(engines, threads=threads)
    for until_s in (10.0, 11.5, 100.0, np.inf):
        assert batch.advance(until_s).all()
    for b, engine in enumerate(engines):
        engine.run()
        assert np.array_equal(engine.queries, batch.engine(b).queries)


def test_a_batch_stops_each_world_at_its_own_decision():
    engines = [make(..., seed=s) for s in range(3)]
    batch = Worlds(engines)
    while not batch.advance(np.inf).all():
        best = np.argmin(batch.world.stations.inside[:, :3], axis=1)
        batch.place(np.stack([best, best], axis=1))
    for b in range(3):
        alone = make(..., seed=b, loop=deciding(least_loaded))
        alone.run()
        assert np.array_equal(batch.engine(b).queries.done_s, alone.queries.done_s)


def test_a_batch_grows():
    def crowd(seed, n):
        sent = np.sort(np.random.default_rng(seed).uniform(0, 1, n))
        return GraphEngine(NETWORK, [PAIR], sent, placement=[[0, 1]], seed=seed)

    engines = [crowd(0, 10), crowd(1, 2000)]
    batch = Worlds(engines)
    assert batch.advance(np.inf).all()
    for b, engine in enumerate(engines):
        engine.run()
        assert np.array_equal(engine.queries, batch.engine(b).queries)


def test_wrong_inputs_are_named():
    with pytest.raises(ScenarioError, match="ascending"):
        GraphEngine(NETWORK, [PAIR], [1.0, 0.0], placement=[[0, 1]])
    with pytest.raises(ScenarioError, match="graph of query 0 is 3"):
        GraphEngine(NETWORK, [PAIR], [1.0], 3, placement=[[0, 1]])
    with pytest.raises(ScenarioError, match="placement has shape"):
        GraphEngine(NETWORK, [PAIR], [1.0, 2.0], placement=[0, 1, 2])
    with pytest.raises(ScenarioError, match=r"outside 0\.\.3"):
        GraphEngine(NETWORK, [PAIR], [1.0], placement=[[0, 9]])
    engine = GraphEngine(StationNetwork(NETWORK.nodes), [PAIR], [1.0], placement=[[0, 1]])
    with pytest.raises(ScenarioError, match="route"):
        engine.run()
    with pytest.raises(ScenarioError, match="no station is called 'z'"):
        engine.change(5.0, "z", up=False)
    with pytest.raises(ScenarioError, match="no place is called 'z'"):
        StationNetwork(NETWORK.nodes, routes={("a", "z"): []})
    with pytest.raises(ScenarioError, match="no placement"):
        make(...).run()
    with pytest.raises(ScenarioError, match="another network"):
        Worlds([make(seed=1), engine])


def test_only_what_has_no_room_grows():
    """A log of every service grows with the run; what is under way does not."""
    logged, silent = make(seed=6, log=True), make(seed=6)
    for engine in (logged, silent):
        engine.run()
    sizes = {
        name: [getattr(engine.world, name).size for engine in (logged, silent)]
        for name in ("events", "items", "flights", "log")
    }
    assert sizes["log"][0] > 4 * logged.plan.slack
    assert all(one == other for name, (one, other) in sizes.items() if name != "log")
