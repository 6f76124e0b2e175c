"""Workers of streams serve requests of their variant: what is said of them, and that pools lose none."""

from collections import Counter

import numpy as np
import pytest
from test_worker_pools import Dices, check_pools

from edgewise import policies
from edgewise.core.orchestrate.events import EndReplica, StartReplica
from edgewise.errors import ScenarioError
from edgewise.limits.checked import Checked
from edgewise.model.parsing import parse_scenario
from edgewise.model.pools import orchestrated
from edgewise.model.services import services_of
from edgewise.run import assigning
from edgewise.run.joint import JointRun
from joint_scenarios import each_query_ended_once, held, pools_with_requests, run_out

SEEDS = range(4)


def scenario_of(rate_qps=30.0, alone=False, **changes):
    data = pools_with_requests(rate_qps, **changes)
    return parse_scenario(held(data, "services") if alone else data, "serve")


def run_of(scenario, seed, orchestrate=None):
    _, chosen = assigning.assigned(scenario, {})
    made = {decision: assigning.maker(decision, each)[1] for decision, each in chosen.items()}
    made["orchestrate"] = orchestrate or (lambda: Dices(seed))
    works = [work for work in ("streams", "services") if work in scenario.holds]
    run = JointRun(scenario, works, made, seed, check=True)
    return run, run_out(run)


@pytest.mark.parametrize("sharing", ["none", "fifo", "ps"])
@pytest.mark.parametrize("alone", [False, True], ids=["beside streams", "alone"])
def test_no_request_is_lost_whatever_workers_come_and_go(sharing, alone):
    scenario = scenario_of(alone=alone, sharing=sharing)
    for seed in SEEDS:
        run, found = run_of(scenario, seed)
        kinds = Counter(type(command) for _, command in run.joint.log)
        assert kinds[StartReplica] >= 4 and kinds[EndReplica] >= 4
        outcomes = Counter(row["outcome"] for row in found["services"])
        assert set(outcomes) <= {"in_time", "waiting"} and outcomes["in_time"] > 3000
        assert all(row["arrival_s"] > 115.0 for row in found["services"] if row["outcome"] == "waiting")
        stations = {row["station"] for row in found["services"]}
        assert stations >= {"near-0.node-0", "near-0.node-1", "near-1.node-0", "near-1.node-1"}
        if not alone:
            assert each_query_ended_once(run, found["streams"])
            assert not [row for row in found["streams"] if row["worker"] is not None and row["failed"]]
        check(run, scenario)


def test_a_worker_ends_once_what_is_on_its_way_there_has_come_back():
    """Ways of 1.5 s are longer than the period in which telemetry looks who has nothing any more."""
    data = held(pools_with_requests(30.0), "services")
    for link in data["links"][:2]:
        link["delay_s"] = 1.5
    scenario = parse_scenario(data, "far apart")
    for seed in SEEDS[:2]:
        run, found = run_of(scenario, seed)
        assert sum(isinstance(command, EndReplica) for _, command in run.joint.log) >= 4
        assert not sum(core.said["resent"] for core in run.parts["services"].sites.cores)
        assert sum(row["outcome"] == "in_time" for row in found["services"]) > 2500


@pytest.mark.parametrize("sharing", ["none", "fifo"])
def test_nodes_that_die_take_no_request_that_has_time_left(sharing):
    """What they had goes elsewhere; workers of pools that are back have started anew."""
    timeline = [
        {"at_s": at_s, "node": node, "up": up}
        for at_s, node, up in ((20.05, "near-0.node-0", False), (31.1, "near-0.node-0", True),
                               (50.0, "near-1.node-1", False), (70.2, "near-1.node-1", True))
    ]  # fmt: skip
    scenario = scenario_of(sharing=sharing, timeline=timeline)
    for seed in SEEDS:
        run, found = run_of(scenario, seed)
        assert {row["outcome"] for row in found["services"]} <= {"in_time", "waiting"}
        assert each_query_ended_once(run, found["streams"])
        check(run, scenario)


