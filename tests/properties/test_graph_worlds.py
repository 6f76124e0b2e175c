"""Whatever the network, graphs and failures: servers are not shared, work is conserved, time goes on."""

import numpy as np
from hypothesis import given, settings, strategies as st

from edgewise.arrays import records
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.heap import merge, without_root
from edgewise.sim.stations.engine import OUTCOMES, GraphEngine
from edgewise.sim.stations.events import EVENT, drop_first_event, push_event
from edgewise.sim.stations.network import Station, StationNetwork
from edgewise.sim.stations.state import CLOCK, ITEM

RANDOM = st.integers(0, 2**32 - 1)


def random_engine(seed, *, calm):
    """A random world; a calm one has neither failures nor reneging nor full rooms that drop."""
    g = np.random.default_rng(seed)

    def station(name):
        discipline = str(g.choice(["fifo", "edf"] if calm else ["fifo", "edf", "ps"]))
        drop_full = not calm and g.random() < 0.5
        return Station(
            name, g.uniform(1, 5), servers=int(g.integers(1, 4)), discipline=discipline,
            law=str(g.choice(["fixed", "exponential", "lognormal"])), deviation=0.5,
            batch=1 if calm or discipline == "ps" else int(g.integers(1, 4)), batch_timeout_s=g.uniform(0, 1),
            # A room that blocks may deadlock where stations form a cycle; only calm worlds have none.
            room=float(g.choice([1, 2, np.inf])) if calm or drop_full else np.inf,
            on_full="drop" if drop_full else "block",
            renege=not calm and bool(g.random() < 0.5), drop_waiting=not calm and bool(g.random() < 0.3),
            on_down=str(g.choice(["resume", "restart", "lose"])), delay_s=g.uniform(0, 0.1),
        )  # fmt: skip

    nodes, links = [station(f"n{i}") for i in range(4)], [station(f"l{i}") for i in range(2)]
    tasks = tuple(Task(f"t{t}", g.uniform(0, 1)) for t in range(4))
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    edges = tuple(Edge(f"t{a}", f"t{b}", g.uniform(0, 0.2)) for a, b in pairs if g.random() < 0.6)
    n = 60
    if calm:
        placement = np.tile(np.arange(4), (n, 1))
        links = [station(f"l{a}{b}") for a, b in pairs]
        routes = {(f"n{a}", f"n{b}"): [f"l{a}{b}"] for a, b in pairs}
    else:
        placement = g.integers(0, 4, (n, 4))
        routes = {("*", "*"): ["l0", "l1"]}
    engine = GraphEngine(StationNetwork(nodes, links, routes), [TaskGraph("g", tasks, edges)],
                         np.cumsum(g.exponential(0.5, n)), placement=placement,
                         deadline_s=g.uniform(0.5, 8, n), seed=seed, log=True)  # fmt: skip
    if not calm:
        for _ in range(6):
            at_s, name = g.uniform(0, 20), str(g.choice([s.name for s in engine.network.stations]))
            engine.change(at_s, name, rate=g.uniform(0.5, 5))
            engine.change(at_s, name, **(dict(up=False) if g.random() < 0.5 else dict(drain=True)))
            engine.change(at_s + g.uniform(0, 5), name, up=True)
    return engine


def most_at_once(log, station):
    rows = log[log.station == station]
    rows = rows[rows.finish_s > rows.start_s]
    times = np.concatenate([rows.start_s, rows.finish_s])
    steps = np.concatenate([np.ones(len(rows)), -np.ones(len(rows))])
    order = np.lexsort((steps, times))
    return np.max(np.cumsum(steps[order]), initial=0)


@settings(max_examples=40)
@given(RANDOM)
def test_calm_worlds_finish_everything_within_their_servers(seed):
    engine = random_engine(seed, calm=True)
    engine.run()
    log, queries = engine.log, engine.queries
    assert np.all(queries.outcome == OUTCOMES.index("done"))
    for s, station in enumerate(engine.network.stations):
        assert most_at_once(log, s) <= station.servers
        rows = log[log.station == s]
        assert np.isclose(engine.tallies()["busy_s"][s], np.sum(rows.finish_s - rows.start_s))
    assert np.all((log.enter_s <= log.start_s) & (log.start_s <= log.finish_s))
    assert np.all(np.diff(log.finish_s) >= 0)
    finish = {(r.query, r.what): r.finish_s for r in log if r.hop < 0}
    start = {(r.query, r.what): r.start_s for r in log if r.hop < 0}
    plan = engine.plan
    assert len(finish) == 4 * queries.size
    for q in range(queries.size):
        assert queries.done_s[q] >= max(finish[q, t] for t in range(4))
        for edge in plan.edges:
            assert finish[q, edge.source] <= start[q, edge.target]


@settings(max_examples=40)
@given(RANDOM)
def test_rough_worlds_account_for_every_query_and_item(seed):
    engine, halved = random_engine(seed, calm=False), random_engine(seed, calm=False)
    engine.run()
    for until_s in (3.0, 9.0, 9.5):
        halved.advance(until_s)
    halved = halved.copy()
    halved.run()
    assert np.array_equal(engine.log, halved.log)
    queries, clock = engine.queries, engine.world.clock[0]
    over = queries.outcome > 0
    assert np.all(queries.done_s[over] >= queries.sent_s[over])
    assert np.all(np.isnan(queries.done_s[~over]))
    assert np.all(over)
    stations = engine.world.stations
    assert np.all(stations.inside == 0) and np.all(stations.waiting == 0) and np.all(stations.serving == 0)
    assert clock.items == 0 and clock.flights == 0
    assert np.all(np.diff(engine.log.finish_s) >= 0)


@given(st.lists(st.integers(0, 5), max_size=60))
def test_event_heap_is_stable(times):
    clock, events = records((1,), CLOCK), records((len(times) + 1,), EVENT)
    for who, at_s in enumerate(times):
        push_event(clock, events, float(at_s), np.int64(0), np.int64(who), np.int64(0))
    out = []
    while clock[0].events:
        out.append((events[0].at_s, events[0].who))
        drop_first_event(clock, events)
    assert out == sorted((float(t), who) for who, t in enumerate(times))


@given(st.lists(st.integers(0, 5), max_size=60))
def test_item_heap_is_stable(keys):
    items = records((len(keys) + 1,), ITEM)
    root = np.int64(-1)
    for i, key in enumerate(keys):
        items[i].key, items[i].order, items[i].left, items[i].right = key, i, -1, -1
        root = merge(items, root, np.int64(i))
    out = []
    while root >= 0:
        out.append((items[root].key, int(root)))
        root = without_root(items, np.int64(root))
    assert out == sorted((float(key), i) for i, key in enumerate(keys))
