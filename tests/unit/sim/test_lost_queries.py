"""What becomes of queries under way when their stream moves, and when their worker dies."""

from dataclasses import replace

import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Bind, Release
from edgewise.core.dispatch.request_rules import TRIES, goes_again
from edgewise.model.topology import NodeChange
from edgewise.model.work import Stream
from edgewise.sim.simulate import Simulation

NEAR, FAR = 0, 1
SHARED = pytest.mark.parametrize("sharing", ["none", "fifo", "ps"])


def simulation(sharing="none", deadline_s=1.0, fails=((10.005, "near-node"),), lag_s=0.2, up_s=None):
    """A query each 25 ms for 20 s, each 30 ms on its way to the near worker, which serves it in 10 ms."""
    changes = {
        "sharing": sharing, "telemetry.lag_s": lag_s, "sites.site.access_delay_s": "30ms",
        "links.1.deviation_s": 0,
    }  # fmt: skip
    stream = Stream(0, 0, "", "detection", 0.0, 20.0, 40.0, 1e4, deadline_s, 20.0)
    timeline = tuple(NodeChange(at_s, node, up=False) for at_s, node in fails)
    timeline += () if up_s is None else (NodeChange(up_s, "near-node", up=True),)
    scenario = replace(ew.load_scenario("tiny", changes), timeline=timeline)
    return Simulation(scenario, policies.load("dispatch", "closest"), 5, [stream])


def outcome(run):
    (truth,) = run.truth
    return int(truth.ok), int(truth.failed), int(truth.rejected)


@pytest.mark.parametrize(
    ("lost", "left_s", "bound", "again"),
    [
        (1, 0.1, FAR, True),
        (TRIES - 1, 0.1, FAR, True),
        (TRIES, 0.1, FAR, False),
        (1, 0.0, FAR, False),  # its deadline is now
        (1, 0.1, NEAR, False),  # where it was lost
        (1, 0.1, -1, False),  # its stream is refused
    ],
)
def test_a_query_goes_again_a_few_times_while_it_has_time_and_somewhere_to_go(lost, left_s, bound, again):
    assert goes_again(lost, left_s, NEAR, bound) is again


@SHARED
def test_what_a_dead_worker_lost_is_answered_by_another_once_the_gateway_has_heard_of_it(sharing):
    run = simulation(sharing)
    run.run()
    assert outcome(run) == (800, 0, 0)
    assert run.workers.each.answered[FAR] == 0 or run.bound[0] == FAR
    assert run.tally.queries.sum(axis=1).tolist() == [800, 0, 0]


@SHARED
def test_what_is_past_its_deadline_by_then_is_lost(sharing):
    """Sent again at 10.205 s, they are answered 0.11 s later."""
    run = simulation(sharing, deadline_s=0.15)
    run.run()
    ok, failed, rejected = outcome(run)
    assert (ok + failed, rejected) == (800, 0)
    assert failed == pytest.approx(8, abs=1)  # sent between 9.965 and 10.165 s


@SHARED
def test_where_nobody_else_serves_it_a_query_is_lost(sharing):
    run = simulation(sharing, fails=((10.005, "near-node"), (10.005, "far-node")))
    run.run()
    ok, failed, rejected = outcome(run)
    assert failed == pytest.approx(9.5, abs=1) and rejected == pytest.approx(392, abs=1)
    assert ok + failed + rejected == 800


@SHARED
def test_queries_that_are_sent_again_wait_as_others_do(sharing):
    """Eight or so come at once, with those that are sent then."""
    run = simulation(sharing)
    run.run_until(10.27)
    run.serve_until(10.27)
    near, far = run.carrier.waiting(10.27)
    assert near == 0.0 and 1.0 <= far <= 12.0


def test_a_query_that_is_sent_to_a_dead_worker_loads_the_links_there():
    dead, alive = simulation("fifo", lag_s=3.0), simulation("fifo", fails=())
    for run in (dead, alive):
        run.run_until(12.0)
        run.serve_until(12.0)
    names = dead.carrier.wires.names
    up = names.index("site-near:up")
    carried = [run.carrier.wires.net.links.carried_bits[up] for run in (dead, alive)]
    assert carried[0] == carried[1] > 470 * 8e4


def test_what_comes_when_a_worker_is_back_is_served():
    """It was dead for 50 ms, and nobody has heard of it: two queries came then."""
    run = simulation(lag_s=3.0, deadline_s=0.5, up_s=10.055)
    run.run_until(12.0)
    run.serve_until(12.0)
    lost = run.workers.many[0] + run.truth.failed[0]
    assert lost == pytest.approx(2, abs=1)
    assert run.truth.ok[0] == pytest.approx(480 - lost - 2, abs=2)


@SHARED
def test_what_a_stream_had_under_way_when_it_moved_is_served_where_it_went(sharing):
    run = simulation(sharing, fails=())
    run.run_until(10.0)
    run.carry_out(10.0, [Release(0, NEAR), Bind(0, FAR)])
    before = run.workers.each.batches[NEAR]
    run.core.validate = lambda: None  # nobody has asked it
    run.run()
    assert outcome(run) == (800, 0, 0)
    assert run.workers.each.batches[NEAR] - before >= 1
    assert run.workers.each.batches[FAR] > 350
