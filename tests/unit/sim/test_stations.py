"""One small world for every rule of a station."""

import math

import numpy as np
import pytest

from edgewise.errors import ScenarioError
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.sim.stations.engine import OUTCOMES, GraphEngine
from edgewise.sim.stations.network import GraphClass, Station, StationNetwork

ONE = TaskGraph("one", (Task("t", 1.0),), ())


def serve(station, sent_s, *, changes=(), graph=ONE, **fields):
    engine = GraphEngine(StationNetwork([station]), [graph], sent_s, placement=[[0]], log=True, **fields)
    for at_s, what in changes:
        engine.change(at_s, station.name, **what)
    engine.run()
    return engine


def done(engine):
    return engine.queries.done_s.round(9).tolist()


def outcomes(engine):
    return [OUTCOMES[o] for o in engine.queries.outcome]


def test_fifo_serves_in_order_on_c_servers():
    assert done(serve(Station("s", 1.0, servers=2), [0, 0.1, 0.2, 0.3])) == [1.0, 1.1, 2.0, 2.1]


def test_edf_takes_the_most_urgent_of_those_that_wait():
    engine = serve(Station("s", 1.0, discipline="edf"), [0, 0.1, 0.2], deadline_s=[9, 9, 1])
    assert done(engine) == [1.0, 3.0, 2.0]


CHAIN = TaskGraph(
    "chain", (Task("a", 1.0), Task("b", 0.0), Task("c", 1.0)), (Edge("a", "b", 1), Edge("b", "c", 1))
)


@pytest.mark.parametrize("discipline, times", [("fifo", [3.0, 4.0]), ("oldest", [2.0, 4.0])])
def test_oldest_runs_a_query_through(discipline, times):
    """First come first served, the second query's first task is in line before the first one's last."""
    network = StationNetwork([Station("s", 1.0, discipline=discipline)])
    engine = GraphEngine(network, [CHAIN], [0, 0.1], placement=[[0, 0, 0]])
    engine.run()
    assert done(engine) == times


def test_oldest_does_not_interrupt():
    """A task of the first query comes while one of the second runs, and goes before the third's."""
    nodes = [Station("s", 1.0, discipline="oldest"), Station("t", 1.0)]
    network = StationNetwork(nodes, [Station("l", 8.0)], {("*", "*"): ["l"]})
    graphs = [TaskGraph("away", (Task("a", 0.1), Task("b", 1.0)), (Edge("a", "b", 0.1),)), ONE]
    engine = GraphEngine(network, graphs, [0, 0.05, 0.1], [0, 1, 1], [[1, 0], [0, -1], [0, -1]])
    engine.run()
    assert done(engine) == [2.05, 1.05, 3.05]


def test_work_is_scaled_per_query():
    assert done(serve(Station("s", 2.0), [0, 5], scale=[1, 4])) == [0.5, 7.0]


def test_processor_sharing_divides_the_rate():
    # Alone until 0.5, then two at half speed: the first has 0.5 left and needs 1 s more.
    assert done(serve(Station("s", 1.0, discipline="ps"), [0, 0.5])) == [1.5, 2.0]


def test_processor_sharing_never_gives_a_job_more_than_one_server():
    assert done(serve(Station("s", 1.0, servers=2, discipline="ps"), [0, 0, 0])) == [1.5, 1.5, 1.5]


def test_full_batch_starts_at_once_and_lasts_longer():
    station = Station("s", 1.0, batch=3, batch_timeout_s=10.0, batch_slope=0.25)
    assert done(serve(station, [0, 0.1, 0.2])) == [1.7, 1.7, 1.7]


def test_partial_batch_starts_at_the_timeout():
    station = Station("s", 1.0, batch=3, batch_timeout_s=0.5)
    assert done(serve(station, [0, 0.1])) == [1.5, 1.5]


def test_batch_takes_as_long_as_its_largest_item():
    station = Station("s", 1.0, batch=2, batch_timeout_s=1.0)
    assert done(serve(station, [0, 0], scale=[1, 3])) == [3.0, 3.0]


def test_rate_change_in_mid_service():
    engine = serve(Station("s", 1.0), [0, 0], changes=[(0.5, {"rate": 0.25}), (1.5, {"rate": 1.0})])
    assert done(engine) == [1.75, 2.75]


def test_rate_change_while_sharing():
    engine = serve(Station("s", 1.0, discipline="ps"), [0, 0], changes=[(1.0, {"rate": 2.0})])
    assert done(engine) == [1.5, 1.5]


def test_rate_zero_stalls():
    engine = serve(Station("s", 0.0), [0], changes=[(4.0, {"rate": 1.0})])
    assert done(engine) == [5.0]


