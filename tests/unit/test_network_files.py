"""Network files: what is right is read, what is wrong is named with its fix."""

import pytest
import yaml

from edgewise.errors import ScenarioError
from edgewise.workloads.network_files import load_network, parse_network


def good():
    return {
        "nodes": [
            {"name": "a", "speed_ops": 1e9, "memory": "1GB"},
            {"name": "b", "speed_ops": "2e9", "memory": 5e8},
        ],
        "links": [{"between": ["a", "b"], "bandwidth_bps": "8e6"}],
    }


def test_a_file_becomes_a_network(tmp_path):
    (tmp_path / "net.yaml").write_text(yaml.safe_dump(good()))
    network = load_network(tmp_path / "net.yaml")
    assert network.names == ("a", "b") and network.memory_bytes.tolist() == [1e9, 5e8]
    assert network.speed_ops.tolist() == [1e9, 2e9]
    assert network.ends.tolist() == [[0, 1]] and network.bandwidth_bps.tolist() == [8e6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("links"), "needs two lists, `nodes` and `links`"),
        (lambda d: d["nodes"][0].pop("memory"), r"nodes\[0\].memory: is missing; add it"),
        (lambda d: d["nodes"][0].update(memry=1), r"nodes\[0\].memry: unknown key; did you mean 'memory'"),
        (lambda d: d["nodes"][1].update(speed_ops="fast"), r"nodes\[1\].speed_ops: 'fast' is not a number"),
        (lambda d: d["links"][0].update(between=["a", "c"]), r"links\[0\].between: 'c' is not a node"),
        (lambda d: d["links"][0].update(between="a-b"), r"links\[0\].between: 'a-b' is not a pair"),
        (lambda d: d["nodes"].append(7), r"nodes\[2\]: 7 is not a mapping"),
    ],
)
def test_mistakes_are_named(change, message):
    data = good()
    change(data)
    with pytest.raises(ScenarioError, match=message):
        parse_network(data)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_network(tmp_path / "none.yaml")