def check(run, scenario):
    """Pools have had as many workers as they may, and cores of sites are consistent."""
    first = run.orchestrating.what.pools.first
    log = [(at_s, c._replace(service=c.service - first) if isinstance(c, StartReplica) else c)
           for at_s, c in run.joint.log]  # fmt: skip
    run.joint.log = log
    check_pools(run, scenario)
    for core in run.parts["services"].sites.cores:
        core.validate()


def test_the_same_seed_gives_the_same_run():
    scenario = scenario_of(sharing="fifo")
    (one, first), (other, second) = (run_of(scenario, 3) for _ in range(2))
    assert first == second and one.joint.log == other.joint.log


@pytest.mark.parametrize("name", ["autoscaler", "forecast"])
def test_rules_scale_workers_by_what_requests_take(name):
    """250/s are five workers' worth: of each pool two are there at first, and four are wanted."""
    most = {}
    for rate_qps in (5.0, 250.0):
        scenario = scenario_of(rate_qps, alone=True)
        run, found = run_of(scenario, 0, policies.load("orchestrate", name).__class__)
        most[rate_qps] = sum(isinstance(command, StartReplica) for _, command in run.joint.log)
        late = [row for row in found["services"] if row["outcome"] not in ("in_time", "waiting")]
        assert not late
    assert most[250.0] >= 4 > most[5.0] == 0


def test_what_is_dropped_is_demand_of_pools_that_have_nobody():
    """Pools may be empty, and the first request that finds nobody starts one."""
    data = pools_with_requests(20.0)
    small = {"variant": "small-cpu", "least": 0}
    data["workers"] = [small | {"cluster": "near", "most": 4}, small | {"node": "far", "most": 2}]
    data["services"]["requests"] |= {"rate_qps": 0.02}
    scenario = parse_scenario(held(data, "services"), "empty")
    run, found = run_of(scenario, 1, policies.load("orchestrate", "autoscaler").__class__)
    ended = [at_s for at_s, command in run.joint.log if isinstance(command, EndReplica)]
    started = [at_s for at_s, command in run.joint.log if isinstance(command, StartReplica)]
    assert len(ended) >= 4 and len(found["services"]) > 1
    assert started and max(started) > min(ended)


def test_services_that_workers_serve_have_no_replicas():
    scenario = scenario_of()
    services = services_of(scenario)
    what = orchestrated(scenario, services)
    assert services is not None and not services.system.initial.any()
    assert not what.pools.may[:, 0].any() and what.pools.may[:4, 1:].any(axis=1).all()
    assert what.pools.serves.tolist() == [0, 0]
    assert np.allclose(services.system.replica_cpu_cores, [1.0]), "it holds its cores, whoever asks"
    found = Checked(scenario).as_json()
    assert found["at_workers"] == {"small-cpu": {"near-0": 8, "near-1": 8, "far": 1}}
    assert found["in_cloud"] == {"small-cpu": ["small-cpu@far"]}


def test_a_node_has_what_its_workers_leave_to_replicas_of_others():
    """Fixed workers that serve requests count as replicas for requests, and never twice."""
    data = pools_with_requests(10.0)
    data["workers"] = [{"variant": "small-cpu", "cluster": "near"}, {"variant": "small-cpu", "node": "far"}]
    scenario = parse_scenario(data, "fixed")
    services = services_of(scenario)
    assert services is not None
    total = scenario.topology.nodes[0].resources.cpu_cores
    assert services.system.node_has[:, 1].tolist() == [total] * 4
    assert orchestrated(scenario, services).system.node_has[:, 1].tolist() == [total - 1.0] * 4


@pytest.mark.parametrize(
    ("offered", "services", "message"),
    [
        ({"initial": 2}, {}, r"offered\[0\].initial: 2, and workers of 'small-cpu' serve its requests"),
        ({}, {"initial_share": 0.5}, "initial_share: workers serve requests of 'small-cpu'"),
        ({}, {"gateways": "one"}, "`gateways: one` knows replicas alone, and workers of 'small-cpu'"),
    ],
)
def test_what_cannot_be_is_said(offered, services, message):
    data = pools_with_requests(1.0)
    data["services"] |= services
    data["services"]["offered"][0] |= offered
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(data, "serve")