@pytest.mark.parametrize("discipline", ["fifo", "ps"])
@pytest.mark.parametrize("on_down, end", [("resume", 3.0), ("restart", 3.5)])
def test_failure_and_repair(discipline, on_down, end):
    changes = [(0.5, {"up": False}), (2.5, {"up": True})]
    assert done(serve(Station("s", 1.0, on_down=on_down, discipline=discipline), [0], changes=changes)) == [
        end
    ]


@pytest.mark.parametrize("discipline", ["fifo", "edf", "ps"])
def test_failure_loses_what_is_in_service(discipline):
    changes = [(0.5, {"up": False}), (2.5, {"up": True})]
    engine = serve(Station("s", 1.0, on_down="lose", discipline=discipline), [0, 1], changes=changes)
    assert outcomes(engine) == ["lost", "done"]
    assert done(engine) == [0.5, 3.5]


def test_failure_drops_the_line_and_arrivals_if_told_to():
    station = Station("s", 1.0, drop_waiting=True)
    engine = serve(station, [0, 0.1, 1.0, 3.0], changes=[(0.5, {"up": False}), (2.5, {"up": True})])
    assert outcomes(engine) == ["done", "lost", "lost", "done"]
    assert done(engine) == [3.0, 0.5, 1.0, 4.0]


@pytest.mark.parametrize("discipline", ["fifo", "ps"])
def test_draining_finishes_what_runs_and_starts_nothing(discipline):
    changes = [(0.5, {"drain": True}), (5.0, {"appear": True})]
    station = Station("s", 1.0, discipline=discipline, start_delay_s=2.0)
    engine = serve(station, [0, 0.7], changes=changes)
    assert done(engine) == [1.0, 8.0]


def test_replica_appears_after_its_start_delay():
    station = Station("s", 1.0, up=False, start_delay_s=3.0)
    assert done(serve(station, [0.0], changes=[(1.0, {"appear": True})])) == [5.0]


def test_failure_while_starting_cancels_the_start():
    station = Station("s", 1.0, up=False, start_delay_s=3.0)
    engine = serve(station, [0.0], changes=[(1.0, {"appear": True}), (2.0, {"up": False})])
    assert outcomes(engine) == ["open"]


def test_reneging_at_the_deadline():
    engine = serve(Station("s", 1.0, renege=True), [0, 0.1, 0.2], deadline_s=[9, 0.5, 9])
    assert outcomes(engine) == ["done", "reneged", "done"]
    assert done(engine) == [1.0, 0.6, 2.0]


def test_reneging_makes_room():
    station = Station("s", 1.0, renege=True, room=1, on_full="drop")
    engine = serve(station, [0, 0.1, 0.2, 0.7], deadline_s=[9, 0.5, 9, 9])
    assert outcomes(engine) == ["done", "reneged", "dropped", "done"]


def test_lognormal_and_exponential_work_have_mean_one():
    for law in ("lognormal", "exponential"):
        engine = serve(Station("s", 1.0, servers=1000, law=law, deviation=0.5), np.linspace(0, 9e3, 20_000))
        assert engine.sojourn_s.mean() == pytest.approx(1.0, abs=0.03)


def pipeline(room, last_rate, n=60, **fields):
    tasks = (Task("a", 1.0), Task("b", 1.0), Task("c", 1.0))
    graph = TaskGraph("chain", tasks, (Edge("a", "b", 0.125), Edge("b", "c", 0.125)))
    nodes = [Station("a", 10.0), Station("b", 8.0, room=room), Station("c", last_rate, room=room)]
    links = [Station("ab", 20.0, room=room), Station("bc", 20.0, room=room)]
    network = StationNetwork(nodes, links, {("a", "b"): ["ab"], ("b", "c"): ["bc"]})
    engine = GraphEngine(network, [graph], np.zeros(n), placement=[[0, 1, 2]], log=True, **fields)
    engine.run()
    return engine


@pytest.mark.parametrize("room", [0, 1, 3])
def test_back_pressure_settles_at_the_bottleneck_rate(room):
    engine = pipeline(room, last_rate=2.0)
    assert outcomes(engine) == ["done"] * 60
    gaps = np.diff(engine.queries.done_s)
    np.testing.assert_allclose(gaps[5:], 0.5, rtol=1e-9)
    # At most `room` wait and one is served at each of four stages, so the first cannot run ahead.
    first = engine.log[(engine.log.what == 0) & (engine.log.hop < 0)]
    last = engine.log[(engine.log.what == 2) & (engine.log.hop < 0)]
    ahead = [np.sum(first.start_s < t) - np.sum(last.finish_s <= t) for t in last.finish_s]
    assert max(ahead) <= 5 + 4 * room


