"""The judge and the checks of decisions, on the worked example of ENTS fig. 2."""

import numpy as np
import pytest

from edgewise.core.keyed import Key
from edgewise.core.place import arrays_of, free_of, throughput, validate
from edgewise.errors import CapacityError, ScenarioError
from edgewise.model.pipelines import Network
from edgewise.policies.place.flows import (
    FlowProgram,
    flows_of,
    jrba_paths,
    shared,
    shortest,
)
from edgewise.policies.place.joint import Joint
from edgewise.policies.place.paths import PathTable
from streaming_example import example_job, example_network, place_by_hand, sharing, view_of, whole_job

SPLIT = {"a": "e4", "b": "e1", "c": "e1"}
UPPER, LOWER = ["e4", "e2", "e1"], ["e4", "e3", "e1"]


def test_whole_job_on_the_fast_node_runs_at_2():
    network = example_network()
    placed = place_by_hand(network, whole_job(), {"all": "e1"}, {"all": (UPPER, 10.0)})
    validate(network, [placed])
    assert throughput(network, [placed]) == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("b", "c", "expected"),
    [
        ((UPPER, 5.0), (UPPER, 5.0), 2.5),
        ((UPPER, 10 / 3), (UPPER, 20 / 3), 10 / 3),
        ((LOWER, 6.0), (UPPER, 10.0), 4.0),
    ],
)
def test_split_job_runs_at_the_rates_of_the_paper(b, c, expected):
    network = example_network()
    placed = place_by_hand(network, example_job(), SPLIT, {"b": b, "c": c})
    validate(network, [placed])
    assert throughput(network, [placed]) == pytest.approx([expected])


def test_policies_find_the_sharing_of_the_paper():
    network = example_network()
    job = arrays_of(example_job(), 0, network)
    node = np.array([3, 0, 0])
    one_way = PathTable(network, 1)  # over e2 only: ties keep the first neighbour
    flows = flows_of([(job, node)], one_way)
    equal = shared(flows, one_way, shortest(flows), np.ones_like(flows.volume), network.bandwidth_bps)
    assert throughput(network, equal) == pytest.approx([2.5])
    by_volume = shared(flows, one_way, shortest(flows), flows.volume, network.bandwidth_bps)
    assert throughput(network, by_volume) == pytest.approx([10 / 3])
    table = PathTable(network, 4)
    flows = flows_of([(job, node)], table)
    chosen = jrba_paths(flows, FlowProgram(table), network.bandwidth_bps)
    routed = shared(flows, table, chosen, flows.volume, network.bandwidth_bps)
    assert throughput(network, routed) == pytest.approx([4.0])
    assert routed[0].bandwidth_bps[np.isfinite(routed[0].bandwidth_bps)].tolist() == pytest.approx(
        [6.0, 10.0]
    )


def test_joint_reaches_the_best_rate_of_the_example():
    network = example_network()
    policy = Joint()
    policy.reset(network, Key(0))
    placed = policy.decide(view_of(network, [arrays_of(example_job(), 0, network)]))
    assert throughput(network, placed) == pytest.approx([4.0])


def test_tasks_that_share_a_node_share_its_speed():
    network = example_network()
    nodes = {"a": "e1", "b": "e1", "c": "e1"}
    placed = place_by_hand(network, example_job(), nodes, {"a": (UPPER, 10.0)})
    assert throughput(network, [placed]) == pytest.approx([2.0])  # the input, 5 over 10
    placed = place_by_hand(network, example_job(), nodes, {"a": (UPPER, 1000.0)})
    assert throughput(network, [placed]) == pytest.approx([4.0])  # 50 on 200
    assert throughput(sharing(network), [placed]) == pytest.approx([200 / 55])
    two = throughput(sharing(network), [placed, placed])
    assert two == pytest.approx([100 / 55, 100 / 55])


def test_a_job_without_work_and_flows_is_bounded_and_a_dead_flow_stops_a_job():
    network = example_network()
    placed = place_by_hand(network, example_job(), SPLIT, {"b": (UPPER, 0.0), "c": (UPPER, 10.0)})
    assert throughput(network, [placed]).tolist() == [0.0]
    assert throughput(network, []).size == 0


def test_overfull_link_and_node_are_named():
    network = example_network()
    placed = place_by_hand(network, example_job(), SPLIT, {"b": (UPPER, 6.0), "c": (UPPER, 6.0)})
    with pytest.raises(CapacityError, match=r"link e\d-e\d: flows take 12 bit/s of 10"):
        validate(network, [placed])
    small = Network(network.names, network.speed_ops, np.full(4, 1.5), network.ends, network.bandwidth_bps)
    placed = place_by_hand(small, example_job(), SPLIT, {"b": (UPPER, 5.0), "c": (UPPER, 5.0)})
    with pytest.raises(CapacityError, match=r"node 'e1': tasks need 0\.5 bytes more than its 1\.5"):
        validate(small, [placed])


def test_a_path_must_lead_from_task_to_task():
    network = example_network()
    placed = place_by_hand(network, example_job(), SPLIT, {"b": (["e4", "e3"], 1.0), "c": (UPPER, 1.0)})
    with pytest.raises(ValueError, match="the path of edge 1 does not join"):
        validate(network, [placed])


def test_what_placements_hold_is_given_back():
    network = example_network()
    placed = place_by_hand(network, example_job(), SPLIT, {"b": (LOWER, 6.0), "c": (UPPER, 10.0)})
    memory, link = free_of(network, [placed])
    assert memory.tolist() == [98.0, 100.0, 100.0, 99.0]
    assert link.tolist() == [0.0, 0.0, 0.0, 0.0]
    memory, link = free_of(network, [])
    assert memory.tolist() == [100.0] * 4 and link.tolist() == network.bandwidth_bps.tolist()


def test_networks_are_checked():
    network = example_network()
    with pytest.raises(ScenarioError, match="'e1' occurs twice"):
        Network(("e1", "e1"), np.ones(2), np.ones(2), np.zeros((0, 2), dtype=int), np.zeros(0))
    with pytest.raises(ScenarioError, match="must join two different nodes"):
        Network(("a", "b"), np.ones(2), np.ones(2), np.array([[0, 0]]), np.ones(1))
    with pytest.raises(ScenarioError, match="speed_ops: 0 is not positive"):
        Network(("a", "b"), np.array([1.0, 0.0]), np.ones(2), np.array([[0, 1]]), np.ones(1))
    with pytest.raises(ScenarioError, match="node 'e9' is not in the network; did you mean"):
        network.node("e9")
    with pytest.raises(ScenarioError, match="no link between 'e1' and 'e4'"):
        network.link("e1", "e4")
