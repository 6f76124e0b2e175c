"""Networks of RayCloudSim as scenarios: a town that we wrote in its format, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.errors import ScenarioError
from edgewise.model.pipelines import network_of
from edgewise.sim.parts.pipelines import simulate_streaming
from edgewise.workloads.pipelines import pipelines_of
from edgewise_studies import raycloudsim

TOWN = Path(__file__).with_name("raycloudsim") / "town.json"


def town():
    return json.loads(TOWN.read_text(encoding="utf-8"))


def test_nodes_and_links_are_those_of_the_file():
    network = network_of(raycloudsim.read(TOWN))
    assert network.names == (*(f"cabinet{i}" for i in range(6)), "hub", "hall")
    assert network.speed_ops[network.node("hall")] == 3800 * 1e6 * 4
    assert (network.cores == 1).all() and (network.memory_bytes == 8e9).all()
    links = {
        ("cabinet0", "cabinet1"): 30e6,  # 40 and 30, each its own: the lesser
        ("cabinet5", "cabinet0"): 30e6,  # the ring closes
        ("cabinet2", "hub"): 60e6,  # one edge, there 100 and back 60
        ("hub", "hall"): 500e6,
    }
    assert {ends: network.bandwidth_bps[network.link(*ends)] for ends in links} == links
    assert len(network.ends) == 10


def test_units_and_memory_are_given():
    network = network_of(raycloudsim.read(TOWN, hz=1e3, bps=2.0, ops_per_cycle=1.0, memory_bytes=5e8))
    assert network.speed_ops[0] == 1200e3
    assert network.bandwidth_bps[network.link("hub", "hall")] == 1000
    assert network.memory_bytes.max() == 5e8


def test_otfa_runs_pipelines_on_the_network_and_is_ahead_of_one_node_for_each():
    scenario = raycloudsim.read(TOWN, pipelines=6)
    found = {}
    for name in ("lr", "otfa"):
        network, pipelines = network_of(scenario), pipelines_of(scenario, 0)
        found[name] = simulate_streaming(network, pipelines, policies.load("place", name), 0)
    assert found["otfa"].unserved == 0
    assert found["otfa"].mean_throughput_fps > found["lr"].mean_throughput_fps > 0


def test_the_command_writes_a_scenario_that_loads(tmp_path, capsys):
    raycloudsim.convert(TOWN, tmp_path / "town.yaml", pipelines=3)
    assert "8 nodes, 10 links" in capsys.readouterr().out
    scenario = load_scenario(tmp_path / "town.yaml")
    assert scenario.name == "town"
    np.testing.assert_array_equal(
        network_of(scenario).speed_ops, network_of(raycloudsim.read(TOWN)).speed_ops
    )


def without_a_way_back(network):
    del network["Edges"][1]


def twice(network):
    network["Edges"].append(network["Edges"][0])


def unknown_end(network):
    network["Edges"][0]["DstNodeID"] = 99


def one_id_for_two(network):
    network["Nodes"][1]["NodeId"] = 10


def another_kind(network):
    network["Edges"][0]["EdgeType"] = "Tube"


def no_speed(network):
    del network["Nodes"][0]["MaxCpuFreq"]


def speed_in_words(network):
    network["Nodes"][0]["MaxCpuFreq"] = "fast"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_a_way_back, "from cabinet0 to cabinet1 and none back"),
        (twice, "two links from cabinet0 to cabinet1"),
        (unknown_end, "99 is missing or unknown"),
        (one_id_for_two, "two nodes have one NodeId"),
        (another_kind, "EdgeType 'Tube'"),
        (no_speed, "'MaxCpuFreq' is missing"),
        (speed_in_words, "not as RayCloudSim writes it"),
    ],
)
def test_what_is_not_such_a_network_is_refused(spoil, said):
    network = town()
    spoil(network)
    with pytest.raises(ScenarioError, match=said):
        raycloudsim.scenario_of(network)


@pytest.mark.parametrize("text", ["[]", "{", ""])
def test_a_file_that_is_no_network_ends_the_command_without_a_traceback(text, tmp_path):
    (tmp_path / "no.json").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"no\.json"):
        raycloudsim.convert(tmp_path / "no.json", tmp_path / "no.yaml")