def test_without_back_pressure_the_first_stage_runs_ahead():
    engine = pipeline(math.inf, last_rate=2.0)
    first = engine.log[(engine.log.what == 0) & (engine.log.hop < 0)]
    np.testing.assert_allclose(np.diff(first.finish_s), 0.1)


def test_blocking_in_diamonds_never_deadlocks():
    tasks = tuple(Task(name, 1.0) for name in "abcd")
    edges = (Edge("a", "b", 1), Edge("a", "c", 1), Edge("b", "d", 1), Edge("c", "d", 1), Edge("a", "d", 1))
    for rates in ([9, 1, 5, 2], [9, 5, 1, 2], [9, 3, 3, 1]):
        nodes = [Station(name, rate, room=0) for name, rate in zip("abcd", rates, strict=True)]
        engine = GraphEngine(StationNetwork(nodes, [], {("*", "*"): []}), [TaskGraph("d", tasks, edges)],
                             np.zeros(200), placement=[[0, 1, 2, 3]])  # fmt: skip
        engine.run()
        assert outcomes(engine) == ["done"] * 200
        np.testing.assert_allclose(np.diff(engine.queries.done_s)[9:], 1 / min(rates), rtol=1e-9)


def test_two_tasks_on_one_bounded_station_do_not_wait_for_themselves():
    graph = TaskGraph("chain", (Task("a", 1.0), Task("b", 1.0)), (Edge("a", "b", 0.0),))
    engine = GraphEngine(
        StationNetwork([Station("s", 1.0, room=0)]), [graph], np.zeros(5), placement=[[0, 0]]
    )
    engine.run()
    assert sorted(done(engine))[-1] == 10.0


def test_propagation_delays_do_not_hold_the_link():
    graph = TaskGraph("chain", (Task("a", 0.0), Task("b", 0.0)), (Edge("a", "b", 0.125),))
    network = StationNetwork(
        [Station("a", 1.0), Station("b", 1.0)], [Station("l", 1.0, delay_s=5.0)], {("a", "b"): ["l"]}
    )
    engine = GraphEngine(network, [graph], [0, 0], placement=[[0, 1]])
    engine.run()
    assert done(engine) == [6.0, 7.0]


def test_random_propagation_is_never_negative():
    link = Station("l", math.inf, delay_s=0.1, delay_deviation_s=0.2)
    graph = TaskGraph("chain", (Task("a", 0.0), Task("b", 0.0)), (Edge("a", "b", 1.0),))
    network = StationNetwork([Station("a", 1.0), Station("b", 1.0)], [link], {("a", "b"): ["l"]})
    engine = GraphEngine(network, [graph], np.arange(5000.0), placement=[[0, 1]])
    engine.run()
    assert engine.sojourn_s.min() == 0.0
    z = 0.5
    mean = 0.1 * 0.5 * (1 + math.erf(z / math.sqrt(2))) + 0.2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    assert engine.sojourn_s.mean() == pytest.approx(mean, rel=0.05)


def test_entry_and_exit_transfers():
    network = StationNetwork([Station("n", 1.0)], [Station("up", 8.0), Station("down", 8.0, delay_s=1.0)],
                      {("site", "n"): ["up"], ("n", "site"): ["down"]}, places=["site"])  # fmt: skip
    engine = GraphEngine(network, [GraphClass(ONE, 2.0, 3.0)], [0.0], placement=[[0]], source=1)
    engine.run()
    assert done(engine) == [2.0 + 1.0 + 3.0 + 1.0]


def test_an_edge_may_have_its_own_flow():
    graph = TaskGraph("chain", (Task("a", 0.0), Task("b", 0.0)), (Edge("a", "b", 1.0),))
    network = StationNetwork(
        [Station("a", 1.0), Station("b", 1.0)],
        [Station("slow", 1.0), Station("flow", 4.0)],
        {("a", "b"): ["slow"]},
    )
    classes = [graph, GraphClass(graph, routes={("a", "b"): ["flow"]})]
    engine = GraphEngine(network, classes, [0, 0], [0, 1], [[0, 1], [0, 1]])
    engine.run()
    assert done(engine) == [8.0, 2.0]


@pytest.mark.parametrize("fields, words", [
    ({"rate": -1.0}, "rate is -1.0"), ({"rate": 1.0, "servers": 0}, "servers is 0"),
    ({"rate": 1.0, "discipline": "lifo"}, "use one of fifo, edf, ps, oldest"),
    ({"rate": 1.0, "discipline": "ps", "batch": 2}, "batch is 2"),
])  # fmt: skip
def test_wrong_stations_are_named(fields, words):
    with pytest.raises(ScenarioError, match=words):
        Station("s", **fields)
