"""Timeline events: nodes and links fail and return while streams run."""

from dataclasses import replace

import numpy as np
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.events import Bind, Release
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.model.work import Stream
from edgewise.sim.simulate import Simulation


@pytest.fixture(scope="module")
def scenario():
    """`tiny` without its own clients."""
    return replace(ew.load_scenario("tiny"), telemetry=TelemetrySpec())


def stream(scenario, i=0, **needs):
    application = scenario.streams.applications[0]
    base = dict(
        site=0, application=application.name, task=application.task, open_s=1.0, close_s=31.0, rate_qps=10.0,
        size_bytes=application.size_bytes, deadline_s=5.0, min_accuracy=0.0,
    )  # fmt: skip
    return Stream(id=i, **(base | needs))


def run(scenario, streams, policy="closest"):
    outcome = Simulation(scenario, policies.load("dispatch", policy), 0, streams).run()
    parts = [np.array(outcome.streams[name]) for name in ("queries", "ok", "failed", "rejected")]
    assert (parts[0] == parts[1] + parts[2] + parts[3]).all()
    return outcome


def where(scenario, outcome, i=0):
    """Node and cluster of a stream's worker."""
    worker = next(w for w in scenario.topology.workers if w.name == outcome.streams["worker"][i])
    cluster = next(n.cluster for n in scenario.topology.nodes if n.name == worker.node)
    return worker.node, cluster


def test_stream_moves_when_its_node_fails(scenario):
    streams = [stream(scenario)]
    calm = run(scenario, streams)
    node, _ = where(scenario, calm)
    failing = replace(scenario, timeline=(NodeChange(11.0, node, False),))
    outcome = run(failing, streams)
    times = {type(c): t for t, c in outcome.commands}
    assert times[Release] == 31.0 and times[Bind] == 11.0
    assert outcome.streams["worker"] != calm.streams["worker"]
    assert outcome.streams["failed"][0] <= 2  # at most what was under way
    assert calm.streams["queries"] == outcome.streams["queries"]


def test_queries_fail_that_are_too_late_when_the_failure_is_known(scenario):
    """Ten a second, for four seconds; what has its deadline before it then goes elsewhere."""
    streams = [stream(scenario)]
    node, _ = where(scenario, run(scenario, streams))
    slow = replace(scenario, timeline=(NodeChange(11.0, node, False),), telemetry=TelemetrySpec(lag_s=4.0))
    for deadline_s, too_late in ((5.0, 0), (1.0, 30)):
        failed = run(slow, [replace(streams[0], deadline_s=deadline_s)]).streams["failed"][0]
        assert failed == pytest.approx(too_late, abs=2)


def test_nothing_left_means_rejected(scenario):
    nodes = [node.name for node in scenario.topology.nodes]
    dead = replace(scenario, timeline=tuple(NodeChange(11.0, node, False) for node in nodes))
    record = run(dead, [stream(scenario)]).streams
    assert record["rejected"][0] == pytest.approx(200, abs=2)
    assert record["ok"][0] == pytest.approx(100, abs=3)


def test_short_outage_that_nobody_noticed(scenario):
    streams = [stream(scenario)]
    node, _ = where(scenario, run(scenario, streams))
    blink = (NodeChange(11.0, node, False), NodeChange(13.0, node, True))
    record = run(replace(scenario, timeline=blink, telemetry=TelemetrySpec(lag_s=1e3)), streams).streams
    assert record["failed"][0] == pytest.approx(20, abs=2)
    assert record["ok"][0] == pytest.approx(280, abs=2)


def test_repaired_node_is_used_again(scenario):
    streams = [stream(scenario), stream(scenario, 1, open_s=20.0)]
    calm = run(scenario, streams)
    node, _ = where(scenario, calm)
    both = (NodeChange(5.0, node, False), NodeChange(15.0, node, True))
    outcome = run(replace(scenario, timeline=both), streams)
    assert where(scenario, outcome, 0)[0] != node
    assert where(scenario, outcome, 1)[0] == node


def test_link_failure_moves_only_the_streams_that_use_it(scenario):
    streams = [stream(scenario)]
    _, cluster = where(scenario, run(scenario, streams))
    site = scenario.topology.sites[0].name
    cut = replace(scenario, timeline=(LinkChange(11.0, site, cluster, up=False),))
    outcome = run(cut, streams)
    assert where(scenario, outcome)[1] != cluster
    assert outcome.streams["failed"][0] <= 2


def test_slower_link_delays_queries_from_then_on(scenario):
    streams = [stream(scenario)]
    calm = run(scenario, streams)
    _, cluster = where(scenario, calm)
    site = scenario.topology.sites[0].name
    slower = replace(scenario, timeline=(LinkChange(16.0, site, cluster, delay_s=1.0, deviation_s=0.0),))
    record = run(slower, streams).streams
    # Half of the queries take 2 s longer on the way.
    assert record["delay_mean_s"][0] == pytest.approx(calm.streams["delay_mean_s"][0] + 1.0, abs=0.1)


def test_narrow_link_stretches_the_upload(scenario):
    streams = [stream(scenario)]
    calm = run(scenario, streams)
    _, cluster = where(scenario, calm)
    site = scenario.topology.sites[0].name
    bps = 8 * streams[0].size_bytes / 0.08  # 80 ms a query, at 10 queries/s
    narrow = replace(scenario, timeline=(LinkChange(0.5, site, cluster, bandwidth_bps=bps),))
    record = run(narrow, [replace(streams[0], deadline_s=9.0)]).streams
    assert record["delay_mean_s"][0] > calm.streams["delay_mean_s"][0] + 0.07


def test_decision_delay_holds_queries_back(scenario):
    streams = [stream(scenario)]
    calm = run(scenario, streams).streams["delay_max_s"][0]
    late = run(replace(scenario, decision_delay_s=2.0), streams).streams
    assert late["delay_max_s"][0] > calm + 1.8
    assert late["rejected"] == [0]


def test_stopping_on_the_way_changes_nothing(scenario):
    full = Simulation(scenario, policies.load("dispatch", "power-of-two"), 3).run()
    steps = Simulation(scenario, policies.load("dispatch", "power-of-two"), 3)
    for time_s in np.arange(0.0, scenario.duration_s, 3.7):
        steps.run_until(float(time_s))
    steps.run_until(np.inf)
    outcome = steps.finish()
    assert outcome.streams == full.streams and outcome.windows == full.windows
